//! A row of the table: the operators that share a lowering, and the lowering.

use stablehlo::{DType, DTypes, Number, Refusal, Value, overflow_of};

use crate::common::parameters::check_one_dtype;
use crate::cx::{Arg, Cx};
use crate::error::{Error, Result, cannot_be_cast, not_implemented_for};
use crate::promote::can_cast;

/// How a row computes: one result, several results, or another row applied to each element of its lists.
#[derive(Clone, Copy)]
pub enum Lower {
    One(for<'b> fn(&Cx<'b>) -> Result<Value<'b>>),
    Many(for<'b> fn(&Cx<'b>) -> Result<Vec<Value<'b>>>),
    Each { element: &'static Row, parameters: &'static [&'static str] },
}

/// One row: the operators that share a lowering.
pub struct Row {
    /// Names with overload, such as `add.Tensor`, without `aten::`.
    pub names: &'static [&'static str],
    pub(crate) lower: Lower,
    /// Number arguments that are constants of the program instead of inputs, because they decide its form. A new
    /// value compiles a new program.
    pub baked: &'static [&'static str],
    /// Says of a baked number whether it is a constant. A number that is none is an input. Without this all are constants.
    pub special: Option<fn(Number) -> bool>,
    /// Int arguments that are inputs of the program too. All others are constants.
    pub inputs: &'static [&'static str],
    pub varying: Option<Varying>,
    pub requirement: Option<Requirement>,
    pub(crate) takes: Option<Takes>,
    one_dtype: &'static [&'static str],
    /// Whether the row takes values with bounded dimensions: the valid elements of its results do not depend on
    /// padding, and it uses no capacity as a size. The builder checks the operations as well.
    pub(crate) bounded: bool,
    pub(crate) shapes_like: &'static [(&'static str, &'static str)],
    is_by_element: bool,
    /// Arguments that the operator writes, although its schema does not say so.
    pub writes: &'static [&'static str],
    /// Whether the offsets of views are inputs of the program from the first call on.
    pub open_offsets: bool,
    /// Whether each tensor of a list is an input of its own, whichever values the tensors have.
    pub own_inputs: bool,
    /// Whether the result is larger than an argument that may be the last call's result, as that of a cache that grows.
    pub grows: bool,
    /// Whether the row gives its results all valid lengths, so that it takes bounded dimensions where PyTorch has no meta
    /// kernel.
    pub(crate) bounds_results: bool,
    /// Whether the call waits, and raises the errors of its data. In other rows they come at the next read.
    pub raises_at_call: bool,
}

