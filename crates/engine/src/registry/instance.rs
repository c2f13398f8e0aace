//! Interned instances: one for each key, lowered once.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use aten::{Call, Check, Lowered, NumberCheck, Output, ParamSource, ResultSpec};
use parking_lot::Mutex;
use stablehlo::{DType, Extent, Function, Number, Type, Uniform};

use super::compiled::CompiledGraph;
use super::held::Axes;
use super::key::CallParts;
use super::layout::Layout;
use super::types::Types;
use crate::cache::memory::LastUse;
use crate::call::{Meta, Out, scalar_type};
use crate::growth::is_affordable;
use crate::padded::{actual_sizes, held_sizes};
use crate::placement::Placement;
use crate::program::Program;
use crate::storage::{SMALL, Storage, TypeId, Value};

/// Programs by which outputs are used and which inputs are donated.
pub(crate) type Alone = Mutex<Vec<(u64, Arc<Program>)>>;

/// A lowered call, shared by all calls with the same key.
pub(crate) struct Instance {
    pub id: u32,
    /// The operator's name, for messages and counters.
    pub operator: Arc<str>,
    /// The arguments of the call that was lowered, for explanations.
    pub arguments: Vec<String>,
    /// Whether PyTorch's decomposition computes it.
    pub decomposed: bool,
    /// The graph from torch.compile, if any. It runs as a program of its own, with its own options.
    pub compiled: Option<Arc<CompiledGraph>>,
    body: Result<Arc<Lowered>, Vec<Resized>>,
    /// Set if sizes are inputs of the program. Instances for other sizes then have the same number, body and programs.
    sized: Option<SizedCall>,
    /// The compiler's error, if it refuses the program with sizes as inputs.
    refusal: Arc<OnceLock<String>>,
    pub outputs: Vec<ResultPlan>,
    /// The bytes of all results on the device.
    pub result_bytes: usize,
    /// Whether its results are small and depend on numbers only.
    pub is_constant: bool,
    /// Programs of this instance alone, by which outputs are used and which inputs are donated.
    pub alone: Arc<Alone>,
    pub last_use: LastUse,
    /// Set if it was called while other values had sizes that change and none equalled a size of the call: the sizes of the
    /// call do not follow those. It is one more than the number of lines whose sizes were known to change then: before a
    /// line is known, no value has its sizes.
    pub keeps_sizes: AtomicU64,
}

/// The sizes of a call that are inputs of its program.
pub(crate) struct SizedCall {
    pub numbers: Vec<i64>,
    /// The padded form that the program takes of each storage. `None` for the exact value.
    pub wanted: Vec<Option<Axes>>,
    /// The call on exact values.
    pub exact: Call,
}

impl SizedCall {
    /// Whether no argument needs too much padding.
    fn is_affordable(&self) -> bool {
        self.wanted.iter().zip(&self.exact.storages).all(|(wanted, storage)| {
            let element = storage.base.as_ref().map_or(size_of::<f32>(), |ty| ty.dtype.size_bytes());
            wanted.as_ref().is_none_or(|axes| is_affordable(&held_sizes(axes), &actual_sizes(axes), element))
        })
    }
}

/// The sizes and strides that an `out=` argument must get.
struct Resized {
    sizes: &'static [i64],
    strides: &'static [i64],
    scalar_type: i8,
}

/// The use of an output of the lowered function.
pub(crate) enum ResultPlan {
    Fresh(FreshResult),
    /// An undefined tensor. The function has no output for it.
    Absent,
    /// The new value of an argument's storage.
    Updated {
        storage: usize,
        ty: TypeId,
        /// Set if the value has padding.
        layout: Option<Layout>,
    },
    /// The valid length of a dimension of a fresh result, which the host reads.
    Count {
        fresh: usize,
        axis: usize,
        /// The sizes of other dimensions of the result that are less than the largest.
        others: Vec<(usize, i64)>,
        ty: TypeId,
    },
    /// The result of a check of the data.
    Check {
        check: Arc<Check>,
        ty: TypeId,
    },
}

/// A result with a new storage.
pub(crate) struct FreshResult {
    pub ty: TypeId,
    pub nbytes: usize,
    pub sizes: &'static [i64],
    pub strides: &'static [i64],
    pub dtype: DType,
    /// The extent of each dimension; empty if there is no padding.
    pub extents: Vec<Extent>,
    /// Set if the value of an operator's result has padding.
    pub layout: Option<Layout>,
}

