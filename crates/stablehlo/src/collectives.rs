//! Collectives: operations over the replicas of a program.

use crate::builder::{Type, Value};
use crate::dtype::DType;

/// Up to this size the members of a group of all replicas are listed. libtpu runs collectives beside other work only if
/// they are.
const LISTED: i64 = 4096;

/// The groups of replicas that communicate, all of one size. Every replica is in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// The replicas, one group after another. Empty if all replicas are one group.
    members: Vec<i64>,
    size: i64,
}

impl Groups {
    /// One group of all `size` replicas of the program.
    pub fn all(size: i64) -> Groups {
        Groups { members: Vec::new(), size }
    }

    /// Groups of `size` replicas, one after another. None if the number of members is no multiple of the size.
    pub fn of(size: i64, members: Vec<i64>) -> Option<Groups> {
        (size > 0 && members.len() as i64 % size == 0).then_some(Groups { members, size })
    }

    /// The number of replicas in each group.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// The attribute of an operation. The text of a large group of all replicas does not grow with their number.
    fn attribute(&self) -> String {
        match self.members.is_empty() && self.size > LISTED {
            true => "replica_groups = dense<> : tensor<0x0xi64>".into(),
            false => self.listed(),
        }
    }

    fn listed(&self) -> String {
        let all: Vec<i64> = if self.members.is_empty() { (0..self.size).collect() } else { Vec::new() };
        rows_attribute("replica_groups", if all.is_empty() { &self.members } else { &all }, self.size)
    }
}

/// A matrix of int64 with rows of this length.
fn rows_attribute(name: &str, numbers: &[i64], length: i64) -> String {
    let row = |row: &[i64]| format!("[{}]", row.iter().map(i64::to_string).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = numbers.chunks(length as usize).map(row).collect();
    format!("{name} = dense<[{}]> : tensor<{}x{length}xi64>", rows.join(", "), rows.len())
}

impl<'b> Value<'b> {
    /// `stablehlo.all_reduce`. `combine` gets two 0-d values.
    pub fn all_reduce(self, groups: &Groups, combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>) -> Value<'b> {
        self.reduced_over("stablehlo.all_reduce", &groups.attribute(), self.ty(), combine)
    }

    /// `stablehlo.reduce_scatter`: each replica of a group gets its part of the result, along `axis`. The size of the
    /// axis must be a multiple of the group's.
    pub fn reduce_scatter(
        self,
        axis: usize,
        groups: &Groups,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let attributes = format!("scatter_dimension = {axis} : i64, {}", groups.attribute());
        let mut ty = self.ty();
        ty.dims[axis] /= groups.size;
        self.reduced_over("stablehlo.reduce_scatter", &attributes, ty, combine)
    }

    /// `stablehlo.all_gather`: the values of a group's replicas, concatenated along `axis`.
    pub fn all_gather(self, axis: usize, groups: &Groups) -> Value<'b> {
        let attributes = format!("all_gather_dim = {axis} : i64, {}", groups.attribute());
        let mut ty = self.ty();
        ty.dims[axis] *= groups.size;
        self.builder.op("stablehlo.all_gather", &[self], &attributes, ty)
    }

    /// `stablehlo.all_to_all`: sends a part along `axis` to each replica of the group, and concatenates the parts that
    /// it receives along the same axis. The size of the axis must be a multiple of the group's.
    pub fn all_to_all(self, axis: usize, groups: &Groups) -> Value<'b> {
        // The compiler's import of this operation does not take the short form of a group of all replicas.
        let attributes = format!(
            "split_dimension = {axis} : i64, concat_dimension = {axis} : i64, split_count = {} : i64, {}",
            groups.size,
            groups.listed()
        );
        self.builder.op("stablehlo.all_to_all", &[self], &attributes, self.ty())
    }

    /// The value of one replica, on all replicas of the program. `root` is its number.
    pub fn broadcast_replica(self, root: i64, groups: &Groups) -> Value<'b> {
        let dtype = self.dtype();
        if dtype.is_complex() && dtype != DType::C32 {
            let part = |part: Value<'b>| part.broadcast_replica(root, groups);
            return part(self.real()).complex(part(self.imag()));
        }
        // The others add zeros. A sum of bits is exact.
        let bits = match dtype {
            DType::Bool => self,
            _ => self.bitcast(DType::unsigned(dtype.size_bytes())),
        };
        let number = self.builder.op("stablehlo.replica_id", &[], "", Type::new(DType::U32, &[]));
        let own = number.eq(root).select(bits, bits.splat_like(0));
        let whole = own.all_reduce(groups, |x, y| if dtype == DType::Bool { x | y } else { x + y });
        if dtype == DType::Bool { whole } else { whole.bitcast(dtype) }
    }

    /// `stablehlo.collective_permute`: each pair is a replica and the one that gets its value. A replica that gets
    /// nothing has zeros.
    pub fn collective_permute(self, pairs: &[[i64; 2]]) -> Value<'b> {
        let attribute = rows_attribute("source_target_pairs", pairs.as_flattened(), 2);
        self.builder.op("stablehlo.collective_permute", &[self], &attribute, self.ty())
    }

    fn reduced_over(
        self,
        name: &str,
        attributes: &str,
        ty: Type,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let scalar = Type::new(self.dtype(), &[]);
        let region = self.builder.region(&[scalar.clone(), scalar], |args| vec![combine(args[0], args[1])]);
        self.builder.op_with_regions(name, &[self], &[region], attributes, vec![ty])[0]
    }
}
