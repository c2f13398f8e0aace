//! Arguments converted to their common element type.

use stablehlo::{DType, DTypes, Value};

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result, cannot_be_cast, not_implemented_for};
use crate::number_check::Fit;
use crate::promote::{Category, can_cast, result_type};

impl<'b> Cx<'b> {
    /// The common type of tensor and number arguments.
    pub fn promoted(&self, names: &[&str]) -> Result<DType> {
        let args: Vec<Arg<'b>> = names.iter().map(|name| self.arg(name)).collect();
        let mut operands = Vec::new();
        for (name, arg) in names.iter().zip(&args) {
            match arg {
                Arg::Tensor(spec) => operands.push((spec.dtype, category(spec.sizes.len()))),
                Arg::Value(value) => operands.push((value.dtype(), category(value.rank()))),
                Arg::Scalar(scalar) => {
                    let category = if scalar.spec.wrapped { Category::Wrapped } else { Category::ZeroDim };
                    operands.push((scalar.spec.dtype, category));
                }
                Arg::None => {}
                _ => return self.wrong(name, "a Tensor or a number"),
            }
        }
        Ok(result_type(&operands, self.default_dtype))
    }

    /// Float and complex types are kept. Integers and booleans become the default float type.
    pub fn float_dtype(&self, dtype: DType) -> DType {
        if dtype.is_float() || dtype.is_complex() { dtype } else { self.default_dtype }
    }

    /// Refuses a type that is not in `taken`.
    pub fn check_dtype(&self, dtype: DType, taken: DTypes) -> Result<()> {
        if taken.contains(dtype) { Ok(()) } else { Err(not_implemented_for(self.operator, dtype)) }
    }

    /// Refuses a difference of booleans.
    pub(crate) fn check_difference(&self, names: [&str; 2]) -> Result<()> {
        let is_bool = |name| Ok::<_, Error>(self.ty(name)?.dtype == DType::Bool);
        match (is_bool(names[0])?, is_bool(names[1])?) {
            (false, false) => Ok(()),
            (true, true) => Err(Error::not_implemented(
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` \
                 operator instead.",
            )),
            _ => Err(Error::not_implemented(
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, \
                 use the `~` or `logical_not()` operator instead.",
            )),
        }
    }

    /// A tensor or number argument as a value of type `dtype`. A number converts as a tensor's elements do.
    pub fn operand(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        match self.arg(name) {
            Arg::Scalar(scalar) => Ok(self.scalar_value(&scalar, dtype)),
            _ => Ok(self.tensor(name)?.convert(dtype)),
        }
    }

    /// A tensor or number argument as a value of type `dtype`. Fails if a number, or an element, does not fit.
    pub fn fitting(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        if let Arg::Scalar(scalar) = self.arg(name) {
            self.check_number(name, dtype, Fit::Converts)?;
            return Ok(self.scalar_value(&scalar, dtype));
        }
        let value = self.tensor(name)?;
        self.check_fits(value, dtype);
        Ok(value.convert(dtype))
    }

    /// Two arguments in their common type.
    pub fn pair(&self, a: &str, b: &str) -> Result<(Value<'b>, Value<'b>)> {
        let dtype = self.promoted(&[a, b])?;
        Ok((self.operand(a, dtype)?, self.operand(b, dtype)?))
    }

    /// Two arguments in their common type. Integers and booleans become the default float type.
    pub fn float_pair(&self, a: &str, b: &str) -> Result<(Value<'b>, Value<'b>)> {
        let dtype = self.float_dtype(self.promoted(&[a, b])?);
        Ok((self.operand(a, dtype)?, self.operand(b, dtype)?))
    }

    /// Applies a function to corresponding elements of the arguments, in their common type. 16-bit floats are
    /// computed in float32.
    pub fn pointwise<const N: usize>(
        &self,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        self.pointwise_in(self.promoted(&names)?, names, f)
    }

    /// [`Cx::pointwise`], where integers and booleans become the default float type.
    pub fn float_pointwise<const N: usize>(
        &self,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        let dtype = self.float_dtype(self.promoted(&names)?);
        self.check_cast(dtype)?;
        self.pointwise_in(dtype, names, f)
    }

    fn pointwise_in<const N: usize>(
        &self,
        dtype: DType,
        names: [&str; N],
        f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
    ) -> Result<Value<'b>> {
        let values = names.iter().map(|name| self.opmath_operand(name, dtype)).collect::<Result<Vec<_>>>()?;
        match <[Value<'b>; N]>::try_from(values) {
            Ok(values) => Ok(f(values).convert(dtype)),
            Err(_) => Err(Error::runtime("pointwise: as many values as names")),
        }
    }

    /// An operand of an operator on `dtype`, in the type of the arithmetic. As in PyTorch, a number or a 0-d tensor
    /// is not rounded to a 16-bit `dtype` first.
    pub fn opmath_operand(&self, name: &str, dtype: DType) -> Result<Value<'b>> {
        if self.ty(name)?.dims.is_empty() {
            self.operand(name, dtype.opmath())
        } else {
            Ok(self.operand(name, dtype)?.convert(dtype.opmath()))
        }
    }

    /// Applies a function to the float argument `self`. Integers and booleans become the default float type. 16-bit
    /// floats are computed in float32.
    pub fn float_unary(&self, f: impl FnOnce(Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
        let x = self.tensor("self")?;
        let dtype = self.float_dtype(x.dtype());
        self.check_cast(dtype)?;
        Ok(f(x.convert(dtype.opmath())).convert(dtype))
    }

    /// Refuses a result that the written argument cannot hold. Some of PyTorch's meta kernels do not check it.
    fn check_cast(&self, dtype: DType) -> Result<()> {
        match self.known_dtype() {
            Some(known) if !can_cast(dtype, known) => Err(cannot_be_cast(dtype, known)),
            _ => Ok(()),
        }
    }
}

fn category(rank: usize) -> Category {
    if rank == 0 { Category::ZeroDim } else { Category::Dimensional }
}
