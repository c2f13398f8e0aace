//! Views of a storage's value whose sizes change, in parts of the value.

use stablehlo::{Builder, DType, Extent, Factor, Value};

use crate::common::bounded_views::{chosen_along, run_from};
use crate::places::Places;
use crate::spec::Dim;
use crate::view::{of_parts, parts_of};

/// A view of a storage's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SizedView {
    /// In parts of the value.
    Divided(Division),
    /// In parts of the value, as elements of another type. Such a view is only read.
    Paired(Division, Paired),
    /// In windows over dimensions of a division, one after another. Such a view is only read.
    Windowed(Division, Vec<Windowed>),
    /// With these sizes, which are constants. The argument has the strides and the offset.
    Fixed(Vec<i64>),
}

/// How a view shows real numbers as complex ones, or complex ones as real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paired {
    /// The last dimension of the division has two elements, which become one complex number.
    Complex,
    /// The division is of real and imaginary parts, which are a last dimension of the value.
    Parts,
}

impl Paired {
    fn sizes<T>(self, mut sizes: Vec<T>) -> Vec<T> {
        if self == Paired::Complex {
            sizes.pop();
        }
        sizes
    }

    pub(super) fn read<'b>(self, base: Value<'b>, division: &Division) -> Value<'b> {
        match self {
            Paired::Complex => of_parts(division.read(base)),
            Paired::Parts => division.read(parts_of(base)),
        }
    }
}

/// Windows of a dimension, which may overlap: a dimension of windows, and behind it one of the elements of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Windowed {
    /// The dimension of windows, and that of the elements.
    pub axes: (usize, usize),
    pub count: Dim,
    pub step: Dim,
    pub width: Dim,
}

impl Windowed {
    fn sizes<T>(&self, mut sizes: Vec<T>, of: impl Fn(Dim) -> T) -> Vec<T> {
        sizes[self.axes.0] = of(self.count.clone());
        sizes.insert(self.axes.1, of(self.width.clone()));
        sizes
    }

    pub(super) fn read<'b>(&self, value: Value<'b>) -> Value<'b> {
        let (b, axis, width) = (value.builder(), self.axes.0, self.width.capacity);
        let count = self.count.extent(|size| b.capacity(size));
        if self.step == self.width && self.width.sizes.is_empty() {
            let room = (self.count.capacity * width - value.dim(axis)).max(0);
            let value = value.whole_along(axis).pad_axis(axis, 0, 0, room);
            let value = value.slice_axis(axis, 0, self.count.capacity * width);
            let mut dims = value.dims();
            dims.splice(axis..=axis, [self.count.capacity, width]);
            return value.reshape(&dims).with_extent(axis, count).move_axis(axis + 1, self.axes.1);
        }
        // The last windows may reach behind the capacity.
        let room = if self.width.sizes.is_empty() { 0 } else { width };
        let value = value.whole_along(axis).pad_axis(axis, 0, 0, room);
        let step = self.step.sizes.first().map_or(b.scalar(self.step.capacity, DType::I64), |&size| b.size(size));
        let dtype = DType::of_counts(value.dim(axis));
        let starts = b.iota(dtype, &[self.count.capacity], 0) * step.convert(dtype);
        let starts = starts.min((value.dim(axis) - width).max(0));
        let starts = starts.with_extents(vec![count]);
        let windows = Places::runs(&value.dims(), axis, starts, width).read(value);
        let windows = windows.with_extent(axis + 1, self.width.extent(|size| b.capacity(size)));
        windows.move_axis(axis + 1, self.axes.1)
    }
}

/// A view in parts of a storage's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The value's dimensions, split so that each part belongs to one dimension of the view at most.
    pub parts: Vec<Part>,
    pub dims: Vec<ViewDim>,
}

/// A part of the dimensions of a value, and what the view takes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The positions of the value, and their valid length.
    pub whole: Factor,
    pub start: Start,
    /// The positions of the view, and their valid length.
    pub taken: Factor,
    /// How far apart these are. A view with other steps than 1 is only read.
    pub step: i64,
}

