//! Conversions between element types, and what rounds to their bits.

use crate::builder::{Target, Type, Value};
use crate::dtype::{DType, Number};
use crate::refusal::Refusal;

impl<'b> Value<'b> {
    /// `stablehlo.convert`. Floats are truncated to integers, and wrap around in integers of 8 and 16 bits; bool is
    /// whether a number differs from zero.
    pub fn convert(self, dtype: DType) -> Value<'b> {
        let from = self.dtype();
        if from == dtype {
            return self;
        }
        if from == DType::F4E2M1FNX2 || dtype == DType::F4E2M1FNX2 {
            self.builder.refuse(Refusal::ElementType(DType::F4E2M1FNX2));
            return self.builder.splat(0, dtype, &self.dims());
        }
        if dtype == DType::Bool {
            return self.ne(Number::Int(0));
        }
        if from == DType::F8E8M0FNU && dtype == DType::F64 {
            // float64 has the smallest power as a normal number.
            let number = self.convert(DType::F32).convert(dtype);
            return self.bitcast(DType::U8).ne(0).select(number, 2.0f64.powi(-127));
        }
        // As PyTorch does: a double is rounded twice.
        if (from.is_float8() && dtype != DType::F32) || (dtype.is_float8() && from != DType::F32) {
            return self.convert(DType::F32).convert(dtype);
        }
        if from == DType::F8E8M0FNU {
            return self.power_of_exponent();
        }
        if dtype == DType::F8E8M0FNU {
            return self.nearest_exponent();
        }
        if dtype.is_float8() {
            let rounded = self.fit_float8(dtype);
            return self.builder.elementwise("stablehlo.convert", &[rounded], "", Type::new(dtype, &self.dims()));
        }
        if from == DType::C32 {
            return self.unpacked().convert(dtype);
        }
        if dtype == DType::C32 {
            let wide = self.convert(DType::C64);
            return wide.real().convert(DType::F16).complex(wide.imag().convert(DType::F16));
        }
        if from.is_complex() && !dtype.is_complex() {
            return self.real().convert(dtype);
        }
        if from.is_float()
            && let Some(wide) = dtype.converts_through()
        {
            return self.convert(wide).convert(dtype);
        }
        if from == DType::Bool && !dtype.is_integer() {
            // XLA rewrites a product with a converted boolean as a select, which gives 0 where PyTorch has 0 · NaN.
            let choose = |number: i64| self.builder.splat(number, dtype, &self.dims());
            return self.select(choose(1), choose(0));
        }
        self.builder.elementwise("stablehlo.convert", &[self], "", Type::new(dtype, &self.dims()))
    }

    /// float32 of exponents. The smallest power is no normal number, and the largest exponent means NaN.
    fn power_of_exponent(self) -> Value<'b> {
        let exponent = self.bitcast(DType::U8).convert(DType::U32);
        let bits = (!exponent.eq(0xFF)).select(exponent.shift_left(23), i64::from(f32::NAN.to_bits()));
        (!exponent.eq(0)).select(bits, 1 << 22).bitcast(DType::F32)
    }

    /// The exponent of the nearest power of two, without the sign. Of two that are as near, the larger; of numbers that
    /// are not normal, the smaller. NaN of infinity.
    fn nearest_exponent(self) -> Value<'b> {
        const HALF: i64 = 1 << 22;
        let bits = self.bitcast(DType::U32);
        let exponent = bits.shift_right_logical(23) & 0xFF;
        let fraction = bits & (2 * HALF - 1);
        let is_nearer_to_next = fraction.gt(HALF) | (fraction.eq(HALF) & exponent.gt(0));
        let next = exponent + is_nearer_to_next.convert(DType::U32);
        exponent.eq(0xFF).select(exponent, next).convert(DType::U8).bitcast(DType::F8E8M0FNU)
    }

    /// float32 where PyTorch and XLA convert to float8 alike. PyTorch saturates where the type has no infinity but has a
    /// negative zero. XLA makes NaN of a small negative float16 that rounds to a zero without a sign.
    fn fit_float8(self, dtype: DType) -> Value<'b> {
        let rounds_to_zero = |limit: f64| self.abs_same().le(limit).select(self.splat_like(0.0), self);
        match dtype {
            DType::F8E4M3FN => self.max(-dtype.highest().to_f64()).min(dtype.highest().to_f64()).rounded_to_odd(),
            DType::F8E5M2 => self.rounded_to_odd(),
            DType::F8E4M3FNUZ => rounds_to_zero(2.0f64.powi(-11)),
            DType::F8E5M2FNUZ => rounds_to_zero(2.0f64.powi(-18)),
            _ => self,
        }
    }

    /// float32 with 5 bits of fraction. The last one is set if any lower bit was set, so it still says on which side of the
    /// middle between two numbers of float8 the number is. XLA's CPU compiler converts by way of float16, which would
    /// round to the middle first.
    fn rounded_to_odd(self) -> Value<'b> {
        if self.builder.target != Target::Cpu {
            return self;
        }
        const LOWER: i64 = (1 << 18) - 1;
        let bits = self.bitcast(DType::I32);
        let last = (bits & LOWER).ne(0).select(bits.splat_like(LOWER + 1), 0);
        ((bits & !LOWER) | last).bitcast(DType::F32)
    }

    /// Reinterprets the bits. For a type of another width, a trailing dimension of the ratio is added or removed.
    pub fn bitcast(self, dtype: DType) -> Value<'b> {
        let (from, to) = (self.dtype().size_bytes() as i64, dtype.size_bytes() as i64);
        let mut dims = self.dims();
        if from > to {
            dims.push(from / to);
        } else if from < to && dims.pop() != Some(to / from) {
            return self.builder.fail(format!("bitcast of {self:?} to {dtype}"), self.ty());
        }
        if from == to {
            return self.builder.elementwise("stablehlo.bitcast_convert", &[self], "", Type::new(dtype, &dims));
        }
        self.builder.op("stablehlo.bitcast_convert", &[self], "", Type::new(dtype, &dims))
    }

    /// Pairs of float16 as complex64.
    fn unpacked(self) -> Value<'b> {
        let bits = self.bitcast(DType::U32);
        let part = |bits: Value<'b>| bits.convert(DType::U16).bitcast(DType::F16).convert(DType::F32);
        part(bits).complex(part(bits.shift_right_logical(16)))
    }

    /// The power of two that is nearest to a positive float, between those of the smallest and the largest normal number.
    /// Zero for zero.
    pub fn nearest_power_of_two(self) -> Value<'b> {
        if self.dtype() == DType::F64 && self.builder.target == Target::Tpu {
            // A pair of float32, whose range it has: the compiler refuses to reduce its precision.
            return self.convert(DType::F32).nearest_power_of_two().convert(DType::F64);
        }
        let exponent_bits = match self.dtype() {
            DType::F16 => 5,
            DType::BF16 | DType::F32 => 8,
            DType::F64 => 11,
            other => return self.builder.fail(format!("nearest power of two of {other}"), self.ty()),
        };
        let bias = (1 << (exponent_bits - 1)) - 1;
        let attributes = format!("exponent_bits = {exponent_bits} : i32, mantissa_bits = 0 : i32");
        let rounded = self.builder.elementwise("stablehlo.reduce_precision", &[self], &attributes, self.ty());
        let normal = rounded.max(2.0f64.powi(1 - bias)).min(2.0f64.powi(bias));
        self.eq(0).select(self, normal)
    }
}