impl FreshResult {
    /// The result with its value in a new storage.
    pub fn out(&self, placement: Placement, value: Arc<Value>) -> Out {
        let storage = match &self.layout {
            Some(layout) => Storage::with_padded(placement, self.nbytes, layout.padded(placement, value)),
            None => Storage::with_value(placement, self.nbytes, Some(value)),
        };
        let mut out = Out::absent();
        out.set_storage(storage);
        out.nbytes = self.nbytes;
        out.sizes = self.sizes.as_ptr();
        out.strides = self.strides.as_ptr();
        out.ndim = self.sizes.len() as i32;
        out.dtype = scalar_type(self.dtype);
        out
    }
}

impl Instance {
    /// `body` is the lowering, or the results to which `out=` arguments must be resized first.
    pub fn new(
        id: u32,
        operator: &str,
        arguments: Vec<String>,
        decomposed: bool,
        compiled: Option<Arc<CompiledGraph>>,
        body: Result<Lowered, Vec<ResultSpec>>,
        types: &mut Types,
    ) -> Instance {
        let ty_of_count = types.intern(&Type::new(DType::I64, &[]));
        let outputs: Vec<ResultPlan> = body
            .iter()
            .flat_map(|lowered| &lowered.outputs)
            .map(|output| match output {
                Output::Fresh { base, dtype, sizes, strides, extents } => ResultPlan::Fresh(FreshResult {
                    ty: types.intern(base),
                    nbytes: base.size_bytes(),
                    sizes: types.intern_dims(sizes),
                    strides: types.intern_dims(strides),
                    dtype: *dtype,
                    extents: extents.clone(),
                    layout: None,
                }),
                Output::Absent => ResultPlan::Absent,
                Output::Updated { storage, base } => {
                    ResultPlan::Updated { storage: *storage, ty: types.intern(base), layout: None }
                }
                Output::Check(check) => ResultPlan::Check { check: Arc::new(check.clone()), ty: ty_of_count },
                Output::Count { fresh, axis } => {
                    ResultPlan::Count { fresh: *fresh, axis: *axis, others: Vec::new(), ty: ty_of_count }
                }
            })
            .collect();
        let result_bytes = body.iter().flat_map(|lowered| &lowered.function.results).map(Type::size_bytes).sum();
        let is_constant = compiled.is_none()
            && result_bytes <= SMALL
            && body.as_ref().is_ok_and(|lowered| lowered.params.iter().all(is_number))
            && outputs.iter().all(|plan| matches!(plan, ResultPlan::Fresh(_) | ResultPlan::Updated { .. }));
        let body = body.map_err(|results| {
            let resized = |result: &ResultSpec| Resized {
                sizes: types.intern_dims(&result.sizes),
                strides: types.intern_dims(&result.strides),
                scalar_type: scalar_type(result.dtype),
            };
            results.iter().map(resized).collect()
        });
        let body = body.map(Arc::new);
        Instance {
            id,
            operator: operator.into(),
            arguments,
            decomposed,
            compiled,
            body,
            sized: None,
            refusal: Arc::default(),
            outputs,
            result_bytes,
            is_constant,
            alone: Arc::default(),
            last_use: LastUse::default(),
            keeps_sizes: AtomicU64::default(),
        }
    }

