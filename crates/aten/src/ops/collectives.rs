//! Collectives over the replicas of a program, for graphs that all ranks run as one program. `group_size` is the number
//! of replicas in each group, and `groups` has their numbers, one group after another; it is empty if all replicas are
//! one group. Parts and concatenations are along the first dimension, as in PyTorch's functional collectives.

use stablehlo::{DType, Groups, Target, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["torchtpu::all_reduce"], |cx| {
        let (input, groups, reduction) = (cx.tensor("input")?, groups(cx)?, Reduction::of(cx)?);
        if reduction.is_bitwise() {
            return Ok(reduction.of_rows(input.unsqueeze(0).all_gather(0, &groups)));
        }
        Ok(reduction.finish(input.all_reduce(&groups, |x, y| reduction.combine(x, y)), &groups))
    }),
    one(&["torchtpu::reduce_scatter"], |cx| {
        let (groups, reduction) = (groups(cx)?, Reduction::of(cx)?);
        let input = in_parts(cx, &groups)?;
        let mut dims = input.dims();
        dims[0] /= groups.size();
        if reduction.is_bitwise() {
            dims.insert(0, groups.size());
            return Ok(reduction.of_rows(input.reshape(&dims).all_to_all(0, &groups)));
        }
        let parts = if cx.b().target() == Target::Tpu { in_lines(input, &groups) } else { input };
        let reduced = parts.reduce_scatter(0, &groups, |x, y| reduction.combine(x, y)).reshape(&dims);
        Ok(reduction.finish(reduced, &groups))
    }),
    one(&["torchtpu::all_gather"], |cx| {
        let (input, groups) = (cx.tensor("input")?, groups(cx)?);
        // A number becomes one element of the result.
        let input = if input.rank() == 0 { input.reshape(&[1]) } else { input };
        Ok(input.all_gather(0, &groups))
    }),
    one(&["torchtpu::all_to_all"], |cx| {
        let groups = groups(cx)?;
        Ok(in_parts(cx, &groups)?.all_to_all(0, &groups))
    }),
    // `root` is the number of the replica whose value all get. All replicas are one group.
    one(&["torchtpu::broadcast_replica"], |cx| {
        Ok(cx.tensor("input")?.broadcast_replica(cx.int("root")?, &groups(cx)?))
    }),
    // `pairs` has the replicas that send and those that receive, in turn. Who receives nothing gets zeros.
    one(&["torchtpu::permute_replicas"], |cx| {
        let pairs = cx.ints("pairs")?;
        let pairs: Vec<[i64; 2]> = pairs.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        Ok(cx.tensor("input")?.collective_permute(&pairs))
    }),
];

fn groups(cx: &Cx<'_>) -> Result<Groups> {
    let (size, members) = (cx.int("group_size")?, cx.ints("groups")?);
    if members.is_empty() {
        return Ok(Groups::all(size));
    }
    Groups::of(size, members).ok_or_else(|| Error::runtime("the groups of a collective must have the same size"))
}

/// The input, whose first dimension has a part for each replica of a group.
fn in_parts<'b>(cx: &Cx<'b>, groups: &Groups) -> Result<Value<'b>> {
    let input = cx.tensor("input")?;
    if input.rank() == 0 || input.dim(0) % groups.size() != 0 {
        return Err(Error::runtime("Tensor's dim 0 does not divide equally across group size"));
    }
    Ok(input)
}

/// The elements of a line of a TPU's vector registers.
const LANES: i64 = 128;

/// The parts of a reduce-scatter as matrices of lines, if they have whole ones: of those, libtpu sends each chip its part.
/// libtpu replaces the reduce-scatter of other parts by an all-reduce and a slice, which send twice as much. Zeros at the end
/// of the last line avoid this, but libtpu compiles such programs for minutes.
fn in_lines<'b>(input: Value<'b>, groups: &Groups) -> Value<'b> {
    let part = input.numel() / groups.size();
    if part == 0 || part % LANES != 0 {
        return input;
    }
    input.reshape(&[groups.size(), part / LANES, LANES])
}

/// PyTorch's names of reductions.
enum Reduction {
    Sum,
    Average,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Reduction {
    fn of(cx: &Cx<'_>) -> Result<Reduction> {
        Ok(match &*cx.str("reduce_op")?.to_ascii_lowercase() {
            "sum" => Reduction::Sum,
            "avg" => Reduction::Average,
            "product" => Reduction::Product,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            "band" => Reduction::And,
            "bor" => Reduction::Or,
            "bxor" => Reduction::Xor,
            other => return Err(Error::runtime(format!("Unrecognized reduce_op: {other}"))),
        })
    }

    fn combine<'b>(&self, x: Value<'b>, y: Value<'b>) -> Value<'b> {
        let is_bool = x.dtype() == DType::Bool;
        match self {
            Reduction::Sum if is_bool => x | y,
            Reduction::Product if is_bool => x & y,
            Reduction::Sum | Reduction::Average => x + y,
            Reduction::Product => x * y,
            Reduction::Min => x.min(y),
            Reduction::Max => x.max(y),
            Reduction::And => x & y,
            Reduction::Or => x | y,
            Reduction::Xor => x ^ y,
        }
    }

    /// Whether it is a reduction of bits, which compilers do not have as a collective: the parts of all ranks are moved,
    /// and each rank reduces them.
    fn is_bitwise(&self) -> bool {
        matches!(self, Reduction::And | Reduction::Or | Reduction::Xor)
    }

    /// The bitwise reduction of the first dimension.
    fn of_rows<'b>(&self, rows: Value<'b>) -> Value<'b> {
        match self {
            Reduction::And => !(!rows).reduce_any(&[0]),
            Reduction::Or => rows.reduce_any(&[0]),
            _ => rows.reduce_xor(&[0]),
        }
    }

    fn finish<'b>(&self, reduced: Value<'b>, groups: &Groups) -> Value<'b> {
        match self {
            Reduction::Average => reduced / groups.size(),
            _ => reduced,
        }
    }
}
