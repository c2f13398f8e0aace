//! The sizes of a call that change, and views of a padded value divided into parts of it.

use aten::{Dim, Division, Factor, Paired, Part, Start, TensorSpec, ViewDim, Windowed};
use stablehlo::DType;

use crate::padded::{PaddedFactor, live_capacity, live_factors};

/// A size of the call, or the start of a slice.
pub(super) struct Symbol {
    pub actual: i64,
    pub capacity: i64,
    is_start: bool,
}

/// The capacity of a number that is no size.
const ANY: i64 = i32::MAX as i64;

/// The sizes of a call that change.
#[derive(Default)]
pub(super) struct Symbols {
    pub list: Vec<Symbol>,
    /// The factors of each argument with padding.
    pub merged: Vec<Vec<Place>>,
    /// The dimensions without padding of arguments with padding: how far from the last one, and the size.
    pub stays: Vec<(usize, i64)>,
    /// Whether other live values with padding tell which sizes change, because no argument has padding.
    pub asks_others: bool,
}

impl Symbols {
    pub fn known(&self, actual: i64) -> Option<u32> {
        let place = self.list.iter().position(|symbol| !symbol.is_start && symbol.actual == actual);
        place.filter(|_| actual > 1).map(|place| place as u32)
    }

    /// The symbol of a size, also if only other live values have it.
    pub fn live(&mut self, actual: i64) -> Option<u32> {
        if let Some(known) = self.known(actual) {
            return Some(known);
        }
        if self.asks_others { self.in_use(actual) } else { None }
    }

    /// The symbol of a size that any live value has.
    pub fn in_use(&mut self, actual: i64) -> Option<u32> {
        self.known(actual).or_else(|| {
            let capacity = live_capacity(actual).filter(|_| actual > 1)?;
            Some(self.add(actual, capacity))
        })
    }

    /// The factors of a size that is the product of merged dimensions of a live value.
    pub fn product_in_use(&mut self, actual: i64) -> Option<Vec<Place>> {
        let mut place = |factor: &PaddedFactor| match factor.is_bounded {
            true => {
                let symbol = self.known(factor.actual).unwrap_or_else(|| self.add(factor.actual, factor.capacity));
                Place { actual: factor.actual, factor: self.factor(symbol) }
            }
            false => fixed(factor.actual),
        };
        Some(live_factors(actual)?.iter().map(&mut place).collect())
    }

    /// Adjacent factors of an argument whose product is a size, if it changes.
    pub fn merged(&self, size: i64) -> Option<Vec<Place>> {
        let fits = |run: &&[Place]| {
            run.iter().any(|place| place.factor.size.is_some())
                && run.iter().map(|place| place.actual).product::<i64>() == size
        };
        self.merged.iter().find_map(|places| {
            let runs =
                (0..places.len()).flat_map(|start| (start + 2..=places.len()).map(move |end| &places[start..end]));
            runs.filter(fits).map(<[Place]>::to_vec).next()
        })
    }

    /// The size of a dimension in which a view repeats elements. It may equal a size that changes by chance: then that
    /// of another argument at this place, `from_last`, stays.
    fn repeated(&mut self, size: i64, from_last: usize) -> Dim {
        if self.stays.contains(&(from_last, size)) {
            return Dim::known(size);
        }
        match self.live(size) {
            Some(symbol) => Dim::new(self.factor(symbol).capacity, vec![symbol]),
            None => self.merged(size).map_or_else(
                || Dim::known(size),
                |places| Dim::of(&places.iter().map(|place| place.factor).collect::<Vec<_>>()),
            ),
        }
    }

    pub fn add(&mut self, actual: i64, capacity: i64) -> u32 {
        self.list.push(Symbol { actual, capacity, is_start: false });
        self.list.len() as u32 - 1
    }

    /// Numbers that are inputs, but no sizes.
    pub fn numbers(&mut self, ints: &[i64]) -> Vec<Dim> {
        let number = |&number: &i64| Dim::new(ANY, vec![self.add_start(number, ANY)]);
        ints.iter().map(number).collect()
    }

    fn add_start(&mut self, actual: i64, capacity: i64) -> u32 {
        self.list.push(Symbol { actual, capacity, is_start: true });
        self.list.len() as u32 - 1
    }

    pub fn capacities(&self) -> Vec<i64> {
        self.list.iter().map(|symbol| symbol.capacity).collect()
    }

    pub fn factor(&self, symbol: u32) -> Factor {
        Factor { capacity: self.list[symbol as usize].capacity, size: Some(symbol) }
    }

    pub fn dim(&self, size: i64) -> Dim {
        match self.known(size) {
            Some(symbol) => Dim::new(self.factor(symbol).capacity, vec![symbol]),
            None => Dim::known(size),
        }
    }
}

/// A factor of a value's dimensions, outermost first.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub actual: i64,
    pub factor: Factor,
}

