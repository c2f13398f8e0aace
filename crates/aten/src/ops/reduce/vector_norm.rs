//! Norms of vectors.

use stablehlo::{DType, DTypes, Value};

use crate::common::reductions::{Order, reduced, vector_norm};
use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["linalg_vector_norm"], |cx| norm_row(cx, "ord"))
        .takes(&["self"], DTypes::INEXACT)
        .baked_if(&["ord"], Order::has_own_form),
    one(&["norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype"], |cx| {
        norm_row(cx, "p")
    })
    .takes(&["self"], DTypes::INEXACT)
    .baked_if(&["p"], Order::has_own_form),
    one(&["dist"], |cx| {
        cx.check_difference(["self", "other"])?;
        let (x, y) = cx.float_pair("self", "other")?;
        let difference = x.convert(x.dtype().opmath()) - y.convert(y.dtype().opmath());
        let axes: Vec<usize> = (0..difference.rank()).collect();
        Ok(vector_norm(difference, Order::of(cx, "p")?, &axes).convert(x.dtype().real()))
    })
    .takes(&["self", "other"], DTypes::INEXACT)
    .baked_if(&["p"], Order::has_own_form),
    one(&["renorm"], |cx| {
        let x = cx.tensor("self")?;
        let wide = x.convert(x.dtype().opmath());
        let kept = cx.axis_arg("dim", x.rank())?;
        let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != kept).collect();
        let norm = vector_norm(wide, Order::of(cx, "p")?, &axes).keep_dims(&axes);
        let limit = cx.scalar("maxnorm", norm.dtype())?;
        let factor = norm.gt(limit).select(limit / (norm + 1e-7), 1.0);
        Ok((wide * factor.convert(wide.dtype())).convert(x.dtype()))
    })
    .takes(&["self"], DTypes::INEXACT)
    .requires(&["p", "maxnorm"], |n, _| n[0] > 0.0 && n[1] >= 0.0)
    .baked_if(&["p"], Order::has_own_form),
]);

fn norm_row<'b>(cx: &Cx<'b>, order_name: &str) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let dtype: DType = cx.dtype_or_none("dtype").unwrap_or(cx.float_dtype(x.dtype()));
    let order = Order::of(cx, order_name)?;
    let norm = reduced(cx, x.convert(dtype).convert(dtype.opmath()), |x, axes| vector_norm(x, order, axes))?;
    Ok(norm.convert(dtype.real()))
}
