//! Elementwise operations, with NumPy-style broadcasting between operands.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use crate::builder::{Target, Type, Value};
use crate::dtype::{DType, Number};
use crate::element_types::DTypes;
use crate::refusal::Refusal;

/// The direction of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The common shape of two shapes under broadcasting, or `None` if they do not broadcast.
pub fn broadcast_dims(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[i64], i: usize| {
        if i + dims.len() < rank { 1 } else { dims[i + dims.len() - rank] }
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident => $name:literal;)*) => {
        impl<'b> Value<'b> {
            $($(#[$doc])*
            pub fn $method(self) -> Value<'b> {
                self.builder.elementwise($name, &[self], "", self.ty())
            })*
        }
    };
}

unary! {
    abs_same => "stablehlo.abs";
    exp => "stablehlo.exponential";
    exp_m1 => "stablehlo.exponential_minus_one";
    log => "stablehlo.log";
    log_1p => "stablehlo.log_plus_one";
    sqrt => "stablehlo.sqrt";
    rsqrt => "stablehlo.rsqrt";
    cbrt => "stablehlo.cbrt";
    sin => "stablehlo.sine";
    cos => "stablehlo.cosine";
    tan => "stablehlo.tan";
    tanh => "stablehlo.tanh";
    logistic => "stablehlo.logistic";
    floor => "stablehlo.floor";
    ceil => "stablehlo.ceil";
    round_even => "stablehlo.round_nearest_even";
    round_away => "stablehlo.round_nearest_afz";
    sign => "stablehlo.sign";
    popcnt => "stablehlo.popcnt";
    count_leading_zeros => "stablehlo.count_leading_zeros";
    erf => "chlo.erf";
    erfc => "chlo.erfc";
    erf_inv => "chlo.erf_inv";
    lgamma => "chlo.lgamma";
    digamma => "chlo.digamma";
    sinh => "chlo.sinh";
    cosh => "chlo.cosh";
    asin => "chlo.asin";
    acos => "chlo.acos";
    atan => "chlo.atan";
    asinh => "chlo.asinh";
    acosh => "chlo.acosh";
    atanh => "chlo.atanh";
    bessel_i1e => "chlo.bessel_i1e";
}

