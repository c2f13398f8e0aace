//! Fourier transforms over any dimensions.

use stablehlo::{Fft, Value};

use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["_fft_c2c"], |cx| {
        let dtype = cx.ty("self")?.dtype;
        let x = cx.tensor("self")?.convert(dtype.opmath());
        let axes = axes(cx, x)?;
        let forward = cx.bool("forward")?;
        Ok(normalized(cx, complex(x, &axes, forward), count(x, &axes), forward)?.convert(dtype))
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
                complex(along(x, last, Fft::Rfft, x.dim(last)), others, true)
            }
            _ => complex(wide, &axes, true),
        };
        Ok(normalized(cx, result, count(x, &axes), true)?.convert(dtype.complex()))
    })
    .bounded(),
    one(&["_fft_c2r"], |cx| {
        let dtype = cx.ty("self")?.dtype;
        let x = cx.tensor("self")?.convert(dtype.opmath());
        let axes = axes(cx, x)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.real().convert(dtype.real())) };
        let size = cx.int("last_dim_size")?;
        // The rest of the spectrum is the conjugate of the first half.
        let half = complex(x.slice_axis(last, 0, size / 2 + 1), others, false);
        let result = normalized(cx, along(half, last, Fft::Irfft, size), size * count(x, others), false)?;
        Ok(result.convert(dtype.real()))
    })
    .bounded(),
];

/// The dimensions in the given order. A real transform halves the last one.
fn axes<'b>(cx: &Cx<'b>, x: Value<'b>) -> Result<Vec<usize>> {
    let axes: Vec<usize> = cx.ints("dim")?.into_iter().map(|dim| cx.axis(dim, x.rank())).collect::<Result<_>>()?;
    x.require_whole(&axes, "a Fourier transform");
    Ok(axes)
}

fn count(x: Value<'_>, axes: &[usize]) -> i64 {
    axes.iter().map(|&axis| x.dim(axis)).product()
}

fn complex<'b>(x: Value<'b>, axes: &[usize], forward: bool) -> Value<'b> {
    let kind = if forward { Fft::Fft } else { Fft::Ifft };
    axes.iter().fold(x, |x, &axis| along(x, axis, kind, x.dim(axis)))
}

/// A transform of `size` elements along one dimension.
fn along(x: Value<'_>, axis: usize, kind: Fft, size: i64) -> Value<'_> {
    let last = x.rank() - 1;
    x.move_axis(axis, last).fft(kind, size).move_axis(last, axis)
}

/// Applies PyTorch's normalization: none (0), divided by the square root of the number of elements (1), or by the
/// number (2). XLA divides by the number in inverse transforms, and only there.
fn normalized<'b>(cx: &Cx<'b>, x: Value<'b>, count: i64, forward: bool) -> Result<Value<'b>> {
    let count = count as f64;
    let wanted = match cx.int("normalization")? {
        0 => 1.0,
        1 => count.sqrt().recip(),
        _ => count.recip(),
    };
    let scale = if forward { wanted } else { wanted * count };
    Ok(if scale == 1.0 { x } else { x * scale })
}
