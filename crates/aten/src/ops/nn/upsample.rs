//! Interpolation and its gradients.
//!
//! Every filter is linear and separable. With W_d = the [outputs, inputs] weights of dimension d, which the program
//! computes:
//!
//! ```text
//! forward: y = x contracted with W_d along each d;   gradient: g contracted with W_dᵀ along each d
//! ```
//!
//! A product spreads an infinity or NaN over its row. Nearest neighbours with integer factors avoid that. So do those
//! whose sizes change: the program reads them by index.

use stablehlo::{Builder, DType, DTypes, Extent, Number, Value};

use crate::common::filters::{along_last_axes, cubic, products};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, all_bounded, one};
use crate::spec::Dim;

const SCALES: &[&str] = &["scales", "scales_d", "scales_h", "scales_w"];
const PIXELS: DTypes = DTypes::FLOATS.or(DTypes::of(&[DType::U8]));

pub(crate) const ROWS: &[Row] = &all_bounded([
    resizing(&["upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"], |cx| resize(cx, Filter::Nearest)),
    resizing(&["_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"], |cx| {
        resize(cx, Filter::NearestExact)
    }),
    resizing(&["upsample_linear1d", "upsample_trilinear3d"], |cx| resize(cx, Filter::Linear))
        .takes(&["self"], DTypes::FLOATS),
    resizing(&["upsample_bilinear2d"], |cx| resize(cx, Filter::Linear)).takes(&["self"], PIXELS),
    resizing(&["upsample_bicubic2d"], |cx| resize(cx, Filter::Cubic)).takes(&["self"], PIXELS),
    resizing(&["_upsample_bilinear2d_aa"], |cx| resize(cx, Filter::SmoothLinear)).takes(&["self"], PIXELS),
    resizing(&["_upsample_bicubic2d_aa"], |cx| resize(cx, Filter::SmoothCubic)).takes(&["self"], PIXELS),
    resizing(&["_upsample_lanczos2d_aa"], |cx| resize(cx, Filter::SmoothLanczos)).takes(&["self"], PIXELS),
    resizing(&["upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"], |cx| {
        resize_backward(cx, Filter::Nearest)
    }),
    resizing(
        &[
            "_upsample_nearest_exact1d_backward",
            "_upsample_nearest_exact2d_backward",
            "_upsample_nearest_exact3d_backward",
        ],
        |cx| resize_backward(cx, Filter::NearestExact),
    ),
    resizing(&["upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"], |cx| {
        resize_backward(cx, Filter::Linear)
    }),
    resizing(&["upsample_bicubic2d_backward"], |cx| resize_backward(cx, Filter::Cubic)),
    resizing(&["_upsample_bilinear2d_aa_backward"], |cx| resize_backward(cx, Filter::SmoothLinear)),
    resizing(&["_upsample_bicubic2d_aa_backward"], |cx| resize_backward(cx, Filter::SmoothCubic)),
    resizing(&["_upsample_lanczos2d_aa_backward"], |cx| resize_backward(cx, Filter::SmoothLanczos)),
]);

/// A row of an interpolation or its gradient. A scale is a constant of the program only if it is whole.
const fn resizing(names: &'static [&'static str], lower: for<'b> fn(&Cx<'b>) -> Result<Value<'b>>) -> Row {
    one(names, lower).baked_if(SCALES, is_whole)
}

/// Whether a scale is a whole number of outputs for each input, or of inputs for each output; or is none.
fn is_whole(scale: Number) -> bool {
    let scale = scale.to_f64();
    scale.is_nan() || scale <= 0.0 || scale.fract() == 0.0 || scale.recip().fract() == 0.0
}

/// The `Smooth` filters (antialias) become wider when an image shrinks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Filter {
    Nearest,
    NearestExact,
    Linear,
    Cubic,
    SmoothLinear,
    SmoothCubic,
    SmoothLanczos,
}

/// How one dimension is resized.
struct Axis<'b> {
    filter: Filter,
    align_corners: bool,
    inputs: Length<'b>,
    outputs: Length<'b>,
    scale: Scale<'b>,
}

/// Input elements per output element.
#[derive(Clone, Copy)]
enum Scale<'b> {
    Known(f64),
    /// 0-d, float64.
    Given(Value<'b>),
    /// That of the sizes, which change.
    OfSizes,
}

/// The size of a dimension.
struct Length<'b> {
    capacity: i64,
    extent: Extent,
    /// 0-d, int64.
    valid: Value<'b>,
}

