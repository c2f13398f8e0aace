//! Optional parameters of a layer, and their gradients.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::{Error, Result, scalar_type_name};

/// An optional tensor in the type of the computation.
pub(crate) fn wide_or_none<'b>(cx: &Cx<'b>, name: &str, dtype: DType) -> Option<Value<'b>> {
    cx.tensor_or_none(name).map(|value| value.convert(dtype))
}

/// `x · weight + bias`. Either may be absent.
pub(crate) fn affine<'b>(x: Value<'b>, weight: Option<Value<'b>>, bias: Option<Value<'b>>) -> Value<'b> {
    let scaled = weight.map_or(x, |weight| x * weight);
    bias.map_or(scaled, |bias| scaled + bias)
}

/// The gradients that `output_mask` asks for, with an empty value for each of the others.
pub(crate) fn wanted<'b>(cx: &Cx<'b>, gradients: &[Value<'b>]) -> Result<Vec<Value<'b>>> {
    let mask = cx.bools("output_mask")?;
    let choose = |(gradient, &wanted): (&Value<'b>, &bool)| match wanted {
        true => *gradient,
        false => cx.b().splat(0, gradient.dtype(), &[0]),
    };
    Ok(gradients.iter().zip(&mask).map(choose).collect())
}

/// The type of a parameter's gradient.
pub(crate) fn parameter_dtype(cx: &Cx<'_>, name: &str, otherwise: DType) -> DType {
    cx.ty(name).map_or(otherwise, |ty| ty.dtype)
}

/// Refuses arguments of different dtypes. An argument may be absent.
pub(crate) fn check_one_dtype(cx: &Cx<'_>, names: &[&str]) -> Result<()> {
    let mut values = names.iter().filter_map(|name| cx.tensor_or_none(name));
    let Some(first) = values.next() else { return Ok(()) };
    values.try_for_each(|value| check_scalar_type(value, first.dtype()))
}

/// Refuses parameters of a normalization whose dtype is neither that of the input nor PyTorch's accumulation type for it.
/// A parameter may be absent.
pub(crate) fn check_parameters(cx: &Cx<'_>, input: DType, names: &[&str]) -> Result<()> {
    let mut values = names.iter().filter_map(|name| cx.tensor_or_none(name));
    values.try_for_each(|value| match value.dtype() == input.opmath() {
        true => Ok(()),
        false => check_scalar_type(value, input),
    })
}

/// Refuses a value of another dtype, as PyTorch's kernels do that read all arguments as elements of one dtype.
///
/// # Errors
/// PyTorch's RuntimeError.
pub(crate) fn check_scalar_type(value: Value<'_>, expected: DType) -> Result<()> {
    if value.dtype() != expected {
        let [expected, found] = [expected, value.dtype()].map(scalar_type_name);
        return Err(Error::runtime(format!("expected scalar type {expected} but found {found}")));
    }
    Ok(())
}
