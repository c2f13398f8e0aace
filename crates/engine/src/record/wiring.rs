//! Finds the sizes of a chunk that its program takes as one input.
//!
//! A program has few inputs if equal sizes are one. But sizes may be equal by chance, and the next chunk of the same calls
//! would then have another program. So a chunk takes the inputs of an earlier chunk of the same calls wherever the sizes
//! that were one input there are equal again.

use rustc_hash::FxHashMap;

/// The largest number of remembered keys. Then all are dropped: later chunks find their inputs anew.
const MAX_KEYS: usize = 4096;

/// The inputs of chunks that were seen before, by the key in which each size is an input of its own: for each size in
/// order the number of its input.
#[derive(Default)]
pub(crate) struct Wirings {
    known: FxHashMap<Box<[u64]>, Vec<Vec<u32>>>,
}

impl Wirings {
    /// For each size in order the number of its input. `sizes` has the node and the actual size of each.
    pub fn of(&mut self, key: &[u64], sizes: &[(usize, i64)]) -> &[u32] {
        if self.known.len() >= MAX_KEYS && !self.known.contains_key(key) {
            self.known.clear();
        }
        let known = self.known.entry(key.into()).or_default();
        let place = known.iter().position(|wiring| holds(wiring, sizes)).unwrap_or_else(|| {
            known.push(by_size(sizes));
            known.len() - 1
        });
        &known[place]
    }
}

/// Whether sizes that are one input are equal.
fn holds(wiring: &[u32], sizes: &[(usize, i64)]) -> bool {
    let mut inputs: Vec<i64> = Vec::new();
    wiring.iter().zip(sizes).all(|(&input, &(_, size))| match inputs.get(input as usize) {
        Some(&known) => known == size,
        None => {
            inputs.push(size);
            true
        }
    })
}

/// Equal sizes of different nodes are one input. Sizes of one node are different inputs, because the node's own program
/// takes each.
fn by_size(sizes: &[(usize, i64)]) -> Vec<u32> {
    let mut inputs: Vec<(i64, usize)> = Vec::new();
    let input = |&(node, size): &(usize, i64)| {
        let fits = |(known, last): &(i64, usize)| *known == size && *last != node;
        let place = inputs.iter().position(fits).unwrap_or_else(|| {
            inputs.push((size, node));
            inputs.len() - 1
        });
        inputs[place].1 = node;
        place as u32
    };
    sizes.iter().map(input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_the_same_calls_keep_their_inputs() {
        let mut wirings = Wirings::default();
        assert_eq!(wirings.of(&[1], &[(0, 7), (1, 7), (2, 9)]), [0, 0, 1]);
        assert_eq!(wirings.of(&[1], &[(0, 8), (1, 8), (2, 8)]), [0, 0, 1]);
        // The first two differ.
        assert_eq!(wirings.of(&[1], &[(0, 8), (1, 9), (2, 8)]), [0, 1, 0]);
        assert_eq!(wirings.of(&[1], &[(0, 3), (1, 3), (2, 5)]), [0, 0, 1]);
        assert_eq!(wirings.of(&[2], &[(0, 8), (1, 8), (2, 8)]), [0, 0, 0]);
        // Two sizes of one node are two inputs.
        assert_eq!(wirings.of(&[3], &[(0, 8), (0, 8), (1, 8), (1, 8)]), [0, 1, 0, 1]);
    }
}
