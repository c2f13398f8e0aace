//! Samples an image at the points of a grid; gradients.

use stablehlo::Value;

use crate::common::filters::cubic;
use crate::common::parameters::wanted;
use crate::common::sampling::{Sampling, Taps, channel_rows};
use crate::common::windows::check_not_empty;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["grid_sampler_2d", "grid_sampler_3d"], sample).one_dtype(&["input", "grid"]).bounded(),
    many(&["grid_sampler_2d_backward", "grid_sampler_3d_backward"], sample_backward).bounded(),
];

const CUBIC: f64 = -0.75;

#[derive(Clone, Copy, PartialEq)]
enum Interpolation {
    Linear,
    Nearest,
    Cubic,
}

#[derive(Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

struct Sampler {
    interpolation: Interpolation,
    padding: Padding,
    align_corners: bool,
}

impl Sampler {
    fn of(cx: &Cx<'_>) -> Result<Sampler> {
        let unknown = |what: &str| Err(Error::runtime(format!("grid_sampler: unknown {what} mode")));
        Ok(Sampler {
            interpolation: match cx.int("interpolation_mode")? {
                0 => Interpolation::Linear,
                1 => Interpolation::Nearest,
                2 => Interpolation::Cubic,
                _ => return unknown("interpolation"),
            },
            padding: match cx.int("padding_mode")? {
                0 => Padding::Zeros,
                1 => Padding::Border,
                2 => Padding::Reflection,
                _ => return unknown("padding"),
            },
            align_corners: cx.bool("align_corners")?,
        })
    }

    /// The taps along a dimension of `size` elements (0-d) for coordinates [batch, points] between -1 and 1.
    fn taps<'b>(&self, coordinate: Value<'b>, size: Value<'b>) -> Taps<'b> {
        let b = coordinate.builder();
        let half = if self.align_corners { size - 1 } else { size } / 2;
        let shift = if self.align_corners { 0.0 } else { 0.5 };
        let position = ((coordinate + 1.0) * half - shift).unsqueeze(2);
        let (place, weight, slope) = match self.interpolation {
            Interpolation::Nearest => {
                let place = self.padded(position, size).0.round_even();
                (place, place.splat_like(1), place.splat_like(0))
            }
            Interpolation::Linear => {
                let (position, moved) = self.padded(position, size);
                return Taps::linear(position, moved * half, size);
            }
            Interpolation::Cubic => {
                // The padding mode applies to each tap, not to the position.
                let below = position.floor();
                let tap = b.iota(position.dtype(), &[1, 1, 4], 2) - 1.0;
                let distance = position - below - tap;
                let slope = cubic_slope(distance) * half;
                (self.padded(below + tap, size).0, cubic(distance.abs(), CUBIC), slope)
            }
        };
        Taps::at(place, size, weight, slope)
    }

    /// A position after the padding mode, and its derivative.
    fn padded<'b>(&self, position: Value<'b>, size: Value<'b>) -> (Value<'b>, Value<'b>) {
        let last = size - 1;
        let one = position.splat_like(1);
        let clipped = |position: Value<'b>, slope: Value<'b>| {
            let within = position.gt(0.0) & position.lt(last);
            (position.max(0.0).min(last), within.select(slope, 0.0))
        };
        match self.padding {
            Padding::Zeros => (position, one),
            Padding::Border => clipped(position, one),
            Padding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, last) } else { (-0.5, size) };
                let distance = (position - low).abs();
                let direction = position.lt(low).select(-one, one);
                // All positions in a dimension of one element are the same.
                let period = span.max(1);
                let extra = distance % period;
                let odd = ((distance / period).floor() % 2.0).ne(0.0);
                let reflected = odd.select(-extra + (span + low), extra + low);
                clipped(reflected, odd.select(-direction, direction))
            }
        }
    }
}

/// The derivative of [`cubic`] at a signed distance.
fn cubic_slope<'b>(distance: Value<'b>) -> Value<'b> {
    let (a, x) = (CUBIC, distance.abs());
    let near = (x * (3.0 * (a + 2.0)) - 2.0 * (a + 3.0)) * x;
    let far = (x * 3.0 - 10.0) * x * a + 8.0 * a;
    let slope = x.le(1.0).select(near, x.lt(2.0).select(far, 0.0));
    distance.lt(0.0).select(-slope, slope)
}