/// The first position that a view takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    At(i64),
    /// A number among the sizes.
    Input(u32),
}

impl Start {
    fn value(self, b: &Builder) -> Value<'_> {
        match self {
            Start::At(start) => b.scalar(start, DType::I64),
            Start::Input(start) => b.size(start),
        }
    }
}

/// A dimension of a view.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewDim {
    /// The product of parts, the outermost first. A dimension of size 1 has no part.
    Parts(Vec<usize>),
    /// As [`ViewDim::Parts`]. Their product is a size of its own, which has the same valid positions.
    Multiple(Vec<usize>, Factor),
    /// The diagonal of two parts, of which the view takes as many positions: rows and columns.
    Diagonal(usize, usize),
    /// One element, repeated.
    Repeated(Dim),
}

impl Part {
    pub fn is_whole(&self) -> bool {
        self.start == Start::At(0) && self.taken == self.whole && self.step == 1
    }

    /// The elements of `value` along `axis` that the view takes. Where the capacity of a run reaches behind the value, the
    /// run is a later part of the last ones that are there. Room behind the value would be a copy of all of it.
    fn narrow<'b>(&self, value: Value<'b>, axis: usize) -> Value<'b> {
        if self.is_whole() {
            return value;
        }
        let (value, length) = (value.whole_along(axis), (self.taken.capacity - 1) * self.step + 1);
        let run = match self.start {
            Start::At(start) => {
                let missing = (start + length - self.whole.capacity).max(0);
                value.pad_axis(axis, 0, 0, missing).slice_axis(axis, start, start + length)
            }
            Start::Input(start) if self.taken.size.is_none() => {
                run_from(value, axis, value.builder().size(start), length)
            }
            Start::Input(start) => {
                let value = value.pad_axis(axis, 0, 0, (length - self.whole.capacity).max(0));
                let start = value.builder().size(start);
                let first = start.min(value.dim(axis) - length);
                let room = run_from(value, axis, first, length).pad_axis(axis, 0, 0, length);
                run_from(room, axis, start - first, length)
            }
        };
        run.slice_axis_by(axis, 0, length, self.step).with_extent(axis, extent_of(&[self.taken]))
    }
}