    /// The instance for sizes of a call that are inputs of this instance's program. `results` are PyTorch's, first the
    /// written arguments; empty if PyTorch does not give them. `None` if the program computes other sizes,
    /// or if an argument or a result would have too much padding.
    pub fn at_sizes(
        &self,
        arguments: Vec<String>,
        sized: SizedCall,
        results: &[Option<ResultSpec>],
        written: usize,
        types: &mut Types,
    ) -> Option<Instance> {
        let numbers = &sized.numbers;
        let lowered = self.body.as_ref().ok()?;
        if !sized.is_affordable() {
            return None;
        }
        let ty_of_count = types.intern(&Type::new(DType::I64, &[]));
        let mut outputs = Vec::with_capacity(lowered.outputs.len());
        let mut fresh = results.get(written..)?.iter();
        let is_given = !results.is_empty();
        let counts = || lowered.outputs.iter().filter(|output| matches!(output, Output::Count { .. }));
        let is_counted =
            |plan: usize| counts().any(|count| matches!(count, Output::Count { fresh, .. } if *fresh == plan));
        for (number, output) in lowered.outputs.iter().enumerate() {
            outputs.push(match output {
                Output::Fresh { base, dtype, sizes, strides, .. } if is_counted(fresh_results(&outputs)) => {
                    // Its storage has the largest size.
                    ResultPlan::Fresh(FreshResult {
                        ty: types.intern(base),
                        nbytes: base.size_bytes(),
                        sizes: types.intern_dims(sizes),
                        strides: types.intern_dims(strides),
                        dtype: *dtype,
                        extents: Vec::new(),
                        layout: None,
                    })
                }
                Output::Fresh { base, dtype, sizes, extents, .. } => {
                    let spec = match is_given {
                        true => fresh.next()?.clone()?,
                        false => {
                            let order = (0..sizes.len()).collect();
                            let sizes = Layout::at(*dtype, base, sizes, extents, order, numbers).actual();
                            ResultSpec { dtype: *dtype, strides: aten::contiguous_strides(&sizes), sizes }
                        }
                    };
                    let order = aten::memory_order(&spec.sizes, &spec.strides);
                    let strides = match order {
                        Some(_) => spec.strides.clone(),
                        None => aten::contiguous_strides(&spec.sizes),
                    };
                    let order = order.unwrap_or_else(|| (0..sizes.len()).collect());
                    let layout = Layout::at(*dtype, base, sizes, extents, order, numbers);
                    if layout.actual() != spec.sizes || !layout.is_affordable() {
                        return None;
                    }
                    ResultPlan::Fresh(FreshResult {
                        ty: types.intern(base),
                        nbytes: spec.sizes.iter().product::<i64>() as usize * dtype.size_bytes(),
                        sizes: types.intern_dims(&spec.sizes),
                        strides: types.intern_dims(&strides),
                        dtype: *dtype,
                        extents: Vec::new(),
                        layout: (!extents.is_empty()).then_some(layout),
                    })
                }
                Output::Absent => {
                    fresh.next()?;
                    ResultPlan::Absent
                }
                Output::Updated { storage, base } => {
                    let extents =
                        lowered.updates.iter().find(|(place, _)| *place == number).map(|(_, extents)| extents);
                    let extents = extents.filter(|extents| extents.iter().any(|extent| !extent.is_whole()));
                    let order = (0..base.dims.len()).collect();
                    let layout =
                        extents.map(|extents| Layout::at(base.dtype, base, &base.dims, extents, order, numbers));
                    if layout.as_ref().is_some_and(|layout| !layout.is_affordable()) {
                        return None;
                    }
                    ResultPlan::Updated { storage: *storage, ty: types.intern(base), layout }
                }
                Output::Check(check) => ResultPlan::Check { check: Arc::new(check.clone()), ty: ty_of_count },
                Output::Count { fresh, axis } => {
                    let others = sizes_beside_count(lowered, *fresh, numbers);
                    ResultPlan::Count { fresh: *fresh, axis: *axis, others, ty: ty_of_count }
                }
            });
        }
        Some(Instance {
            id: self.id,
            operator: Arc::clone(&self.operator),
            arguments,
            decomposed: false,
            compiled: None,
            body: Ok(Arc::clone(lowered)),
            sized: Some(sized),
            refusal: Arc::clone(&self.refusal),
            outputs,
            result_bytes: self.result_bytes,
            is_constant: false,
            alone: Arc::clone(&self.alone),
            last_use: LastUse::default(),
            keeps_sizes: AtomicU64::default(),
        })
    }

    /// The devices of the replicas of a program that communicate. Empty for all other programs.
    pub fn replicas(&self) -> &[i64] {
        self.compiled.as_ref().map_or(&[], |compiled| &compiled.replicas)
    }

    /// The padded form that the program takes of a storage. `None` for the exact value.
    #[inline]
    pub fn wanted(&self, storage: usize) -> Option<&Axes> {
        self.sized.as_ref().and_then(|sized| sized.wanted[storage].as_ref())
    }

    /// Whether each of its tensors is an input of the chunk of its own.
    pub fn has_own_inputs(&self) -> bool {
        self.body.as_ref().is_ok_and(|lowered| lowered.own_inputs)
    }

    /// The programs of this instance alone.
    pub fn programs(&self) -> &Arc<Alone> {
        &self.alone
    }

    /// The element of the only result and the result's type, if all elements are known to be this number.
    pub fn uniform(&self, parts: &CallParts) -> Option<(Number, &Type)> {
        let lowered = self.body.as_ref().ok()?;
        let ty = lowered.function.results.first().filter(|ty| !ty.dtype.is_float8())?;
        let element = match lowered.function.uniform? {
            Uniform::Number(number) => number,
            Uniform::Parameter(place) => match lowered.params[place] {
                ParamSource::Scalar { index, .. } => parts.scalars[index].0,
                _ => return None,
            },
        };
        Some((element, ty))
    }

    /// Whether sizes are inputs of the program.
    #[inline]
    pub fn is_sized(&self) -> bool {
        self.sized.is_some()
    }

