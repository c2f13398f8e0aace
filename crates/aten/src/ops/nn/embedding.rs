//! Embeddings, embedding bags and their gradients.

use stablehlo::{DType, DTypes, Number, Value};

use crate::check::{Check, Counts};
use crate::common::chosen::segment_of_each_in;
use crate::common::index_check::out_of_range;
use crate::common::reductions::{Order, vector_norm};
use crate::cx::Cx;
use crate::error::{Error, Result, scalar_type_name};
use crate::places::{Combine, Places, narrow};
use crate::row::{Row, many, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    one(&["embedding"], |cx| {
        let (weight, indices) = (cx.tensor("weight")?, cx.tensor("indices")?);
        if !matches!(indices.dtype(), DType::I32 | DType::I64) {
            return Err(Error::runtime("embedding: the indices must be integers of 32 or 64 bits"));
        }
        cx.check_index(indices, weight, 0, Counts::FromStart, out_of_range())?;
        Ok(rows(weight, indices))
    })
    .bounded(),
    one(&["embedding_dense_backward"], embedding_dense_backward).inputs(&["padding_idx"]).bounded(),
    one(&["embedding_renorm", "embedding_renorm_"], embedding_renorm)
        .takes(&["self"], DTypes::INEXACT)
        .baked_if(&["norm_type"], Order::has_own_form),
    many(&["_embedding_bag", "_embedding_bag_forward_only"], embedding_bag).inputs(&["padding_idx"]).bounded(),
    one(&["_embedding_bag_backward", "_embedding_bag_dense_backward"], embedding_bag_backward)
        .inputs(&["padding_idx"])
        .bounded(),
    one(&["_embedding_bag_per_sample_weights_backward"], per_sample_weights_backward)
        .inputs(&["padding_idx"])
        .bounded(),
];

/// The rows of `weight` at `indices` (of any rank).
fn rows<'b>(weight: Value<'b>, indices: Value<'b>) -> Value<'b> {
    Places::slices(&weight.dims(), 0, narrow(indices, weight.dim(0))).read(weight)
}

/// A vector of `size` sums: `values[i]` is added at `index[i]`.
fn sums_at<'b>(size: i64, index: Value<'b>, values: Value<'b>) -> Value<'b> {
    let zeros = values.builder().splat(0, values.dtype(), &[size]);
    Places::flat(size, narrow(index, size)).write(zeros, values, Combine::Add)
}

/// For each word, the number of its occurrences.
fn frequencies<'b>(words: Value<'b>, count: i64) -> Value<'b> {
    let ones = words.builder().splat(1, DType::I32, &words.dims());
    rows(sums_at(count, words, ones), words)
}

/// A `count × width` matrix of sums of rows. Rows of the padding word are left out.
fn add_rows<'b>(cx: &Cx<'b>, count: i64, words: Value<'b>, updates: Value<'b>) -> Result<Value<'b>> {
    // An index out of range, so that the scatter drops the row.
    let words = not_padding(cx, words)?.select(words, words.splat_like(count));
    let zeros = words.builder().splat(0, updates.dtype(), &[count, updates.dim(1)]);
    Ok(Places::slices(&zeros.dims(), 0, narrow(words, count)).write(zeros, updates, Combine::Add))
}

fn embedding_dense_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    let words = cx.tensor("indices")?.flatten();
    let count = cx.int("num_weights")?;
    let width = grad.dims().last().copied().unwrap_or(1);
    let wide = grad.dtype().opmath();
    let mut updates = grad.reshape(&[words.numel(), width]).convert(wide);
    if cx.bool("scale_grad_by_freq")? {
        updates = updates / frequencies(words, count).convert(wide).unsqueeze(1);
    }
    Ok(add_rows(cx, count, words, updates)?.convert(grad.dtype()))
}