macro_rules! binary {
    ($($(#[$doc:meta])* $method:ident => $name:literal;)*) => {
        impl<'b> Value<'b> {
            $($(#[$doc])*
            pub fn $method(self, other: impl Operand<'b>) -> Value<'b> {
                self.binary($name, other.with(self))
            })*
        }
    };
}

binary! {
    add_ => "stablehlo.add";
    sub_ => "stablehlo.subtract";
    mul_ => "stablehlo.multiply";
    /// The larger element; NaN if either is NaN.
    max => "stablehlo.maximum";
    min => "stablehlo.minimum";
    pow => "stablehlo.power";
    atan2 => "stablehlo.atan2";
    and => "stablehlo.and";
    or => "stablehlo.or";
    xor => "stablehlo.xor";
    shift_left => "stablehlo.shift_left";
    shift_right_arithmetic => "stablehlo.shift_right_arithmetic";
    shift_right_logical => "stablehlo.shift_right_logical";
    next_after => "chlo.next_after";
    zeta => "chlo.zeta";
    polygamma => "chlo.polygamma";
}

/// The right-hand side of an operator: a value, or a number, which gets the type of the left-hand side.
pub trait Operand<'b> {
    fn with(self, left: Value<'b>) -> Value<'b>;
}

impl<'b> Operand<'b> for Value<'b> {
    fn with(self, _left: Value<'b>) -> Value<'b> {
        self
    }
}

macro_rules! number_operand {
    ($($number:ty),*) => {
        $(impl<'b> Operand<'b> for $number {
            fn with(self, left: Value<'b>) -> Value<'b> {
                left.builder.scalar(Number::from(self), left.dtype())
            }
        })*
    };
}
number_operand!(f64, i64, i32, bool, usize);

impl<'b> Operand<'b> for Number {
    fn with(self, left: Value<'b>) -> Value<'b> {
        left.builder.scalar(self, left.dtype())
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $call:ident;)*) => {
        $(impl<'b, O: Operand<'b>> $operator<O> for Value<'b> {
            type Output = Value<'b>;
            fn $method(self, other: O) -> Value<'b> {
                self.$call(other)
            }
        })*
    };
}
operators! {
    Add add add_;
    Sub sub sub_;
    Mul mul mul_;
    Div div div_;
    Rem rem rem_;
    BitAnd bitand and;
    BitOr bitor or;
    BitXor bitxor xor;
}

impl<'b> Neg for Value<'b> {
    type Output = Value<'b>;
    fn neg(self) -> Value<'b> {
        self.builder.elementwise("stablehlo.negate", &[self], "", self.ty())
    }
}

impl<'b> Not for Value<'b> {
    type Output = Value<'b>;
    fn not(self) -> Value<'b> {
        self.builder.elementwise("stablehlo.not", &[self], "", self.ty())
    }
}

impl<'b> Value<'b> {
    /// Division. Integers truncate towards zero.
    pub fn div_(self, other: impl Operand<'b>) -> Value<'b> {
        let other = other.with(self);
        if self.is_paired() && other.is_paired() {
            return self.paired_quotient(other);
        }
        self.quotient("stablehlo.divide", other)
    }

    /// The remainder with the sign of the dividend (C's `fmod`).
    pub fn rem_(self, other: impl Operand<'b>) -> Value<'b> {
        let other = other.with(self);
        if self.is_paired() && other.is_paired() {
            return self.paired_remainder(other);
        }
        self.quotient("stablehlo.remainder", other)
    }

    /// A program of XLA's CPU compiler whose only operation divides integers without elements divides once, by what
    /// is in memory, and zero ends the process. So nothing is divided there.
    fn quotient(self, name: &str, other: Value<'b>) -> Value<'b> {
        let quotient = self.binary(name, other);
        if quotient.dtype().is_integer() && quotient.dims().contains(&0) { quotient.splat_like(0) } else { quotient }
    }

    fn binary(self, name: &str, other: Value<'b>) -> Value<'b> {
        let (a, b) = self.broadcast_with(other);
        let ty = a.ty();
        if b.dtype() != ty.dtype {
            return self.builder.fail(format!("{name} of {a:?} and {b:?}: element types differ"), ty);
        }
        if ty.dtype.is_float8() && name == "stablehlo.multiply" {
            return a.convert(DType::F32).binary(name, b.convert(DType::F32)).convert(ty.dtype);
        }
        self.builder.elementwise(name, &[a, b], "", ty)
    }

    /// Both values, broadcast to their common shape.
    pub fn broadcast_with(self, other: Value<'b>) -> (Value<'b>, Value<'b>) {
        match broadcast_dims(&self.dims(), &other.dims()) {
            Some(dims) => (self.broadcast_to(&dims), other.broadcast_to(&dims)),
            None => {
                let failed = self.builder.fail(format!("{self:?} and {other:?} do not broadcast"), self.ty());
                (failed, self.builder.fail("", Type::new(other.dtype(), &self.dims())))
            }
        }
    }

    /// A constant of this value's type and shape.
    pub fn splat_like(self, number: impl Into<Number>) -> Value<'b> {
        let ty = self.ty();
        self.builder.splat(number, ty.dtype, &ty.dims)
    }

    /// The magnitude. The result is real for complex values. Unsigned values and booleans are returned unchanged.
    pub fn abs(self) -> Value<'b> {
        let dtype = self.dtype();
        if dtype.is_unsigned() || dtype == DType::Bool {
            self
        } else if dtype.is_complex() {
            self.builder.elementwise("stablehlo.abs", &[self], "", Type::new(dtype.real(), &self.dims()))
        } else if DTypes::FLOAT8.contains(dtype) {
            self.convert(DType::F32).abs().convert(dtype)
        } else {
            self.abs_same()
        }
    }

    pub fn square(self) -> Value<'b> {
        self * self
    }

    /// The reciprocal.
    pub fn recip(self) -> Value<'b> {
        self.splat_like(1) / self
    }

    /// `stablehlo.compare`. Floats compare as in IEEE 754. The result is boolean.
    pub fn compare(self, direction: Comparison, other: impl Operand<'b>) -> Value<'b> {
        let (a, b) = self.broadcast_with(other.with(self));
        let ty = Type::new(DType::Bool, &a.dims());
        if a.dtype().is_float8() && a.dtype() == b.dtype() && matches!(direction, Comparison::Eq | Comparison::Ne) {
            return a.convert(DType::F32).compare(direction, b.convert(DType::F32));
        }
        if a.dtype() != b.dtype() {
            return self.builder.fail(format!("compare of {a:?} and {b:?}: element types differ"), ty);
        }
        if !matches!(direction, Comparison::Eq | Comparison::Ne) {
            self.builder.check_taken(a.dtype(), DTypes::REAL);
        }
        let direction = match direction {
            Comparison::Eq => "EQ",
            Comparison::Ne => "NE",
            Comparison::Lt => "LT",
            Comparison::Le => "LE",
            Comparison::Gt => "GT",
            Comparison::Ge => "GE",
        };
        let kind = match a.dtype() {
            t if t.is_float() || t.is_complex() => "FLOAT",
            t if t.is_unsigned() || t == DType::Bool => "UNSIGNED",
            _ => "SIGNED",
        };
        let attributes = format!(
            "comparison_direction = #stablehlo<comparison_direction {direction}>, \
             compare_type = #stablehlo<comparison_type {kind}>"
        );
        self.builder.elementwise("stablehlo.compare", &[a, b], &attributes, ty)
    }

    pub fn eq(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Eq, other)
    }
    pub fn ne(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Ne, other)
    }
    pub fn lt(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Lt, other)
    }
    pub fn le(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Le, other)
    }
    pub fn gt(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Gt, other)
    }
    pub fn ge(self, other: impl Operand<'b>) -> Value<'b> {
        self.compare(Comparison::Ge, other)
    }

    /// True for NaN; false everywhere for types without NaN.
    pub fn is_nan(self) -> Value<'b> {
        let dtype = self.dtype();
        if dtype.is_float() || dtype.is_complex() {
            self.ne(self)
        } else {
            self.builder.splat(false, DType::Bool, &self.dims()).bounded_like(self)
        }
    }

    /// `on_true` where this boolean is true, else `on_false`. All three broadcast.
    pub fn select(self, on_true: Value<'b>, on_false: impl Operand<'b>) -> Value<'b> {
        let on_false = on_false.with(on_true);
        let (a, b) = on_true.broadcast_with(on_false);
        let (condition, a) = self.broadcast_with(a);
        let b = b.broadcast_to(&a.dims());
        let ty = a.ty();
        if condition.dtype() != DType::Bool || b.dtype() != ty.dtype {
            return self.builder.fail(format!("select of {condition:?}, {a:?}, {b:?}"), ty);
        }
        self.builder.elementwise("stablehlo.select", &[condition, a, b], "", ty)
    }

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

    /// The real part; a real value is returned unchanged.
    pub fn real(self) -> Value<'b> {
        if !self.dtype().is_complex() {
            return self;
        }
        self.builder.elementwise("stablehlo.real", &[self], "", Type::new(self.dtype().real(), &self.dims()))
    }

    /// The imaginary part; zeros for a real value.
    pub fn imag(self) -> Value<'b> {
        if !self.dtype().is_complex() {
            return self.splat_like(0);
        }
        self.builder.elementwise("stablehlo.imag", &[self], "", Type::new(self.dtype().real(), &self.dims()))
    }

    /// The complex conjugate; a real value is returned unchanged.
    pub fn conjugate(self) -> Value<'b> {
        if self.dtype().is_complex() { self.real().complex(-self.imag()) } else { self }
    }

    /// The complex value of this real part and `imag`.
    pub fn complex(self, imag: Value<'b>) -> Value<'b> {
        let (re, im) = self.broadcast_with(imag);
        let ty = Type::new(re.dtype().complex(), &re.dims());
        if ty.dtype == DType::C32 && im.dtype() == DType::F16 {
            let bits = |part: Value<'b>| part.bitcast(DType::U16).convert(DType::U32);
            return (bits(re) | bits(im).shift_left(16)).bitcast(DType::C32);
        }
        self.builder.elementwise("stablehlo.complex", &[re, im], "", ty)
    }

    pub fn is_finite(self) -> Value<'b> {
        if !self.dtype().is_float() {
            return self.builder.splat(true, DType::Bool, &self.dims()).bounded_like(self);
        }
        self.builder.elementwise("stablehlo.is_finite", &[self], "", Type::new(DType::Bool, &self.dims()))
    }

    /// True for infinite floats, and for complex numbers with an infinite part.
    pub fn is_infinite(self) -> Value<'b> {
        let dtype = self.dtype();
        if dtype.is_complex() {
            self.real().is_infinite() | self.imag().is_infinite()
        } else if dtype.is_float() {
            self.abs().eq(f64::INFINITY)
        } else {
            self.builder.splat(false, DType::Bool, &self.dims()).bounded_like(self)
        }
    }

    /// A float rounded towards zero.
    pub fn trunc(self) -> Value<'b> {
        self.lt(0).select(self.ceil(), self.floor())
    }

    /// Whether the sign bit is set; also for minus zero and negative NaN.
    pub fn sign_bit(self) -> Value<'b> {
        match self.dtype() {
            // A TPU represents a float64 as two float32, which have other bits.
            DType::F64 => self.convert(DType::F32).sign_bit(),
            DType::F32 => self.bitcast(DType::I32).lt(0),
            DType::F16 | DType::BF16 => self.bitcast(DType::I16).lt(0),
            _ => self.lt(0),
        }
    }

    /// The magnitude of this float with the sign of `other`.
    pub fn copy_sign(self, other: Value<'b>) -> Value<'b> {
        self.sign_bit().ne(other.sign_bit()).select(-self, self)
    }

    /// This value clamped to `[low, high]`. NaN stays NaN.
    pub fn clamp(self, low: impl Operand<'b>, high: impl Operand<'b>) -> Value<'b> {
        self.max(low).min(high)
    }
}
