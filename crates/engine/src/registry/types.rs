//! Values that are interned for the life of the process.

use rustc_hash::{FxHashMap, FxHashSet};
use stablehlo::Type;

use crate::storage::TypeId;

/// Base types, and the sizes and strides of results.
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

    pub fn intern_dims(&mut self, dims: &[i64]) -> &'static [i64] {
        if let Some(known) = self.dims.get(dims) {
            return known;
        }
        let dims: &'static [i64] = Box::leak(dims.into());
        self.dims.insert(dims);
        dims
    }
}
