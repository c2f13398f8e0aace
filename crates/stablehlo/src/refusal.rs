//! Why a function cannot be built.
//!
//! The builder keeps one reason and continues. The caller asks for the reason and raises the error.

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
            Refusal::ElementType(_) => 2,
            Refusal::Bounded(_) => 3,
        }
    }
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
        b.refuse_bounded("a sort");
        assert_eq!(b.refusal(), Some(Refusal::Bounded("a sort".into())));
        b.reset_refusal(earlier.clone());
        assert_eq!(b.refusal(), earlier);
    }
}
