//! Attention of many sequences of different lengths over a cache of pages.
//!
//! Notation: t = token, h = key head, g = query head of a key head, d = width of a head, s = sequence, n = page.
//!
//! ```text
//! query [t, h * g, d]   pages [n, position, 2 * h, d]   lengths [s]   tables [s, place]   starts [s + 1]   count [1]
//! ```
//!
//! The tokens `starts[s] .. starts[s + 1]` are the last ones of sequence s, which has `lengths[s]` keys. Key j of it is
//! in page `tables[s, j / positions]`. Key head h has its keys in row 2h of a page, and its values in row 2h + 1. Only
//! the first `count` sequences are there. Sizes are data: one program serves all mixes of lengths.
//!
//! The tokens are laid out in blocks that each belong to one sequence:
//!
//! ```text
//! block i of sequence s has the tokens starts[s] + B * i + (0 .. B - 1)
//! ```
//!
//! A loop over pages computes all blocks at once, with a running maximum m and a running sum l of the exponentials:
//!
//! ```text
//! score = query · key;  m' = max(m, score);  l' = l * exp(m - m') + sum exp(score - m');  a' likewise with values
//! ```

use stablehlo::{DType, DotDims, Value};

use crate::cx::Cx;
use crate::error::Result;
use crate::places::{Combine, Places, running_sum};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[one(&["torchtpu::ragged_paged_attention"], |cx| {
    let call = Call::of(cx)?;
    let blocks = Blocks::of(&call);
    Ok(call.attend(&blocks).convert(call.query.dtype()))
})];

/// Keys of a sequence that one round of the loop reads, at least.
const KEYS_PER_ROUND: i64 = 64;
/// Tokens in a block, where sequences may have many.
const TOKENS_PER_BLOCK: i64 = 32;
/// Less than any score. Finite, so that the difference of two is a number.
const LOWEST: f64 = -1e30;

struct Call<'b> {
    query: Value<'b>,
    pages: Value<'b>,
    lengths: Value<'b>,
    tables: Value<'b>,
    starts: Value<'b>,
    count: Value<'b>,
    scale: Value<'b>,
    soft_cap: Option<Value<'b>>,
    window: Option<i64>,
    key_heads: i64,
    /// Query heads that share a key head.
    group: i64,
    width: i64,
}

/// Which tokens are in which block.
struct Blocks<'b> {
    size: i64,
    /// The tokens of each block, [block, B]; -1 where a block has none.
    tokens: Value<'b>,
    /// The position of each token in its sequence, [block, B]; -1 where there is none.
    positions: Value<'b>,
    /// The number of keys of each block's sequence, [block]; 0 for a block without tokens.
    lengths: Value<'b>,
    /// The pages of each block's sequence, [block, place].
    tables: Value<'b>,
}

