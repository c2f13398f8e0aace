//! Fourier transforms over any dimensions.
//!
//! Where the number n of elements changes, a transform is a convolution of a constant length (Bluestein, "A linear
//! filtering approach to the computation of the discrete Fourier transform", 1970). With w_k = exp(-iπk²/n):
//!
//! ```text
//! jk = (j² + k² - (k - j)²) / 2,   so   X_k = Σ_j x_j exp(-2πijk/n) = w_k · Σ_j (x_j w_j) · conj(w_(k-j))
//! ```

use std::f64::consts::FRAC_PI_2;

use stablehlo::{DType, Fft, Target, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    one(&["_fft_c2c"], |cx| {
        let dtype = cx.ty("self")?.dtype;
        let x = cx.tensor("self")?.convert(dtype.opmath());
        let axes = axes(cx, x)?;
        let forward = cx.bool("forward")?;
        Ok(normalized(cx, complex(x, &axes, forward), Count::of(x, &axes), forward)?.convert(dtype))
    })
    .bounded(),
    one(&["_fft_r2c"], |cx| {
        // The result for bfloat16 (which stft passes on) is complex64, as on CUDA.
        let dtype = cx.ty("self")?.dtype;
        let x = cx.tensor("self")?.convert(dtype.opmath());
        let axes = axes(cx, x)?;
        let wide = x.convert(x.dtype().complex());
        let result = match axes.split_last() {
            Some((&last, others)) if cx.bool("onesided")? => {
                let half = match x.is_bounded_along(&[last]) {
                    true => chirped(wide, last, true).whole_along(last).slice_axis(last, 0, x.dim(last) / 2 + 1),
                    false => along(x, last, Fft::Rfft, x.dim(last)),
                };
                cx.resized(0, complex(half, others, true))
            }
            _ => complex(wide, &axes, true),
        };
        Ok(normalized(cx, result, Count::of(x, &axes), true)?.convert(dtype.complex()))
    })
    .bounded(),
    one(&["_fft_c2r"], |cx| {
        let dtype = cx.ty("self")?.dtype;
        let x = cx.tensor("self")?.convert(dtype.opmath());
        let axes = axes(cx, x)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.real().convert(dtype.real())) };
        let size = cx.dim("last_dim_size")?;
        let count = Count::of(x, others).times(cx, &size);
        // The rest of the spectrum is the conjugate of the first half.
        let result = match size.sizes.is_empty() {
            false => chirped(both_halves(cx, complex(x, others, false), last, &size), last, false).real(),
            true if x.is_bounded_along(&[last]) => {
                return Err(Error::not_implemented("a spectrum whose size changes, and that of the result does not"));
            }
            true => {
                let size = size.capacity;
                along(complex(x.slice_axis(last, 0, size / 2 + 1), others, false), last, Fft::Irfft, size)
            }
        };
        Ok(normalized(cx, result, count, false)?.convert(dtype.real()))
    })
    .bounded(),
];

/// The dimensions in the given order. A real transform halves the last one.
fn axes<'b>(cx: &Cx<'b>, x: Value<'b>) -> Result<Vec<usize>> {
    let axes: Vec<usize> = cx.ints("dim")?.into_iter().map(|dim| cx.axis(dim, x.rank())).collect::<Result<_>>()?;
    axes.iter().for_each(|&axis| x.require_prefix(axis, "a Fourier transform along merged dimensions"));
    Ok(axes)
}

fn complex<'b>(x: Value<'b>, axes: &[usize], forward: bool) -> Value<'b> {
    let kind = if forward { Fft::Fft } else { Fft::Ifft };
    axes.iter().fold(x, |x, &axis| match x.is_bounded_along(&[axis]) {
        true => chirped(x, axis, forward),
        false => along(x, axis, kind, x.dim(axis)),
    })
}

/// A transform of `size` elements along one dimension.
fn along(x: Value<'_>, axis: usize, kind: Fft, size: i64) -> Value<'_> {
    let last = x.rank() - 1;
    x.move_axis(axis, last).fft(kind, size).move_axis(last, axis)
}

// ---- sizes that change -----------------------------------------------------------------------

/// A complex transform along a bounded dimension, without a factor. On a CPU it is computed in float64, and rounds no more than a
/// transform of a known length.
fn chirped<'b>(x: Value<'b>, axis: usize, forward: bool) -> Value<'b> {
    let (b, extent, size, given) = (x.builder(), x.extent(axis), x.size(axis, DType::I64), x.dtype());
    let x = if b.target() == Target::Cpu { x.convert(DType::C128) } else { x };
    let (last, capacity, dtype) = (x.rank() - 1, x.dim(axis), x.dtype());
    // No term of the convolution may come around its end.
    let length = (2 * capacity - 1).max(1).unsigned_abs().next_power_of_two() as i64;
    let filled = x.zero_filled([axis], "a Fourier transform along merged dimensions").move_axis(axis, last);
    let place = b.iota(DType::I64, &[length], 0);
    let distance = place.min(-place + length);
    let (re, im) = half_turns(distance * distance, size, dtype.real());
    let (chirp, inverse) = (re.complex(-im), re.complex(im));
    let (chirp, inverse) = if forward { (chirp, inverse) } else { (inverse, chirp) };
    let spread = |vector: Value<'b>, dims: &[i64]| vector.broadcast_in_dim(dims, &[last]);
    let chirp = spread(chirp.slice_axis(0, 0, capacity), &filled.dims());
    let signal = (filled * chirp).pad_axis(last, 0, 0, length - capacity).fft(Fft::Fft, length);
    let filter = distance.lt(size.broadcast_to(&[length])).select(inverse, 0).fft(Fft::Fft, length);
    let convolved = (signal * spread(filter, &signal.dims())).fft(Fft::Ifft, length);
    let result = (convolved.slice_axis(last, 0, capacity) * chirp).convert(given);
    result.move_axis(last, axis).with_extent(axis, extent)
}

