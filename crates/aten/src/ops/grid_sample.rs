//! Sampling an image at the points of a grid, and the gradients.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::ops::index::{Combine, Places};
use crate::ops::norm::wanted;
use crate::ops::upsample::cubic;
use crate::table::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["grid_sampler_2d", "grid_sampler_3d"], sample),
    many(&["grid_sampler_2d_backward", "grid_sampler_3d_backward"], sample_backward),
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

/// One of the input elements that make up a sample along one dimension; values are batch × points.
#[derive(Clone, Copy)]
struct Tap<'b> {
    index: Value<'b>,
    inside: Value<'b>,
    weight: Value<'b>,
    /// The weight's derivative in the grid's coordinate.
    slope: Value<'b>,
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

    /// The taps along a dimension of `size` elements for coordinates between -1 and 1.
    fn taps<'b>(&self, coordinate: Value<'b>, size: i64) -> Vec<Tap<'b>> {
        let span = if self.align_corners { size - 1 } else { size } as f64;
        let shift = if self.align_corners { 0.0 } else { 0.5 };
        let position = (coordinate + 1.0) * (span / 2.0) - shift;
        if self.interpolation == Interpolation::Cubic {
            // The padding applies to each tap, not to the position.
            let below = position.floor();
            let part = position - below;
            return (-1..=2)
                .map(|k| {
                    let distance = part - k as f64;
                    let weight = cubic(distance.abs(), CUBIC);
                    let slope = cubic_slope(distance) * (span / 2.0);
                    self.tap(self.padded(below + k as f64, size).0, size, weight, slope)
                })
                .collect();
        }
        let (position, slope) = self.padded(position, size);
        let slope = slope * (span / 2.0);
        match self.interpolation {
            Interpolation::Nearest => {
                vec![self.tap(position.round_even(), size, position.splat_like(1), position.splat_like(0))]
            }
            _ => {
                let below = position.floor();
                let part = position - below;
                vec![self.tap(below, size, -part + 1.0, -slope), self.tap(below + 1.0, size, part, slope)]
            }
        }
    }

    fn tap<'b>(&self, place: Value<'b>, size: i64, weight: Value<'b>, slope: Value<'b>) -> Tap<'b> {
        let last = (size - 1) as f64;
        let inside = place.ge(0.0) & place.le(last);
        Tap { index: inside.select(place, 0.0).convert(DType::I32), inside, weight, slope }
    }

    /// A position as the padding mode moves it, and the derivative of that.
    fn padded<'b>(&self, position: Value<'b>, size: i64) -> (Value<'b>, Value<'b>) {
        let last = (size - 1) as f64;
        let one = position.splat_like(1);
        let clipped = |position: Value<'b>, slope: Value<'b>| {
            let within = position.gt(0.0) & position.lt(last);
            (position.clamp(0.0, last), within.select(slope, 0.0))
        };
        match self.padding {
            Padding::Zeros => (position, one),
            Padding::Border => clipped(position, one),
            Padding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, last) } else { (-0.5, size as f64) };
                if span == 0.0 {
                    return (position.splat_like(0), position.splat_like(0));
                }
                let distance = (position - low).abs();
                let direction = position.lt(low).select(-one, one);
                let extra = distance % span;
                let odd = ((distance / span).floor() % 2.0).ne(0.0);
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

/// The taps of every dimension, and the image with its elements in rows of channels.
struct Sampling<'b> {
    /// By spatial dimension of the image.
    taps: Vec<Vec<Tap<'b>>>,
    sizes: Vec<i64>,
    /// The batch's number, batch × 1.
    batch: Value<'b>,
}

impl<'b> Sampling<'b> {
    fn new(sampler: &Sampler, input: &[i64], grid: Value<'b>) -> Sampling<'b> {
        let sizes = input[2..].to_vec();
        let (batch, spatial) = (input[0], sizes.len());
        let points = grid.numel() / (batch * spatial as i64).max(1);
        let grid = grid.reshape(&[batch, points, spatial as i64]);
        // The grid lists x first, which is the image's last dimension.
        let taps = (0..spatial)
            .map(|i| sampler.taps(grid.select_axis(2, (spatial - 1 - i) as i64), sizes[i]))
            .collect();
        Sampling { taps, sizes, batch: grid.builder().iota(DType::I32, &[batch, 1], 0) }
    }

    /// One tap of each dimension, in every combination.
    fn corners(&self) -> Vec<Vec<Tap<'b>>> {
        self.taps.iter().fold(vec![Vec::new()], |corners, taps| {
            corners.iter().flat_map(|corner| taps.iter().map(move |tap| [corner.as_slice(), &[*tap]].concat())).collect()
        })
    }

