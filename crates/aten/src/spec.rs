//! The arguments and results of a call without their values.

use stablehlo::{DType, Extent, Factor, Number, Type};

/// A tensor argument: a strided view of one of the call's storages.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Index into [`Call::storages`].
    pub storage: usize,
    pub dtype: DType,
    pub sizes: Vec<i64>,
    /// In elements of `dtype`, like `offset`.
    pub strides: Vec<i64>,
    pub offset: i64,
    /// PyTorch's lazy conjugation and negation: the tensor shows what the storage holds conjugated, negated.
    pub is_conj: bool,
    pub is_neg: bool,
    /// The offset is an input of the program, the `i`-th such; `offset` is then one of those it may be.
    pub offset_input: Option<usize>,
}

/// A storage: the N-d value that it holds, dense and row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSpec {
    /// `None` while nothing has been written.
    pub base: Option<Type>,
    pub nbytes: usize,
}

/// A number among the arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarSpec {
    /// For Python numbers Bool, I64, F64 or C128; for a 0-d CPU tensor its own type.
    pub dtype: DType,
    /// Whether it counts as a Python number in type promotion (a 0-d tensor counts as a tensor).
    pub wrapped: bool,
    /// Whether it stands where the schema has a Tensor.
    pub is_tensor: bool,
    /// The value when it is part of the program; `None` when it is an input of it.
    pub baked: Option<Number>,
}

/// A size of a graph with bounded dimensions: the product of a known number and of some of the graph's sizes, by their
/// numbers in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The largest that it can be.
    pub capacity: i64,
    /// Empty if the size is known; it is then `capacity`.
    pub sizes: Vec<u32>,
}

impl Dim {
    /// The capacities of several sizes.
    pub fn capacities(dims: &[Dim]) -> Vec<i64> {
        dims.iter().map(|dim| dim.capacity).collect()
    }

    /// The extent of a dimension of this size: the bounded factors are outermost, in the order of the sizes. `capacity`
    /// gives the capacity of each size.
    pub fn extent(&self, capacity: impl Fn(u32) -> i64) -> Extent {
        if self.sizes.is_empty() {
            return Extent::default();
        }
        let bounded = self.sizes.iter().map(|&size| Factor { capacity: capacity(size), size: Some(size) });
        let parts = bounded.clone().fold(self.capacity, |parts, factor| parts / factor.capacity.max(1));
        let rest = (parts > 1).then_some(Factor { capacity: parts, size: None });
        Extent(bounded.chain(rest).collect())
    }
}

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgSpec {
    None,
    Tensor(TensorSpec),
    Scalar(ScalarSpec),
    List(Vec<ArgSpec>),
    Int(i64),
    Ints(Vec<i64>),
    Dim(Dim),
    Dims(Vec<Dim>),
    Floats(Vec<f64>),
    Bool(bool),
    Bools(Vec<bool>),
    Str(String),
    DType(DType),
}

/// What PyTorch's meta kernel says of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultSpec {
    pub dtype: DType,
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}
