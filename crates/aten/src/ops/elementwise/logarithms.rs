//! Logarithms to the bases 2 and 10. They are whole numbers where the exact ones are: the natural logarithm divided by
//! that of the base is a last digit below, so that its floor is wrong.

use stablehlo::{DType, Value};

use super::complex::{logarithm, parts};
use crate::cx::Cx;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["log2"], |cx: &Cx<'_>| cx.float_unary(|x| to_base(x, &TWO))),
    one(&["log10"], |cx: &Cx<'_>| cx.float_unary(|x| to_base(x, &TEN))),
]);

/// The constants of a base. A number is the sum of two where one has too few digits.
struct Base {
    /// The logarithm of e.
    of_e: [f64; 2],
    /// The logarithm of 2 as float32 values. The first has 12 digits, so that its products with exponents are exact.
    of_two: [f64; 2],
    /// The same as float64 values. The first has 42 digits.
    of_two_f64: [f64; 2],
}

const TWO: Base =
    Base { of_e: [std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17], of_two: [1.0, 0.0], of_two_f64: [1.0, 0.0] };

const TEN: Base = Base {
    of_e: [std::f64::consts::LOG10_E, 1.098_319_650_216_765e-17],
    of_two: [0.301_025_390_625, 4.605_038_981_195_214e-6],
    of_two_f64: [0.301_029_995_663_611_77, 3.694_239_077_158_930_5e-13],
};

fn to_base<'b>(x: Value<'b>, base: &Base) -> Value<'b> {
    if x.dtype().is_complex() {
        let scaled = |part: Value<'b>| part.is_finite().select(product(part, base.of_e), part);
        return parts(logarithm(x), scaled);
    }
    // x = m 2^k, with m between √½ and √2. The logarithm of m is small beside k, where k is not zero.
    let (bits, digits, root_of_half, smallest, of_two) = match x.dtype() {
        DType::F64 => (DType::I64, 52, 0.5_f64.sqrt().to_bits() as i64, f64::MIN_POSITIVE, base.of_two_f64),
        _ => (DType::I32, 23, i64::from(0.5_f32.sqrt().to_bits()), f64::from(f32::MIN_POSITIVE), base.of_two),
    };
    let pattern = x.bitcast(bits);
    let exponent = (pattern - root_of_half).shift_right_arithmetic(digits);
    let mantissa = (pattern - exponent.shift_left(digits)).bitcast(x.dtype());
    let (k, m) = (exponent.convert(x.dtype()), mantissa.log());
    let result = (product(m, base.of_e) + k * of_two[1]) + k * of_two[0];
    // Zero, subnormal and negative numbers, infinity and NaN.
    let is_normal = x.ge(smallest) & x.lt(f64::INFINITY);
    is_normal.select(result, x.log() * base.of_e[0])
}

/// The product with a constant that is the sum of two numbers, of which the first is rounded to the type of `x`.
fn product(x: Value<'_>, [high, low]: [f64; 2]) -> Value<'_> {
    let (high, low) = match x.dtype() {
        DType::F64 => (high, low),
        _ => (f64::from(high as f32), high - f64::from(high as f32)),
    };
    x * low + x * high
}
