//! Finds the sizes that change, and chooses the capacities of programs for them.
//!
//! A line of the user's program that writes tensors again and again, each time with other sizes, has sizes that
//! change: from the second or third set of sizes on its tensors get padding. Operators on them have programs for all
//! sizes up to a capacity, and their results have padding too. There are few capacities, so that there are few programs.
//!
//! Tensors that stay, such as parameters, do not count, because padding would cost in every step and gain nothing: only a
//! line that uploads very many different ones uploads data. The sizes of most uploads of a line stay exact: only other
//! sizes change.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustc_hash::FxHashMap;
use stablehlo::{DType, Type};

use crate::call;
use crate::capacities::{Capacities, Class, Counted};
use crate::given::Given;
use crate::lines::Line;
use crate::padded::{any_live, live_capacity, live_factors};
use crate::seen::{Proof, Seen, Tensors};
use crate::storage::{Storage, TypeId};

/// A value may have this many bytes with padding, however few it has without.
const SMALL_VALUE: i64 = 4 << 20;

/// Up to so many bytes with padding, a value has at most [`MOST_OF_MEDIUM`] times its bytes.
const MEDIUM_VALUE: i64 = 64 << 20;

const MOST_OF_MEDIUM: i64 = 128;

/// A larger value has at most this many times its bytes with padding. Each dimension that changes multiplies the padding
/// of the others, so that five of them could take a million times the memory.
const MOST_OF_LARGE: i64 = 4;

/// Where tensors of a line come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Source {
    Upload,
    /// Results of operators that may be arguments of the next call at the line.
    Result,
    /// Results that join many tensors of the same sizes. Their number counts as the size.
    Joined,
    /// Results of an operator without tensor arguments.
    Created(u32),
    /// Parts of values of one type that are an argument of an operator.
    Part {
        op: u32,
        argument: usize,
        whole: TypeId,
    },
    /// Results of an operator that is given their sizes, of values of one type.
    Given {
        op: u32,
        of: TypeId,
    },
}

/// A line, what its tensors are, their element type and rank.
type Place = (Line, Source, i8, usize);

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether sizes that change are looked for.
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Whether a value may have these dimensions with padding.
pub(crate) fn is_affordable(padded: &[i64], actual: &[i64], element: usize) -> bool {
    let bytes = |dims: &[i64]| dims.iter().fold(element as i64, |bytes, &size| bytes.saturating_mul(size));
    let times = |most| bytes(actual).saturating_mul(most);
    bytes(padded) <= SMALL_VALUE.max(times(MOST_OF_MEDIUM).min(MEDIUM_VALUE)).max(times(MOST_OF_LARGE))
}

/// A size that changes although no argument has padding there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changing {
    /// A size, and its capacity.
    Size(i64, i64),
    /// A number of elements that the data decide, and its capacity. If it equals a product of other sizes, it does so by
    /// chance.
    Count(i64, i64),
    /// The product of factors of other values.
    Product(i64),
    /// Not a size that changes, but the length of a part, which stays while the length of the whole changes.
    Part(i64),
    /// Not a size that changes, but one that a live value with padding has by chance.
    Constant(i64),
}

/// Whether there are sizes that change besides those of arguments.
pub(crate) fn any_changes(changing: &[Changing]) -> bool {
    changing.iter().any(|found| !matches!(found, Changing::Constant(_)))
}

impl Changing {
    pub fn is_size(&self, of: i64) -> bool {
        matches!(self, Changing::Size(size, _) if *size == of)
    }
}

/// How sizes that change are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Each set of sizes has its own programs.
    Static,
    /// From the second or third set of sizes on, sizes are inputs of programs.
    Dynamic,
    /// The same also for new tensors.
    All,
    /// All sizes of uploads change, also those seen once, and capacities differ. For tests.
    Padded,
}

impl Setting {
    /// The setting of a name, which is a value of `TORCHTPU_SIZES`.
    pub fn of(name: &str) -> Option<Setting> {
        match name.trim() {
            "static" => Some(Setting::Static),
            "" | "dynamic" => Some(Setting::Dynamic),
            "all" => Some(Setting::All),
            "padded" => Some(Setting::Padded),
            _ => None,
        }
    }

    /// The class of sizes that all change. `None` if those that do are looked for.
    fn all(self, sizes: &[i64]) -> Option<Class> {
        let known = |&size: &i64| (size < 2).then_some(size);
        (self == Setting::Padded).then(|| Class::new(sizes.iter().map(known).collect()))
    }
}

/// The sizes that were seen to change, and the capacities in use.
pub(crate) struct Growth {
    setting: Setting,
    tensors: FxHashMap<Place, Tensors>,
    capacities: Capacities,
    /// The capacities of numbers of elements that the data decide, by line and the largest possible number.
    counted: FxHashMap<(Line, i64), Counted>,
    /// The result of a call without tensors, or of many that it joins, that is being defined.
    created: Option<(Place, Vec<i64>)>,
    pub given: Given,
}