/// Scales the indexed rows whose norm exceeds `max_norm` down to it. A row that is indexed twice is written twice
/// with the same values.
fn embedding_renorm<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let weight = cx.tensor("self")?;
    if weight.rank() != 2 {
        let rank = weight.rank();
        return Err(Error::runtime(format!(
            "Expected 2-dimensional tensor, but got {rank}-dimensional tensor for argument #1 'self' (while checking \
             arguments for embedding_renorm_)"
        )));
    }
    let places = Places::slices(&weight.dims(), 0, narrow(cx.tensor("indices")?.flatten(), weight.dim(0)));
    let wide = weight.dtype().opmath();
    let named = places.read(weight).convert(wide);
    let norm = vector_norm(named, Order::of(cx, "norm_type")?, &[1]);
    let max_norm = cx.scalar("max_norm", norm.dtype())?;
    let scale = norm.gt(max_norm).select(max_norm / (norm + 1e-7), 1.0);
    let scaled = (named * scale.convert(wide).unsqueeze(1)).convert(weight.dtype());
    Ok(places.write(weight, scaled, Combine::Replace))
}

// ---- bags ----------------------------------------------------------------------------------------

/// How the rows of a bag are reduced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sum,
    Mean,
    Max,
}

fn mode(cx: &Cx<'_>) -> Result<Mode> {
    match cx.int("mode")? {
        0 => Ok(Mode::Sum),
        1 => Ok(Mode::Mean),
        2 => Ok(Mode::Max),
        other => Err(Error::runtime(format!("embedding_bag: mode {other} is not 0, 1 or 2"))),
    }
}

/// True for all words but the padding word, which is -1 if there is none.
fn not_padding<'b>(cx: &Cx<'b>, words: Value<'b>) -> Result<Value<'b>> {
    Ok(words.ne(cx.scalar("padding_idx", words.dtype())?))
}

/// Returns the bags, the bag of each word, the size of each bag (without padding), and for the maximum the word that
/// each element came from (-1 in empty bags).
fn embedding_bag<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (weight, words, offsets) = (cx.tensor("weight")?, cx.tensor("indices")?, cx.tensor("offsets")?);
    if weight.rank() != 2 {
        let rank = weight.rank();
        return Err(Error::runtime(format!("weight has to be a 2D Tensor, but got Tensor of dimension {rank}")));
    }
    if let Some(weights) = cx.tensor_or_none("per_sample_weights").filter(|each| each.dtype() != weight.dtype()) {
        let [own, other] = [weight.dtype(), weights.dtype()].map(scalar_type_name);
        return Err(Error::runtime(format!(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 \
             'per_sample_weights'; but type {own} does not equal {other} (while checking arguments for embedding_bag)"
        )));
    }
    let number = Check::NUMBER;
    let message = format!("embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {number}");
    cx.check_index(words, weight, 0, Counts::FromStart, Error::runtime(message))?;
    let mode = mode(cx)?;
    let b = cx.b();
    let (samples, width) = (words.numel(), weight.dim(1));
    let (starts, bags) = starts_of_bags(cx, offsets)?;
    check_offsets(cx, offsets, words);

    // The padding of a vector or matrix of bags is that of their starts.
    let of_bags = |value: Value<'b>| value.with_extent(0, starts.extent(0));
    let bag_of = segment_of_each_in(starts, words);
    let counts = not_padding(cx, words)?;
    let sizes = of_bags(sums_at(bags, bag_of, counts.convert(DType::I32)));

    let wide = weight.dtype().opmath();
    let mut values = rows(weight, words).convert(wide);
    if let Some(weights) = cx.tensor_or_none("per_sample_weights") {
        values = values * weights.convert(wide).unsqueeze(1);
    }
    let initial = if mode == Mode::Max { wide.max_identity() } else { Number::Int(0) };
    let values = counts.unsqueeze(1).select(values, initial);
    let bag_rows = Places::slices(&[bags, width], 0, bag_of);
    let combine = if mode == Mode::Max { Combine::Max } else { Combine::Add };
    let joined = of_bags(bag_rows.write(b.splat(initial, wide, &[bags, width]), values, combine));
    let size_column = sizes.unsqueeze(1);
    let (output, winners) = match mode {
        Mode::Sum => (joined, b.splat(0, words.dtype(), &[0])),
        Mode::Mean => (joined / size_column.max(1).convert(wide), b.splat(0, words.dtype(), &[0])),
        Mode::Max => {
            // The first word with the maximum: the smallest position among those that have it.
            let position = b.iota(DType::I32, &[samples, width], 0);
            let wins = values.eq(bag_rows.read(joined)) & counts.unsqueeze(1);
            let candidates = wins.select(position, samples);
            let first = of_bags(bag_rows.write(b.splat(samples, DType::I32, &[bags, width]), candidates, Combine::Min));
            let found = first.lt(samples).select(rows(words, first.min(samples - 1)), -1);
            (size_column.gt(0).select(joined, 0), found)
        }
    };
    let sizes =
        sizes.zero_filled([0], "the sizes of bags").pad_axis(0, 0, 0, offsets.numel() - bags).bounded_like(offsets);
    Ok(vec![output.convert(weight.dtype()), bag_of.convert(words.dtype()), sizes.convert(words.dtype()), winners])
}

