//! Random numbers from the stream of the call. It is a Philox stream (Salmon et al., "Parallel random numbers: as easy as
//! 1, 2, 3", 2011), except on TPUs.
//! The state of the stream and the parameters of a distribution are inputs of the program, so a new seed or parameter
//! does not recompile.
//!
//! Distributions with rejection sampling are in `rejection.rs`.

use stablehlo::{DType, DTypes, Number, Type, Value, broadcast_dims};

use crate::common::random_bits::{bits_type, digits, half_open, normal, open};
use crate::cx::Cx;
use crate::error::{Error, Result, scalar_type_name};
use crate::row::{Row, Setting, many, one};
use crate::view;

pub(crate) const ROWS: &[Row] = &[
    // For graphs that repeat a draw, as activation checkpointing does: these save the state before the draw and
    // restore it later. Each returns the state before the call, as bytes.
    one(&["torchtpu::random_state"], |cx| Ok(state_bytes(cx))),
    one(&["torchtpu::replay_random_state"], |cx| {
        let before = state_bytes(cx);
        cx.set_random_state(view::reinterpret(cx.tensor("state")?, DType::U64), true);
        Ok(before)
    }),
    one(&["torchtpu::resume_random_state"], |cx| {
        let before = state_bytes(cx);
        cx.set_random_state(view::reinterpret(cx.tensor("state")?, DType::U64), false);
        Ok(before)
    }),
    one(&["uniform"], |cx| uniform_numbers(cx, &cx.ty("self")?))
        .takes(&["self"], DTypes::INEXACT)
        .requires(&["from", "to"], |n, dtype| is_range_of(n[0], n[1], dtype))
        .bounded(),
    one(&["rand", "rand.generator", "rand_like", "rand_like.generator"], |cx| {
        let ty = cx.result_type(DType::F32)?;
        cx.check_dtype(ty.dtype, DTypes::INEXACT)?;
        by_parts(&ty, |dtype, dims| Ok(uniform(cx, dtype, dims)))
    })
    .bounded(),
    one(&["normal_functional", "normal_"], |cx| normal_numbers(cx, &cx.ty("self")?))
        .requires(&["std"], |n, _| n[0] >= 0.0)
        .bounded(),
    one(&["normal.float_float"], |cx| normal_numbers(cx, &cx.result_type(DType::F32)?))
        .requires(&["std"], |n, _| n[0] >= 0.0)
        .bounded(),
    one(&["normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor"], |cx| {
        let dtype = cx.promoted(&["mean", "std"])?;
        cx.check_dtype(cx.promoted(&["std"])?, DTypes::REAL)?;
        let dims = broadcast_dims(&cx.ty("mean")?.dims, &cx.ty("std")?.dims)
            .ok_or_else(|| Error::runtime("normal: mean and std do not broadcast"))?;
        if let Some(deviation) = cx.tensor_or_none("std") {
            cx.check_not_negative(deviation, Error::runtime("normal expects all elements of std >= 0.0"));
        }
        let normal = standard_normal(cx, dtype, &dims);
        let moved = normal * cx.operand("std", normal.dtype())? + cx.operand("mean", normal.dtype())?;
        Ok(moved.convert(dtype))
    })
    .bounded(),
    one(&["randn", "randn.generator", "randn_like", "randn_like.generator"], |cx| {
        let ty = cx.result_type(DType::F32)?;
        by_parts(&ty, |dtype, dims| Ok(standard_normal(cx, dtype, dims) * part_deviation(&ty)))
    })
    .bounded(),
    one(&["log_normal"], |cx| {
        let ty = cx.ty("self")?;
        let logarithm = normal_numbers(cx, &Type::new(ty.dtype.opmath(), &ty.dims))?;
        Ok(logarithm.exp().convert(ty.dtype))
    })
    .takes(&["self"], DTypes::FLOATS)
    .requires(&["std"], |n, _| n[0] > 0.0)
    .bounded(),
    one(&["exponential"], |cx| {
        let ty = cx.ty("self")?;
        let u = uniform_open(cx, ty.dtype, &ty.dims);
        Ok((-u.log() / cx.scalar("lambd", u.dtype())?).convert(ty.dtype))
    })
    .takes(&["self"], DTypes::FLOATS)
    .requires(&["lambd"], |n, _| n[0] > 0.0)
    .bounded(),
    one(&["cauchy"], |cx| {
        let ty = cx.ty("self")?;
        let u = uniform_open(cx, ty.dtype, &ty.dims);
        let standard = ((u - 0.5) * std::f64::consts::PI).tan();
        let moved = standard * cx.scalar("sigma", u.dtype())? + cx.scalar("median", u.dtype())?;
        Ok(moved.convert(ty.dtype))
    })
    .takes(&["self"], DTypes::FLOATS)
    .requires(&["sigma"], |n, _| n[0] > 0.0)
    .bounded(),
    one(&["geometric"], |cx| {
        let ty = cx.ty("self")?;
        let u = uniform_open(cx, ty.dtype, &ty.dims);
        let failure = -cx.scalar("p", u.dtype())?;
        Ok((u.log() / failure.log_1p()).ceil().max(1).convert(ty.dtype))
    })
    .takes(&["self"], DTypes::REAL_NUMBERS)
    .requires(&["p"], |n, _| n[0] > 0.0 && n[0] < 1.0)
    .bounded(),
    one(&["bernoulli"], |cx| {
        let p = cx.tensor("self")?;
        cx.check_fractions(p, not_a_probability());
        Ok(bernoulli(cx, p, &p.dims()).convert(p.dtype()))
    })
    .takes(&["self"], DTypes::FLOATS)
    .bounded(),
    one(&["bernoulli.p", "bernoulli_.float", "bernoulli.Tensor"], |cx| {
        let ty = cx.ty("self")?;
        let p = match cx.ty("p") {
            Ok(p) if p.dtype.is_float() && !p.dims.is_empty() => cx.tensor("p")?,
            _ => cx.scalar("p", DType::F32)?,
        };
        if cx.tensor_or_none("p").is_some() {
            cx.check_fractions(p, not_a_probability());
        }
        Ok(bernoulli(cx, p, &ty.dims).convert(ty.dtype))
    })
    .requires(&["p"], |n, _| (0.0..=1.0).contains(&n[0]))
    .bounded(),
    one(&["random", "random.to", "random.from"], |cx| {
        let ty = cx.ty("self")?;
        if cx.is_input("to") {
            return integers_of_inputs(cx, &ty, "from", "to");
        }
        let last = match cx.int_or_none("to") {
            Some(to) => to.wrapping_sub(1),
            None => last_integer(ty.dtype),
        };
        integers(cx, &ty, cx.int_or_none("from").unwrap_or(0), last)
    })
    .varies(&["from", "to"], class_of_range)
    .bounded(),
    one(
        &[
            "randint",
            "randint.generator",
            "randint.low",
            "randint.low_generator",
            "randint_like",
            "randint_like.generator",
            "randint_like.low_dtype",
            "randint_like.low_generator_dtype",
        ],
        |cx| {
            let ty = cx.result_type(DType::I64)?;
            if cx.is_input("high") {
                return integers_of_inputs(cx, &ty, "low", "high");
            }
            integers(cx, &ty, cx.int_or_none("low").unwrap_or(0), cx.int("high")?.wrapping_sub(1))
        },
    )
    .varies(&["low", "high"], class_of_range)
    .bounded(),
    one(&["randperm", "randperm.generator"], permutation).bounded(),
    one(&["multinomial"], multinomial).takes(&["self"], DTypes::FLOATS).bounded(),
    many(&["native_dropout"], |cx| {
        let input = cx.tensor("input")?;
        if !cx.is_none("train") && !cx.bool("train")? {
            return Ok(vec![input, cx.b().splat(true, DType::Bool, &input.dims())]);
        }
        let keep = -cx.scalar("p", input.dtype().opmath())? + 1.0;
        let mask = bernoulli(cx, keep, &input.dims());
        let scale = keep.eq(0).select(keep, keep.recip());
        Ok(vec![scaled_by_mask(input, mask, scale), mask])
    })
    // Without training nothing is drawn.
    .requires(&["p", "train"], |n, _| n[1] == 0.0 || (0.0..=1.0).contains(&n[0]))
    .bounded(),
    one(&["native_dropout_backward"], |cx| {
        let grad = cx.tensor("grad_output")?;
        let grad = grad.convert(cx.result_dtype(cx.float_dtype(grad.dtype())));
        Ok(scaled_by_mask(grad, cx.tensor("mask")?, cx.scalar("scale", grad.dtype().opmath())?))
    })
    .bounded(),
    many(&["rrelu_with_noise"], |cx| {
        let (output, noise) = rrelu(cx)?;
        Ok(vec![noise, output])
    })
    .takes(&["self"], DTypes::FLOATS)
    .bounded(),
    many(&["rrelu_with_noise_functional", "rrelu_with_noise_"], |cx| {
        let (output, noise) = rrelu(cx)?;
        Ok(vec![output, noise])
    })
    .takes(&["self"], DTypes::FLOATS)
    .bounded(),
];