impl Growth {
    pub fn new(setting: Setting) -> Growth {
        IS_ON.store(setting != Setting::Static, Relaxed);
        let padded = (setting == Setting::Padded).then_some(0);
        let capacities = Capacities::new(padded);
        Growth {
            setting,
            tensors: FxHashMap::default(),
            capacities,
            counted: FxHashMap::default(),
            created: None,
            given: Given::default(),
        }
    }

    pub fn is_on(&self) -> bool {
        self.setting != Setting::Static
    }

    /// The capacities of the dimensions of an upload; `None` for a dimension that does not change. `None` if no
    /// dimension changes, or if the padding would be too large.
    pub fn upload(&mut self, line: Line, scalar_type: i8, ty: &Type, storage: &Storage) -> Option<Vec<Option<i64>>> {
        let sizes = &ty.dims[..];
        if !self.is_on() || sizes.is_empty() || sizes.contains(&0) {
            return None;
        }
        let capacities = &mut self.capacities;
        let mut all = self.setting.all(sizes);
        let class = match &mut all {
            Some(all) => all,
            None => {
                let uploads = self.tensors.entry((line, Source::Upload, scalar_type, sizes.len())).or_default();
                if uploads.is_usual(sizes) {
                    return None;
                }
                uploads.class(sizes, storage.downgrade(), Proof::One, capacities)?
            }
        };
        if class.known.iter().all(Option::is_some) {
            return None;
        }
        capacities.padded.iter_mut().for_each(|padded| *padded += 1);
        let capacities = class.capacities(sizes, capacities);
        let padded: Vec<i64> = capacities.iter().zip(sizes).map(|(capacity, &size)| capacity.unwrap_or(size)).collect();
        is_affordable(&padded, sizes, ty.dtype.size_bytes()).then_some(capacities)
    }

    /// The capacity of a dimension that changes because the user says so, up to `most`. Later uploads of the tensor's
    /// line have it too.
    pub fn mark(&mut self, storage: &Storage, sizes: &[i64], axis: usize, most: Option<i64>) -> i64 {
        let is_it = |seen: &Seen| std::ptr::eq(seen.storage.as_ptr(), storage) && seen.sizes == sizes;
        let mut uploads = self.tensors.iter_mut().filter(|(key, _)| key.1 == Source::Upload);
        if let Some((_, uploads)) = uploads.find(|(_, uploads)| uploads.seen.iter().any(is_it)) {
            let known = uploads.changing.iter().position(|class| class.fits(sizes));
            let place = known.unwrap_or_else(|| {
                uploads.changing.push(Class::new(sizes.iter().copied().map(Some).collect()));
                uploads.changing.len() - 1
            });
            let class = &mut uploads.changing[place];
            (class.known[axis], class.most[axis]) = (None, most);
            (uploads.usual, uploads.is_marked) = ((Vec::new(), 0), true);
            return class.capacity(axis, sizes[axis], &mut self.capacities);
        }
        most.filter(|&most| sizes[axis] <= most).unwrap_or_else(|| self.capacities.of(sizes[axis]))
    }

    /// The dimensions of a result that grow from call to call of a line. `None` if none do. `given` are the sizes of the
    /// arguments, of which one may be the result of the last call.
    pub fn result(&mut self, line: Line, scalar_type: i8, sizes: &[i64], given: &[&[i64]]) -> Option<Vec<bool>> {
        if !self.is_on() || !line.is_known() || sizes.contains(&0) {
            return None;
        }
        let results = self.tensors.entry((line, Source::Result, scalar_type, sizes.len())).or_default();
        let is_argument = results.seen.iter().any(|seen| given.contains(&&seen.sizes[..]));
        let proof = if is_argument { Proof::One } else { Proof::Two };
        let class = results.class(sizes, Weak::new(), proof, &mut self.capacities)?;
        class.grows |= is_argument;
        class.grows.then(|| class.known.iter().map(Option::is_none).collect())
    }

