//! Arguments and results that may have bounded dimensions.

use stablehlo::{DType, Extent, Value};

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::spec::{ArgSpec, Dim};

impl<'b> Cx<'b> {
    /// An int argument that may be a bounded size.
    pub fn dim(&self, name: &str) -> Result<Dim> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(dim),
            _ => Ok(Dim::known(self.int(name)?)),
        }
    }

    /// An int list that may contain bounded sizes; empty if absent.
    pub fn dims(&self, name: &str) -> Result<Vec<Dim>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dims(dims)) => Ok(dims),
            _ => Ok(self.ints(name)?.into_iter().map(Dim::known).collect()),
        }
    }

    /// The capacities of an int list that may contain bounded sizes; empty if absent.
    pub fn capacities(&self, name: &str) -> Result<Vec<i64>> {
        match self.arg(name) {
            Arg::Plain(ArgSpec::Dims(dims)) => Ok(Dim::capacities(&dims)),
            Arg::Plain(ArgSpec::Dim(dim)) => Ok(vec![dim.capacity]),
            _ => self.ints(name),
        }
    }

    /// The value of a size at run time: 0-d, int64.
    pub fn size_of(&self, dim: &Dim) -> Value<'b> {
        let b = self.b();
        let largest: i64 = dim.sizes.iter().map(|&size| b.capacity(size)).product();
        // The capacity can be 0 if the size is an expression.
        let known = if largest == dim.capacity { 1 } else { dim.capacity / largest.max(1) };
        dim.sizes.iter().fold(b.scalar(known, DType::I64), |product, &size| product * b.size(size))
    }

    /// The sizes that PyTorch gives result `i` in a graph with bounded dimensions.
    pub fn result_dims(&self, i: usize) -> Option<&[Dim]> {
        self.asks_dims.set(true);
        self.result_dims.get(i)?.as_deref()
    }

    /// Result 0, whose elements are equal along `axes`. It gets the valid lengths of PyTorch's sizes there.
    pub fn uniform(&self, result: Value<'b>, axes: impl Iterator<Item = usize>) -> Value<'b> {
        let Some(dims) = self.result_dims(0).filter(|dims| dims.len() == result.rank()) else { return result };
        let mut extents = result.extents();
        for axis in axes.filter(|&axis| dims[axis].capacity == result.dim(axis)) {
            extents[axis] = dims[axis].extent(|size| self.b().capacity(size));
        }
        if extents == result.extents() { result } else { result.without_extents().with_extents(extents) }
    }

    /// Result `i`, sliced or padded to the capacities of PyTorch's sizes in the dimensions that are not bounded yet.
    /// A formula can give a smaller or larger capacity for the largest inputs.
    pub fn resized(&self, i: usize, result: Value<'b>) -> Value<'b> {
        self.resized_where(i, result, |_| true)
    }

    /// [`Cx::resized`] in the dimensions in which `x`, of the same rank, is bounded. Those of the others are known.
    pub fn resized_like(&self, i: usize, result: Value<'b>, x: Value<'b>) -> Value<'b> {
        self.resized_where(i, result, |axis| x.is_bounded_along(&[axis]))
    }

    fn resized_where(&self, i: usize, result: Value<'b>, changes: impl Fn(usize) -> bool) -> Value<'b> {
        let Some(expected) = self.result_dims.get(i).and_then(Option::as_deref) else {
            let computed = |&axis: &usize| !result.is_bounded_along(&[axis]) && changes(axis);
            let axes = (0..result.rank()).filter(computed);
            self.computed.borrow_mut().extend(axes.map(|axis| (i, axis, result.dim(axis))));
            return result;
        };
        expected.iter().enumerate().fold(result, |result, (axis, dim)| {
            if result.is_bounded_along(&[axis]) || !changes(axis) {
                return result;
            }
            if !dim.extent(|size| self.b().capacity(size)).is_prefix() {
                self.b().refuse_bounded("a result in merged dimensions, whose padding is not at the end");
            }
            result.pad_axis(axis, 0, 0, dim.capacity - result.dim(axis))
        })
    }

    /// An argument with its padding as part of the value, for a row that keeps padding apart itself: of these dimensions,
    /// and with no other padding than these valid lengths say.
    pub fn with_padding(&self, value: Value<'b>, dims: &[i64], extents: &[Extent]) -> Result<Value<'b>> {
        if value.dims() != dims {
            return Err(Error::runtime(format!(
                "{}: an argument of shape {:?}, not {dims:?}",
                self.operator,
                value.dims()
            )));
        }
        let mut pairs = value.extents().into_iter().zip(extents);
        if !pairs.all(|(own, expected)| own.is_whole() || own == *expected) {
            self.b().refuse_bounded("an argument with padding in another dimension");
        }
        Ok(value.without_extents())
    }
}