/// The numbers below `n`, in the order of random keys.
fn permutation<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let n = cx.dim("n")?;
    let dtype = cx.result_dtype(cx.dtype_or_none("dtype").unwrap_or(DType::I64));
    cx.check_dtype(dtype, DTypes::REAL_NUMBERS)?;
    let last = if dtype.is_float() { 1 << digits(dtype) } else { dtype.highest().to_i64() };
    if n.capacity - 1 > last && dtype != DType::U64 {
        let name = scalar_type_name(dtype);
        return Err(Error::runtime(format!("n cannot be greater than {} for {name} type.", last + 1)));
    }
    // Equal keys sort by position. With this width they are too rare to matter.
    let keys = cx.random_bits(DType::U64, &[n.capacity]);
    let behind = cx.b().scalar(DType::U64.highest(), DType::U64);
    let sorted = keys.filled_along(0, behind, "a permutation of merged dimensions");
    let numbers = cx.b().iota(DType::of_counts(n.capacity), &[n.capacity], 0);
    let sorted = cx.b().sort(&[sorted, numbers], 0, true, |left, right| left[0].lt(right[0]));
    Ok(sorted[1].bounded_like(keys).convert(dtype))
}

/// The error message of PyTorch's CPU.
fn not_a_probability() -> Error {
    Error::runtime("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
}

fn state_bytes<'b>(cx: &Cx<'b>) -> Value<'b> {
    view::reinterpret(cx.random_state(), DType::U8)
}