    /// The sizes of a tensor that is neither uploaded nor a whole value with padding, if they change at its line: sizes and
    /// capacities. `storage` is its storage, if that is known and the tensor may stay.
    ///
    /// A new tensor may become a parameter or a state of an optimizer, which padding would slow down. So its sizes change
    /// only if live values with padding have them, unless new tensors are asked for. Integers and what a gradient is computed
    /// with do not become parameters: while there are values with padding, other sizes of theirs change too, and without
    /// such values those of integers do from the sixth on. A gradient often has a size of such a value and constants, and
    /// then follows it. Neither do tensors of a line into which values with padding are written, as images are into a batch,
    /// or which are joined with such values.
    pub fn changing(
        &mut self,
        line: Line,
        source: Source,
        scalar_type: i8,
        sizes: &[i64],
        storage: Weak<Storage>,
    ) -> Vec<Changing> {
        if !line.is_known() || sizes.is_empty() || sizes.contains(&0) {
            return Vec::new();
        }
        let capacities = &mut self.capacities;
        let is_live = |&size: &i64| live_capacity(size).is_some() || live_factors(size).is_some();
        let is_number = call::tensor_dtype(scalar_type).is_ok_and(DType::is_integer);
        let may_change =
            || is_number && !sizes.iter().all(is_live) || line.is_of_autograd() && !sizes.iter().any(is_live);
        let is_created = matches!(source, Source::Created(_));
        let place = (line, source, scalar_type, sizes.len());
        let tensors = self.tensors.entry(place).or_default();
        let may_be_kept = self.setting == Setting::Dynamic && is_created && !tensors.is_data;
        let is_alone = may_be_kept && is_number && !any_live();
        let follows = may_be_kept && !is_alone && !(any_live() && may_change());
        let proof = match source {
            Source::Given { .. } => Proof::Five,
            _ if is_alone => Proof::Five,
            _ if follows => Proof::One,
            _ => Proof::Two,
        };
        let mut all = self.setting.all(sizes);
        let class = match &mut all {
            Some(all) => Some(all),
            None => tensors.class(sizes, storage.clone(), proof, capacities),
        };
        let Some(class) = class else {
            self.created = (is_created || source == Source::Joined).then(|| (place, sizes.to_vec()));
            return Vec::new();
        };
        if !follows {
            let capacities = class.capacities(sizes, capacities);
            let changing = sizes.iter().zip(capacities);
            return changing.filter_map(|(&size, capacity)| Some(Changing::Size(size, capacity?))).collect();
        }
        let size = |(axis, &size): (usize, &i64)| match live_capacity(size) {
            _ if class.known[axis].is_some() => None,
            None => Some(live_factors(size).map(|_| Changing::Product(size))),
            Some(capacity) => Some(Some(Changing::Size(size, capacity))),
        };
        let changing: Vec<Changing> =
            sizes.iter().enumerate().filter_map(size).collect::<Option<_>>().unwrap_or_default();
        if changing.is_empty() {
            // The next call may show that the tensor is data.
            tensors.remember(sizes, storage);
            self.created = Some((place, sizes.to_vec()));
        }
        changing
    }

    /// The capacity for a number of elements that the data decide, in a result with these largest sizes. A line keeps to its
    /// capacity: a program may take several such numbers, and each combination of capacities is another program.
    pub fn counted(&mut self, line: Line, largest: &[i64], number: i64) -> i64 {
        // The positions of elements are a line for each dimension.
        let most = largest.iter().copied().max().unwrap_or_default();
        self.counted.entry((line, most)).or_default().capacity(number, most, &mut self.capacities)
    }

    /// Notes the storage of the result of the call that was just defined: the result may stay.
    #[inline]
    pub fn note_created(&mut self, storage: Option<&Storage>) {
        if self.created.is_some() {
            self.fill_created(storage);
        }
    }

    #[cold]
    fn fill_created(&mut self, storage: Option<&Storage>) {
        let Some((place, sizes)) = self.created.take() else { return };
        let seen = self.tensors.get_mut(&place).and_then(|of| of.seen.iter_mut().find(|seen| seen.sizes == sizes));
        if let (Some(seen), Some(storage)) = (seen, storage) {
            seen.storage = storage.downgrade();
        }
    }

    /// Notes that a value with padding is written into a tensor, or joined with it. If it is a new tensor of a line, those
    /// of the line are neither parameters nor states of an optimizer.
    pub fn note_data(&mut self, storage: &Storage) {
        let is_it = |seen: &Seen| std::ptr::eq(seen.storage.as_ptr(), storage);
        let created = self.tensors.iter_mut().filter(|(place, _)| matches!(place.1, Source::Created(_)));
        created.for_each(|(_, tensors)| tensors.is_data |= !tensors.is_data && tensors.seen.iter().any(is_it));
    }

    /// How many lines have been found whose sizes change.
    pub fn found(&self) -> u64 {
        self.capacities.found
    }

    /// The capacity for a size that will grow. A larger capacity costs programs: some for the steps in which values with the
    /// old one and with the new one meet, as a list of tokens and the cache behind it.
    pub fn room(&mut self, size: i64) -> i64 {
        self.capacities.of(size.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_of_many_dimensions_is_not_affordable() {
        assert!(is_affordable(&[128, 128], &[9, 9], 4));
        assert!(!is_affordable(&[128; 5], &[9; 5], 4));
        assert!(is_affordable(&[16, 1024, 1024], &[16, 128, 128], 4));
        assert!(!is_affordable(&[16, 1024, 1024], &[16, 64, 64], 4));
        assert!(is_affordable(&[1 << 30], &[(1 << 29) + 1], 4));
        assert!(!is_affordable(&[i64::MAX, 2], &[9, 1], 8));
    }
}
