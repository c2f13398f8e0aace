//! Interned instances: one for each key, lowered once.

use std::sync::Arc;

use aten::{Check, Lowered, NumberCheck, Output, ParamSource, ResultSpec};
use parking_lot::Mutex;
use stablehlo::{DType, Extent, Function, Type};

use super::compiled::CompiledGraph;
use super::types::Types;
use crate::cache::memory::LastUse;
use crate::call::{Meta, Out, scalar_type};
use crate::placement::Placement;
use crate::program::Program;
use crate::storage::{SMALL, Storage, TypeId, Value};

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
    body: Result<Lowered, Vec<Resized>>,
    pub outputs: Vec<ResultPlan>,
    /// The bytes of all results on the device.
    pub result_bytes: usize,
    /// Whether its results are small and depend on numbers only.
    pub is_constant: bool,
    /// Programs of this instance alone, by which outputs are used and which inputs are donated.
    pub alone: Mutex<Vec<(u64, Arc<Program>)>>,
    pub last_use: LastUse,
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
    },
    /// The valid length of a dimension of a fresh result, which the host reads.
    Count {
        fresh: usize,
        axis: usize,
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
}

impl FreshResult {
    /// The result with its value in a new storage.
    pub fn out(&self, placement: Placement, value: Arc<Value>) -> Out {
        let storage = Storage::with_value(placement, self.nbytes, Some(value));
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
                }),
                Output::Absent => ResultPlan::Absent,
                Output::Updated { storage, base } => ResultPlan::Updated { storage: *storage, ty: types.intern(base) },
                Output::Check(check) => ResultPlan::Check { check: Arc::new(check.clone()), ty: ty_of_count },
                Output::Count { fresh, axis } => ResultPlan::Count { fresh: *fresh, axis: *axis, ty: ty_of_count },
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
        Instance {
            id,
            operator: operator.into(),
            arguments,
            decomposed,
            compiled,
            body,
            outputs,
            result_bytes,
            is_constant,
            alone: Mutex::default(),
            last_use: LastUse::default(),
        }
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

    /// The number of fresh results of a call, including undefined ones.
    pub fn fresh_results(&self) -> usize {
        self.outputs.iter().filter(|plan| matches!(plan, ResultPlan::Fresh(_) | ResultPlan::Absent)).count()
    }

    pub fn params(&self) -> &[ParamSource] {
        self.body.as_ref().map_or(&[], |lowered| &lowered.params)
    }

    pub fn number_checks(&self) -> &[NumberCheck] {
        self.body.as_ref().map_or(&[], |lowered| &lowered.number_checks)
    }

    pub fn random_blocks(&self) -> u64 {
        self.body.as_ref().map_or(0, |lowered| lowered.random_blocks)
    }
}

fn is_number(param: &ParamSource) -> bool {
    matches!(param, ParamSource::Scalar { .. } | ParamSource::Offset(_))
}
