//! Views of a padded value divided into parts of it.

use aten::{Dim, Division, Factor, Paired, Part, Start, TensorSpec, ViewDim, Windowed};
use stablehlo::DType;

use super::symbols::{Place, Symbols, fixed};

/// A part of a value while a view is divided.
struct Piece {
    place: Place,
    weight: i64,
    start: i64,
    /// The number of positions that the view takes, if a dimension of the view has this part.
    taken: Option<i64>,
    /// How far apart these are.
    step: i64,
}

/// Divides a view of a value with these factors into parts. `None` if it does not divide: a dimension of the view
/// would then have elements in places that depend on the sizes.
pub(super) fn divide(places: &[Place], spec: &TensorSpec, is_written: bool, symbols: &mut Symbols) -> Option<Division> {
    let mut places = places.to_vec();
    for (_, &stride) in spec.sizes.iter().zip(&spec.strides).filter(|(size, stride)| **size > 1 && **stride > 0) {
        split(&mut places, stride);
    }
    let mut pieces: Vec<Piece> = Vec::with_capacity(places.len());
    let mut weight = 1;
    for &place in places.iter().rev() {
        let start = if place.actual > 1 { spec.offset / weight % place.actual } else { 0 };
        pieces.insert(0, Piece { place, weight, start, taken: None, step: 1 });
        weight *= place.actual;
    }
    if pieces.iter().map(|piece| piece.start * piece.weight).sum::<i64>() != spec.offset {
        return None;
    }
    let mut dims: Vec<ViewDim> = Vec::with_capacity(spec.sizes.len());
    for (axis, (&size, &stride)) in spec.sizes.iter().zip(&spec.strides).enumerate() {
        dims.push(match (size, stride) {
            (1, _) => ViewDim::Parts(Vec::new()),
            (_, 0) => ViewDim::Repeated(symbols.repeated(size, spec.sizes.len() - axis)),
            _ => match walk(&mut pieces, size, stride) {
                Some(parts) => ViewDim::Parts(parts),
                None if !is_written && let Some(part) = stepped(&mut pieces, size, stride) => {
                    ViewDim::Parts(vec![part])
                }
                None => diagonal(&mut pieces, size, stride)?,
            },
        });
    }
    let parts: Vec<Part> = pieces.iter().map(|piece| part(piece, is_written, symbols)).collect();
    let is_even = |dim: &ViewDim| match dim {
        &ViewDim::Diagonal(rows, columns) => parts[rows].taken == parts[columns].taken,
        _ => true,
    };
    if !dims.iter().all(is_even) {
        return None;
    }
    for dim in &mut dims {
        if let ViewDim::Parts(of_dim) = dim
            && let Some(factor) = multiple(of_dim, &pieces, &parts, symbols)
        {
            *dim = ViewDim::Multiple(std::mem::take(of_dim), factor);
        }
    }
    Some(Division { parts, dims })
}

/// The size that a multiple of another one equals. Another argument may have it.
fn multiple(of_dim: &[usize], pieces: &[Piece], parts: &[Part], symbols: &Symbols) -> Option<Factor> {
    let (first, others) = of_dim.split_first()?;
    let is_multiple = parts[*first].taken.size.is_some() && others.iter().all(|&part| parts[part].taken.size.is_none());
    let actual: i64 = of_dim.iter().filter_map(|&part| pieces[part].taken).product();
    let factor = symbols.factor(symbols.known(actual).filter(|_| is_multiple && !others.is_empty())?);
    let capacity: i64 = of_dim.iter().map(|&part| parts[part].taken.capacity).product();
    (factor.capacity == capacity).then_some(factor)
}

