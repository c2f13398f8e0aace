//! Fake quantization: rounds numbers to values that an integer type with a scale and a zero point can represent.

use stablehlo::{DType, DotDims, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    many(&["fake_quantize_per_tensor_affine_cachemask"], |cx| {
        let (low, high) = range(cx)?;
        let (scale, zero_point) = (cx.scalar("scale", DType::F32)?, cx.scalar("zero_point", DType::I64)?);
        let affine = Affine { scale, zero_point, low, high };
        let x = cx.tensor("self")?;
        Ok(affine.rounded(x, DType::F32).into())
    })
    .inputs(&["zero_point"])
    .requires(&["zero_point", "quant_min", "quant_max"], |n, _| n[1] > n[2] || (n[1]..=n[2]).contains(&n[0])),
    many(&["_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"], |cx| {
        let affine = Affine::new(cx, first(cx, "scale")?.convert(DType::F32), first(cx, "zero_point")?)?;
        let x = cx.tensor("self")?;
        let [rounded, mask] = affine.rounded(x, DType::F32);
        let is_on = first(cx, "fake_quant_enabled")?.ne(0);
        Ok(vec![is_on.select(rounded, x), !is_on | mask])
    }),
    many(&["fake_quantize_per_channel_affine_cachemask"], |cx| {
        let x = cx.tensor("self")?;
        let affine = Affine::along(cx, cx.tensor("scale")?, cx.tensor("zero_point")?)?;
        Ok(affine.rounded(x, x.dtype().opmath()).into())
    }),
    // Scale and zero point are learned: the zero point is a float, and is rounded at each use.
    one(&["_fake_quantize_learnable_per_tensor_affine"], |cx| {
        let zero_point = nearest_zero_point(cx, first(cx, "zero_point")?, 0.0)?;
        let affine = Affine::new(cx, first(cx, "scale")?.convert(DType::F32), zero_point)?;
        Ok(affine.rounded(cx.tensor("self")?, DType::F32)[0])
    }),
    one(&["_fake_quantize_learnable_per_channel_affine"], |cx| {
        let x = cx.tensor("self")?;
        let zero_point = nearest_zero_point(cx, cx.tensor("zero_point")?, 0.0)?;
        let affine = Affine::along(cx, cx.tensor("scale")?, zero_point)?;
        Ok(affine.rounded(x, x.dtype().opmath())[0])
    }),
    many(&["_fake_quantize_learnable_per_tensor_affine_backward"], |cx| {
        // PyTorch's gradient rounds the zero point half up.
        let zero_point = nearest_zero_point(cx, first(cx, "zero_point")?, 0.5)?;
        let affine = Affine::new(cx, first(cx, "scale")?.convert(DType::F32), zero_point)?;
        let axes: Vec<usize> = (0..cx.tensor("self")?.rank()).collect();
        affine.gradients(cx, &axes, &[1])
    }),
    many(&["_fake_quantize_learnable_per_channel_affine_backward"], |cx| {
        let zero_point = nearest_zero_point(cx, cx.tensor("zero_point")?, 0.0)?;
        let scale = cx.tensor("scale")?;
        let affine = Affine::along(cx, scale, zero_point)?;
        let rank = cx.tensor("self")?.rank();
        let axis = cx.axis_arg("axis", rank)?;
        let others: Vec<usize> = (0..rank).filter(|&other| other != axis).collect();
        affine.gradients(cx, &others, &scale.dims())
    }),
    many(&["_fused_moving_avg_obs_fq_helper_functional"], observe_and_round),
    one(&["_weight_int8pack_mm"], |cx| {
        let (x, weight) = (cx.tensor("self")?, cx.tensor("mat2")?);
        let dims = DotDims { lhs_contract: vec![1], rhs_contract: vec![1], ..DotDims::default() };
        let product = x.dot_general(weight.convert(x.dtype()), &dims, DType::F32);
        Ok((product * cx.tensor("scales")?.convert(DType::F32)).convert(x.dtype()))
    }),
]);

/// The first element of a tensor that has one element.
fn first<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    let x = cx.tensor(name)?;
    if x.numel() == 0 {
        return Err(Error::runtime(format!("`{name}` is empty")));
    }
    Ok(x.flatten().select_axis(0, 0))
}

/// Rounds a float zero point to an integer in the range. `more` is added before the number is truncated.
fn nearest_zero_point<'b>(cx: &Cx<'b>, zero_point: Value<'b>, more: f64) -> Result<Value<'b>> {
    let (low, high) = range(cx)?;
    let zero_point = zero_point.convert(DType::F32);
    let rounded = if more == 0.0 { zero_point.round_even() } else { zero_point + more };
    Ok(rounded.clamp(low, high).convert(DType::I32))
}

fn out_of_range() -> Error {
    Error::runtime("`zero_point` must be between `quant_min` and `quant_max`.")
}