// ---- from bits to numbers --------------------------------------------------------------------------

/// Uniform numbers in [0, 1) of type `dtype`, with as many random bits as it can represent, so none rounds to 1.
fn uniform<'b>(cx: &Cx<'b>, dtype: DType, dims: &[i64]) -> Value<'b> {
    half_open(cx.random_bits(bits_type(dtype), dims), digits(dtype)).convert(dtype)
}

/// Uniform numbers in (0, 1), in `dtype` or the type in which it is computed.
fn uniform_open<'b>(cx: &Cx<'b>, dtype: DType, dims: &[i64]) -> Value<'b> {
    open(cx.random_bits(bits_type(dtype), dims))
}

/// Standard normal numbers, in `dtype` or the type in which it is computed.
fn standard_normal<'b>(cx: &Cx<'b>, dtype: DType, dims: &[i64]) -> Value<'b> {
    normal(cx.random_bits(bits_type(dtype), dims))
}

/// Booleans that are true with probability `p`.
fn bernoulli<'b>(cx: &Cx<'b>, p: Value<'b>, dims: &[i64]) -> Value<'b> {
    let dtype = if p.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    uniform(cx, dtype, dims).lt(p.convert(dtype))
}

// ---- distributions ---------------------------------------------------------------------------------

/// A value of type `ty` from `draw`. A complex value takes one draw for each part.
fn by_parts<'b>(ty: &Type, draw: impl Fn(DType, &[i64]) -> Result<Value<'b>>) -> Result<Value<'b>> {
    let part = || Ok(draw(ty.dtype.real(), &ty.dims)?.convert(ty.dtype.real()));
    if ty.dtype.is_complex() { Ok(part()?.complex(part()?)) } else { part() }
}

