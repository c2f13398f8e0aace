use super::*;
use stablehlo::Builder;

#[test]
fn memory_order_of_dense_tensors() {
    assert_eq!(memory_order(&[2, 3], &[3, 1]), Some(vec![0, 1]));
    assert_eq!(memory_order(&[2, 3], &[1, 2]), Some(vec![1, 0]));
    assert_eq!(memory_order(&[2, 8, 4, 5], &[160, 1, 40, 8]), Some(vec![0, 2, 3, 1]));
    assert_eq!(memory_order(&[2, 3], &[4, 1]), None);
    assert_eq!(memory_order(&[2, 3], &[0, 1]), None);
    assert_eq!(memory_order(&[1, 3, 1], &[7, 1, 9]), Some(vec![0, 1, 2]));
}

/// A small random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as i64 % limit.max(1)
    }
}

/// A random view, made by a few of PyTorch's view operators.
fn random_view(random: &mut Random, base: &[i64]) -> TensorSpec {
    let mut spec = TensorSpec {
        storage: 0,
        dtype: DType::F32,
        sizes: base.to_vec(),
        strides: contiguous_strides(base),
        offset: 0,
        is_conj: false,
        is_neg: false,
        offset_input: None,
    };
    for _ in 0..random.below(5) {
        let rank = spec.sizes.len();
        if rank == 0 {
            break;
        }
        let (i, j) = (random.below(rank as i64) as usize, random.below(rank as i64) as usize);
        let (size, stride) = (spec.sizes[i], spec.strides[i]);
        match random.below(7) {
            0 => {
                spec.sizes.swap(i, j);
                spec.strides.swap(i, j);
            }
            1 if size > 0 => {
                // slice with a step
                let start = random.below(size);
                let step = 1 + random.below(3);
                spec.offset += start * stride;
                spec.sizes[i] = (size - start + step - 1) / step;
                spec.strides[i] *= step;
            }
            2 if size > 0 => {
                // select
                spec.offset += random.below(size) * stride;
                spec.sizes.remove(i);
                spec.strides.remove(i);
            }
            3 if i != j => {
                // diagonal
                spec.sizes.push(size.min(spec.sizes[j]));
                spec.strides.push(stride + spec.strides[j]);
                for axis in [i.max(j), i.min(j)] {
                    spec.sizes.remove(axis);
                    spec.strides.remove(axis);
                }
            }
            4 => {
                // expand
                spec.sizes.insert(i, 1 + random.below(3));
                spec.strides.insert(i, 0);
            }
            5 if size > 1 => {
                // unfold
                let window = 1 + random.below(size);
                let step = 1 + random.below(2);
                spec.sizes[i] = (size - window) / step + 1;
                spec.strides[i] = stride * step;
                spec.sizes.push(window);
                spec.strides.push(stride);
            }
            _ if size % 2 == 0 => {
                // unflatten
                spec.sizes[i] = size / 2;
                spec.strides[i] = stride * 2;
                spec.sizes.insert(i + 1, 2);
                spec.strides.insert(i + 1, stride);
            }
            _ => {}
        }
    }
    spec
}

#[test]
fn any_view_is_read_and_written() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..20_000 {
        let base: Vec<i64> = (0..random.below(4)).map(|_| random.below(6)).collect();
        let mut spec = random_view(&mut random, &base);
        if random.below(4) == 0 {
            // The same memory with another shape.
            spec.offset += random.below(2);
        }
        let last = spec.offset
            + spec.sizes.iter().zip(&spec.strides).map(|(size, stride)| (size - 1).max(0) * stride).sum::<i64>();
        let numel: i64 = base.iter().product();
        if last >= numel && !spec.sizes.contains(&0) {
            continue;
        }
        for flat in [false, true] {
            let held = if flat { vec![numel] } else { base.clone() };
            let builder = Builder::default();
            let whole = builder.parameter(Type::new(DType::F32, &held));
            let value = read(whole, &spec, None);
            let updated = write(Some(whole), numel as usize * 4, &spec, value, None);
            assert_eq!(value.dims(), spec.sizes, "{held:?} {spec:?}");
            assert_eq!(updated.numel(), numel, "{held:?} {spec:?}");
            assert_eq!(builder.refusal(), None, "{held:?} {spec:?}");
        }
    }
}

#[test]
fn other_types_show_the_same_bytes() {
    use DType::*;
    for from in [Bool, U8, I16, BF16, F32, I64, C64, C128] {
        for to in [Bool, I8, F16, I32, F64, C64, C128] {
            let builder = Builder::default();
            let base = builder.parameter(Type::new(from, &[3, 32]));
            let count = (96 * from.size_bytes() / to.size_bytes()) as i64;
            let spec = TensorSpec {
                storage: 0,
                dtype: to,
                sizes: vec![2, count / 4],
                strides: vec![count / 2, 1],
                offset: count / 8,
                is_conj: false,
                is_neg: false,
                offset_input: None,
            };
            let value = read(base, &spec, None);
            assert_eq!(value.ty(), Type::new(to, &spec.sizes), "{from} as {to}");
            let updated = write(Some(base), base.ty().size_bytes(), &spec, value, None);
            assert_eq!(updated.ty(), base.ty(), "{from} as {to}");
            assert_eq!(builder.refusal(), None, "{from} as {to}");
        }
    }
}
