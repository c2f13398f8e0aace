//! Loops over elements that end when all elements are done.

use stablehlo::{Value, broadcast_dims};

/// A function of elements that has a loop, of values that broadcast. It may compute anything for padding, so it must end for
/// any elements.
pub(crate) fn of_elements<'b, const N: usize>(
    values: [Value<'b>; N],
    f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
) -> Value<'b> {
    if !values.iter().any(|value| value.is_bounded()) {
        return f(values);
    }
    let dims = values.iter().try_fold(Vec::new(), |dims, value| broadcast_dims(&dims, &value.dims()));
    let values = dims.map_or(values, |dims| values.map(|value| value.broadcast_to(&dims)));
    // It has the padding of all of them.
    let like = values.into_iter().reduce(|a, b| a + b).unwrap_or(values[0]);
    f(values.map(Value::without_extents)).bounded_like(like)
}