impl Row {
    pub const fn baked(mut self, baked: &'static [&'static str]) -> Row {
        self.baked = baked;
        self
    }

    /// Numbers that are constants of the program only if they are special, such as common exponents.
    pub const fn baked_if(mut self, baked: &'static [&'static str], special: fn(Number) -> bool) -> Row {
        self.baked = baked;
        self.special = Some(special);
        self
    }

    pub const fn inputs(mut self, inputs: &'static [&'static str]) -> Row {
        self.inputs = inputs;
        self
    }

    /// Ints and lists of ints that are treated like the offsets of views: the first few calls have programs of their own,
    /// and for further ones the numbers are inputs of a program. `class` says what a program depends on nevertheless.
    pub const fn varies(mut self, names: &'static [&'static str], class: Class) -> Row {
        self.varying = Some(Varying { names, class });
        self
    }

    /// Refuses calls whose numbers do not satisfy `holds`. PyTorch's kernel gives the error message.
    pub const fn requires(mut self, names: &'static [&'static str], holds: fn(&[f64], DType) -> bool) -> Row {
        self.requirement = Some(Requirement { names, holds });
        self
    }

    /// Refuses calls with other types, with the error of PyTorch's kernels. Element types that a StableHLO operation
    /// does not take are refused without this.
    pub(crate) const fn takes(mut self, names: &'static [&'static str], dtypes: DTypes) -> Row {
        self.takes = Some(Takes { names, dtypes });
        self
    }

    /// Refuses calls in which these arguments have different types, with the error of kernels that read all of them as
    /// elements of one type.
    pub(crate) const fn one_dtype(mut self, names: &'static [&'static str]) -> Row {
        self.one_dtype = names;
        self
    }

    /// For each operator, another one whose meta kernel gives the same results. PyTorch has only Python references
    /// for these operators, with other strides and error messages than the kernels of any device. Without a name, all
    /// arguments are tensors, the first of which is a condition, and the strides are those of PyTorch's `TensorIterator`
    /// over them.
    pub(crate) const fn shapes_like(mut self, operators: &'static [(&'static str, &'static str)]) -> Row {
        self.shapes_like = operators;
        self
    }

    /// Says that each element of the lists is computed from the same element of the others, so that long lists may be
    /// cut.
    pub(crate) const fn by_element(mut self) -> Row {
        self.is_by_element = true;
        self
    }

    pub const fn is_by_element(&self) -> bool {
        self.is_by_element
    }

    /// Names arguments that the operator writes although its schema does not say so. The row returns their new values first,
    /// like those of other written arguments. A graph takes such an operator for a function of its arguments, so none has it.
    pub(crate) const fn writes(mut self, names: &'static [&'static str]) -> Row {
        self.writes = names;
        self
    }

    /// The offsets of views are inputs of the program from the first call on, where that costs nothing
    /// (`OffsetClass::is_cheap`). For operators that move elements: ranks that copy at different offsets then share the
    /// program.
    pub(crate) const fn open_offsets(mut self) -> Row {
        self.open_offsets = true;
        self
    }

    /// Each tensor of a list that is a whole storage is an input of the program of its own. For lists in which the same tensor
    /// may come several times: a program serves all patterns of equal tensors.
    pub(crate) const fn own_inputs(mut self) -> Row {
        self.own_inputs = true;
        self
    }

    /// Says that the result may be larger than an argument, which may be the result of the last call. Sizes of results that
    /// no argument has are then inputs of the program.
    pub(crate) const fn grows(mut self) -> Row {
        self.grows = true;
        self
    }

    /// Says that the row gives its results all valid lengths. PyTorch's meta kernel gives them to other rows' results.
    pub(crate) const fn bounds_results(mut self) -> Row {
        self.bounds_results = true;
        self
    }

    /// Says that the call raises the errors of its data, because it does so on a GPU too, and scripts catch them.
    pub(crate) const fn raises_at_call(mut self) -> Row {
        self.raises_at_call = true;
        self
    }

    /// Whether the row takes bounded dimensions.
    pub const fn is_bounded(&self) -> bool {
        self.bounded
    }

    pub(crate) const fn bounded(mut self) -> Row {
        self.bounded = true;
        self
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({:?})", self.names)
    }
}

impl Row {
    pub(crate) fn lower<'b>(&self, cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
        check_one_dtype(cx, self.one_dtype)?;
        if let Some(takes) = &self.takes {
            takes.check(cx)?;
        }
        let values = match self.lower {
            Lower::One(f) => vec![f(cx)?],
            Lower::Many(f) => f(cx)?,
            Lower::Each { element, parameters } => lower_each(cx, element, parameters)?,
        };
        match cx.b().refusal() {
            // The caller that finishes the function raises the error about its target.
            None | Some(Refusal::Target(_)) => Ok(values),
            Some(Refusal::Bounded(what)) => {
                Err(Error::not_implemented(format!("{} with bounded dimensions: {what}", cx.operator)))
            }
            Some(Refusal::Sizes(sizes)) => Err(overflow_of(&sizes)),
            Some(Refusal::ElementType(dtype)) => Err(not_implemented_for(cx.operator, dtype)),
            // Sizes that are equal at the call may be inputs in one argument and constants in another.
            Some(Refusal::Mistake(what)) if cx.b().is_bounded() => {
                Err(Error::not_implemented(format!("{}: sizes that change differ from others: {what}", cx.operator)))
            }
            Some(Refusal::Mistake(what)) => {
                Err(Error::runtime(format!("{}: internal error in its lowering: {what}", cx.operator)))
            }
        }
    }
}

/// A condition on number arguments that are inputs of the program. Their values are not part of a call's key, so
/// PyTorch's own checks, which run once for each key, do not see all values.
#[derive(Clone, Copy)]
pub struct Requirement {
    pub names: &'static [&'static str],
    /// Takes the numbers in the order of `names`, NaN for `None`, and the element type of the call's first tensor; float64
    /// if it has none.
    pub holds: fn(&[f64], DType) -> bool,
}

/// Takes the varying ints of a call, in the order of the operator's arguments. Calls with the same result share a program.
/// `None` if the ints are constants of it.
pub type Class = fn(&[i64], &Setting<'_>) -> Option<Vec<i64>>;

/// The dtype and the sizes of a call. They also decide whether its ints can be inputs.
#[derive(Clone, Copy, Default)]
pub struct Setting<'a> {
    /// The argument `dtype`, or the element type of the first tensor.
    pub dtype: Option<DType>,
    /// The sizes of the first tensor.
    pub sizes: &'a [i64],
    /// The argument `dim`.
    pub dim: Option<i64>,
}

