//! Calls of operators over long lists of tensors, such as an optimizer's step over thousands of parameters.
//!
//! A program over a list has code for each element, and compiling it takes as long. A long list is therefore called in
//! groups of elements that are alike in dtypes, sizes and layouts. The groups share a few small programs.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::call::{Arg, Generator, Meta, Out, Tag};
use crate::engine::Engine;
use crate::error::Result;
use crate::operator_call::{Defined, Found, Status};
use crate::placement::Placement;
use crate::registry::key::CallParts;
use crate::registry::operators::Operator;
use crate::storage::Storage;

/// A longer list is called in groups.
const LONGEST: usize = 256;

/// How many elements a group has at most.
const GROUP: usize = 16;

/// A part of a call: its arguments, and which elements of the lists they are.
pub(crate) struct Group {
    args: Vec<Arg>,
    elements: Vec<usize>,
    /// The elements' arguments, to which `args` point.
    _lists: Vec<Vec<Arg>>,
}

fn is_list(arg: &Arg) -> bool {
    arg.tag == Tag::List && arg.length > 0
}

/// The length of the longest list.
fn longest(args: &[Arg]) -> usize {
    args.iter().filter(|arg| is_list(arg)).map(|arg| arg.list().len()).max().unwrap_or(0)
}

/// Whether a call is called in groups.
pub(crate) fn is_divided(operator: &Operator, args: &[Arg]) -> bool {
    if !operator.is_by_element {
        return false;
    }
    let count = longest(args);
    let is_even = args.iter().filter(|arg| is_list(arg)).all(|arg| arg.list().len() == count);
    // A tensor with a number for each element, or such numbers in another form than a list, would have to be cut too.
    let is_numbers = |(arg, name): (&Arg, &String)| {
        matches!(arg.tag, Tag::Ints | Tag::Floats | Tag::Bools) && arg.length as usize == count
            || arg.tag == Tag::Tensor && name == "scalars"
    };
    let has_numbers = args.iter().zip(&operator.names).any(is_numbers);
    count > LONGEST && is_even && !has_numbers && writes_apart(operator, args, count)
}

/// The groups of a call that is divided, whose arguments have exact values.
pub(crate) fn groups(operator: &Operator, args: &[Arg]) -> Vec<Group> {
    let mut alike: FxHashMap<Vec<u64>, usize> = FxHashMap::default();
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for element in 0..longest(args) {
        let mut likeness = Vec::new();
        for (arg, info) in args.iter().zip(&operator.args).filter(|(arg, _)| is_list(arg)) {
            add_likeness(&arg.list()[element], info.dynamic, &mut likeness);
        }
        let kind = *alike.entry(likeness).or_insert(kinds.len());
        match kinds.get_mut(kind) {
            Some(elements) => elements.push(element),
            None => kinds.push(vec![element]),
        }
    }
    let groups = kinds.iter().flat_map(|elements| elements.chunks(GROUP));
    groups.map(|elements| Group::new(args, elements)).collect()
}

