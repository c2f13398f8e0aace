//! Elementwise operations, with NumPy-style broadcasting between operands.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use crate::builder::{Type, Value};
use crate::dtype::{DType, Number};
use crate::element_types::DTypes;

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
