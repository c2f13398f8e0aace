//! Dimensions that change although no upload says so: the user does, a tensor grows, or a line takes parts of a tensor or
//! makes tensors of other sizes again and again.

use std::sync::Weak;

use crate::call::{Arg, Meta, Tag, TensorArg, to_spec};
use crate::engine::Engine;
use crate::error::Result;
use crate::growth::{Changing, Source};
use crate::lines;
use crate::padded::{PaddedFactor, live_capacity, same_strides};
use crate::registry::held::Axes;
use crate::registry::operators::Operator;
use crate::registry::sizes::{MANY, SIZE_ARGUMENTS};
use crate::storage::Storage;

impl Engine {
    /// Makes a dimension of a tensor one that changes: programs over the tensor take its size as an input. `most` is its
    /// largest size. Later uploads of the tensor's line have it too. Has no effect where sizes are constants: with
    /// `TORCHTPU_SIZES=static`, and in a process group. Returns whether the tensor's value got padding by this; `None` if
    /// the tensor does not cover its storage densely.
    ///
    /// # Errors
    /// If its value cannot be read.
    pub fn mark_dynamic(
        &mut self,
        storage: &Storage,
        sizes: &[i64],
        strides: &[i64],
        axis: usize,
        most: Option<i64>,
    ) -> Result<Option<bool>> {
        if !self.registry.growth.is_on() || self.runner.jobs.has_lanes() {
            return Ok(Some(false));
        }
        let Some(mut whole) = self.whole(storage, sizes, strides) else { return Ok(None) };
        let capacity = self.registry.growth.mark(storage, sizes, axis, most);
        let is_new = whole.bound(axis, sizes[axis], capacity);
        if is_new {
            self.pad_storage(storage, &whole.axes, true)?;
        }
        Ok(Some(is_new))
    }

    /// Pads the arguments of a new call that are results of its line, if these grow. Returns whether there are any.
    pub(crate) fn pad_what_grows(&mut self, op: u32, args: &[Arg], metas: &[Meta]) -> Result<bool> {
        let grows = self.registry.operator(op).row.is_some_and(|row| row.grows);
        let [meta] = metas else { return Ok(false) };
        if !grows || !self.registry.growth.is_on() || self.runner.jobs.has_lanes() {
            return Ok(false);
        }
        let Some(result) = to_spec(meta)? else { return Ok(false) };
        let given: Vec<&TensorArg> = args
            .iter()
            .filter(|arg| arg.tag == Tag::List)
            .flat_map(|arg| arg.list())
            .filter(|arg| arg.tag == Tag::Tensor)
            .map(Arg::tensor)
            .filter(|tensor| tensor.sizes().len() == result.sizes.len() && tensor.offset == 0 && !tensor.is_lazy())
            .collect();
        if are_many(&given) {
            return Ok(false);
        }
        let sizes: Vec<&[i64]> = given.iter().map(|tensor| tensor.sizes()).collect();
        let Some(changes) = self.registry.growth.result(lines::noted(), meta.dtype, &result.sizes, &sizes) else {
            return Ok(false);
        };
        let mut is_padded = false;
        for tensor in given {
            let sizes = tensor.sizes();
            let Some(mut whole) = self.whole(tensor.storage(), sizes, tensor.strides()) else { continue };
            let mut is_new = false;
            for axis in (0..changes.len()).filter(|&axis| changes[axis] && sizes[axis] > 1) {
                is_new |= whole.bound(axis, sizes[axis], self.registry.growth.room(sizes[axis]));
            }
            if is_new {
                self.pad_storage(tensor.storage(), &whole.axes, true)?;
                is_padded = true;
            }
        }
        Ok(is_padded)
    }