/// The position of each element along a dimension.
fn positions(x: Value<'_>, axis: usize) -> Value<'_> {
    x.builder().iota(DType::of_counts(x.dim(axis)), &x.dims(), axis)
}

/// The diagonal of a dimension and the next one, as one dimension.
fn diagonal_along(x: Value<'_>, axis: usize) -> Value<'_> {
    let (whole, extent) = (x.whole_along(axis).whole_along(axis + 1), x.extent(axis));
    let mask = positions(whole, axis).eq(positions(whole, axis + 1));
    chosen_along(whole, mask, axis + 1).with_extent(axis, extent)
}

fn extent_of(factors: &[Factor]) -> Extent {
    if factors.iter().any(|factor| factor.size.is_some()) { Extent(factors.to_vec()) } else { Extent::default() }
}

impl SizedView {
    /// The sizes of the view at the capacities.
    pub fn capacities(&self) -> Vec<i64> {
        match self {
            SizedView::Divided(division) => division.capacities(),
            SizedView::Paired(division, paired) => paired.sizes(division.capacities()),
            SizedView::Windowed(division, windows) => {
                windows.iter().fold(division.capacities(), |sizes, windowed| windowed.sizes(sizes, |dim| dim.capacity))
            }
            SizedView::Fixed(sizes) => sizes.clone(),
        }
    }

    /// The sizes of the view as sizes of a result.
    pub fn sizes(&self) -> Vec<Dim> {
        match self {
            SizedView::Divided(division) => division.sizes(),
            SizedView::Paired(division, paired) => paired.sizes(division.sizes()),
            SizedView::Windowed(division, windows) => {
                windows.iter().fold(division.sizes(), |sizes, windowed| windowed.sizes(sizes, |dim| dim))
            }
            SizedView::Fixed(sizes) => sizes.iter().map(|&size| Dim::known(size)).collect(),
        }
    }
}

impl Division {
    pub(super) fn capacities(&self) -> Vec<i64> {
        let size = |dim: &ViewDim| match dim {
            ViewDim::Parts(parts) => parts.iter().map(|&part| self.parts[part].taken.capacity).product(),
            ViewDim::Multiple(_, factor) => factor.capacity,
            ViewDim::Diagonal(rows, _) => self.parts[*rows].taken.capacity,
            ViewDim::Repeated(dim) => dim.capacity,
        };
        self.dims.iter().map(size).collect()
    }

    fn sizes(&self) -> Vec<Dim> {
        let size = |dim: &ViewDim| match dim {
            ViewDim::Repeated(dim) => dim.clone(),
            ViewDim::Multiple(_, factor) => Dim::of(&[*factor]),
            ViewDim::Diagonal(rows, _) => Dim::of(&[self.parts[*rows].taken]),
            ViewDim::Parts(parts) => Dim::of(&parts.iter().map(|&part| self.parts[part].taken).collect::<Vec<_>>()),
        };
        self.dims.iter().map(size).collect()
    }

    /// The parts in the order of the view's dimensions, then those of which it takes one position.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::new();
        for dim in &self.dims {
            match dim {
                ViewDim::Parts(parts) | ViewDim::Multiple(parts, _) => order.extend(parts),
                ViewDim::Diagonal(rows, columns) => order.extend([rows, columns]),
                ViewDim::Repeated(_) => {}
            }
        }
        let others: Vec<usize> = (0..self.parts.len()).filter(|part| !order.contains(part)).collect();
        order.extend(others);
        order
    }

    /// The dimensions that are multiples of a size: their parts, and the factor.
    fn multiples(&self) -> impl Iterator<Item = (usize, &[usize], Factor)> {
        self.dims.iter().enumerate().filter_map(|(axis, dim)| match dim {
            ViewDim::Multiple(parts, factor) => Some((axis, &parts[..], *factor)),
            _ => None,
        })
    }

    /// The dimensions that are diagonals, the last first.
    fn diagonals(&self) -> impl Iterator<Item = usize> {
        (0..self.dims.len()).rev().filter(|&axis| matches!(self.dims[axis], ViewDim::Diagonal(..)))
    }

    fn split(&self) -> Vec<i64> {
        self.parts.iter().map(|part| part.whole.capacity).collect()
    }

    /// Whether the view shows all elements.
    pub(super) fn is_all(&self) -> bool {
        self.parts.iter().all(Part::is_whole) && self.diagonals().next().is_none()
    }

    /// Whether the view shows all elements in the order of memory.
    pub(super) fn is_in_order(&self) -> bool {
        self.is_all() && self.order().is_sorted()
    }

    /// The elements of a storage's value that the view shows.
    pub(super) fn read<'b>(&self, base: Value<'b>) -> Value<'b> {
        let mut value = base.reshape(&self.split());
        for (axis, part) in self.parts.iter().enumerate() {
            value = part.narrow(value, axis);
        }
        let sizes = self.capacities();
        let is_repeated = |axis: &usize| matches!(self.dims[*axis], ViewDim::Repeated(_));
        let held: Vec<i64> = (0..sizes.len()).map(|axis| if is_repeated(&axis) { 1 } else { sizes[axis] }).collect();
        let mut squares = held.clone();
        self.diagonals().for_each(|axis| squares.insert(axis, held[axis]));
        let shown = value.transpose(&self.order()).reshape(&squares);
        let shown = self.diagonals().fold(shown, diagonal_along);
        let multiples = self.multiples();
        let shown = multiples.fold(shown, |shown, (axis, _, factor)| shown.with_extent(axis, extent_of(&[factor])));
        if held == sizes {
            return shown;
        }
        let shown = shown.broadcast_in_dim(&sizes, &(0..sizes.len()).collect::<Vec<_>>());
        let mut extents = shown.extents();
        for (extent, dim) in extents.iter_mut().zip(&self.dims) {
            if let ViewDim::Repeated(dim) = dim {
                *extent = dim.extent(|size| base.builder().capacity(size));
            }
        }
        shown.without_extents().with_extents(extents)
    }

    /// The value of a storage after a write of `value` through the view. `old` is the value before; zeros if absent.
    pub(super) fn write<'b>(&self, old: Option<Value<'b>>, value: Value<'b>) -> Value<'b> {
        let b = value.builder();
        let order = self.order();
        let value = self.multiples().fold(value, |value, (axis, parts, factor)| {
            if value.extent(axis) != extent_of(&[factor]) {
                return value;
            }
            let factors: Vec<Factor> = parts.iter().map(|&part| self.parts[part].taken).collect();
            value.with_extent(axis, extent_of(&factors))
        });
        let value = self.diagonals().fold(value, |value, axis| {
            let (mut dims, mut extents) = (value.dims(), value.extents());
            dims.insert(axis + 1, dims[axis]);
            extents.insert(axis + 1, extents[axis].clone());
            let kept: Vec<usize> = (0..dims.len()).filter(|&each| each != axis + 1).collect();
            value.broadcast_in_dim(&dims, &kept).without_extents().with_extents(extents)
        });
        let lengths: Vec<i64> = order.iter().map(|&part| self.parts[part].taken.capacity).collect();
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &part)| inverse[part] = place);
        let boxed = value.reshape(&lengths).transpose(&inverse);
        let expected: Vec<Extent> = self.parts.iter().map(|part| extent_of(&[part.taken])).collect();
        if boxed.extents().iter().zip(&expected).any(|(have, want)| !have.is_whole() && have != want) {
            b.refuse_bounded("a write of another length");
        }
        let whole: Vec<Extent> = self.parts.iter().map(|part| extent_of(&[part.whole])).collect();
        if self.is_all() {
            return boxed.without_extents().with_extents(whole);
        }
        let split = self.split();
        let old = old.unwrap_or_else(|| b.splat(0, boxed.dtype(), &split));
        let mut room = old.reshape(&split).without_extents();
        let mut boxed = boxed.without_extents();
        let (mut starts, mut shifts) = (Vec::with_capacity(self.parts.len()), Vec::with_capacity(self.parts.len()));
        for (axis, part) in self.parts.iter().enumerate() {
            let length = part.taken.capacity;
            room = room.pad_axis(axis, 0, 0, (length - part.whole.capacity).max(0));
            let last = room.dim(axis) - length;
            let (start, shift) = match part.start {
                Start::At(start) if start <= last => (b.scalar(start, DType::I64), None),
                Start::Input(start) if part.taken.size.is_none() => (b.size(start), None),
                // As in `Part::narrow`.
                start => {
                    let start = start.value(b);
                    let shift = start - start.min(last);
                    boxed = run_from(boxed.pad_axis(axis, 0, length, 0), axis, -shift + length, length);
                    (start.min(last), Some(shift))
                }
            };
            starts.push(start);
            shifts.push(shift);
        }
        // Positions that are not of the run keep their old elements.
        let kept = room.dynamic_slice(&starts, &boxed.dims());
        for (axis, part) in self.parts.iter().enumerate().filter(|(_, part)| !part.is_whole()) {
            if let Some(size) = part.taken.size {
                let length = part.taken.capacity;
                let places = b.iota(DType::I64, &[length], 0);
                let is_valid = match shifts[axis] {
                    Some(shift) => places.ge(shift) & places.lt(shift + b.size(size)),
                    None => places.lt(b.size(size).broadcast_to(&[length])),
                };
                boxed = is_valid.broadcast_in_dim(&boxed.dims(), &[axis]).select(boxed, kept);
            }
        }
        for dim in &self.dims {
            if let &ViewDim::Diagonal(rows, columns) = dim {
                let [along, across] = [rows, columns].map(|axis| {
                    let places = positions(boxed, axis);
                    shifts[axis].map_or(places, |shift| places - shift.convert(places.dtype()))
                });
                boxed = along.eq(across).select(boxed, kept);
            }
        }
        let mut written = room.dynamic_update_slice(boxed, &starts);
        for (axis, part) in self.parts.iter().enumerate() {
            written = written.slice_axis(axis, 0, part.whole.capacity);
        }
        written.with_extents(whole)
    }
}
