//! Types of arrays, and the elements of small ones.

use std::sync::Arc;

use crate::element::Element;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub element: Element,
    pub dims: Vec<i64>,
}

impl Type {
    pub fn count(&self) -> i64 {
        self.dims.iter().product()
    }

    pub fn size_bytes(&self) -> usize {
        self.count() as usize * self.element.size()
    }
}

/// Larger arrays are known by one number only.
pub const MOST: i64 = 4096;

/// The elements of an array in row-major order.
pub type Elements = Arc<[f64]>;

/// A small array whose elements are all `number`.
pub fn filled(ty: &Type, number: f64) -> Option<Elements> {
    (ty.count() <= MOST).then(|| vec![number; ty.count() as usize].into())
}

/// A small array from host memory, which is laid out in row-major order without gaps.
pub fn read(ty: &Type, bytes: &[u8]) -> Option<Elements> {
    let size = ty.element.size();
    let is_known = ty.count() <= MOST && size > 0 && !matches!(ty.element, Element::Complex(_));
    is_known.then(|| bytes.chunks_exact(size).map(|element| ty.element.read(element)).collect())
}