impl<'b> Length<'b> {
    fn of(x: Value<'b>, axis: usize) -> Length<'b> {
        x.require_prefix(axis, "interpolation of merged dimensions");
        Length { capacity: x.dim(axis), extent: x.extent(axis), valid: x.size(axis, DType::I64) }
    }

    fn given(cx: &Cx<'b>, dim: &Dim) -> Length<'b> {
        let extent = dim.extent(|size| cx.b().capacity(size));
        if !extent.is_prefix() {
            cx.b().refuse_bounded("interpolation to merged dimensions");
        }
        Length { capacity: dim.capacity, extent, valid: cx.size_of(dim) }
    }
}

/// How the last dimensions of images are resized.
fn axes<'b>(
    cx: &Cx<'b>,
    filter: Filter,
    rank: usize,
    inputs: impl Fn(usize) -> Length<'b>,
    outputs: impl Fn(usize) -> Length<'b>,
) -> Result<Vec<Axis<'b>>> {
    let spatial = cx.dims("output_size")?.len();
    if rank < spatial || !(1..=3).contains(&spatial) {
        return Err(Error::runtime(format!("resizing {spatial} of {rank} dimensions")));
    }
    let align_corners = cx.bool("align_corners")?;
    let names = if spatial == 1 { &SCALES[..1] } else { &SCALES[4 - spatial..] };
    let axis = |i: usize| {
        let (inputs, outputs) = (inputs(rank - spatial + i), outputs(i));
        let given = if align_corners { None } else { given_scale(cx, names[i])? };
        let known = inputs.extent.is_whole() && outputs.extent.is_whole();
        let (from, to) = (inputs.capacity as f64, outputs.capacity as f64);
        let scale = match given {
            Some(scale) => scale,
            None if !known => Scale::OfSizes,
            None if align_corners && to == 1.0 => Scale::Known(0.0),
            None if align_corners => Scale::Known((from - 1.0) / (to - 1.0).max(1.0)),
            None => Scale::Known(from / to.max(1.0)),
        };
        Ok(Axis { filter, align_corners, inputs, outputs, scale })
    };
    (0..spatial).map(axis).collect()
}

/// The scale of a call that is given output elements per input element.
fn given_scale<'b>(cx: &Cx<'b>, name: &str) -> Result<Option<Scale<'b>>> {
    if cx.is_none(name) {
        return Ok(None);
    }
    Ok(match cx.known_number(name) {
        Some(number) => Some(1.0 / number.to_f64()).filter(|&scale| scale > 0.0).map(Scale::Known),
        None => Some(Scale::Given(cx.scalar(name, DType::F64)?.recip())),
    })
}

fn resize<'b>(cx: &Cx<'b>, filter: Filter) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let sizes = cx.dims("output_size")?;
    let axes = axes(cx, filter, x.rank(), |axis| Length::of(x, axis), |i| Length::given(cx, &sizes[i]))?;
    if let Some(steps) = whole_steps(&axes) {
        return Ok(repeat_or_skip(x, &axes, &steps));
    }
    if matches!(filter, Filter::Nearest | Filter::NearestExact) && axes.iter().any(Axis::changes) {
        return Ok(axes.iter().enumerate().fold(x, |x, (i, axis)| {
            let place = x.rank() - axes.len() + i;
            let source = axis.nearest(axis.output(cx.b(), DType::F32, &[axis.outputs.capacity]));
            Places::slices(&x.dims(), place, source.convert(DType::I32)).read(x)
        }));
    }
    let dtype = x.dtype();
    let work = if dtype.is_float() { dtype.opmath() } else { DType::F32 };
    let matrices: Vec<Value<'b>> = axes.iter().map(|axis| axis.weights(cx.b(), work)).collect();
    if dtype.is_float() {
        return Ok(along_last_axes(x.convert(work), &matrices, 1).convert(dtype));
    }
    // PyTorch rounds integers after each dimension, the last one first, and rounds their weights to 16 bits.
    let resized = matrices.iter().map(|&weights| fixed_point(weights)).enumerate().rev();
    let resized = resized.fold(x.convert(work), |x, (i, matrix)| {
        let axis = x.rank() - matrices.len() + i;
        let last = x.rank() - 1;
        let resized = products(x.move_axis(axis, last), &[matrix], 1).move_axis(last, axis);
        (resized + 0.5).floor().clamp(dtype.lowest(), dtype.highest())
    });
    Ok(resized.convert(dtype))
}

