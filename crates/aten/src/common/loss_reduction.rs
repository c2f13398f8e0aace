//! The argument `reduction` of a loss.

use stablehlo::Value;

use crate::common::reductions::mean;
use crate::cx::Cx;
use crate::error::Result;

/// How the elements of a loss are reduced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    None,
    Mean,
    Sum,
}

impl Reduction {
    pub(crate) fn of(cx: &Cx<'_>) -> Result<Reduction> {
        Ok(match cx.int("reduction")? {
            0 => Reduction::None,
            1 => Reduction::Mean,
            _ => Reduction::Sum,
        })
    }

    pub(crate) fn apply(self, elements: Value<'_>) -> Value<'_> {
        let axes: Vec<usize> = (0..elements.rank()).collect();
        match self {
            Reduction::None => elements,
            Reduction::Mean => mean(elements, &axes),
            Reduction::Sum => elements.reduce_sum(&axes),
        }
    }

    /// The gradient at each element of `losses`, given `grad` at the reduced loss. A mean is taken over `axes`.
    pub(crate) fn gradient<'b>(self, grad: Value<'b>, losses: Value<'b>, axes: &[usize]) -> Value<'b> {
        if self == Reduction::Mean { grad / losses.count(axes, grad.dtype()) } else { grad }
    }
}
