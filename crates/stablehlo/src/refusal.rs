//! Why a function cannot be built.
//!
//! The builder keeps one reason and continues. The caller asks for the reason and raises the error.

use error::Error;

use crate::builder::{Builder, Value};
use crate::dtype::DType;

/// A reason. Of several reasons, the builder keeps the one listed last here, because it explains the others: an
/// operation on an unsupported element type also gives a value of the wrong type. Of several reasons of one kind, it
/// keeps the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The target's compiler does not support an operation: "TPUs have no ...". The function is valid.
    Target(&'static str),
    /// The builder was used wrongly: the function would not be valid.
    Mistake(String),
    /// The number of bytes of a value of these sizes overflows.
    Sizes(Vec<i64>),
    /// An operation does not support this element type.
    ElementType(DType),
    /// An operation does not support a bounded dimension here.
    Bounded(String),
}

impl Refusal {
    fn rank(&self) -> u8 {
        match self {
            Refusal::Target(_) => 0,
            Refusal::Mistake(_) => 1,
            Refusal::Sizes(_) => 2,
            Refusal::ElementType(_) => 3,
            Refusal::Bounded(_) => 4,
        }
    }
}

/// The error of [`Refusal::Sizes`], in PyTorch's words.
pub fn overflow_of(sizes: &[i64]) -> Error {
    Error::runtime(format!("Storage size calculation overflowed with sizes={sizes:?}"))
}

impl Builder {
    /// Keeps a reason, unless the one that is kept explains it.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        let mut kept = self.refusal.borrow_mut();
        if kept.as_ref().is_none_or(|kept| kept.rank() < refusal.rank()) {
            *kept = Some(refusal);
        }
    }

    /// Refuses something because of bounded dimensions.
    pub fn refuse_bounded(&self, what: impl Into<String>) {
        self.refuse(Refusal::Bounded(what.into()));
    }

    pub(crate) fn refuse_bounded_operands(&self, name: &str, operands: &[Value<'_>]) {
        if operands.iter().any(|value| value.is_bounded()) {
            self.refuse_bounded(name);
        }
    }

    /// The reason that is kept.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.borrow().clone()
    }

    /// Restores an earlier result of [`Builder::refusal`], before building again in another way what was refused
    /// since.
    pub fn reset_refusal(&self, earlier: Option<Refusal>) {
        self.refusal.replace(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_highest_rank_is_kept() {
        let b = Builder::default();
        b.refuse(Refusal::Target("TPUs have none"));
        let earlier = b.refusal();
        b.refuse(Refusal::ElementType(DType::Bool));
        b.refuse(Refusal::ElementType(DType::I8));
        b.refuse(Refusal::Mistake("two shapes".into()));
        assert_eq!(b.refusal(), Some(Refusal::ElementType(DType::Bool)));
        b.refuse(Refusal::Sizes(vec![1 << 62, 0]));
        assert_eq!(b.refusal(), Some(Refusal::ElementType(DType::Bool)));
        b.refuse_bounded("a sort");
        assert_eq!(b.refusal(), Some(Refusal::Bounded("a sort".into())));
        b.reset_refusal(earlier.clone());
        assert_eq!(b.refusal(), earlier);
    }
    #[test]
    fn sizes_whose_bytes_overflow() {
        let b = Builder::default();
        let _ = b.splat(0, DType::I64, &[1 << 31, 1 << 28]);
        assert_eq!(b.refusal(), None);
        let _ = b.splat(0, DType::I64, &[1 << 60, 0]);
        assert_eq!(b.refusal(), Some(Refusal::Sizes(vec![1 << 60, 0])));
        assert_eq!(
            b.finish(&[]).map(|_| ()).map_err(|error| error.to_string()),
            Err("Storage size calculation overflowed with sizes=[1152921504606846976, 0]".to_string())
        );
    }
}