/// Weights rounded to multiples of the smallest power of two with which they fit into 16-bit integers.
fn fixed_point(weights: Value<'_>) -> Value<'_> {
    let largest = weights.reduce_max(&[0, 1]);
    let two = largest.splat_like(2);
    let bits = (largest.splat_like(32767.5) / largest).log() / std::f64::consts::LN_2;
    let unit = two.pow(bits.floor().clamp(0.0, 22.0).round_even());
    let scaled = weights * unit;
    scaled.lt(0).select((scaled - 0.5).ceil(), (scaled + 0.5).floor()) / unit
}

fn resize_backward<'b>(cx: &Cx<'b>, filter: Filter) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let sizes = cx.dims("input_size")?;
    let first = grad.rank() - cx.dims("output_size")?.len().min(grad.rank());
    let input = |axis: usize| Length::given(cx, &sizes[axis]);
    let axes = axes(cx, filter, sizes.len().min(grad.rank()), input, |i| Length::of(grad, first + i))?;
    let dtype = grad.dtype();
    let wide = grad.convert(dtype.opmath());
    let summed = match whole_steps(&axes) {
        Some(steps) => sum_or_spread(wide, &axes, &steps),
        None => {
            let matrices: Vec<Value<'b>> = axes.iter().map(|axis| axis.weights(cx.b(), wide.dtype())).collect();
            along_last_axes(wide, &matrices, 0)
        }
    };
    Ok(summed.convert(dtype))
}

// ---- weights -------------------------------------------------------------------------------------

impl<'b> Axis<'b> {
    fn changes(&self) -> bool {
        !self.inputs.extent.is_whole() || !self.outputs.extent.is_whole()
    }

