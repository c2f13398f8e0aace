//! Padded values: values of tensors with bounded dimensions, at their capacity, with padding after the valid
//! elements.

use std::sync::Arc;

use aten::{Extent, Factor};
use parking_lot::Mutex;
use stablehlo::{DType, Type};

use crate::error::Result;
use crate::storage::Storage;

/// A factor of a dimension of a padded value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PaddedFactor {
    pub capacity: i64,
    pub actual: i64,
    pub is_bounded: bool,
}

/// The padded value of a storage, and the sizes and order of its dense tensor.
pub(crate) struct Padded {
    pub storage: Arc<Storage>,
    pub dtype: DType,
    /// The factors of each dimension of the tensor.
    pub axes: Vec<Vec<PaddedFactor>>,
    /// The tensor's dimensions in the order of memory, outermost first.
    pub order: Vec<usize>,
    /// Whether the value was made with padding. Otherwise it was made from the exact value.
    pub is_origin: bool,
    pub _live: LiveSizes,
}

/// Factors whose product is the size of a dimension.
type Axis = Vec<PaddedFactor>;

/// The sizes of padded values of operators that are alive.
struct Live {
    /// Values of earlier generations are forgotten.
    generation: u64,
    /// Number of values of all generations.
    values: usize,
    /// Size, capacity, and number of values.
    sizes: Vec<(i64, i64, usize)>,
    /// Merged dimensions, also those that a view may merge, and the number of values.
    merged: Vec<(Axis, usize)>,
}

static LIVE: Mutex<Live> = Mutex::new(Live { generation: 0, values: 0, sizes: Vec::new(), merged: Vec::new() });

/// The sizes of a padded value, which count as alive as long as this exists.
#[derive(Default)]
pub(crate) struct LiveSizes {
    generation: u64,
    sizes: Vec<(i64, i64)>,
    merged: Vec<Axis>,
}

impl LiveSizes {
    pub fn of(axes: &[Axis]) -> LiveSizes {
        let padded = axes.iter().flatten().filter(|factor| factor.is_bounded && factor.actual > 1);
        let sizes: Vec<(i64, i64)> = padded.map(|factor| (factor.actual, factor.capacity)).collect();
        // A view may merge the leading dimensions, as `flatten(0, 1)` does.
        let runs = (2..axes.len()).map(|end| axes[..end].concat());
        let merged: Vec<Axis> = axes.iter().cloned().chain(runs).filter_map(|axis| merged_axis(&axis)).collect();
        let mut live = LIVE.lock();
        live.values += usize::from(!sizes.is_empty());
        for &(actual, capacity) in &sizes {
            match live.sizes.iter_mut().find(|known| (known.0, known.1) == (actual, capacity)) {
                Some(known) => known.2 += 1,
                None => live.sizes.push((actual, capacity, 1)),
            }
        }
        for axis in &merged {
            match live.merged.iter_mut().find(|known| known.0 == *axis) {
                Some(known) => known.1 += 1,
                None => live.merged.push((axis.clone(), 1)),
            }
        }
        LiveSizes { generation: live.generation, sizes, merged }
    }

    /// The capacity of this size, if it is one of them.
    pub fn capacity(&self, actual: i64) -> Option<i64> {
        self.sizes.iter().find(|known| known.0 == actual).map(|known| known.1)
    }

    /// The size of a dimension that the data decided.
    pub fn of_count(actual: i64, capacity: i64) -> LiveSizes {
        LiveSizes::of(&[vec![PaddedFactor { capacity, actual, is_bounded: true }]])
    }
}

impl Drop for LiveSizes {
    fn drop(&mut self) {
        if self.sizes.is_empty() {
            return;
        }
        let mut live = LIVE.lock();
        live.values -= 1;
        if live.generation != self.generation {
            return;
        }
        for size in &self.sizes {
            if let Some(place) = live.sizes.iter().position(|known| (known.0, known.1) == *size) {
                live.sizes[place].2 -= 1;
                if live.sizes[place].2 == 0 {
                    live.sizes.swap_remove(place);
                }
            }
        }
        for axis in &self.merged {
            if let Some(place) = live.merged.iter().position(|known| known.0 == *axis) {
                live.merged[place].1 -= 1;
                if live.merged[place].1 == 0 {
                    live.merged.swap_remove(place);
                }
            }
        }
    }
}

/// The factors of a merged dimension of which one changes. `None` for other dimensions.
fn merged_axis(axis: &Axis) -> Option<Axis> {
    let factors: Axis = axis.iter().filter(|factor| factor.is_bounded || factor.actual > 1).copied().collect();
    let changes = factors.iter().any(|factor| factor.is_bounded) && factors.iter().all(|factor| factor.actual > 1);
    (factors.len() > 1 && changes).then_some(factors)
}

/// The largest capacity of live padded values with this size. `None` if there are none.
pub(crate) fn live_capacity(actual: i64) -> Option<i64> {
    LIVE.lock().sizes.iter().filter(|known| known.0 == actual).map(|known| known.1).max()
}

