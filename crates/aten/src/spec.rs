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
    /// PyTorch's lazy conjugation and negation: the tensor shows the conjugated or negated value of the storage.
    pub is_conj: bool,
    pub is_neg: bool,
    /// Set if the offset is an input of the program: its number among these inputs. `offset` is then one of its
    /// possible values.
    pub offset_input: Option<usize>,
}

/// A storage and the dense, row-major N-d value in it.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSpec {
    /// `None` if nothing has been written.
    pub base: Option<Type>,
    pub nbytes: usize,
}

/// A number among the arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarSpec {
    /// Bool, I64, F64 or C128 for Python numbers. The tensor's own type for a 0-d CPU tensor.
    pub dtype: DType,
    /// Whether it counts as a Python number in type promotion. A 0-d tensor counts as a tensor.
    pub wrapped: bool,
    /// Whether the schema has a Tensor in this position.
    pub is_tensor: bool,
    /// The value if it is a constant of the program; `None` if it is an input.
    pub baked: Option<Number>,
}

/// A size in a graph with bounded dimensions: the product of a known number and of some of the graph's sizes. The
/// sizes are given by number, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The largest possible value.
    pub capacity: i64,
    /// Empty if the size is known. The size is then `capacity`.
    pub sizes: Vec<u32>,
    /// The part of the known number that is outside of the sizes in the order of elements.
    pub outer: i64,
}

impl Dim {
    /// The capacity of an int of an eager call that is an input of the program and no size, such as a start.
    pub const ANY: i64 = i32::MAX as i64;

    /// A size without a part outside of the sizes.
    pub fn new(capacity: i64, sizes: Vec<u32>) -> Dim {
        Dim { capacity, sizes, outer: 1 }
    }

    /// A size that is known.
    pub fn known(size: i64) -> Dim {
        Dim::new(size, Vec::new())
    }

    /// The product of these factors, the outermost first.
    pub fn of(factors: &[Factor]) -> Dim {
        let constants = factors.iter().take_while(|factor| factor.size.is_none()).map(|factor| factor.capacity);
        let mut sizes: Vec<u32> = factors.iter().filter_map(|factor| factor.size).collect();
        sizes.sort_unstable();
        let outer = if sizes.is_empty() { 1 } else { constants.product() };
        Dim { capacity: factors.iter().map(|factor| factor.capacity).product(), sizes, outer }
    }

    /// The capacities of several sizes.
    pub fn capacities(dims: &[Dim]) -> Vec<i64> {
        dims.iter().map(|dim| dim.capacity).collect()
    }

    /// The extent of a dimension of this size. The bounded factors are outermost but for `outer`, in the order of the
    /// sizes.
    /// `capacity` gives the capacity of each size.
    pub fn extent(&self, capacity: impl Fn(u32) -> i64) -> Extent {
        if self.sizes.is_empty() {
            return Extent::default();
        }
        let bounded = self.sizes.iter().map(|&size| Factor { capacity: capacity(size), size: Some(size) });
        let parts = bounded.clone().fold(self.capacity, |parts, factor| parts / factor.capacity.max(1));
        let known = |capacity: i64| (capacity > 1).then_some(Factor { capacity, size: None });
        Extent(known(self.outer).into_iter().chain(bounded).chain(known(parts / self.outer)).collect())
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
    /// An int that is an input of the program: the offset of this number.
    Input(usize),
    /// A list of ints that are inputs of the program: the first offset, and their count.
    Inputs(usize, usize),
    Dim(Dim),
    Dims(Vec<Dim>),
    Floats(Vec<f64>),
    Bool(bool),
    Bools(Vec<bool>),
    Str(String),
    DType(DType),
}

/// What PyTorch's meta kernel returns for a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultSpec {
    pub dtype: DType,
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}