    /// Input elements per output element, 0-d.
    fn scale(&self, b: &'b Builder, dtype: DType) -> Value<'b> {
        match self.scale {
            Scale::Known(scale) => return b.scalar(scale, dtype),
            Scale::Given(scale) => return scale.convert(dtype),
            Scale::OfSizes => {}
        }
        let (from, to) = (self.inputs.valid.convert(dtype), self.outputs.valid.convert(dtype));
        // XLA multiplies by the reciprocal of a constant, which is less exact.
        if !self.align_corners {
            return from / to.max(1).barrier();
        }
        to.gt(1).select((from - 1) / (to - 1).max(1).barrier(), 0)
    }

    /// The number of each output along the first of these dimensions.
    fn output(&self, b: &'b Builder, dtype: DType, dims: &[i64]) -> Value<'b> {
        b.iota(dtype, dims, 0).with_extent(0, self.outputs.extent.clone())
    }

    /// The number of the last input, 0-d.
    fn last(&self, dtype: DType) -> Value<'b> {
        (self.inputs.valid - 1).convert(dtype)
    }

    /// The nearest input of each output.
    fn nearest(&self, output: Value<'b>) -> Value<'b> {
        let dtype = output.dtype();
        let center = if self.filter == Filter::NearestExact { output + 0.5 } else { output };
        (center * self.scale(output.builder(), dtype)).floor().max(0).min(self.last(dtype))
    }

    /// [outputs, inputs]: the weight of each input in each output.
    fn weights(&self, b: &'b Builder, dtype: DType) -> Value<'b> {
        let output = self.output(b, dtype, &[self.outputs.capacity, 1]);
        let input = b.iota(dtype, &[1, self.inputs.capacity], 1).with_extent(1, self.inputs.extent.clone());
        let (scale, last) = (self.scale(b, dtype), self.last(dtype));
        let one_hot = |place: Value<'b>| input.eq(place.max(0).min(last)).convert(dtype);
        let source = if self.align_corners { output * scale } else { (output + 0.5) * scale - 0.5 };
        match self.filter {
            Filter::Nearest | Filter::NearestExact => input.eq(self.nearest(output)).convert(dtype),
            Filter::Linear => {
                let source = source.max(0.0);
                let below = source.floor().min(last);
                let part = (source - below).clamp(0.0, 1.0);
                one_hot(below) * (-part + 1.0) + one_hot(below + 1.0) * part
            }
            Filter::Cubic => {
                let below = source.floor();
                let part = source - below;
                let tap = |k: f64| one_hot(below + k) * cubic((part - k).abs(), -0.75);
                tap(-1.0) + tap(0.0) + tap(1.0) + tap(2.0)
            }
            _ => {
                let widening = scale.max(1.0);
                let support = widening * self.support();
                let center = (output + 0.5) * scale;
                let first = (center - support + 0.5).max(0.0).floor();
                let end = (center + support + 0.5).floor().min(last + 1);
                let distance = ((input - center + 0.5) / widening).abs();
                let weight = (input.ge(first) & input.lt(end)).select(self.kernel(distance), 0.0);
                weight / weight.reduce_sum(&[1]).keep_dims(&[1])
            }
        }
    }

    /// Half the width of a smooth filter.
    fn support(&self) -> f64 {
        match self.filter {
            Filter::SmoothLanczos => 3.0,
            Filter::SmoothCubic => 2.0,
            _ => 1.0,
        }
    }

    /// The weight of a smooth filter at a distance.
    fn kernel(&self, distance: Value<'b>) -> Value<'b> {
        match self.filter {
            Filter::SmoothLanczos => {
                let sinc = |x: Value<'b>| {
                    let x = x * std::f64::consts::PI;
                    x.eq(0).select(x.splat_like(1), x.sin() / x)
                };
                distance.lt(3.0).select(sinc(distance) * sinc(distance / 3.0), 0.0)
            }
            Filter::SmoothCubic => cubic(distance, -0.5),
            _ => (-distance + 1.0).max(0.0),
        }
    }
}

// ---- integer factors -------------------------------------------------------------------------------

/// How nearest neighbours step through a dimension whose factor is an integer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// Each input is repeated this many times.
    Repeat(i64),
    /// Every n-th input, from the first, becomes an output.
    Skip(i64, i64),
}

/// The steps, if nearest neighbours need no weights in any dimension.
fn whole_steps(axes: &[Axis<'_>]) -> Option<Vec<Step>> {
    axes.iter().map(Axis::whole_step).collect()
}

impl Axis<'_> {
    fn whole_step(&self) -> Option<Step> {
        let Scale::Known(scale) = self.scale else { return None };
        if self.changes() {
            return None;
        }
        let (inputs, outputs) = (self.inputs.capacity, self.outputs.capacity);
        let offset = match self.filter {
            Filter::Nearest => 0.0,
            Filter::NearestExact => 0.5f32,
            _ => return None,
        };
        let source = |output: i64| {
            let source = ((output as f32 + offset) * scale as f32).floor() as i64;
            source.clamp(0, (inputs - 1).max(0))
        };
        let (first, factor) = (source(0), outputs / inputs.max(1));
        let skip = if outputs > 1 { source(1) - first } else { 1 };
        // Neither decreases along the outputs, so they agree where they agree at both ends of each input's outputs.
        let repeats = |input: i64| source(input * factor) == input && source((input + 1) * factor - 1) == input;
        if factor > 0 && factor * inputs == outputs && (0..inputs).all(repeats) {
            Some(Step::Repeat(factor))
        } else if skip > 0 && (0..outputs).all(|output| source(output) == first + output * skip) {
            // It ends at the last input at the latest.
            Some(Step::Skip(first, skip))
        } else {
            None
        }
    }
}

fn repeat_or_skip<'b>(x: Value<'b>, axes: &[Axis<'_>], steps: &[Step]) -> Value<'b> {
    let first = x.rank() - axes.len();
    let mut result = x;
    for (i, (axis, step)) in axes.iter().zip(steps).enumerate() {
        let place = first + i;
        result = match *step {
            Step::Repeat(1) => result,
            Step::Repeat(factor) => {
                let mut dims = result.dims();
                dims.insert(place + 1, factor);
                let kept: Vec<usize> = (0..dims.len()).filter(|&d| d != place + 1).collect();
                let repeated = result.broadcast_in_dim(&dims, &kept);
                dims.remove(place + 1);
                dims[place] = axis.outputs.capacity;
                repeated.reshape(&dims)
            }
            Step::Skip(start, step) => {
                result.slice_axis_by(place, start, start + (axis.outputs.capacity - 1) * step + 1, step)
            }
        };
    }
    result
}

/// The adjoint of [`repeat_or_skip`].
fn sum_or_spread<'b>(grad: Value<'b>, axes: &[Axis<'_>], steps: &[Step]) -> Value<'b> {
    let first = grad.rank() - axes.len();
    let mut result = grad;
    for (i, (axis, step)) in axes.iter().zip(steps).enumerate() {
        let place = first + i;
        let mut dims = result.dims();
        result = match *step {
            Step::Repeat(1) => result,
            Step::Repeat(factor) => {
                dims[place] = axis.inputs.capacity;
                dims.insert(place + 1, factor);
                result.reshape(&dims).reduce_sum(&[place + 1])
            }
            Step::Skip(start, step) => {
                let (mut low, mut high, mut interior) = (vec![0; dims.len()], vec![0; dims.len()], vec![0; dims.len()]);
                low[place] = start;
                interior[place] = step - 1;
                high[place] = axis.inputs.capacity - start - (axis.outputs.capacity - 1) * step - 1;
                result.pad(0, &low, &high, &interior)
            }
        };
    }
    result
}
