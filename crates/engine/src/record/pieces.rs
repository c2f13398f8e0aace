//! Chunks that are cut into pieces before they run.
//!
//! In a chain whose intermediate results are all in use, XLA computes each result anew from the beginning of the chain, so
//! that compiling takes as long as the square of its length. A chunk with such a chain becomes several programs. The pieces
//! of a chain that repeats itself have the same text, so they are one program.
//!
//! A chunk that collectives have joined is cut at these where the ranks have not voted for its program.

use std::ops::Range;
use std::sync::{Arc, Weak};

use rustc_hash::{FxHashMap, FxHashSet};

use super::chunk::{Chunk, DataCheck, Source};
use crate::program::Usage;
use crate::registry::types::Types;
use crate::storage::{SMALL, Value, ValueState};

/// How many results in use may depend on one another in a piece.
const DEPTH: u32 = 16;

/// A chunk with no more of them in a row stays whole.
const DEPTH_OF_WHOLE: u32 = 2 * DEPTH;

impl Chunk {
    /// The pieces of the chunk, in order; `None` if it runs as a whole. The chunk keeps none of its inputs.
    pub fn pieces(&mut self, usage: &Usage) -> Option<Vec<Chunk>> {
        if self.scope != 0 || self.flags().is_some() {
            return None;
        }
        if !self.is_deep(usage) {
            return None;
        }
        let cuts = self.cuts(&self.are_live(usage), DEPTH, false);
        let values = self.values_between(&cuts);
        Some(self.pieces_of(cuts, &values))
    }

    /// A piece for each operator, in order. The chunk keeps none of its inputs.
    pub fn each_alone(&mut self) -> Vec<Chunk> {
        let cuts: Vec<_> = (0..self.nodes.len()).map(|node| node..node + 1).collect();
        let values = self.values_between(&cuts);
        self.pieces_of(cuts, &values)
    }

    /// Whether as many results in use depend on one another that the compiler would take long for the whole.
    pub fn is_deep(&self, usage: &Usage) -> bool {
        usage.live.len() > DEPTH_OF_WHOLE as usize && self.cuts(&self.are_live(usage), DEPTH_OF_WHOLE, false).len() > 1
    }

    /// The pieces of a chunk with collectives, in order, each with its usage: a piece for each collective, and for what is
    /// between them. What they use and donate follows from the usage of the whole when it was recorded, because later
    /// calls may have come to use the same values since. The chunk keeps none of its inputs.
    pub fn around_collectives(&mut self, whole: &Usage, types: &Types) -> Vec<(Chunk, Usage)> {
        let is_live = self.are_live(whole);
        let cuts = self.cuts(&is_live, DEPTH_OF_WHOLE, true);
        let values = self.values_between(&cuts);
        let given_up = self.inputs.iter().zip(&whole.donated).filter(|(_, donated)| **donated).map(|(input, _)| input);
        let between =
            values.iter().zip(&is_live).filter(|(_, is_live)| !**is_live).filter_map(|(value, _)| value.as_ref());
        let mut given_up: FxHashSet<*const Value> = given_up.chain(between).map(Arc::as_ptr).collect();
        let mut is_used = is_live;
        for nodes in &cuts {
            let first = self.nodes[nodes.start].first_output;
            for source in nodes.clone().flat_map(|node| self.sources_of(node)) {
                if let Source::Output(output) = *source {
                    is_used[output as usize] |= output < first;
                }
            }
        }
        let mut calls = std::mem::take(&mut self.calls).into_iter();
        let firsts: Vec<usize> = cuts.iter().map(|nodes| self.nodes[nodes.start].first_output as usize).collect();
        let mut pieces = Vec::with_capacity(cuts.len());
        // The last piece that takes a value may have its memory. All ranks run the same program of a collective.
        let mut all = self.pieces_of(cuts, &values);
        for piece in all.iter_mut().filter(|piece| !piece.replicas().is_empty()) {
            piece.calls.extend(calls.next());
        }
        for (piece, first) in all.into_iter().zip(firsts).rev() {
            let is_collective = !piece.replicas().is_empty();
            let mut times: FxHashMap<*const Value, usize> = FxHashMap::default();
            piece.inputs.iter().for_each(|input| *times.entry(Arc::as_ptr(input)).or_default() += 1);
            let donated = piece.inputs.iter().map(|input| {
                let is_large = types.get(input.ty).size_bytes() > SMALL;
                let is_one_input = times[&Arc::as_ptr(input)] == 1;
                given_up.remove(&Arc::as_ptr(input)) && is_large && is_one_input && !is_collective
            });
            let donated = donated.collect();
            let live = (0..piece.outputs.len()).filter(|output| is_collective || is_used[first + output]);
            let usage = Usage { live: live.map(|output| output as u32).collect(), donated };
            if !usage.live.is_empty() {
                pieces.push((piece, usage));
            }
        }
        pieces.reverse();
        pieces
    }