/// [`divide`] for a view that shows real numbers as complex ones, or complex ones as real ones. `held` is the type of
/// the value's elements.
pub(super) fn divide_pairs(
    places: &[Place],
    spec: &TensorSpec,
    held: DType,
    symbols: &mut Symbols,
) -> Option<(Division, Paired)> {
    if held.is_complex() && spec.dtype == held.real() {
        let parts = [places, &[fixed(2)]].concat();
        return Some((divide(&parts, spec, false, symbols)?, Paired::Parts));
    }
    if held.is_complex() || spec.dtype != held.complex() {
        return None;
    }
    let mut pairs = spec.clone();
    pairs.strides.iter_mut().for_each(|stride| *stride *= 2);
    pairs.offset *= 2;
    pairs.sizes.push(2);
    pairs.strides.push(1);
    Some((divide(places, &pairs, false, symbols)?, Paired::Complex))
}

/// [`divide`] for a view that shows windows of dimensions, each as two dimensions: `unfold` and `stft` make windows of a
/// width that is known, the view in `stack` as many as tensors are joined, and `x.view(-1, 4)` and `x.view(2, -1)` parts of
/// a length.
pub(super) fn divide_windows(
    places: &[Place],
    spec: &TensorSpec,
    symbols: &mut Symbols,
) -> Option<(Division, Vec<Windowed>)> {
    let innermost = places.iter().rposition(|place| place.factor.size.is_some())?;
    let rank = spec.sizes.len();
    // Windows are farther apart than their elements. Where both are as far apart, there are more windows.
    let is_outer = |&(axis, within): &(usize, usize)| {
        axis != within && (spec.strides[axis], spec.sizes[axis]) >= (spec.strides[within], spec.sizes[within])
    };
    let pairs = (0..rank).rev().flat_map(|axis| (0..rank).map(move |within| (axis, within))).filter(is_outer);
    let runs = pairs.flat_map(|(axis, within)| {
        runs_of(places, innermost, spec.strides[within]).into_iter().map(move |run| (axis, within, run))
    });
    let rows = runs.flat_map(|(axis, within, run)| {
        lengths_of(run, spec, within).into_iter().map(move |length| (axis, within, run, length))
    });
    let mut rows: Vec<_> = rows.collect();
    // Rows of a whole run come first.
    rows.sort_by_key(|&(.., (_, is_part))| is_part);
    for (axis, within, run, (length, is_part)) in rows {
        let (count, width, stride) = (spec.sizes[axis], spec.sizes[within], spec.strides[within]);
        let step = spec.strides[axis] / stride;
        let covered = (count - 1) * step + width;
        if count < 2 || width < 2 || step < 1 || spec.strides[axis] % stride != 0 || covered > length {
            continue;
        }
        // Windows of a part of the row, which begins behind its start.
        let begins_inside = spec.offset % (length * stride) != 0;
        let is_known = run.iter().all(|place| place.factor.size.is_none());
        if begins_inside && (is_part || !is_known) {
            continue;
        }
        let length = if begins_inside { covered } else { length };
        let mut rows = spec.clone();
        (rows.sizes[axis], rows.strides[axis]) = (length, stride);
        (_, _) = (rows.sizes.remove(within), rows.strides.remove(within));
        let divided = divide(places, &rows, false, symbols).map(|division| (division, Vec::new()));
        let Some((division, mut windows)) = divided.or_else(|| divide_windows(places, &rows, symbols)) else {
            continue;
        };
        // The capacity, if the length of the rows changes.
        let capacity = match is_part {
            true => symbols.known(length).map(|symbol| symbols.factor(symbol).capacity),
            false if is_known => None,
            false => Some(run.iter().map(|place| place.factor.capacity).product()),
        };
        let is_bounded = capacity.is_some();
        let capacity = capacity.unwrap_or(length);
        // A number that is smaller than the width is more likely to stay, unless calls before show which does.
        let stays = |length: i64| symbols.parts_that_stay.contains(&length);
        let (count_stays, width_stays) = (stays(count), stays(width));
        let width_changes = step == width
            && symbols.known(count).is_none()
            && match covered == length {
                true if width_stays && !count_stays => false,
                true => symbols.in_use(width).is_some() || is_bounded && count < width,
                false => is_bounded && count_stays && !width_stays,
            };
        let (changing, most) = match width_changes {
            true => (width, (capacity + count - 1) / count),
            false => (count, (capacity - width) / step + 1),
        };
        if (width_changes || is_bounded) && symbols.known(changing).is_none() {
            symbols.add(changing, most);
        }
        let (count, step, width) = match width_changes {
            true => (Dim::known(count), symbols.dim(width), symbols.dim(width)),
            false if is_bounded => (symbols.dim(count), Dim::known(step), Dim::known(width)),
            false => (Dim::known(count), Dim::known(step), Dim::known(width)),
        };
        // The dimension of windows stands where it stands without that of the elements.
        let axes = (axis - usize::from(within < axis), within);
        windows.push(Windowed { axes, count, step, width });
        return Some((division, windows));
    }
    None
}