/// The factors of a merged dimension of a live padded value with this size. `None` if there is none.
pub(crate) fn live_factors(actual: i64) -> Option<Axis> {
    // Several may fit, in no order. The choice is always the same one.
    let rank = |axis: &Axis| axis.iter().map(|factor| (factor.capacity, factor.actual)).collect::<Vec<_>>();
    let live = LIVE.lock();
    let fitting = live.merged.iter().map(|known| &known.0).filter(|axis| product(axis) == actual);
    fitting.min_by_key(|axis| rank(axis)).cloned()
}

fn product(axis: &Axis) -> i64 {
    axis.iter().map(|factor| factor.actual).product()
}

/// The sizes of live padded values among these words, and their capacities, as words that tell them apart.
pub(crate) fn live_among(words: &[u64]) -> Vec<u64> {
    let live = LIVE.lock();
    let mut found: Vec<(i64, i64)> = Vec::new();
    for &(actual, capacity, _) in live.sizes.iter().filter(|known| words.contains(&(known.0 as u64))) {
        match found.iter_mut().find(|known| known.0 == actual) {
            Some(known) => known.1 = known.1.max(capacity),
            None => found.push((actual, capacity)),
        }
    }
    found.sort_unstable();
    let mut merged: Vec<i64> = live.merged.iter().map(|known| product(&known.0)).collect();
    drop(live);
    merged.retain(|size| words.contains(&(*size as u64)) && !found.iter().any(|known| known.0 == *size));
    merged.sort_unstable();
    merged.dedup();
    let mut tokens: Vec<u64> =
        found.iter().flat_map(|&(size, capacity)| [size as u64 | LIVE_SIZE, capacity as u64]).collect();
    for factors in merged.into_iter().filter_map(live_factors) {
        tokens.push(factors.len() as u64 | MERGED);
        for factor in factors {
            tokens.push(factor.capacity as u64 | u64::from(factor.is_bounded) << 63);
            tokens.push(factor.actual as u64);
        }
    }
    tokens
}

/// Marks the size of a live value with padding in a key.
const LIVE_SIZE: u64 = 1 << 61;

/// Marks the number of factors of a live value's merged dimension in a key.
const MERGED: u64 = 1 << 60;

/// Whether any value of an operator has padding.
pub(crate) fn any_live() -> bool {
    LIVE.lock().values > 0
}

/// Forgets the sizes of the values that are alive.
pub(crate) fn forget_live() {
    let mut live = LIVE.lock();
    live.generation += 1;
    live.sizes.clear();
    live.merged.clear();
}

/// The sizes without padding.
pub(crate) fn actual_sizes(axes: &[Vec<PaddedFactor>]) -> Vec<i64> {
    axes.iter().map(|factors| factors.iter().map(|factor| factor.actual).product()).collect()
}

/// The sizes with padding.
pub(crate) fn held_sizes(axes: &[Vec<PaddedFactor>]) -> Vec<i64> {
    axes.iter().map(|factors| factors.iter().map(|factor| factor.capacity).product()).collect()
}

impl Padded {
    pub fn sizes(&self) -> Vec<i64> {
        actual_sizes(&self.axes)
    }

    pub fn strides(&self) -> Vec<i64> {
        aten::dense_strides(&self.sizes(), &self.order)
    }

    /// The factors of each dimension of the value, in the order of memory.
    pub fn held(&self) -> Vec<Vec<PaddedFactor>> {
        self.order.iter().map(|&axis| self.axes[axis].clone()).collect()
    }

    /// Whether the value has these factors, or other ones with the same valid positions.
    pub fn is_held_as(&self, axes: &[Vec<PaddedFactor>]) -> bool {
        self.order.len() == axes.len()
            && self.order.iter().zip(axes).all(|(&axis, factors)| {
                let own = &self.axes[axis];
                own == factors || layout(own) == layout(factors)
            })
    }

    /// Capacity and length of the factors in the order of memory. A factor without padding is merged into the next
    /// outer one.
    pub fn layout(&self) -> Vec<(i64, i64)> {
        layout(self.order.iter().flat_map(|&axis| &self.axes[axis]))
    }

    fn bytes(&self) -> usize {
        let capacity: i64 = self.axes.iter().flatten().map(|place| place.capacity).product();
        capacity as usize * self.dtype.size_bytes()
    }

    /// The loops over the elements of a tensor with these strides and over the padded value.
    pub fn walk(&self, strides: &[i64]) -> Vec<Walk> {
        walk(&self.axes, &self.order, strides)
    }
}