/// Whether each element writes storages that no other element reads or writes, so that the order of the groups means
/// nothing. What is written besides the lists would be written by each group.
fn writes_apart(operator: &Operator, args: &[Arg], count: usize) -> bool {
    let address = |arg: &Arg| (arg.tag == Tag::Tensor).then(|| std::ptr::from_ref::<Storage>(arg.tensor().storage()));
    let mut written = FxHashSet::default();
    for arg in operator.mutated.iter().map(|&place| &args[place]) {
        match arg.tag {
            Tag::List => {
                if !arg.list().iter().all(|item| address(item).is_some_and(|address| written.insert(address))) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    let is_read = |place: &usize| !operator.mutated.contains(place);
    (0..args.len()).filter(is_read).all(|place| match args[place].tag {
        Tag::List if args[place].list().len() == count => {
            args[place].list().iter().filter_map(address).all(|address| !written.contains(&address))
        }
        Tag::Tensor => address(&args[place]).is_none_or(|address| !written.contains(&address)),
        _ => true,
    })
}

/// What must be the same in the elements of a group, as numbers.
fn add_likeness(arg: &Arg, is_input: bool, into: &mut Vec<u64>) {
    into.push(arg.tag as u64);
    if arg.tag == Tag::Tensor {
        let tensor = arg.tensor();
        into.push(tensor.dtype as u64 | (tensor.sizes().len() as u64) << 8);
        into.push(u64::from(tensor.is_conj) | u64::from(tensor.is_neg) << 1);
        into.push(tensor.storage().base().map_or_else(|bytes| bytes as u64 | 1 << 63, u64::from));
        into.push(tensor.offset as u64);
        into.extend(tensor.sizes().iter().chain(tensor.strides()).map(|&number| number as u64));
    } else if !is_input {
        into.push(arg.bits());
    }
}

impl Group {
    fn new(args: &[Arg], elements: &[usize]) -> Group {
        let mut lists: Vec<Vec<Arg>> = Vec::new();
        let given = args.iter().map(|arg| {
            if !is_list(arg) {
                return *arg;
            }
            let items = arg.list();
            lists.push(elements.iter().map(|&element| items[element]).collect());
            arg.with_list(&lists[lists.len() - 1])
        });
        Group { args: given.collect(), elements: elements.to_vec(), _lists: lists }
    }

    /// The results that PyTorch infers for the group, of those for the whole call: the written lists' elements in the
    /// order of the arguments, then fresh ones.
    fn metas(&self, args: &[Arg], metas: &[Meta]) -> Vec<Meta> {
        let count = longest(args);
        let lists = metas.len().checked_div(count).unwrap_or(0);
        let of_list = |list: usize| self.elements.iter().filter_map(move |&element| metas.get(list * count + element));
        (0..lists).flat_map(of_list).copied().collect()
    }
}

impl Engine {
    /// Calls groups one after another. The call is done as a whole or not at all, except that written elements of earlier
    /// groups keep their new values if a program fails.
    pub(crate) fn call_groups(
        &mut self,
        op: u32,
        groups: &[Group],
        placement: Placement,
        mut generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        let mut found = Vec::with_capacity(groups.len());
        let mut fresh = 0;
        for group in groups {
            let mut parts = CallParts::exact();
            let Some(instance) = self.find_unrefused(op, &group.args, &mut parts)? else {
                return Ok(Status::NewKey);
            };
            fresh += instance.fresh_results();
            found.push((instance, parts));
        }
        if fresh > outs.len() {
            return Ok(Status::NeedsRoom(fresh));
        }
        let mut done: Vec<usize> = Vec::new();
        for ((instance, parts), group) in found.iter().zip(groups) {
            let mut results = vec![Out::absent(); instance.fresh_results()];
            let call = Found { instance, parts, placement, runs_by_itself: true };
            let status = self.give_values(instance, parts);
            let status = status.and_then(|()| self.call_found(call, generator.as_deref_mut(), &mut results));
            if !matches!(status, Ok(Status::Done(_))) {
                done.iter().for_each(|&element| outs[element].release());
                return status;
            }
            if !results.is_empty() {
                group.elements.iter().zip(results).for_each(|(&element, result)| outs[element] = result);
                done.extend(&group.elements);
            }
        }
        Ok(Status::Done(fresh))
    }

    /// Lowers the groups of a new call.
    pub(crate) fn define_groups(
        &mut self,
        op: u32,
        args: &[Arg],
        groups: &[Group],
        metas: Option<&[Meta]>,
    ) -> Result<Defined> {
        for group in groups {
            let metas = metas.map(|metas| group.metas(args, metas));
            if let Defined::NoRow = self.define_call(op, &group.args, metas.as_deref(), None, true)? {
                return Ok(Defined::NoRow);
            }
        }
        Ok(Defined::Lowered)
    }
}