fn sampling_of<'b>(sampler: &Sampler, input: Value<'b>, grid: Value<'b>) -> Result<Sampling<'b>> {
    let dims = input.dims();
    let [batch, _, sizes @ ..] = &dims[..] else {
        return Err(Error::runtime(format!("grid_sampler: an image of sizes {dims:?}")));
    };
    let along_grid = (0..dims.len()).filter(|&axis| axis != 1);
    along_grid.for_each(|axis| input.require_prefix(axis, "a sample of merged dimensions"));
    let spatial = sizes.len();
    if grid.dim(0) != *batch || grid.dim(grid.rank() - 1) != spatial as i64 {
        grid.builder().refuse_bounded("a grid of other sizes than its images");
        return Err(Error::not_implemented("a grid of other sizes than its images"));
    }
    let points = grid.numel() / (batch * spatial as i64).max(1);
    let grid = grid.reshape(&[*batch, points, spatial as i64]);
    // The grid lists x first, which is the image's last dimension.
    let coordinate = |i: usize| grid.select_axis(2, (spatial - 1 - i) as i64);
    let taps = (0..spatial).map(|i| sampler.taps(coordinate(i), input.size(2 + i, grid.dtype()))).collect();
    Ok(Sampling::new(grid.builder(), [*batch, points], sizes, taps))
}

/// The images, the grid without padding, and the sampling of one at the points of the other.
fn sampling<'b>(cx: &Cx<'b>) -> Result<(Value<'b>, Value<'b>, Sampling<'b>)> {
    let (input, grid) = (cx.tensor("input")?, cx.tensor("grid")?);
    let filled = grid.zero_filled(0..grid.rank(), "a grid of merged dimensions").convert(input.dtype().opmath());
    Ok((input, grid, sampling_of(&Sampler::of(cx)?, input, filled)?))
}

/// Images × channels × the grid's places.
fn sample_dims(input: Value<'_>, grid: Value<'_>) -> Vec<i64> {
    [&input.dims()[..2], &grid.dims()[1..grid.rank() - 1]].concat()
}

fn sample<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (input, grid, sampling) = sampling(cx)?;
    check_not_empty(input, 2, "grid_sampler(): expected input to have non-empty spatial dimensions")?;
    let dtype = input.dtype();
    let rows = channel_rows(input.without_extents().convert(dtype.opmath()));
    let sampled = sampling.sampled(rows);
    let extents = [&input.extents()[..2], &grid.extents()[1..grid.rank() - 1]].concat();
    Ok(sampled.swap_axes(1, 2).reshape(&sample_dims(input, grid)).convert(dtype).with_extents(extents))
}

fn sample_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (input, grid, sampling) = sampling(cx)?;
    let (grad, dtype) = (cx.tensor("grad_output")?, input.dtype());
    if grad.dims() != sample_dims(input, grid) {
        cx.b().refuse_bounded("a gradient with other padding than its samples");
    }
    let grad = grad.zero_filled(0..grad.rank(), "a gradient of merged dimensions");
    // Sums over channels read those of the padding.
    let filled = input.zero_filled([1], "channels of merged dimensions").without_extents();
    let rows = channel_rows(filled.convert(dtype.opmath()));
    let (batch, channels) = (input.dim(0), input.dim(1));
    let points = grid.dims()[1..grid.rank() - 1].iter().product();
    let grad = channel_rows(grad.convert(dtype.opmath())).reshape(&[batch, points, 1, channels]);

    let of_input = sampling.spread(rows, grad).reshape(&[batch, rows.dim(0) / batch.max(1), channels]);
    let of_input = of_input.swap_axes(1, 2).reshape(&input.dims());
    let slopes = sampling.slopes(rows, grad);
    let slopes: Vec<Value<'b>> = slopes.into_iter().rev().map(|slope| slope.unsqueeze(2)).collect();
    let of_grid = cx.b().concatenate(&slopes, 2).reshape(&grid.dims()).with_extents(grid.extents());
    // PyTorch has a gradient of the grid in any case.
    let mut gradients = wanted(cx, &[of_input.convert(dtype).with_extents(input.extents())])?;
    gradients.push(of_grid.convert(grid.dtype()));
    Ok(gradients)
}