impl Setting<'_> {
    /// The size of the first tensor in the dimension `dim`.
    pub(crate) fn size(&self) -> Option<i64> {
        let (dim, rank) = (self.dim?, self.sizes.len() as i64);
        self.sizes.get(usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()?).copied()
    }
}

/// Ints that vary from call to call.
#[derive(Clone, Copy)]
pub struct Varying {
    pub names: &'static [&'static str],
    pub class: Class,
}

/// The types that some arguments may have, after PyTorch's type promotion of all of them.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    names: &'static [&'static str],
    dtypes: DTypes,
}

impl Takes {
    pub(crate) fn check(&self, cx: &Cx<'_>) -> Result<()> {
        cx.check_dtype(cx.promoted(self.names)?, self.dtypes)
    }
}

/// A row with one result.
pub const fn one(names: &'static [&'static str], lower: for<'b> fn(&Cx<'b>) -> Result<Value<'b>>) -> Row {
    row(names, Lower::One(lower))
}

/// A row with several results.
pub const fn many(names: &'static [&'static str], lower: for<'b> fn(&Cx<'b>) -> Result<Vec<Value<'b>>>) -> Row {
    row(names, Lower::Many(lower))
}

const fn row(names: &'static [&'static str], lower: Lower) -> Row {
    Row {
        names,
        lower,
        baked: &[],
        special: None,
        inputs: &[],
        varying: None,
        requirement: None,
        takes: None,
        one_dtype: &[],
        bounded: false,
        shapes_like: &[],
        is_by_element: false,
        writes: &[],
        open_offsets: false,
        own_inputs: false,
        grows: false,
        bounds_results: false,
        raises_at_call: false,
    }
}

/// Marks all rows of a family as taking bounded dimensions.
pub(crate) const fn all_bounded<const N: usize>(mut rows: [Row; N]) -> [Row; N] {
    let mut i = 0;
    while i < N {
        rows[i].bounded = true;
        i += 1;
    }
    rows
}

/// A row that applies `element` to each element of its lists. `parameters` are the element operator's names of the
/// arguments.
pub(crate) const fn each(element: &'static Row, parameters: &'static [&'static str]) -> Row {
    Row {
        names: &[],
        lower: Lower::Each { element, parameters },
        baked: element.baked,
        special: element.special,
        inputs: element.inputs,
        varying: None,
        requirement: None,
        takes: None,
        one_dtype: &[],
        bounded: false,
        shapes_like: &[],
        is_by_element: true,
        writes: &[],
        open_offsets: element.open_offsets,
        own_inputs: false,
        grows: false,
        bounds_results: false,
        raises_at_call: false,
    }
}

/// One result of `element` for each element of the lists.
fn lower_each<'b>(cx: &Cx<'b>, element: &Row, parameters: &'static [&'static str]) -> Result<Vec<Value<'b>>> {
    let lengths =
        cx.args.iter().filter_map(|(_, arg)| if let Arg::List(items) = arg { Some(items.len()) } else { None });
    let count = lengths.max().unwrap_or(0);
    let mut results = Vec::with_capacity(count);
    for i in 0..count {
        let args =
            parameters.iter().zip(&cx.args).map(|(name, (list_name, arg))| Ok((*name, nth(cx, list_name, arg, i)?)));
        for value in element.lower(&cx.with(args.collect::<Result<_>>()?))? {
            // PyTorch's meta kernels of lists do not check what they write.
            match cx.result(results.len()) {
                Some(spec) if !can_cast(value.dtype(), spec.dtype) => {
                    return Err(cannot_be_cast(value.dtype(), spec.dtype));
                }
                _ => results.push(value),
            }
        }
    }
    Ok(results)
}

/// An argument for the `i`-th elements: the `i`-th element of a list; any other argument unchanged.
fn nth<'b>(cx: &Cx<'b>, name: &str, arg: &Arg<'b>, i: usize) -> Result<Arg<'b>> {
    match arg {
        Arg::List(items) => {
            items.get(i).cloned().ok_or_else(|| Error::runtime(format!("{name}: the lists have different lengths")))
        }
        // A tensor with one number for each element: "scalars" of addcmul and addcdiv.
        Arg::Tensor(_) | Arg::Value(_) if name == "scalars" => {
            let numbers = cx.tensor(name)?;
            if numbers.rank() != 1 || numbers.dim(0) <= i as i64 {
                return Err(Error::runtime("scalars: expected a 1-d tensor with a number for each tensor of the list"));
            }
            Ok(Arg::Value(numbers.select_axis(0, i as i64)))
        }
        other => Ok(other.clone()),
    }
}
