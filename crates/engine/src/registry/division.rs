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
pub(super) struct Symbols {
    pub list: Vec<Symbol>,
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
    for (&size, &stride) in spec.sizes.iter().zip(&spec.strides) {
        dims.push(match (size, stride) {
            (1, _) => ViewDim::Parts(Vec::new()),
            (_, 0) => ViewDim::Repeated(symbols.dim(size)),
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

/// [`divide`] for a view that shows windows of a dimension that changes as two dimensions: `unfold` and `stft` make windows of a
/// width that is known, the view in `stack` as many as tensors are joined.
pub(super) fn divide_windows(
    places: &[Place],
    spec: &TensorSpec,
    symbols: &mut Symbols,
) -> Option<(Division, Windowed)> {
    let innermost = places.iter().rposition(|place| place.factor.size.is_some())?;
    let all = |of: fn(&Place) -> i64| places[innermost..].iter().map(of).product::<i64>();
    let (length, capacity) = (all(|place| place.actual), all(|place| place.factor.capacity));
    let inside: i64 = places[innermost + 1..].iter().map(|place| place.actual).product();
    for axis in (0..spec.sizes.len().checked_sub(1)?).rev() {
        let (count, width, stride) = (spec.sizes[axis], spec.sizes[axis + 1], spec.strides[axis + 1]);
        // Windows of elements, or of what is inside of the dimension that changes.
        let length = match stride {
            1 => length,
            _ if stride == inside => length / inside,
            _ => continue,
        };
        let step = spec.strides[axis] / stride;
        let covered = (count - 1) * step + width;
        if count < 2 || width < 2 || step < 1 || spec.strides[axis] % stride != 0 || covered > length {
            continue;
        }
        let mut rows = spec.clone();
        rows.sizes.splice(axis..=axis + 1, [length]);
        rows.strides.splice(axis..=axis + 1, [stride]);
        if spec.offset % (length * stride) != 0 {
            continue;
        }
        let Some(division) = divide(places, &rows, false, symbols) else { continue };
        let capacity = capacity / stride;
        if step == width
            && covered == length
            && let Some(symbol) = symbols.in_use(width)
        {
            let width = Dim::new(symbols.factor(symbol).capacity, vec![symbol]);
            return Some((division, Windowed { axis, count: Dim::known(count), step: width.clone(), width }));
        }
        let symbol = symbols.known(count).unwrap_or_else(|| symbols.add(count, (capacity - width) / step + 1));
        let count = Dim::new(symbols.factor(symbol).capacity, vec![symbol]);
        return Some((division, Windowed { axis, count, step: Dim::known(step), width: Dim::known(width) }));
    }
    None
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