    /// The sizes of a new call that change at its line although no argument has padding: those of parts of values, of
    /// tensors without a value, of results of calls without tensors, and the number of tensors that a call joins. With
    /// the capacity of each.
    pub(crate) fn changing_sizes(&mut self, op: u32, args: &[Arg], metas: Option<&[Meta]>) -> Vec<Changing> {
        if !self.registry.growth.is_on() || self.runner.jobs.has_lanes() {
            return Vec::new();
        }
        let Some(row) = self.registry.operator(op).row else { return Vec::new() };
        let line = lines::noted();
        let mut tensors = Vec::new();
        args.iter().for_each(|arg| add_tensors(arg, &mut tensors));
        if tensors.is_empty() {
            let Some([meta]) = metas else { return Vec::new() };
            let Ok(Some(result)) = to_spec(meta) else { return Vec::new() };
            let growth = &mut self.registry.growth;
            let mut changing = growth.given.constants(line, op, 0, &result.sizes);
            changing.extend(growth.changing(line, Source::Created(op), meta.dtype, &result.sizes, Weak::new()));
            return without_constants(changing);
        }
        self.note_data(op, args, &tensors);
        let mut changing = self.sizes_that_follow(op, args, &tensors, metas);
        let growth = &mut self.registry.growth;
        if row.grows && are_many(&tensors) {
            let number = [tensors.len() as i64];
            changing.extend(growth.changing(line, Source::Joined, tensors[0].dtype, &number, Weak::new()));
        }
        for (argument, tensor) in tensors.into_iter().enumerate() {
            let (storage, sizes) = (tensor.storage(), tensor.sizes());
            if let Some(padded) = storage.padded().filter(|_| storage.has_padding()) {
                let stay = growth.given.parts_that_stay((line, op, argument), &padded.sizes(), sizes);
                changing.extend(stay.into_iter().map(Changing::Part));
                continue;
            }
            let (source, held) = match storage.base() {
                Err(_) => {
                    changing.extend(growth.given.constants(line, op, argument, sizes));
                    (Source::Created(op), storage.downgrade())
                }
                Ok(whole) if self.registry.types.get(whole).numel() == sizes.iter().product::<i64>() => continue,
                Ok(whole) if storage.is_counted() => {
                    let whole = self.registry.types.get(whole);
                    let counted = sizes.iter().filter(|size| **size > 1 && !whole.dims.contains(size));
                    let mut capacity = |size| {
                        storage.counted_capacity(size).unwrap_or_else(|| growth.counted(line, &whole.dims, size))
                    };
                    changing.extend(counted.map(|&size| Changing::Count(size, capacity(size))));
                    continue;
                }
                Ok(whole) => {
                    // They show what stays before there is padding.
                    growth.given.parts_that_stay((line, op, argument), &self.registry.types.get(whole).dims, sizes);
                    (Source::Part { op, argument, whole }, Weak::new())
                }
            };
            changing.extend(growth.changing(line, source, tensor.dtype, sizes, held));
        }
        without_constants(changing)
    }

    /// Notes which exact tensors a call writes values with padding into, or joins with such values.
    fn note_data(&mut self, op: u32, args: &[Arg], tensors: &[&TensorArg]) {
        if !tensors.iter().any(|tensor| tensor.storage().has_padding()) {
            return;
        }
        let operator = self.registry.operator(op);
        let mut data = Vec::new();
        operator.mutated.iter().for_each(|&i| add_tensors(&args[i], &mut data));
        if operator.row.is_some_and(|row| row.grows) {
            // A parameter is often expanded to a batch.
            let numel = |storage: &Storage| storage.base().map(|ty| self.registry.types.get(ty).numel());
            let is_whole = |tensor: &&&TensorArg| numel(tensor.storage()) == Ok(tensor.sizes().iter().product());
            data.extend(tensors.iter().filter(is_whole));
        }
        for tensor in data.iter().filter(|tensor| !tensor.storage().has_padding()) {
            self.registry.growth.note_data(tensor.storage());
        }
    }

    /// The sizes of results that a call is given as ints, with their capacities: those that follow the changing size of an
    /// argument, those of live values with padding, if the call was given several, and those that change at the line
    /// although no argument does. With the constants that live values have by chance.
    fn sizes_that_follow(
        &mut self,
        op: u32,
        args: &[Arg],
        tensors: &[&TensorArg],
        metas: Option<&[Meta]>,
    ) -> Vec<Changing> {
        let results = given_sizes(self.registry.operator(op), args, tensors, metas);
        let (line, growth) = (lines::noted(), &mut self.registry.growth);
        // All gradients of a model are computed at one line.
        let stays = line.is_of_autograd() || tensors.iter().any(|tensor| tensor.storage().has_padding());
        let exact = tensors[0].storage().base().ok().filter(|_| !stays);
        let mut changing = Vec::new();
        for GivenSizes { dtype, sizes, given } in results {
            if let Some(of) = exact.filter(|_| !given.is_empty()) {
                let found = growth.changing(line, Source::Given { op, of }, dtype, &sizes, Weak::new());
                let is_given = |found: &Changing| given.iter().any(|&(_, size)| found.is_size(size));
                changing.extend(found.into_iter().filter(is_given));
            }
            let by_chance = growth.given.constants(line, op, tensors.len(), &sizes);
            let is_given = |found: &Changing| given.iter().any(|&(_, size)| *found == Changing::Constant(size));
            changing.extend(by_chance.into_iter().filter(is_given));
            for (axis, size) in given {
                let alike = tensors.iter().filter(|tensor| tensor.sizes().len() == sizes.len());
                let mut others: Vec<_> = alike.clone().filter_map(|tensor| capacity_of(tensor, axis)).collect();
                if alike.count() == 0 {
                    others = tensors.iter().flat_map(|tensor| capacities_of(tensor)).collect();
                }
                others.retain(|(actual, _)| *actual != size);
                for (actual, capacity) in others {
                    if growth.given.follows(line, op, axis, actual, size) {
                        let room = || if size <= capacity { capacity } else { growth.room(size) };
                        changing.push(Changing::Size(size, live_capacity(size).unwrap_or_else(room)));
                    }
                }
                let varies = growth.given.varies(line, op, axis, size);
                if let Some(capacity) = live_capacity(size).filter(|_| varies) {
                    changing.push(Changing::Size(size, capacity));
                }
            }
        }
        changing
    }

