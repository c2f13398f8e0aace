//! Chunks that are cut into pieces before they run.
//!
//! In a chain whose intermediate results are all in use, XLA computes each result anew from the beginning of the chain, so
//! that compiling takes as long as the square of its length. A chunk with such a chain becomes several programs. The pieces
//! of a chain that repeats itself have the same text, so they are one program.

use std::ops::Range;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::chunk::{Chunk, DataCheck, Source};
use crate::program::Usage;
use crate::storage::{Value, ValueState};

/// How many results in use may depend on one another in a piece.
const DEPTH: u32 = 16;

/// A chunk with no more of them in a row stays whole.
const DEPTH_OF_WHOLE: u32 = 2 * DEPTH;

impl Chunk {
    /// The pieces of the chunk, in order; `None` if it runs as a whole. The chunk keeps none of its inputs.
    pub fn pieces(&mut self, usage: &Usage) -> Option<Vec<Chunk>> {
        if self.scope != 0 || usage.live.len() <= DEPTH_OF_WHOLE as usize || self.flags().is_some() {
            return None;
        }
        let mut is_live = vec![false; self.outputs.len()];
        usage.live.iter().for_each(|&output| is_live[output as usize] = true);
        if self.cuts(&is_live, DEPTH_OF_WHOLE).len() == 1 {
            return None;
        }
        let cuts = self.cuts(&is_live, DEPTH);
        let values = self.values_between(&cuts);
        let mut checks = std::mem::take(&mut self.checks);
        let pieces = cuts.into_iter().map(|nodes| {
            let (own, later) = checks.drain(..).partition(|check| check.node < nodes.end);
            checks = later;
            self.piece(nodes, &values, own)
        });
        let pieces = pieces.collect();
        self.inputs.clear();
        Some(pieces)
    }

    /// Cuts the nodes where as many results in use as `depth` depend on one another since the last cut.
    fn cuts(&self, is_live: &[bool], depth: u32) -> Vec<Range<usize>> {
        let mut depths = vec![0; self.outputs.len()];
        let (mut start, mut first_output, mut cuts) = (0, 0, Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let of_source = |source: &Source| match *source {
                Source::Output(output) if output >= first_output => depths[output as usize],
                _ => 0,
            };
            let deepest = self.sources_of(index).iter().map(of_source).max().unwrap_or(0);
            let outputs = node.first_output..node.first_output + node.num_outputs() as u32;
            for output in outputs.clone() {
                depths[output as usize] = deepest + u32::from(is_live[output as usize]);
            }
            if outputs.clone().any(|output| depths[output as usize] >= depth) && index + 1 < self.nodes.len() {
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
                outer => *inputs.entry(outer.token()).or_insert_with(|| match outer {
                    Source::Input(input) => piece.input(&self.inputs[input as usize]),
                    Source::Output(output) => match &values[output as usize] {
                        Some(value) => piece.input(value),
                        None => unreachable!("values_between has made what later pieces take"),
                    },
                    Source::Extra(_) => outer,
                }),
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