impl<'b> Call<'b> {
    fn of(cx: &Cx<'b>) -> Result<Call<'b>> {
        let index = |name: &str| cx.tensor(name).map(|value| value.convert(DType::I32));
        let (query, pages) = (cx.tensor("query")?, cx.tensor("pages")?);
        let key_heads = pages.dim(2) / 2;
        Ok(Call {
            lengths: index("lengths")?,
            tables: index("tables")?,
            starts: index("starts")?,
            count: index("count")?.reshape(&[]),
            scale: cx.scalar("scale", DType::F32)?,
            soft_cap: cx.scalar_or_none("soft_cap", DType::F32)?,
            window: cx.int_or_none("window"),
            key_heads,
            group: query.dim(1) / key_heads,
            width: query.dim(2),
            query,
            pages,
        })
    }

    fn attend(&self, blocks: &Blocks<'b>) -> Value<'b> {
        let b = self.query.builder();
        let (tokens, positions) = (self.query.dim(0), self.pages.dim(1));
        let (count, size) = (blocks.tokens.dim(0), blocks.size);
        let rows = self.group * size;
        let heads = [count, self.key_heads, self.group, size, self.width];
        // [block, B, h * g, d] -> [block, h, g * B, d]
        let query = Places::slices(&self.query.dims(), 0, blocks.tokens.max(0)).read(self.query);
        let query = query.reshape(&[count, size, self.key_heads, self.group, self.width]).transpose(&[0, 2, 3, 1, 4]);
        let query = query.convert(DType::F32) * self.scale;
        let query = query.reshape(&[count, self.key_heads, rows, self.width]);
        let own = blocks.positions.unsqueeze(1).broadcast_to(&[count, self.group, size]).reshape(&[count, rows]);

        let pages_per_round = (KEYS_PER_ROUND / positions).clamp(1, self.tables.dim(1).max(1));
        let keys = pages_per_round * positions;
        let rounds = (self.tables.dim(1) + pages_per_round - 1) / pages_per_round;
        let tables = blocks.tables.pad_axis(1, 0, 0, rounds * pages_per_round - self.tables.dim(1));
        let last = (blocks.lengths.reduce_max(&[0]) + (keys - 1)) / b.scalar(keys, DType::I32);
        let first = match self.window {
            // The first key that any token sees.
            Some(window) => {
                let seen = own.ge(0).select(own - (window - 1), i64::from(i32::MAX));
                seen.reduce_min(&[0, 1]).max(0) / b.scalar(keys, DType::I32)
            }
            None => b.scalar(0, DType::I32),
        };
        let state = [count, self.key_heads, rows];
        let mut carried = vec![
            first,
            b.splat(LOWEST, DType::F32, &state),
            b.splat(0, DType::F32, &state),
            b.splat(0, DType::F32, &[count, self.key_heads, rows, self.width]),
            last,
            query,
            own,
            tables,
            blocks.lengths,
            self.pages,
        ];
        carried.extend(self.soft_cap);
        let (key_heads, width, window) = (self.key_heads, self.width, self.window);
        let done = b.while_loop(
            &carried,
            |state| state[0].lt(state[4]),
            |state| {
                let &[round, highest, sum, total, _, query, own, tables, lengths, pages, ..] = state else {
                    unreachable!("the loop carries ten values or more");
                };
                let zero = b.scalar(0, DType::I32);
                let table = tables.dynamic_slice(&[zero, round * pages_per_round], &[count, pages_per_round]);
                let read = Places::slices(&pages.dims(), 0, table).read(pages);
                let read = read.reshape(&[count, keys, key_heads, 2, width]);
                let place = b.iota(DType::I32, &[keys], 0) + round * keys;
                let numbers = place.unsqueeze(0);
                // Behind a sequence's keys a page may hold anything.
                let is_key = numbers.lt(lengths.unsqueeze(1)).unsqueeze(2).unsqueeze(3);
                let part = |which: i64| {
                    let part = read.slice_axis(3, which, which + 1).squeeze(3);
                    is_key.broadcast_to(&part.dims()).select(part, 0).convert(DType::F32)
                };
                let scores = query.dot_general(part(0), &over_width(), DType::F32);
                let scores = match state.get(10) {
                    Some(&cap) => (scores / cap).tanh() * cap,
                    None => scores,
                };
                let numbers = numbers.unsqueeze(0);
                let mut sees = numbers.le(own.unsqueeze(2));
                if let Some(window) = window {
                    sees = sees & numbers.gt(own.unsqueeze(2) - window);
                }
                let sees = sees.unsqueeze(1).broadcast_to(&scores.dims());
                let scores = sees.select(scores, f64::NEG_INFINITY);
                let higher = highest.max(scores.reduce_max(&[3]));
                let weights = (scores - higher.unsqueeze(3)).exp();
                let before = (highest - higher).exp();
                let sum = sum * before + weights.reduce_sum(&[3]);
                let total = total * before.unsqueeze(3) + weights.dot_general(part(1), &over_keys(), DType::F32);
                [&[round + 1, higher, sum, total], &state[4..]].concat()
            },
        );
        let (sum, total) = (done[2], done[3]);
        let result = total / sum.eq(0).select(sum.splat_like(1), sum).unsqueeze(3);
        // [block, h, g * B, d] -> [block, B, h * g, d], and back to the tokens.
        let result = result.reshape(&heads).transpose(&[0, 3, 1, 2, 4]);
        let result = result.reshape(&[count, size, self.key_heads * self.group, self.width]);
        let zeros = b.splat(0, DType::F32, &self.query.dims());
        if tokens == 0 {
            return zeros;
        }
        Places::slices(&self.query.dims(), 0, blocks.tokens).unique().write(zeros, result, Combine::Replace)
    }
}

/// [block, h, row, d] [block, key, h, d] -> [block, h, row, key]
fn over_width() -> DotDims {
    DotDims { lhs_batch: vec![0, 1], rhs_batch: vec![0, 2], lhs_contract: vec![3], rhs_contract: vec![3] }
}

/// [block, h, row, key] [block, key, h, d] -> [block, h, row, d]
fn over_keys() -> DotDims {
    DotDims { lhs_batch: vec![0, 1], rhs_batch: vec![0, 2], lhs_contract: vec![3], rhs_contract: vec![1] }
}

impl<'b> Blocks<'b> {
    fn of(call: &Call<'b>) -> Blocks<'b> {
        let b = call.query.builder();
        let (tokens, sequences) = (call.query.dim(0), call.lengths.dim(0));
        // With as many sequences as tokens, most sequences have one token.
        let size = if tokens <= sequences { 1 } else { TOKENS_PER_BLOCK.min(tokens) };
        let count = if size == 1 { tokens } else { (tokens + size - 1) / size + sequences };

        let is_there = b.iota(DType::I32, &[sequences], 0).lt(call.count);
        let starts = call.starts.slice_axis(0, 0, sequences);
        let ends = call.starts.slice_axis(0, 1, sequences + 1);
        let own = is_there.select(ends - starts, 0).max(0);
        let blocks = (own + (size - 1)) / b.scalar(size, DType::I32);
        let behind = running_sum(blocks);
        let number = b.iota(DType::I32, &[count], 0);
        let passed = behind.unsqueeze(0).le(number.unsqueeze(1)).convert(DType::I32).reduce_sum(&[1]);
        let is_block = passed.lt(sequences);
        let sequence = passed.min(sequences - 1);
        let of = |values: Value<'b>| Places::slices(&values.dims(), 0, sequence).read(values);

        let place = (number - of(behind - blocks)) * size;
        let place = place.unsqueeze(1) + b.iota(DType::I32, &[1, size], 1);
        let is_token = is_block.unsqueeze(1) & place.lt(of(own).unsqueeze(1));
        let (begin, lengths) = (of(starts), of(call.lengths));
        let positions = place + (lengths - of(own)).unsqueeze(1);
        Blocks {
            size,
            tokens: is_token.select(place + begin.unsqueeze(1), -1),
            positions: is_token.select(positions, -1),
            lengths: is_block.select(lengths, 0),
            tables: of(call.tables),
        }
    }
}