/// The offset of each bag, and the number of bags at its capacity. The last offset may be the end of the last bag.
fn starts_of_bags<'b>(cx: &Cx<'b>, offsets: Value<'b>) -> Result<(Value<'b>, i64)> {
    offsets.require_prefix(0, "the offsets of bags in merged dimensions");
    if !cx.bool("include_last_offset")? {
        return Ok((offsets, offsets.numel()));
    }
    let bags = match cx.result_dims(0).and_then(<[Dim]>::first) {
        Some(bags) if offsets.is_bounded() => bags.clone(),
        _ => Dim::known(offsets.numel() - 1),
    };
    let starts = offsets.without_extents().pad_axis(0, 0, 0, bags.capacity - offsets.numel());
    Ok((starts.with_extents(vec![bags.extent(|size| cx.b().capacity(size))]), bags.capacity))
}

/// Checks that the first bag starts at the first word, and the last one at a word or their end.
fn check_offsets<'b>(cx: &Cx<'b>, offsets: Value<'b>, words: Value<'b>) {
    if offsets.numel() == 0 {
        return;
    }
    let number = Check::NUMBER;
    let error = format!(
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {number}"
    );
    cx.check_from_to(offsets.without_extents().slice_axis(0, 0, 1), 0, 0, Error::runtime(error));
    let place = offsets.size(0, DType::I32) - 1;
    let last = offsets.without_extents().dynamic_slice(&[place], &[1]).reshape(&[]).convert(DType::I64);
    let samples = words.count(&[0], DType::I64);
    let (high, low) = (Check::HIGH, Check::LOW);
    let error = format!("offsets[-1] can not be greater than input's length {high} but got offsets[-1] of {low}");
    let shown = last.clamp(0, i64::from(u32::MAX));
    cx.check_that(last.ge(0) & last.le(samples), samples * (1_i64 << 32) + shown, Error::runtime(error));
}

fn embedding_bag_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    if cx.bool("sparse")? {
        return Err(Error::not_implemented("embedding_bag: sparse gradients are not supported"));
    }
    let grad = cx.tensor("grad")?;
    let count = cx.int("num_weights")?;
    let wide = grad.dtype().opmath();
    let upstream = grad.convert(wide);
    let mode = mode(cx)?;
    if mode == Mode::Max {
        let winners = narrow(cx.tensor("maximum_indices")?, count);
        let zeros = cx.b().splat(0, wide, &[count, grad.dim(1)]);
        // Empty bags have word -1, which is out of range.
        return Ok(Places::along(0, winners).write(zeros, upstream, Combine::Add).convert(grad.dtype()));
    }
    let words = cx.tensor("indices")?;
    let bag_of = cx.tensor("offset2bag")?;
    let mut updates = rows(upstream, bag_of);
    if mode == Mode::Mean {
        updates = updates / rows(cx.tensor("bag_size")?, bag_of).max(1).convert(wide).unsqueeze(1);
    }
    if let Some(weights) = cx.tensor_or_none("per_sample_weights") {
        updates = updates * weights.convert(wide).unsqueeze(1);
    }
    if cx.bool("scale_grad_by_freq")? {
        updates = updates / frequencies(words, count).convert(wide).unsqueeze(1);
    }
    Ok(add_rows(cx, count, words, updates)?.convert(grad.dtype()))
}

fn per_sample_weights_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (grad, weight, words) = (cx.tensor("grad")?, cx.tensor("weight")?, cx.tensor("indices")?);
    let wide = grad.dtype().opmath();
    let upstream = rows(grad, cx.tensor("offset2bag")?).convert(wide);
    let products = (upstream * rows(weight, words).convert(wide)).reduce_sum(&[1]);
    Ok(not_padding(cx, words)?.select(products, 0).convert(grad.dtype()))
}