/// The factors that windows of elements `stride` apart may go over: all from the one at `innermost` on, or one.
fn runs_of(places: &[Place], innermost: usize, stride: i64) -> Vec<&[Place]> {
    let weight = |index: usize| places[index + 1..].iter().map(|place| place.actual).product::<i64>();
    let place = (0..places.len()).rev().find(|&index| weight(index) == stride && places[index].actual > 1);
    let all = (stride == 1).then(|| &places[innermost..]);
    all.into_iter().chain(place.map(|index| &places[index..=index])).collect()
}

/// The lengths of the rows that windows of a run may go over: the whole run, or the parts of it that another dimension of
/// the view counts. With whether it is a part.
fn lengths_of(run: &[Place], spec: &TensorSpec, within: usize) -> Vec<(i64, bool)> {
    let length: i64 = run.iter().map(|place| place.actual).product();
    let stride = spec.strides[within];
    let parts = spec.strides.iter().filter(|&&outer| outer > stride && outer % stride == 0 && outer < length * stride);
    [(length, false)].into_iter().chain(parts.map(|outer| (outer / stride, true))).collect()
}

/// Splits a factor without padding where a stride begins.
fn split(places: &mut Vec<Place>, stride: i64) {
    let mut weight = 1;
    for index in (0..places.len()).rev() {
        let Place { actual, factor } = places[index];
        if factor.size.is_none() && weight < stride && stride < weight * actual && stride % weight == 0 {
            let inner = stride / weight;
            if actual % inner == 0 {
                places[index] = fixed(actual / inner);
                places.insert(index + 1, fixed(inner));
            }
            return;
        }
        weight *= actual;
    }
}

/// The parts of a dimension of a view, the outermost first.
fn walk(pieces: &mut [Piece], size: i64, stride: i64) -> Option<Vec<usize>> {
    let mut index = (0..pieces.len()).rev().find(|&i| pieces[i].weight == stride && pieces[i].place.actual > 1)?;
    let (mut parts, mut left) = (Vec::new(), size);
    loop {
        let piece = &mut pieces[index];
        if piece.taken.is_some() {
            return None;
        }
        let actual = piece.place.actual;
        parts.insert(0, index);
        if piece.start + left <= actual {
            piece.taken = Some(left);
            return Some(parts);
        }
        if piece.start != 0 || left % actual != 0 {
            return None;
        }
        piece.taken = Some(actual);
        left /= actual;
        index = (0..index).rev().find(|&i| pieces[i].place.actual > 1)?;
    }
}

/// The part of which a dimension of a view shows every second position, or with another step.
fn stepped(pieces: &mut [Piece], size: i64, stride: i64) -> Option<usize> {
    let takes = |piece: &Piece| {
        let step = stride / piece.weight;
        let is_step = step > 1 && stride % piece.weight == 0;
        is_step && piece.taken.is_none() && piece.start + (size - 1) * step < piece.place.actual
    };
    let part = pieces.iter().rposition(takes)?;
    (pieces[part].taken, pieces[part].step) = (Some(size), stride / pieces[part].weight);
    Some(part)
}