/// The standard deviation of each part, so that the whole number has deviation 1.
fn part_deviation(ty: &Type) -> f64 {
    if ty.dtype.is_complex() { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 }
}

fn normal_numbers<'b>(cx: &Cx<'b>, ty: &Type) -> Result<Value<'b>> {
    by_parts(ty, |dtype, dims| {
        let normal = standard_normal(cx, dtype, dims) * part_deviation(ty);
        Ok(normal * cx.scalar("std", normal.dtype())? + cx.scalar("mean", normal.dtype())?)
    })
}

/// Whether `from` and `to` are a range of a type's numbers, and the type has their distance.
fn is_range_of(from: f64, to: f64, dtype: DType) -> bool {
    let highest = dtype.real().highest().to_f64();
    from <= to && from >= -highest && to <= highest && to - from <= highest
}

/// Uniform numbers in [from, to).
fn uniform_numbers<'b>(cx: &Cx<'b>, ty: &Type) -> Result<Value<'b>> {
    let known = |name| cx.known_number(name).map(Number::to_f64);
    let unit = known("from") == Some(0.0) && known("to") == Some(1.0);
    by_parts(ty, |dtype, dims| {
        let u = uniform(cx, dtype, dims);
        if unit {
            return Ok(u);
        }
        let work = dtype.opmath();
        let (from, to) = (cx.scalar("from", work)?, cx.scalar("to", work)?);
        let x = (u.convert(work) * (to - from) + from).convert(dtype);
        // The sum may round to the excluded end.
        Ok(x.ge(to.convert(dtype)).select(from.convert(dtype), x))
    })
}

/// The largest number that `random_` draws for a type. For floats, all integers up to it are representable.
fn last_integer(dtype: DType) -> i64 {
    match dtype {
        DType::U64 => i64::MAX,
        dtype if dtype.is_float() => 1 << digits(dtype),
        dtype => dtype.highest().to_i64(),
    }
}

/// The smallest and the largest integer that a type holds, as far as `random_` can draw them.
fn integers_of(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::Bool => (0, 1),
        DType::U64 => (0, i128::from(u64::MAX)),
        DType::F16 => (-65504, 65504),
        dtype if dtype.is_integer() => (dtype.lowest().to_i64().into(), dtype.highest().to_i64().into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    }
}

/// The distance between neighbours of `x` in a float type, at least 1; 1 for integers.
fn spacing(x: i64, dtype: DType) -> i128 {
    if !dtype.is_float() {
        return 1;
    }
    let bits = 64 - i64::from(x.unsigned_abs().leading_zeros());
    1 << (bits - digits(dtype)).max(0)
}

