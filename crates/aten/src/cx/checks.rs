//! Checks of the data that a row adds to the program.

use stablehlo::{DType, Value};

use crate::check::{Check, Counts};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::number_check::does_not_convert;

impl<'b> Cx<'b> {
    /// Checks that each number of `index` is an index into dimension `axis` of `x`. A dimension without elements has no
    /// index, which is known before the program runs.
    pub(crate) fn check_index(
        &self,
        index: Value<'b>,
        x: Value<'b>,
        axis: usize,
        counts: Counts,
        error: Error,
    ) -> Result<()> {
        if x.rank() > 0 && x.dim(axis) == 0 && index.numel() != 0 && !index.is_bounded() {
            return Err(Error::index("index is out of bounds for dimension with size 0"));
        }
        let index = if index.dtype() == DType::I64 { index } else { index.convert(DType::I32) };
        let lowest = |size: Value<'b>| if counts == Counts::FromBothEnds { -size } else { size.splat_like(0) };
        let size = match x.rank() {
            0 => index.builder().scalar(1, index.dtype()),
            _ if x.is_bounded_along(&[axis]) => x.size(axis, index.dtype()),
            _ => index.builder().scalar(x.dim(axis).min(index.dtype().highest().to_i64()), index.dtype()),
        };
        self.check_range(index, lowest(size), size, error);
        Ok(())
    }

    /// Checks that each number is from `low` to `high`.
    pub(crate) fn check_from_to(&self, numbers: Value<'b>, low: i64, high: i64, error: Error) {
        let limit = |number: i64| numbers.builder().scalar(number, numbers.dtype());
        self.check_range(numbers, limit(low), limit(high + 1), error);
    }

    /// Checks that each number, of int32 or int64, is at least `low` and less than `high`, both 0-d. [`Check::SIZE`] is
    /// `high`.
    pub(crate) fn check_range(&self, numbers: Value<'b>, low: Value<'b>, high: Value<'b>, error: Error) {
        if numbers.numel() == 0 || !self.inputs.is_checked() {
            return;
        }
        let dims = numbers.dims();
        let wrong = numbers.lt(low) | numbers.ge(high);
        let lowest = numbers.dtype().lowest();
        let axes: Vec<usize> = (0..dims.len()).collect();
        let worst = wrong.select(numbers, numbers.splat_like(lowest)).reduce_max(&axes);
        let holds = worst.eq(worst.splat_like(lowest));
        self.check_with_size(holds, worst, high, error);
    }