    fn are_live(&self, usage: &Usage) -> Vec<bool> {
        let mut are_live = vec![false; self.outputs.len()];
        usage.live.iter().for_each(|&output| are_live[output as usize] = true);
        are_live
    }

    fn pieces_of(&mut self, cuts: Vec<Range<usize>>, values: &[Option<Arc<Value>>]) -> Vec<Chunk> {
        let mut checks = std::mem::take(&mut self.checks);
        let pieces = cuts.into_iter().map(|nodes| {
            let (own, later) = checks.drain(..).partition(|check| check.node < nodes.end);
            checks = later;
            self.piece(nodes, values, own)
        });
        let pieces = pieces.collect();
        self.inputs.clear();
        pieces
    }

    /// Cuts the nodes where as many results in use as `depth` depend on one another since the last cut; and at collectives,
    /// if wanted.
    fn cuts(&self, is_live: &[bool], depth: u32, at_collectives: bool) -> Vec<Range<usize>> {
        let mut depths = vec![0; self.outputs.len()];
        let (mut start, mut first_output, mut cuts) = (0, 0, Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let is_collective = at_collectives && !node.instance.replicas().is_empty();
            if is_collective && start < index {
                cuts.push(start..index);
                (start, first_output) = (index, node.first_output);
            }
            let of_source = |source: &Source| match *source {
                Source::Output(output) if output >= first_output => depths[output as usize],
                _ => 0,
            };
            let deepest = self.sources_of(index).iter().map(of_source).max().unwrap_or(0);
            let outputs = node.first_output..node.first_output + node.num_outputs() as u32;
            for output in outputs.clone() {
                depths[output as usize] = deepest + u32::from(is_live[output as usize]);
            }
            let is_deep = outputs.clone().any(|output| depths[output as usize] >= depth);
            if (is_deep || is_collective) && index + 1 < self.nodes.len() {
                cuts.push(start..index + 1);
                (start, first_output) = (index + 1, outputs.end);
            }
        }
        cuts.push(start..self.nodes.len());
        cuts
    }

    /// The values of the results that are in use, or that a later piece takes.
    fn values_between(&self, cuts: &[Range<usize>]) -> Vec<Option<Arc<Value>>> {
        let mut values: Vec<_> = self.outputs.iter().map(Weak::upgrade).collect();
        let types: Vec<_> = self.nodes.iter().flat_map(|node| node.instance.result_types()).collect();
        for nodes in cuts {
            let first = self.nodes[nodes.start].first_output;
            for source in nodes.clone().flat_map(|node| self.sources_of(node)) {
                if let Source::Output(output) = *source {
                    let (place, ty) = (&mut values[output as usize], types[output as usize]);
                    if output < first && place.is_none() {
                        *place = Some(Value::new(ty, ValueState::Queued));
                    }
                }
            }
        }
        values
    }

    fn piece(&self, nodes: Range<usize>, values: &[Option<Arc<Value>>], checks: Vec<DataCheck>) -> Chunk {
        let mut piece = Chunk::new(self.number);
        let first_output = self.nodes[nodes.start].first_output;
        let mut inputs: FxHashMap<u64, Source> = FxHashMap::default();
        for index in nodes.clone() {
            let node = &self.nodes[index];
            let sources = self.sources_of(index).iter().map(|source| match *source {
                Source::Output(output) if output >= first_output => Source::Output(output - first_output),
                Source::Extra(extra) => piece.extra(self.extras[extra as usize]),
                outer => {
                    let mut input = || match outer {
                        Source::Input(input) => piece.input(&self.inputs[input as usize]),
                        Source::Output(output) => match &values[output as usize] {
                            Some(value) => piece.input(value),
                            None => unreachable!("values_between has made what later pieces take"),
                        },
                        Source::Extra(_) => outer,
                    };
                    match node.instance.has_own_inputs() {
                        true => input(),
                        false => *inputs.entry(outer.token()).or_insert_with(input),
                    }
                }
            });
            let sources: Vec<Source> = sources.collect();
            piece.append(&node.instance, &sources);
            piece.bytes += node.instance.result_bytes;
            let outputs = node.first_output as usize..node.first_output as usize + node.num_outputs();
            piece
                .outputs
                .extend(values[outputs].iter().map(|value| value.as_ref().map_or_else(Weak::new, Arc::downgrade)));
            piece.add_line(self.line_of(index));
        }
        let shift = |check: DataCheck| DataCheck { node: check.node - nodes.start, ..check };
        piece.checks = checks.into_iter().map(shift).collect();
        piece
    }
}