    /// How the program takes a storage with this type of value. `None` for the exact value.
    pub fn layout_of(&self, storage: usize, ty: &Type) -> Option<Layout> {
        self.wanted(storage).map(|axes| Layout::of_axes(ty, axes.clone()))
    }

    /// The call on exact values, if sizes are inputs of the program.
    pub fn exact_call(&self) -> Option<&Call> {
        self.sized.as_ref().map(|sized| &sized.exact)
    }

    /// The compiler's error, if it refuses the program with sizes as inputs.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    pub fn note_refusal(&self, error: &str) {
        // Another call may have noted the same before.
        let _ = self.refusal.set(error.to_owned());
    }

    /// The value of a storage that the program takes.
    #[inline]
    pub fn value_of(&self, number: usize, storage: &Storage) -> Option<Arc<Value>> {
        match self.wanted(number) {
            Some(_) => storage.padded_value(),
            None => storage.value(),
        }
    }

    /// A size that is an input of the program.
    pub fn size(&self, number: u32) -> i64 {
        self.sized.as_ref().map_or(0, |sized| sized.numbers[number as usize])
    }

    /// Whether it can be called: the written arguments have the sizes of their results.
    pub fn is_runnable(&self) -> bool {
        self.body.is_ok()
    }

    /// See [`crate::Engine::result_sizes`].
    pub fn result_sizes(&self) -> Vec<Meta> {
        let meta = |resized: &Resized| Meta {
            sizes: resized.sizes.as_ptr(),
            strides: resized.strides.as_ptr(),
            ndim: resized.sizes.len() as i32,
            dtype: resized.scalar_type,
        };
        self.body.as_ref().err().map_or_else(Vec::new, |results| results.iter().map(meta).collect())
    }

    /// The lowered function. `None` for instances that are not runnable; no chunk contains them.
    pub fn function(&self) -> Option<&Function> {
        self.body.as_ref().ok().map(|lowered| &lowered.function)
    }

    /// The types of the function's results, in order.
    pub fn result_types(&self) -> impl Iterator<Item = TypeId> {
        self.outputs.iter().filter_map(|plan| match plan {
            ResultPlan::Fresh(result) => Some(result.ty),
            ResultPlan::Updated { ty, .. } | ResultPlan::Count { ty, .. } | ResultPlan::Check { ty, .. } => Some(*ty),
            ResultPlan::Absent => None,
        })
    }

    /// How the function's results are padded, in order.
    pub fn layouts(&self) -> impl Iterator<Item = Option<&Layout>> {
        self.outputs.iter().filter_map(|plan| match plan {
            ResultPlan::Fresh(FreshResult { layout, .. }) | ResultPlan::Updated { layout, .. } => Some(layout.as_ref()),
            ResultPlan::Count { .. } | ResultPlan::Check { .. } => Some(None),
            ResultPlan::Absent => None,
        })
    }

    /// The number of fresh results of a call, including undefined ones.
    pub fn fresh_results(&self) -> usize {
        fresh_results(&self.outputs)
    }

    pub fn params(&self) -> &[ParamSource] {
        self.body.as_ref().map_or(&[], |lowered| &lowered.params)
    }

    pub fn number_checks(&self) -> &[NumberCheck] {
        self.body.as_ref().map_or(&[], |lowered| &lowered.number_checks)
    }

    pub fn random_blocks(&self) -> u64 {
        let Ok(lowered) = &self.body else { return 0 };
        match (&lowered.draw, &self.sized) {
            (Some(draw), Some(sized)) => draw.blocks(&sized.numbers),
            _ => lowered.random_blocks,
        }
    }
}

fn fresh_results(outputs: &[ResultPlan]) -> usize {
    outputs.iter().filter(|plan| matches!(plan, ResultPlan::Fresh(_) | ResultPlan::Absent)).count()
}

fn is_number(param: &ParamSource) -> bool {
    matches!(param, ParamSource::Scalar { .. } | ParamSource::Offset(_))
}

/// The sizes of a counted result that are less than the largest, in the dimensions that are not counted.
fn sizes_beside_count(lowered: &Lowered, fresh: usize, numbers: &[i64]) -> Vec<(usize, i64)> {
    let mut results = lowered.outputs.iter().filter(|output| matches!(output, Output::Fresh { .. } | Output::Absent));
    let Some(Output::Fresh { base, dtype, sizes, extents, .. }) = results.nth(fresh) else { return Vec::new() };
    let actual = Layout::at(*dtype, base, sizes, extents, Vec::new(), numbers).actual();
    actual.into_iter().enumerate().filter(|&(axis, actual)| actual != sizes[axis]).collect()
}