/// Integers from `low` to `last`, both included, as elements of `ty`.
fn integers<'b>(cx: &Cx<'b>, ty: &Type, low: i64, last: i64) -> Result<Value<'b>> {
    cx.check_dtype(ty.dtype, DTypes::REAL)?;
    let (least, most) = integers_of(ty.dtype);
    for (name, number) in [("from", i128::from(low)), ("to - 1", i128::from(last))] {
        if !(least..=most).contains(&number) {
            return Err(Error::runtime(format!("{name} is out of bounds for {}", scalar_type_name(ty.dtype))));
        }
    }
    // A float type cannot represent all integers beyond its digits: use the representable ones in the range.
    let inner_low = i128::from(low) + (-i128::from(low)).rem_euclid(spacing(low, ty.dtype));
    let inner_last = i128::from(last) - i128::from(last).rem_euclid(spacing(last, ty.dtype));
    let count = inner_last - inner_low + 1;
    if count < 1 {
        return Err(Error::runtime(format!("random: no number of this type lies from {low} to {last}")));
    }
    // A remainder favours small numbers by the range divided by 2^bits, so large ranges use the wider type.
    let narrow = count <= NARROW.into();
    let bits = cx.random_bits(if narrow { DType::U32 } else { DType::U64 }, &ty.dims);
    let offset = match count {
        count if count == 1 << 64 => bits,
        count if count & (count - 1) == 0 => bits & Number::Int((count - 1) as i64),
        count => bits % Number::Int(count as i64),
    };
    let fits = |x: i128| i32::try_from(x).is_ok();
    let work = if narrow && fits(inner_low) && fits(inner_last) { DType::I32 } else { DType::I64 };
    Ok((offset.convert(work) + Number::Int(inner_low as i64)).convert(ty.dtype))
}

/// The most integers that are drawn with 32 bits each.
const NARROW: i64 = 1 << 20;

/// Ranges from 0 or a number that share a program: those of 32-bit numbers for which [`integers`] draws 32 bits.
fn class_of_range(range: &[i64], setting: &Setting<'_>) -> Option<Vec<i64>> {
    let (low, high) = match *range {
        [high] => (0, high),
        [low, high] => (low, high),
        _ => return None,
    };
    let is_small = [low, high].iter().all(|&n| i32::try_from(n).is_ok());
    let holds_all = setting.dtype.is_none_or(|dtype| matches!(dtype, DType::I32 | DType::I64));
    (is_small && holds_all && (1..=NARROW).contains(&(high - low))).then(Vec::new)
}

/// The numbers of [`integers`] for a range in [`class_of_range`] that is an input of the program.
fn integers_of_inputs<'b>(cx: &Cx<'b>, ty: &Type, low: &str, high: &str) -> Result<Value<'b>> {
    cx.check_dtype(ty.dtype, DTypes::REAL)?;
    let high = cx.scalar(high, DType::I64)?;
    let low = cx.scalar_or_none(low, DType::I64)?.unwrap_or(high.splat_like(0));
    let offset = cx.random_bits(DType::U32, &ty.dims) % (high - low).convert(DType::U32);
    Ok((offset.convert(DType::I32) + low.convert(DType::I32)).convert(ty.dtype))
}

/// Checks that weights are finite, not negative, and not all zero. PyTorch's error message depends on how the numbers
/// are drawn.
fn check_weights<'b>(cx: &Cx<'b>, weights: Value<'b>, draws_again: bool) {
    let invalid = |what: &str| Error::runtime(format!("invalid multinomial distribution ({what})"));
    let (negative, infinite) = (weights.lt(0), !weights.is_finite());
    if draws_again {
        cx.check_none(negative, invalid("encountering probability entry < 0"));
        cx.check_none(infinite, invalid("encountering probability entry = infinity or NaN"));
    } else {
        let message = "probability tensor contains either `inf`, `nan` or element < 0";
        cx.check_none(negative | infinite, Error::runtime(message));
    }
    let sum = weights.reduce_sum(&[weights.rank() - 1]);
    cx.check_none(sum.le(0), invalid("sum of probabilities <= 0"));
}

