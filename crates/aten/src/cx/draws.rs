//! Random numbers for calls with sizes as inputs: those of a program for exact sizes.

use stablehlo::{DType, Extent, Target, Value};

use crate::common::bounded_views;
use crate::cx::{Arg, Cx};
use crate::draw::Draw;
use crate::radix::factors;

/// Random bits for the valid elements, in the order of the elements. The numbers of Philox do not depend on how many are
/// drawn, so the first ones of a draw for the capacity are those of a draw for the sizes.
pub(super) fn valid_bits<'b>(cx: &Cx<'b>, dtype: DType, dims: &[i64]) -> Value<'b> {
    let Some(extents) = extents_of(cx, dims) else {
        cx.b().refuse_bounded("random numbers of unknown sizes");
        return cx.inputs.random_bits(dtype, dims);
    };
    let factor = |(&dim, extent): (&i64, &Extent)| factors(dim, extent);
    let factors = dims.iter().zip(&extents).flat_map(factor).collect();
    if !cx.inputs.note_draw(Draw { element: dtype.size_bytes() as u64, factors }) {
        cx.b().refuse_bounded("several draws of random numbers");
    }
    let flat = cx.inputs.random_bits(dtype, &[dims.iter().product()]);
    if extents.iter().all(Extent::is_whole) {
        return flat.reshape(dims);
    }
    if cx.b().target() == Target::Tpu {
        cx.b().refuse_bounded("random numbers on a TPU");
    }
    bounded_views::spread(cx, flat, dims, extents)
}

/// The extents of a draw of these sizes: those of an argument, else those of the result. `None` if they are unknown.
fn extents_of(cx: &Cx<'_>, dims: &[i64]) -> Option<Vec<Extent>> {
    let given = cx.args.iter().find_map(|(_, arg)| match arg {
        Arg::Value(value) if value.is_bounded() && value.dims() == dims => Some(value.extents()),
        _ => None,
    });
    if given.is_some() {
        return given;
    }
    let sizes = cx.result_dims(0)?;
    let is_known = sizes.len() == dims.len()
        && sizes.iter().zip(dims).all(|(size, &dim)| size.capacity == dim && size.sizes.len() < 2);
    is_known.then(|| sizes.iter().map(|size| size.extent(|number| cx.b().capacity(number))).collect())
}