/// Cosine and sine of π · `number` / `size`, where `number` is not negative. Whole quarter turns are taken off as integers, so
/// that the rest has few rounding errors.
fn half_turns<'b>(number: Value<'b>, size: Value<'b>, dtype: DType) -> (Value<'b>, Value<'b>) {
    let size = size.broadcast_to(&number.dims());
    let quarters = number % (size * 2) * 2;
    let nearest = (quarters * 2 + size) / (size * 2);
    let rest = (quarters - nearest * size).convert(dtype) / size.convert(dtype) * FRAC_PI_2;
    let (cos, sin) = (rest.cos(), rest.sin());
    let is_odd = (nearest % 2).eq(1);
    let (re, im) = (is_odd.select(sin, cos), is_odd.select(cos, sin));
    let is_behind = |nearest: Value<'b>| (nearest % 4).ge(2);
    (is_behind(nearest + 1).select(-re, re), is_behind(nearest).select(-im, im))
}

/// A spectrum of `size` elements from its first half: X_(n-k) = conj(X_k).
fn both_halves<'b>(cx: &Cx<'b>, half: Value<'b>, axis: usize, size: &Dim) -> Value<'b> {
    let b = cx.b();
    let place = b.iota(DType::I64, &[size.capacity], 0);
    let valid = cx.size_of(size).broadcast_to(&place.dims());
    let is_first = place.lt(valid / 2 + 1);
    let source = is_first.select(place, valid - place).clamp(0, (half.dim(axis) - 1).max(0)).convert(DType::I32);
    let half = half.whole_along(axis);
    let whole = Places::slices(&half.dims(), axis, source).read(half);
    let is_first = is_first.broadcast_in_dim(&whole.dims(), &[axis]);
    let whole = is_first.select(whole, whole.real().complex(-whole.imag()));
    whole.with_extent(axis, size.extent(|number| b.capacity(number)))
}

// ---- normalization ---------------------------------------------------------------------------

/// How many elements a transform combines: the product of a known number and one that the program computes (0-d, int64).
struct Count<'b> {
    known: i64,
    changing: Option<Value<'b>>,
}

impl<'b> Count<'b> {
    fn of(x: Value<'b>, axes: &[usize]) -> Count<'b> {
        let (changing, known): (Vec<usize>, Vec<usize>) = axes.iter().partition(|&&axis| x.is_bounded_along(&[axis]));
        Count {
            known: known.into_iter().map(|axis| x.dim(axis)).product(),
            changing: (!changing.is_empty()).then(|| x.count(&changing, DType::I64)),
        }
    }

    fn times(self, cx: &Cx<'b>, size: &Dim) -> Count<'b> {
        if size.sizes.is_empty() {
            return Count { known: self.known * size.capacity, ..self };
        }
        let size = cx.size_of(size);
        Count { changing: Some(self.changing.map_or(size, |changing| changing * size)), ..self }
    }
}

/// Applies PyTorch's normalization: none (0), divided by the square root of the number of elements (1), or by the
/// number (2). XLA divides by the known number in inverse transforms, and only there.
fn normalized<'b>(cx: &Cx<'b>, x: Value<'b>, count: Count<'b>, forward: bool) -> Result<Value<'b>> {
    let (normalization, known) = (cx.int("normalization")?, count.known as f64);
    let wanted = match normalization {
        0 => 1.0,
        1 => known.sqrt().recip(),
        _ => known.recip(),
    };
    let scale = if forward { wanted } else { wanted * known };
    let x = if scale == 1.0 { x } else { x * scale };
    let Some(changing) = count.changing.filter(|_| normalization != 0) else { return Ok(x) };
    let changing = changing.convert(x.dtype().real());
    let divisor = if normalization == 1 { changing.sqrt() } else { changing };
    let scaled = |part: Value<'b>| part / divisor;
    Ok(if x.dtype().is_complex() { scaled(x.real()).complex(scaled(x.imag())) } else { scaled(x) })
}