    /// [`Cx::check_that`], where [`Check::SIZE`] is `size`, of int32 or int64, 0-d.
    pub(crate) fn check_with_size(&self, holds: Value<'b>, number: Value<'b>, size: Value<'b>, error: Error) {
        let mut number = number.convert(DType::I64);
        if error.message.contains(Check::SIZE) {
            let low = number.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) & i64::from(u32::MAX);
            number = size.convert(DType::I64) * (1_i64 << 32) + low;
        }
        self.check_that(holds, number, error);
    }

    /// Checks that each number of `x` is from 0 to 1. NaN is not.
    pub(crate) fn check_fractions(&self, x: Value<'b>, error: Error) {
        self.check_none(!(x.ge(0) & x.le(1)), error);
    }

    /// Checks that no number of `x` is negative or NaN.
    pub(crate) fn check_not_negative(&self, x: Value<'b>, error: Error) {
        self.check_none(!x.ge(0), error);
    }

    /// Checks that each matrix of a batch is finite. [`Check::NUMBER`] is the index of the first that is not.
    pub(crate) fn check_finite_matrices(&self, a: Value<'b>, error: Error) {
        if a.numel() == 0 || !self.inputs.is_checked() {
            return;
        }
        let rank = a.rank();
        let wrong = (!a.abs().is_finite()).convert(DType::I64).reduce_max(&[rank - 2, rank - 1]);
        let wrong = wrong.reshape(&[wrong.numel()]);
        let place = a.builder().iota(DType::I64, &wrong.dims(), 0);
        let first = wrong.ne(0).select(place, place.splat_like(i64::MAX)).reduce_min(&[0]);
        let holds = first.eq(first.splat_like(i64::MAX));
        self.inputs.add_check(holds.select(first.splat_like(Check::HOLDS), first), Check { error });
    }

    /// Checks that a factorization succeeded, if the argument `check_errors` asks for it. `info` has LAPACK's number for
    /// each matrix. In the message, [`Check::HIGH`] is the index of the first matrix that failed, and [`Check::LOW`] is
    /// its number.
    pub(crate) fn check_info(&self, info: Value<'b>, function: &str, kind: ErrorKind, why: &str) -> Result<()> {
        if self.bool("check_errors")? {
            self.check_codes(info, function, kind, why);
        }
        Ok(())
    }

    /// [`Cx::check_info`], whether the call asks for it or not.
    pub(crate) fn check_codes(&self, info: Value<'b>, function: &str, kind: ErrorKind, why: &str) {
        if info.numel() == 0 || !self.inputs.is_checked() {
            return;
        }
        let element = if info.rank() > 0 { format!("(Batch element {}): ", Check::HIGH) } else { String::new() };
        let codes = info.reshape(&[info.numel()]).convert(DType::I64);
        let packed = info.builder().iota(DType::I64, &codes.dims(), 0) * (1_i64 << 32) + codes;
        let first = codes.ne(0).select(packed, packed.splat_like(i64::MAX)).reduce_min(&[0]);
        let holds = first.eq(first.splat_like(i64::MAX));
        let error = Error::new(kind, format!("{function}: {element}{why}"));
        self.inputs.add_check(holds.select(first.splat_like(Check::HOLDS), first), Check { error });
    }

    /// Checks that `holds` is true. [`Check::NUMBER`] is `number`. Both are 0-d.
    pub(crate) fn check_that(&self, holds: Value<'b>, number: Value<'b>, error: Error) {
        if self.inputs.is_checked() {
            let number = number.convert(DType::I64);
            self.inputs.add_check(holds.select(number.splat_like(Check::HOLDS), number), Check { error });
        }
    }

    /// Checks that the longest of `lengths` is `size`, 0-d. [`Check::NUMBER`] is the longest.
    pub(crate) fn check_longest(&self, lengths: Value<'b>, size: Value<'b>, error: Error) {
        let longest = lengths.convert(DType::I64).reduce_max(&[0]);
        self.check_that(longest.eq(size.convert(DType::I64)), longest, error);
    }

    /// Checks that each element of `x` fits into an integer type of less than 64 bits, as [`Fit::Converts`] does for
    /// numbers.
    pub(crate) fn check_fits(&self, x: Value<'b>, dtype: DType) {
        let from = x.dtype();
        let is_wider = from.is_float() || from.is_integer() && from != dtype && from.size_bytes() >= dtype.size_bytes();
        if !is_wider || !dtype.is_integer() || dtype.size_bytes() == 8 {
            return;
        }
        let end = dtype.highest().to_i64() + 1;
        let low = if from.is_integer() && dtype.is_unsigned() { 1 - end } else { dtype.lowest().to_i64() };
        let x = x.convert(if from.is_float() { DType::F64 } else { DType::I64 });
        self.check_none(!(x.ge(low) & x.lt(end)), does_not_convert(dtype));
    }

    /// Checks that no element of `wrong` is true.
    pub(crate) fn check_none(&self, wrong: Value<'b>, error: Error) {
        if wrong.numel() == 0 || !self.inputs.is_checked() {
            return;
        }
        let axes: Vec<usize> = (0..wrong.rank()).collect();
        let any = wrong.convert(DType::I32).reduce_max(&axes).convert(DType::I64);
        self.inputs.add_check(any.eq(0).select(any.splat_like(Check::HOLDS), any), Check { error });
    }
}
