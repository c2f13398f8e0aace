//! Interned operator instances: one per key, lowered once.

use std::sync::Arc;

use aten::{Lowered, Output, ParamSource, ResultSpec};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stablehlo::{Function, Type};

use crate::call::{Meta, scalar_type};
use crate::compiled::CompiledGraph;
use crate::program::Program;
use crate::storage::TypeId;

/// The interned base types.
#[derive(Default)]
pub(crate) struct Types {
    list: Vec<Type>,
    ids: FxHashMap<Type, TypeId>,
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
}

/// A lowered call: what all calls with its key share. Instances live as long as the process, so the
/// sizes and strides that they hand out stay valid.
pub(crate) struct Instance {
    pub id: u32,
    /// The operator's name, for messages and counters.
    pub operator: Arc<str>,
    /// Whether PyTorch's decomposition computes it.
    pub decomposed: bool,
    /// The graph that torch.compile handed over: it runs as a program of its own, with its own options.
    pub compiled: Option<Arc<CompiledGraph>>,
    body: Result<Lowered, Vec<ResultSpec>>,
    pub outputs: Vec<ResultPlan>,
    /// Programs that consist of this instance alone, by which outputs are used and which inputs are
    /// donated.
    pub alone: Mutex<Vec<(u64, Arc<Program>)>>,
}

/// What becomes of an output of the lowered function.
pub(crate) enum ResultPlan {
    Fresh { ty: TypeId, nbytes: usize, sizes: Vec<i64>, strides: Vec<i64>, scalar_type: i8 },
    Absent,
    Updated { storage: usize, ty: TypeId },
    Count { fresh: usize, axis: usize },
}

impl Instance {
    /// `body` is the lowering, or the results that `out=` arguments must be resized for first.
    pub fn new(
        id: u32,
        operator: &str,
        decomposed: bool,
        compiled: Option<Arc<CompiledGraph>>,
        body: Result<Lowered, Vec<ResultSpec>>,
        types: &mut Types,
    ) -> Instance {
        let outputs = body
            .iter()
            .flat_map(|lowered| &lowered.outputs)
            .map(|output| match output {
                Output::Fresh { base, dtype, sizes, strides } => ResultPlan::Fresh {
                    ty: types.intern(base),
                    nbytes: base.size_bytes(),
                    sizes: sizes.clone(),
                    strides: strides.clone(),
                    scalar_type: scalar_type(*dtype),
                },
                Output::Absent => ResultPlan::Absent,
                Output::Updated { storage, base } => ResultPlan::Updated { storage: *storage, ty: types.intern(base) },
                Output::Count { fresh, axis } => ResultPlan::Count { fresh: *fresh, axis: *axis },
            })
            .collect();
        Instance { id, operator: operator.into(), decomposed, compiled, body, outputs, alone: Mutex::default() }
    }

    pub fn is_runnable(&self) -> bool {
        self.body.is_ok()
    }

    /// See [`crate::Engine::resizes`]. The sizes live as long as the instance.
    pub fn resizes(&self) -> Vec<Meta> {
        let meta = |r: &ResultSpec| Meta {
            sizes: r.sizes.as_ptr(),
            strides: r.strides.as_ptr(),
            ndim: r.sizes.len() as i32,
            dtype: scalar_type(r.dtype),
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

    pub fn random_blocks(&self) -> u64 {
        self.body.as_ref().map_or(0, |lowered| lowered.random_blocks)
    }
}