    /// The row of a corner's element among all images' elements.
    fn row(&self, corner: &[Tap<'b>]) -> Value<'b> {
        corner.iter().zip(&self.sizes).fold(self.batch, |row, (tap, &size)| row * size + tap.index)
    }

    fn inside(&self, corner: &[Tap<'b>]) -> Value<'b> {
        let all = corner.iter().map(|tap| tap.inside).reduce(|a, b| a & b);
        all.unwrap_or(self.batch.eq(self.batch))
    }

    /// The product of the weights, with the slope in place of dimension `sloped`'s weight.
    fn weight(&self, corner: &[Tap<'b>], sloped: Option<usize>) -> Value<'b> {
        let factors = corner.iter().enumerate().map(|(i, tap)| if sloped == Some(i) { tap.slope } else { tap.weight });
        let product = factors.reduce(|a, b| a * b).unwrap_or(self.batch);
        self.inside(corner).select(product, 0)
    }

    /// What a corner's elements are, batch × points × channels.
    fn read(&self, rows: Value<'b>, corner: &[Tap<'b>]) -> Value<'b> {
        let values = Places::slices(&rows.dims(), 0, self.row(corner)).read(rows);
        self.inside(corner).unsqueeze(2).select(values, 0)
    }
}

/// (batch, channels, …) as (batch · elements) × channels.
fn channel_rows<'b>(x: Value<'b>) -> Value<'b> {
    let (batch, channels) = (x.dim(0), x.dim(1));
    let elements: i64 = x.dims()[2..].iter().product();
    x.reshape(&[batch, channels, elements]).swap_axes(1, 2).reshape(&[batch * elements, channels])
}

fn sample<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (input, grid) = (cx.tensor("input")?, cx.tensor("grid")?);
    let dtype = input.dtype();
    let sampling = Sampling::new(&Sampler::of(cx)?, &input.dims(), grid.convert(dtype.opmath()));
    let rows = channel_rows(input.convert(dtype.opmath()));
    let parts = sampling
        .corners()
        .into_iter()
        .map(|corner| sampling.read(rows, &corner) * sampling.weight(&corner, None).unsqueeze(2));
    let sampled = parts.reduce(|sum, part| sum + part).unwrap_or(rows);
    let mut dims = input.dims();
    dims.truncate(2);
    dims.extend_from_slice(&grid.dims()[1..grid.rank() - 1]);
    Ok(sampled.swap_axes(1, 2).reshape(&dims).convert(dtype))
}

fn sample_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (grad, input, grid) = (cx.tensor("grad_output")?, cx.tensor("input")?, cx.tensor("grid")?);
    let dtype = input.dtype();
    let sampling = Sampling::new(&Sampler::of(cx)?, &input.dims(), grid.convert(dtype.opmath()));
    let rows = channel_rows(input.convert(dtype.opmath()));
    let (batch, channels) = (input.dim(0), input.dim(1));
    let points: i64 = grad.dims()[2..].iter().product();
    let grad = channel_rows(grad.convert(dtype.opmath())).reshape(&[batch, points, channels]);

    let corners = sampling.corners();
    let spread = corners.iter().fold(rows.splat_like(0), |sum, corner| {
        let share = grad * sampling.weight(corner, None).unsqueeze(2);
        Places::slices(&rows.dims(), 0, sampling.row(corner)).write(sum, share, Combine::Add)
    });
    let of_input = spread.reshape(&[batch, rows.dim(0) / batch.max(1), channels]).swap_axes(1, 2).reshape(&input.dims());

    // How much each corner's elements agree with the gradient, batch × points.
    let agreement: Vec<Value<'b>> =
        corners.iter().map(|corner| (sampling.read(rows, corner) * grad).reduce_sum(&[2])).collect();
    let slopes: Vec<Value<'b>> = (0..sampling.taps.len())
        .rev()
        .filter_map(|i| {
            let parts = corners.iter().zip(&agreement).map(|(corner, &part)| part * sampling.weight(corner, Some(i)));
            Some(parts.reduce(|sum, part| sum + part)?.unsqueeze(2))
        })
        .collect();
    let of_grid = cx.b().concatenate(&slopes, 2).reshape(&grid.dims());
    wanted(cx, &[of_input.convert(dtype), of_grid.convert(grid.dtype())])
}