/// The parts of which a dimension of a view shows the diagonal.
fn diagonal(pieces: &mut [Piece], size: i64, stride: i64) -> Option<ViewDim> {
    let is_free = |piece: &Piece| piece.taken.is_none() && piece.start + size <= piece.place.actual;
    let mut pairs = (1..pieces.len()).flat_map(|columns| (0..columns).map(move |rows| (rows, columns)));
    let (rows, columns) = pairs.find(|&(rows, columns)| {
        pieces[rows].weight + pieces[columns].weight == stride && is_free(&pieces[rows]) && is_free(&pieces[columns])
    })?;
    (pieces[rows].taken, pieces[columns].taken) = (Some(size), Some(size));
    Some(ViewDim::Diagonal(rows, columns))
}

fn part(piece: &Piece, is_written: bool, symbols: &mut Symbols) -> Part {
    let (Place { actual, factor: whole }, step) = (piece.place, piece.step);
    let one = Factor { capacity: 1, size: None };
    let start = |symbols: &mut Symbols| Start::Input(symbols.add_start(piece.start, whole.capacity));
    match (piece.taken, whole.size) {
        (Some(taken), _) if taken == actual => Part { whole, start: Start::At(0), taken: whole, step },
        (None, _) if actual == 1 => Part { whole, start: Start::At(0), taken: whole, step },
        (None, Some(_)) => Part { whole, start: start(symbols), taken: one, step },
        // Calls that write other rows of the same value share a program.
        (None, None) if is_written && !symbols.list.is_empty() => {
            Part { whole, start: start(symbols), taken: one, step }
        }
        (None, None) => Part { whole, start: Start::At(piece.start), taken: one, step },
        (Some(taken), Some(_)) => {
            let start = if piece.start == 0 { Start::At(0) } else { start(symbols) };
            let stays = taken == 1 || symbols.parts_that_stay.contains(&taken);
            let most = (whole.capacity - 1) / step + 1;
            let factor = match symbols.known(taken) {
                _ if stays => Factor { capacity: taken, size: None },
                Some(symbol) => symbols.factor(symbol),
                None => {
                    let symbol = symbols.add(taken, most);
                    symbols.factor(symbol)
                }
            };
            Part { whole, start, taken: factor, step }
        }
        (Some(taken), None) => {
            let Some(symbol) = symbols.live(taken) else {
                let taken = Factor { capacity: taken, size: None };
                return Part { whole, start: Start::At(piece.start), taken, step };
            };
            // A write at the start shares a program with writes behind it.
            let start = if piece.start == 0 && !is_written { Start::At(0) } else { start(symbols) };
            Part { whole, start, taken: symbols.factor(symbol), step }
        }
    }
}

/// A dimension of a storage.
pub(crate) enum Around {
    /// A dimension of a view.
    Shown(usize),
    /// Elements that the view does not show, with this many positions.
    Other(i64),
}

/// The dimensions of a storage of `numel` elements, outermost first, of which a view shows some. `None` if the view's
/// strides do not divide each other.
pub(crate) fn dims_around(sizes: &[i64], strides: &[i64], numel: i64) -> Option<Vec<Around>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&axis| strides[axis]);
    let (mut dims, mut inner) = (Vec::new(), 1);
    let add_gap = |dims: &mut Vec<Around>, inner: i64, outer: i64| {
        dims.extend((inner < outer).then_some(Around::Other(outer / inner)));
        (outer > 0 && outer % inner == 0).then_some(())
    };
    for axis in order {
        let (size, stride) = (sizes[axis], strides[axis]);
        if size > 1 {
            add_gap(&mut dims, inner, stride)?;
            inner = size * stride;
        }
        dims.push(Around::Shown(axis));
    }
    add_gap(&mut dims, inner, numel)?;
    dims.reverse();
    Some(dims)
}
