//! Values of a program that may share memory.
//!
//! XLA's compiler for the CPU writes a part of a value in place. It also does so where the value is a reshape of another
//! one from which the part is made, and then reads elements that it has overwritten: with `x = b.view(40, 7)`,
//! `y = x.clone(); y[1:5] = x[:4]` would be wrong. A value that is not taken for the same memory is written instead.

use rustc_hash::{FxHashMap, FxHashSet};
use stablehlo::{Builder, Function, Precision, Target, Type};

use crate::record::chunk::{Chunk, Source};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Input(u32),
    Output(u32),
}

impl Place {
    fn of(source: Source) -> Option<Place> {
        match source {
            Source::Input(k) => Some(Place::Input(k)),
            Source::Output(k) => Some(Place::Output(k)),
            Source::Extra(_) => None,
        }
    }
}

/// The values from which the outputs so far are computed.
#[derive(Default)]
pub(super) struct Aliases {
    /// The value that an output has the elements of, and whether it is reshaped on the way.
    origins: FxHashMap<u32, (Place, bool)>,
    /// The node of an output.
    nodes: FxHashMap<u32, usize>,
}

impl Aliases {
    /// Adds the outputs of a node.
    pub fn add(&mut self, chunk: &Chunk, index: usize) {
        let node = &chunk.nodes[index];
        let Some(function) = node.instance.function() else { return };
        let sources = chunk.sources_of(index);
        for (i, form) in function.forms.iter().enumerate() {
            let output = node.first_output + i as u32;
            let before = form.param.and_then(|param| Place::of(sources[param])).map(|place| self.origin(place));
            let (origin, is_reshaped) = before.unwrap_or((Place::Output(output), false));
            self.origins.insert(output, (origin, is_reshaped || form.is_reshaped));
            self.nodes.insert(output, index);
        }
    }

    fn origin(&self, place: Place) -> (Place, bool) {
        match place {
            Place::Output(output) => self.origins.get(&output).copied().unwrap_or((place, false)),
            Place::Input(_) => (place, false),
        }
    }

    /// The parameters of a node that must not share the memory of what they are made of.
    pub fn overwritten(&self, chunk: &Chunk, index: usize) -> Vec<usize> {
        let Some(function) = chunk.nodes[index].instance.function() else { return Vec::new() };
        let sources = chunk.sources_of(index);
        let is_overwritten = |param: usize, is_reshaped: bool| {
            let Some((origin, was_reshaped)) = Place::of(sources[param]).map(|place| self.origin(place)) else {
                return false;
            };
            let others = sources.iter().enumerate().filter(|(other, _)| *other != param).map(|(_, source)| *source);
            (is_reshaped || was_reshaped) && self.any_depends(chunk, others, origin)
        };
        let written = function.written.iter().filter_map(|form| Some((form.param?, form.is_reshaped)));
        let mut params: Vec<usize> =
            written.filter(|&(p, reshaped)| is_overwritten(p, reshaped)).map(|(p, _)| p).collect();
        params.sort_unstable();
        params.dedup();
        params
    }

    /// Whether any of these values is made of another.
    fn any_depends(&self, chunk: &Chunk, values: impl Iterator<Item = Source>, on: Place) -> bool {
        let (mut seen, mut next): (FxHashSet<Place>, Vec<Place>) =
            (FxHashSet::default(), values.filter_map(Place::of).collect());
        while let Some(place) = next.pop() {
            if place == on || self.origin(place).0 == on {
                return true;
            }
            if let (true, Place::Output(output)) = (seen.insert(place), place)
                && let Some(&node) = self.nodes.get(&output)
            {
                next.extend(chunk.sources_of(node).iter().filter_map(|&source| Place::of(source)));
            }
        }
        false
    }
}

/// A function that returns its argument as a value of its own.
pub(super) fn copy_function(ty: &Type) -> Option<Function> {
    let builder = Builder::new(Precision::Highest, Target::Cpu);
    let copy = builder.parameter(ty.clone()).apart();
    builder.finish(&[copy]).ok()
}
