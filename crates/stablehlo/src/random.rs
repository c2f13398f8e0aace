//! Random bits.

use crate::Builder;
use crate::builder::{Target, Type, Value};
use crate::dtype::{DType, Number};

impl Builder {
    /// Random bits of the unsigned type `dtype`, by `stablehlo.rng_bit_generator`, and the state after them. `state` is
    /// `tensor<2xui64>`: a key, and a counter that grows by one for each 16 bytes.
    ///
    /// The algorithm is Philox, except on TPUs. Their compiler expands Philox into arrays of four columns, which are
    /// padded to 128, and takes seconds for it: a dropout of 200 MB takes 1.8 GB. The compiler's default algorithm has
    /// no such arrays. What neighbouring states give there is not specified, so the state is mixed first.
    pub fn random_bits<'b>(&'b self, state: Value<'b>, dtype: DType, dims: &[i64]) -> (Value<'b>, Value<'b>) {
        if dims.contains(&0) {
            return (state, self.splat(0, dtype, dims));
        }
        let ty = Type::new(dtype, dims);
        if self.target != Target::Tpu {
            let [after, bits] = self.random_bits_by("PHILOX", state, ty);
            return (after, bits);
        }
        let blocks = ty.size_bytes().div_ceil(16) as i64;
        let after = state + self.iota(DType::U64, &[2], 0) * Number::Int(blocks);
        let [_, bits] = self.random_bits_by("DEFAULT", mixed(state), ty);
        (after, bits)
    }

    fn random_bits_by<'b>(&'b self, algorithm: &str, state: Value<'b>, ty: Type) -> [Value<'b>; 2] {
        let types = vec![state.ty(), ty];
        let attributes = format!("rng_algorithm = #stablehlo<rng_algorithm {algorithm}>");
        let results = self.op_with_regions("stablehlo.rng_bit_generator", &[state], &[], &attributes, types);
        [results[0], results[1]]
    }
}

/// A state of which each bit depends on all bits of the given one: two numbers of SplitMix64 (Steele, Lea, Flood, "Fast
/// splittable pseudorandom number generators", 2014).
fn mixed<'b>(state: Value<'b>) -> Value<'b> {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let number = |bits: u64| Number::Int(bits as i64);
    let part = |index| state.slice_axis(0, index, index + 1);
    let finish = |x: Value<'b>| {
        let x = (x ^ x.shift_right_logical(30)) * number(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x.shift_right_logical(27)) * number(0x94D0_49BB_1331_11EB);
        x ^ x.shift_right_logical(31)
    };
    let (key, counter) = (part(0), part(1));
    let first = finish(finish(key + number(GOLDEN)) ^ (counter + number(GOLDEN)));
    let second = finish(first + number(GOLDEN));
    state.builder.concatenate(&[first, second], 0)
}