fn multinomial<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let b = cx.b();
    let weights = cx.tensor("self")?;
    let (dtype, dims) = (weights.dtype().opmath(), weights.dims());
    let samples = cx.int("num_samples")?;
    let Some(axis) = dims.len().checked_sub(1) else {
        return Err(Error::runtime("prob_dist must be 1 or 2 dim"));
    };
    if samples <= 0 {
        return Err(Error::runtime("cannot sample n_sample <= 0 samples"));
    }
    let weights = weights.convert(dtype);
    let draws_again = cx.bool("replacement")? && samples > 1;
    check_weights(cx, weights, draws_again);
    let mut sample_dims = dims.clone();
    sample_dims[axis] = samples;
    if draws_again {
        if weights.is_bounded_along(&[axis]) && samples == dims[axis] {
            b.refuse_bounded("as many samples as the capacity of the categories");
        }
        let weights = weights.zero_filled([axis], "categories of merged dimensions");
        // Inverts the distribution function: counts the running sums that are below a uniform number.
        let sums = weights.scan(axis, Number::Int(0), |a, x| a + x);
        let total = sums.slice_axis(axis, dims[axis] - 1, dims[axis]);
        let targets = uniform_open(cx, dtype, &sample_dims).convert(dtype) * total;
        let passed = sums.unsqueeze(axis).le(targets.unsqueeze(axis + 1));
        let count = passed.convert(DType::I32).reduce_sum(&[axis + 1]);
        return Ok(count.min(last_possible(weights, axis)).convert(DType::I64));
    }
    if !cx.bool("replacement")? {
        let too_many = Error::runtime("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
        if samples > dims[axis] {
            return Err(too_many);
        }
        // The capacity of the categories may be larger than their number.
        if weights.is_bounded_along(&[axis]) {
            cx.check_none(weights.size(axis, DType::I64).lt(samples), too_many);
        }
    }
    // Exponential races (Efraimidis and Spirakis, 2006): the categories with the first arrivals are a sample without
    // replacement.
    let arrival = -uniform_open(cx, dtype, &dims).log().convert(dtype) / weights;
    // Padding arrives last.
    let never = b.scalar(dtype.min_identity(), dtype);
    let arrival = arrival.filled([axis], |_| never, "categories of merged dimensions");
    let category = b.iota(DType::I32, &dims, axis);
    let first = if samples == 1 {
        let start = [never, b.scalar(i64::from(i32::MAX), DType::I32)];
        b.reduce(&[arrival, category], &start, &[axis], |a, x| {
            let earlier = a[0].lt(x[0]) | (a[0].eq(x[0]) & a[1].lt(x[1]));
            vec![earlier.select(a[0], x[0]), earlier.select(a[1], x[1])]
        })[1]
            .reshape(&sample_dims)
    } else {
        let sorted = b.sort(&[arrival, category], axis, true, |left, right| left[0].lt(right[0]));
        sorted[1].slice_axis(axis, 0, samples)
    };
    Ok(first.convert(DType::I64))
}

/// The last category with a non-zero weight. Rounding must not give a later one.
fn last_possible(weights: Value<'_>, axis: usize) -> Value<'_> {
    let category = weights.builder().iota(DType::I32, &weights.dims(), axis);
    weights.gt(0).select(category, 0).reduce_max(&[axis]).keep_dims(&[axis])
}

/// `x · mask · scale`, with a scale in the type of the computation. As in PyTorch, a dropped NaN stays NaN.
fn scaled_by_mask<'b>(x: Value<'b>, mask: Value<'b>, scale: Value<'b>) -> Value<'b> {
    let dtype = x.dtype();
    let work = dtype.opmath();
    (x.convert(work) * mask.convert(work) * scale).convert(dtype)
}

/// The randomized leaky ReLU and its noise, which is the slope at each element.
fn rrelu<'b>(cx: &Cx<'b>) -> Result<(Value<'b>, Value<'b>)> {
    let x = cx.tensor("self")?;
    let (dtype, work) = (x.dtype(), x.dtype().opmath());
    let (lower, upper) = (cx.scalar("lower", work)?, cx.scalar("upper", work)?);
    let wide = x.convert(work);
    if !cx.bool("training")? {
        let slope = (lower + upper) / 2;
        return Ok((wide.le(0).select(wide * slope, wide).convert(dtype), cx.tensor("noise")?));
    }
    let slope = half_open(cx.random_bits(bits_type(work), &x.dims()), digits(work)) * (upper - lower) + lower;
    let noise = wide.le(0).select(slope, slope.splat_like(1));
    Ok(((wide * noise).convert(dtype), noise.convert(dtype)))
}