    /// The factors of a tensor that covers its storage densely. `None` if it does not.
    fn whole(&self, storage: &Storage, sizes: &[i64], strides: &[i64]) -> Option<Whole> {
        let order = aten::memory_order(sizes, strides).filter(|_| !sizes.contains(&0))?;
        if let Some(padded) = storage.padded().filter(|_| storage.has_padding()) {
            let is_whole =
                padded.order == order && padded.sizes() == sizes && same_strides(sizes, &padded.strides(), strides);
            return is_whole.then(|| Whole { axes: padded.held(), order });
        }
        let base = self.registry.types.get(storage.base().ok()?);
        let dims: Vec<i64> = order.iter().map(|&axis| sizes[axis]).collect();
        let fixed = |&size: &i64| vec![PaddedFactor { capacity: size, actual: size, is_bounded: false }];
        let is_whole = base.dims == dims && base.size_bytes() == storage.nbytes();
        is_whole.then(|| Whole { axes: dims.iter().map(fixed).collect(), order })
    }
}

/// A result of a call that is given sizes as ints.
struct GivenSizes {
    dtype: i8,
    /// The sizes of the result; for a call that repeats a tensor, the numbers of times.
    sizes: Vec<i64>,
    /// The dimensions whose sizes are given, and these.
    given: Vec<(usize, i64)>,
}

/// The results of a call, with the sizes that its ints give.
fn given_sizes(operator: &Operator, args: &[Arg], tensors: &[&TensorArg], metas: Option<&[Meta]>) -> Vec<GivenSizes> {
    let ints = |arg: &Arg| match arg.tag {
        Tag::Ints => arg.ints().to_vec(),
        Tag::Int => vec![arg.int()],
        _ => Vec::new(),
    };
    let names = || args.iter().zip(&operator.names);
    let given = names().filter(|(_, name)| SIZE_ARGUMENTS.contains(&&name[..]));
    let given: Vec<i64> = given.flat_map(|(arg, _)| ints(arg)).collect();
    let repeats = names().find(|(_, name)| *name == "repeats").map(|(arg, _)| ints(arg));
    // Padding gives a size by its difference from that of the tensor.
    let by_padding = operator.names.iter().any(|name| name == "pad");
    let is_given = |axis: usize, size: i64| {
        size > 1
            && (given.contains(&size) || by_padding && tensors[0].sizes().get(axis).is_some_and(|&own| own != size))
    };
    let results = metas.unwrap_or_default().iter().filter_map(|meta| Some((meta.dtype, to_spec(meta).ok()??)));
    let each = results.map(|(dtype, result)| {
        let sizes = repeats.clone().unwrap_or(result.sizes);
        let given = sizes.iter().copied().enumerate().filter(|&(axis, size)| is_given(axis, size)).collect();
        GivenSizes { dtype, sizes, given }
    });
    each.collect()
}

/// The sizes that change, without those that are constants of the call.
fn without_constants(mut changing: Vec<Changing>) -> Vec<Changing> {
    let constants = changing.clone();
    let is_constant = |size| constants.contains(&Changing::Constant(size));
    changing.retain(|found| !matches!(found, Changing::Size(size, _) if is_constant(*size)));
    changing
}

/// The size of a dimension of a tensor, and its capacity, if it is a size of the tensor's value that changes.
fn capacity_of(tensor: &TensorArg, axis: usize) -> Option<(i64, i64)> {
    let padded = tensor.storage().padded().filter(|_| tensor.storage().has_padding())?;
    let size = tensor.sizes()[axis];
    let factor = padded.axes.iter().flatten().find(|factor| factor.is_bounded && factor.actual == size)?;
    Some((size, factor.capacity))
}

/// The sizes of a tensor that change, and their capacities.
fn capacities_of(tensor: &TensorArg) -> Vec<(i64, i64)> {
    (0..tensor.sizes().len()).filter_map(|axis| capacity_of(tensor, axis)).collect()
}

/// Whether so many tensors of the same sizes are joined that their number may be a size that changes.
fn are_many(tensors: &[&TensorArg]) -> bool {
    tensors.len() >= MANY && tensors.iter().all(|tensor| tensor.sizes() == tensors[0].sizes())
}

/// The tensors of an argument.
fn add_tensors<'a>(arg: &'a Arg, into: &mut Vec<&'a TensorArg>) {
    match arg.tag {
        Tag::Tensor => into.push(arg.tensor()),
        Tag::List => arg.list().iter().for_each(|item| add_tensors(item, into)),
        _ => {}
    }
}

/// The factors of a storage's value in the order of memory, and the dimensions of its tensor in this order.
struct Whole {
    axes: Axes,
    order: Vec<usize>,
}

impl Whole {
    /// Gives a dimension a capacity, unless it has one. Returns whether it had none.
    fn bound(&mut self, axis: usize, actual: i64, capacity: i64) -> bool {
        let Some(place) = self.order.iter().position(|&each| each == axis) else { return false };
        let is_new = self.axes[place].iter().all(|factor| !factor.is_bounded);
        if is_new {
            self.axes[place] = vec![PaddedFactor { capacity, actual, is_bounded: true }];
        }
        is_new
    }
}
