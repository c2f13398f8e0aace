//! Interned operator instances: one per key, lowered once.

use std::sync::Arc;

use aten::{Check, Lowered, NumberCheck, Output, ParamSource, ResultSpec};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use stablehlo::{DType, Extent, Function, Type};

use crate::cache::memory::LastUse;
use crate::call::{Meta, Out, scalar_type};
use crate::compiled::CompiledGraph;
use crate::constants::SMALL;
use crate::program::Program;
use crate::storage::{Storage, TypeId, Value};

/// What is interned for as long as the process lives: base types, and the sizes and strides that calls hand out.
#[derive(Default)]
pub(crate) struct Types {
    list: Vec<Type>,
    ids: FxHashMap<Type, TypeId>,
    dims: FxHashSet<&'static [i64]>,
}

impl Types {
    pub fn intern(&mut self, ty: &Type) -> TypeId {
        if let Some(&id) = self.ids.get(ty) {
            return id;
        }
        let id = self.list.len() as TypeId;
        self.list.push(ty.clone());
        self.ids.insert(ty.clone(), id);
        id
    }

    pub fn get(&self, id: TypeId) -> &Type {
        &self.list[id as usize]
    }

    fn intern_dims(&mut self, dims: &[i64]) -> &'static [i64] {
        if let Some(known) = self.dims.get(dims) {
            return known;
        }
        let dims: &'static [i64] = Box::leak(dims.into());
        self.dims.insert(dims);
        dims
    }
}

/// A lowered call: what all calls with its key share.
pub(crate) struct Instance {
    pub id: u32,
    /// The operator's name, for messages and counters.
    pub operator: Arc<str>,
    /// The arguments of the call that was lowered, for explanations.
    pub arguments: Vec<String>,
    /// Whether PyTorch's decomposition computes it.
    pub decomposed: bool,
    /// The graph that torch.compile handed over: it runs as a program of its own, with its own options.
    pub compiled: Option<Arc<CompiledGraph>>,
    body: Result<Lowered, Vec<Resized>>,
    pub outputs: Vec<ResultPlan>,
    /// What all results take on the device.
    pub result_bytes: usize,
    /// Whether its results are small and follow from numbers alone.
    pub is_constant: bool,
    /// Programs that consist of this instance alone, by which outputs are used and which inputs are
    /// donated.
    pub alone: Mutex<Vec<(u64, Arc<Program>)>>,
    pub last_use: LastUse,
}

/// What an `out=` argument must become.
struct Resized {
    sizes: &'static [i64],
    strides: &'static [i64],
    scalar_type: i8,
}

/// What becomes of an output of the lowered function.
pub(crate) enum ResultPlan {
    Fresh(FreshResult),
    Absent,
    Updated { storage: usize, ty: TypeId },
    Count { fresh: usize, axis: usize },
    Check(Arc<Check>),
}

/// A result that gets a storage of its own.
pub(crate) struct FreshResult {
    pub ty: TypeId,
    pub nbytes: usize,
    pub sizes: &'static [i64],
    pub strides: &'static [i64],
    pub dtype: DType,
    /// How much of each dimension is real; empty where all is.
    pub extents: Vec<Extent>,
}

impl FreshResult {
    /// The result with its value, in a new storage.
    pub fn out(&self, device: usize, value: Arc<Value>) -> Out {
        let storage = Storage::with_value(device, self.nbytes, Some(value));
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
    /// `body` is the lowering, or the results that `out=` arguments must be resized for first.
    pub fn new(
        id: u32,
        operator: &str,
        arguments: Vec<String>,
        decomposed: bool,
        compiled: Option<Arc<CompiledGraph>>,
        body: Result<Lowered, Vec<ResultSpec>>,
        types: &mut Types,
    ) -> Instance {
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
                Output::Check(check) => ResultPlan::Check(Arc::new(check.clone())),
                Output::Count { fresh, axis } => ResultPlan::Count { fresh: *fresh, axis: *axis },
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

    /// The lowered function; absent only for instances that are not runnable, which no chunk holds.
    pub fn function(&self) -> Option<&Function> {
        self.body.as_ref().ok().map(|lowered| &lowered.function)
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