/// See [`Padded::layout`].
pub(crate) fn layout<'a>(factors: impl IntoIterator<Item = &'a PaddedFactor>) -> Vec<(i64, i64)> {
    let mut layout: Vec<(i64, i64)> = Vec::new();
    for place in factors {
        match layout.last_mut() {
            _ if place.capacity == 1 && place.actual == 1 => {}
            Some(outer) if place.capacity == place.actual => {
                outer.0 *= place.capacity;
                outer.1 *= place.actual;
            }
            _ => layout.push((place.capacity, place.actual)),
        }
    }
    layout
}

/// The loops over the elements of a tensor with these strides and over a padded value with these factors.
pub(crate) fn walk(axes: &[Vec<PaddedFactor>], order: &[usize], strides: &[i64]) -> Vec<Walk> {
    let mut walks = Vec::new();
    let mut inner = 1;
    for &axis in order.iter().rev() {
        let mut stride = strides[axis];
        for place in axes[axis].iter().rev() {
            walks.push(Walk { length: place.actual, exact: stride, padded: inner });
            inner *= place.capacity;
            stride *= place.actual;
        }
    }
    walks.retain(|walk| walk.length != 1);
    walks.reverse();
    walks
}

/// Copies the elements of a padded value to memory without its padding.
pub(crate) fn copy_runs(walks: &[Walk], element: usize, padded: &[u8], exact: &mut [u8]) {
    each_run(walks, 0, 0, &mut |to, from, length| {
        exact[to * element..(to + length) * element]
            .copy_from_slice(&padded[from * element..(from + length) * element]);
    });
}

/// Copies the elements of a view of `whole` to memory, row-major. The view has these sizes, strides and offset, in
/// elements of `element` bytes.
pub(crate) fn copy_view(sizes: &[i64], strides: &[i64], offset: i64, element: usize, whole: &[u8], out: &mut [u8]) {
    let dense = aten::contiguous_strides(sizes);
    let walk = |axis: usize| Walk { length: sizes[axis], exact: dense[axis], padded: strides[axis] };
    let walks: Vec<Walk> = (0..sizes.len()).filter(|&axis| sizes[axis] != 1).map(walk).collect();
    copy_runs(&walks, element, &whole[offset as usize * element..], out);
}

/// The byte of padding that the host writes. Floats of this byte are NaN, so that a program that uses padding gives a
/// visible error.
const PADDING: u8 = 0xff;

/// A padded value of this type. `exact` are the elements of a tensor, from the first on.
pub(crate) fn with_padding(walks: &[Walk], ty: &Type, exact: &[u8]) -> Vec<u8> {
    let element = ty.dtype.size_bytes();
    let mut padded = vec![if ty.dtype == DType::Bool { 1 } else { PADDING }; ty.size_bytes()];
    each_run(walks, 0, 0, &mut |from, to, length| {
        padded[to * element..(to + length) * element]
            .copy_from_slice(&exact[from * element..(from + length) * element]);
    });
    padded
}

/// One loop of a copy between a tensor and its padded value.
pub(crate) struct Walk {
    length: i64,
    exact: i64,
    padded: i64,
}

/// Calls `f` with the two positions and the length of each run of elements that are contiguous in both.
pub(crate) fn each_run(walks: &[Walk], exact: i64, padded: i64, f: &mut impl FnMut(usize, usize, usize)) {
    match walks {
        [] => f(exact as usize, padded as usize, 1),
        [last] if last.length == 0 => {}
        [last] if last.exact == 1 && last.padded == 1 => f(exact as usize, padded as usize, last.length as usize),
        [first, rest @ ..] => {
            (0..first.length).for_each(|i| each_run(rest, exact + i * first.exact, padded + i * first.padded, f));
        }
    }
}

/// Copies a padded value to memory with other strides, without its padding.
pub(crate) fn copy_exact(padded: &Padded, strides: &[i64], exact: &mut [u8]) -> Result<()> {
    let element = padded.dtype.size_bytes();
    let Some(value) = padded.storage.value().filter(|_| !exact.is_empty()) else { return Ok(()) };
    // A value that could not be computed may be too large for the host, too.
    let buffer = value.buffer()?;
    let mut bytes = vec![0; padded.bytes()];
    buffer.to_host(&mut bytes)?;
    copy_runs(&padded.walk(strides), element, &bytes, exact);
    Ok(())
}

/// Whether strides are equal. Strides of dimensions of size 1 are ignored.
pub(crate) fn same_strides(sizes: &[i64], a: &[i64], b: &[i64]) -> bool {
    (0..sizes.len()).all(|i| sizes[i] == 1 || a[i] == b[i])
}

pub(crate) fn padded_factors(extent: &Extent, dim: i64, actual: &[i64]) -> Vec<PaddedFactor> {
    if extent.is_whole() {
        return vec![PaddedFactor { capacity: dim, actual: dim, is_bounded: false }];
    }
    let place = |factor: &Factor| PaddedFactor {
        capacity: factor.capacity,
        actual: factor.size.map_or(factor.capacity, |size| actual[size as usize]),
        is_bounded: factor.size.is_some(),
    };
    extent.0.iter().map(place).collect()
}