/// The smallest and largest integer.
fn range(cx: &Cx<'_>) -> Result<(i64, i64)> {
    let (low, high) = (cx.int("quant_min")?, cx.int("quant_max")?);
    if low > high {
        return Err(Error::runtime("`quant_min` should be less than or equal to `quant_max`."));
    }
    Ok((low, high))
}

/// Affine quantization: an integer from `low` to `high` represents `(integer - zero_point) * scale`.
struct Affine<'b> {
    /// One number, or numbers shaped to broadcast along the other dimensions of the tensor.
    scale: Value<'b>,
    /// An integer, or a float that need not be an integer.
    zero_point: Value<'b>,
    low: i64,
    high: i64,
}

impl<'b> Affine<'b> {
    fn new(cx: &Cx<'b>, scale: Value<'b>, zero_point: Value<'b>) -> Result<Affine<'b>> {
        let (low, high) = range(cx)?;
        if !zero_point.dtype().is_float() {
            let zero_point = zero_point.convert(DType::I64);
            let bound = |number: i64| cx.b().scalar(number, DType::I64);
            cx.check_range(zero_point, bound(low), bound(high + 1), out_of_range());
        }
        Ok(Affine { scale, zero_point, low, high })
    }

    /// One scale and zero point for each index along `axis` of `self`.
    fn along(cx: &Cx<'b>, scale: Value<'b>, zero_point: Value<'b>) -> Result<Affine<'b>> {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("axis", x.rank())?;
        if scale.dims() != [x.dim(axis)] || zero_point.dims() != scale.dims() {
            return Err(Error::runtime("dimensions of scale and zero-point are not consistent with input tensor"));
        }
        let dims: Vec<i64> = (0..x.rank()).map(|i| if i == axis { x.dim(i) } else { 1 }).collect();
        Affine::new(cx, scale.convert(DType::F32).reshape(&dims), zero_point.reshape(&dims))
    }

    /// The nearest integer for each element, in the dtype of `x`. It may be out of range.
    fn integers(&self, x: Value<'b>) -> Value<'b> {
        let scaled = x * self.scale.recip().convert(x.dtype());
        let zero_point = self.zero_point.convert(x.dtype());
        // A float zero point is added before rounding; rounding two terms separately would give another result.
        if self.zero_point.dtype().is_float() {
            (zero_point + scaled).round_even()
        } else {
            scaled.round_even() + zero_point
        }
    }

    fn is_within(&self, integers: Value<'b>) -> Value<'b> {
        integers.ge(self.low) & integers.le(self.high)
    }

    /// The numbers that integers represent. Integers are clamped to the range; NaN becomes the smallest. `dtype` is
    /// the type of the computation.
    fn numbers(&self, integers: Value<'b>, dtype: DType) -> Value<'b> {
        let held = integers.is_nan().select(integers.splat_like(self.low), integers.clamp(self.low, self.high));
        (held.convert(dtype) - self.zero_point.convert(dtype)) * self.scale.convert(dtype)
    }

    /// Each element after quantization and dequantization, and whether it was in range.
    fn rounded(&self, x: Value<'b>, dtype: DType) -> [Value<'b>; 2] {
        let integers = self.integers(x.convert(x.dtype().opmath()));
        [self.numbers(integers, dtype).convert(x.dtype()), self.is_within(integers)]
    }

    /// The gradients of the element, the scale and the zero point (Esser et al., "Learned step size quantization",
    /// 2020). The gradients of the scale and the zero point are summed over `axes` and have shape `dims`.
    fn gradients(&self, cx: &Cx<'b>, axes: &[usize], dims: &[i64]) -> Result<Vec<Value<'b>>> {
        let (grad, x) = (cx.tensor("grad")?, cx.tensor("self")?);
        let (grad, x, dtype) = (grad.convert(DType::F32), x.convert(DType::F32), x.dtype());
        let factor = cx.scalar("grad_factor", DType::F32)?;
        let zero_point = self.zero_point.convert(DType::F32);
        let float = Affine { scale: self.scale, zero_point, low: self.low, high: self.high };
        let integers = float.integers(x);
        let is_within = self.is_within(integers);
        let rounding = (self.numbers(integers, DType::F32) - x) * self.scale.recip();
        let bound = |number: i64| (-zero_point + number).broadcast_to(&x.dims());
        let edge = integers.lt(self.low).select(bound(self.low), bound(self.high));
        let of_scale = grad * is_within.select(rounding, edge) * factor;
        let of_zero_point = is_within.select(x.splat_like(0), -grad * self.scale * factor);
        let summed = |x: Value<'b>| x.reduce_sum(axes).reshape(dims);
        Ok(vec![(grad * is_within.convert(DType::F32)).convert(dtype), summed(of_scale), summed(of_zero_point)])
    }
}

// ---- observers -------------------------------------------------------------------------------------------

/// Tracks the smallest and largest element, computes a scale and a zero point from them, and quantizes. The tensors
/// `observer_on` and `fake_quant_on` turn these steps on.
fn observe_and_round<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let is_by_channel = cx.bool("per_row_fake_quant")?;
    let (observes, rounds) = (first(cx, "observer_on")?.ne(0), first(cx, "fake_quant_on")?.ne(0));
    let axis = if is_by_channel { Some(cx.axis_arg("ch_axis", x.rank())?) } else { None };
    let axes: Vec<usize> = (0..x.rank()).filter(|&other| Some(other) != axis).collect();
    let (running_min, running_max) = (cx.tensor("running_min")?, cx.tensor("running_max")?);
    let share = cx.scalar("averaging_const", DType::F32)?;
    let follow = |running: Value<'b>, seen: Value<'b>| {
        let seen = seen.convert(DType::F32).reshape(&running.dims());
        let followed = running.is_infinite().select(seen, running + (seen - running) * share);
        observes.select(followed, running)
    };
    let low = follow(running_min, x.reduce_min(&axes));
    let high = follow(running_max, x.reduce_max(&axes));
    cx.check_none(
        rounds.broadcast_to(&low.dims()) & low.gt(high),
        Error::runtime("In ChooseQuantizationParams, min should be less than or equal to max"),
    );
    let (chosen_scale, chosen_zero_point) = choose(cx, low, high)?;
    let (old_scale, old_zero_point) = (cx.tensor("scale")?, cx.tensor("zero_point")?);
    let scale = rounds.select(chosen_scale.convert(old_scale.dtype()).reshape(&old_scale.dims()), old_scale);
    let chosen_zero_point = chosen_zero_point.convert(old_zero_point.dtype()).reshape(&old_zero_point.dims());
    let zero_point = rounds.select(chosen_zero_point, old_zero_point);
    let dims: Vec<i64> = (0..x.rank()).map(|i| if axis == Some(i) { x.dim(i) } else { 1 }).collect();
    let (low_integer, high_integer) = range(cx)?;
    let affine = Affine {
        scale: scale.convert(DType::F32).reshape(&dims),
        zero_point: zero_point.reshape(&dims),
        low: low_integer,
        high: high_integer,
    };
    let [rounded, mask] = affine.rounded(x, DType::F32);
    Ok(vec![rounds.select(rounded, x), !rounds | mask, low, high, scale, zero_point])
}

/// The scale (float64) and the zero point with which the integers cover the numbers from `low` to `high` and
/// represent 0 exactly. Chosen as in PyTorch (`quant_utils::ChooseQuantizationParams`).
fn choose<'b>(cx: &Cx<'b>, low: Value<'b>, high: Value<'b>) -> Result<(Value<'b>, Value<'b>)> {
    /// PyTorch's smallest scale, about that of float16.
    const SMALLEST_SCALE: f64 = 6.1e-5_f32 as f64;
    let (least, greatest) = range(cx)?;
    if least == greatest {
        return Err(Error::runtime("In ChooseQuantizationParams, qmin should be less than qmax"));
    }
    let is_symmetric = cx.bool("symmetric_quant")?;
    let steps = greatest - least;
    let (mut low, mut high) = (low.convert(DType::F64), high.convert(DType::F64));
    let single = |x: Value<'b>| x.convert(DType::F32).convert(DType::F64);
    let spans_zero = low.lt(0) & high.gt(0);
    if is_symmetric {
        let (down, up) = (-(steps / 2 + 1), steps / 2);
        let scale = (low / down).abs().max((high / up).abs());
        low = spans_zero.select(single(scale * down), low);
        high = spans_zero.select(single(scale * up), high);
    }
    let (low, high) = (low.min(0), high.max(0));
    let scale = (high - low) / steps;
    let is_nothing = single(scale).eq(0) | single(scale).convert(DType::F32).recip().is_infinite();
    let scale = is_nothing.select(scale.splat_like(0.1), scale);
    let is_small = scale.lt(SMALLEST_SCALE);
    let larger = single(scale.splat_like(SMALLEST_SCALE) / single(scale));
    let room = SMALLEST_SCALE * steps as f64;
    let widened_high = low.eq(0).select(high.splat_like(room), high.eq(0).select(high, single(high * larger)));
    let widened_low = low.eq(0).select(low, high.eq(0).select(low.splat_like(-room), single(low * larger)));
    let (low, high) = (is_small.select(widened_low, low), is_small.select(widened_high, high));
    let scale = is_small.select(scale.splat_like(SMALLEST_SCALE), scale);
    let (from_low, from_high) = (low / scale, high / scale);
    let low_is_better = (-from_low.abs() + least.abs()).lt(-from_high.abs() + greatest.abs());
    let zero_point = low_is_better.select(-from_low + least, -from_high + greatest);
    let middle = (least + greatest) as f64 / 2.0;
    let zero_point =
        if is_symmetric { spans_zero.select(zero_point.splat_like(middle), zero_point) } else { zero_point };
    Ok((scale, zero_point.clamp(least, greatest).round_even()))
}
