//! Clamps elements to bounds that are arguments.

use stablehlo::{DType, Value};

use crate::cx::{Arg, Cx, Scalar};
use crate::error::Result;
use crate::number_check::Fit;
use crate::spec::ScalarSpec;

/// Clamps `x` to the bounds of two arguments.
pub(crate) fn clamp_to<'b>(cx: &Cx<'b>, x: Value<'b>, [low, high]: [&str; 2]) -> Result<Value<'b>> {
    let dtype = x.dtype();
    let bound = |name, fit| -> Result<Option<Value<'b>>> {
        Ok(match cx.arg(name) {
            Arg::None => None,
            // A number beyond int64, which is an upper bound that does not restrict anything, or no bound.
            Arg::Scalar(Scalar { spec: ScalarSpec { dtype: DType::U64, wrapped: true, .. }, .. })
                if dtype.is_integer() && dtype != DType::U64 =>
            {
                cx.check_number(name, dtype, fit)?;
                None
            }
            // A number beyond the integer type's range does not restrict anything.
            Arg::Scalar(_) if dtype.is_integer() && dtype.size_bytes() < 8 => {
                let number = cx.scalar(name, DType::I64)?;
                cx.check_number(name, dtype, fit)?;
                Some(number.clamp(dtype.lowest(), dtype.highest()).convert(dtype))
            }
            _ => Some(cx.fitting(name, dtype)?),
        })
    };
    let x = bound(low, Fit::LowerBound)?.map_or(x, |low| x.max(low));
    Ok(bound(high, Fit::UpperBound)?.map_or(x, |high| x.min(high)))
}