pub(super) fn fixed(size: i64) -> Place {
    Place { actual: size, factor: Factor { capacity: size, size: None } }
}

/// A part of a value while a view is divided.
struct Piece {
    place: Place,
    weight: i64,
    start: i64,
    /// The number of positions that the view takes, if a dimension of the view has this part.
    taken: Option<i64>,
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
        pieces.insert(0, Piece { place, weight, start, taken: None });
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
            _ => ViewDim::Parts(walk(&mut pieces, size, stride)?),
        });
    }
    let parts = pieces.iter().map(|piece| part(piece, is_written, symbols)).collect();
    Some(Division { parts, dims })
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

/// [`divide`] for a view that shows windows of a dimension as two dimensions: `unfold` and `stft` make windows of a width that
/// is known, the view in `stack` as many as tensors are joined.
pub(super) fn divide_windows(
    places: &[Place],
    spec: &TensorSpec,
    symbols: &mut Symbols,
) -> Option<(Division, Windowed)> {
    let innermost = places.iter().rposition(|place| place.factor.size.is_some())?;
    let rank = spec.sizes.len();
    let pairs = (0..rank).rev().flat_map(|axis| (axis + 1..rank).map(move |within| (axis, within)));
    let runs = pairs.flat_map(|(axis, within)| {
        runs_of(places, innermost, spec.strides[within]).into_iter().map(move |run| (axis, within, run))
    });
    for (axis, within, run) in runs {
        let (count, width, stride) = (spec.sizes[axis], spec.sizes[within], spec.strides[within]);
        let length: i64 = run.iter().map(|place| place.actual).product();
        let step = spec.strides[axis] / stride;
        let covered = (count - 1) * step + width;
        if count < 2 || width < 2 || step < 1 || spec.strides[axis] % stride != 0 || covered > length {
            continue;
        }
        let mut rows = spec.clone();
        (rows.sizes[axis], rows.strides[axis]) = (length, stride);
        (_, _) = (rows.sizes.remove(within), rows.strides.remove(within));
        if spec.offset % (length * stride) != 0 {
            continue;
        }
        let Some(division) = divide(places, &rows, false, symbols) else { continue };
        let axes = (axis, within);
        let dim = |symbols: &Symbols, symbol: u32| Dim::new(symbols.factor(symbol).capacity, vec![symbol]);
        if step == width
            && covered == length
            && let Some(symbol) = symbols.in_use(width)
        {
            let width = dim(symbols, symbol);
            return Some((division, Windowed { axes, count: Dim::known(count), step: width.clone(), width }));
        }
        let (step, width) = (Dim::known(step), Dim::known(width));
        let capacity: i64 = run.iter().map(|place| place.factor.capacity).product();
        let count = match run.iter().any(|place| place.factor.size.is_some()) {
            true => {
                let most = (capacity - width.capacity) / step.capacity + 1;
                let symbol = symbols.known(count).unwrap_or_else(|| symbols.add(count, most));
                dim(symbols, symbol)
            }
            false => Dim::known(count),
        };
        return Some((division, Windowed { axes, count, step, width }));
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

fn part(piece: &Piece, is_written: bool, symbols: &mut Symbols) -> Part {
    let Place { actual, factor: whole } = piece.place;
    let start = |symbols: &mut Symbols| Start::Input(symbols.add_start(piece.start, whole.capacity));
    match (piece.taken, whole.size) {
        (Some(taken), _) if taken == actual => Part { whole, start: Start::At(0), taken: whole },
        (None, _) if actual == 1 => Part { whole, start: Start::At(0), taken: whole },
        (None, Some(_)) => Part { whole, start: start(symbols), taken: Factor { capacity: 1, size: None } },
        // Calls that write other rows of the same value share a program.
        (None, None) if is_written && !symbols.list.is_empty() => {
            Part { whole, start: start(symbols), taken: Factor { capacity: 1, size: None } }
        }
        (None, None) => Part { whole, start: Start::At(piece.start), taken: Factor { capacity: 1, size: None } },
        (Some(taken), Some(_)) => {
            let symbol = symbols.known(taken).unwrap_or_else(|| symbols.add(taken, whole.capacity));
            let start = if piece.start == 0 { Start::At(0) } else { start(symbols) };
            let taken = match taken {
                1 => Factor { capacity: 1, size: None },
                _ => symbols.factor(symbol),
            };
            Part { whole, start, taken }
        }
        (Some(taken), None) => {
            let Some(symbol) = symbols.live(taken) else {
                let taken = Factor { capacity: taken, size: None };
                return Part { whole, start: Start::At(piece.start), taken };
            };
            // A write at the start shares a program with writes behind it.
            let start = if piece.start == 0 && !is_written { Start::At(0) } else { start(symbols) };
            Part { whole, start, taken: symbols.factor(symbol) }
        }
    }
}
