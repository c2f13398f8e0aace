//! Why a function cannot be built as it was asked for.
//!
//! The builder keeps one reason and goes on building; whoever builds with it asks for the reason and raises the error.

use crate::builder::{Builder, Value};
use crate::dtype::DType;

/// One reason. Of several, the builder keeps the one that is listed last, because it explains the others: an operation
/// that does not take its element type also makes a value of the wrong type. Of several of a kind, it keeps the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The target's compiler does not take an operation: "TPUs have no ...". The function is valid.
    Target(&'static str),
    /// The builder was used wrongly: the function would not be valid.
    Mistake(String),
    /// An operation does not take this element type.
    ElementType(DType),
    /// An operation does not take a bounded dimension here.
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
    /// Keeps a reason, if the one that is kept does not explain it.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        let mut kept = self.refusal.borrow_mut();
        if kept.as_ref().is_none_or(|kept| kept.rank() < refusal.rank()) {
            *kept = Some(refusal);
        }
    }

    /// Says that something cannot be done with bounded dimensions.
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

    /// Puts back an earlier answer of [`Builder::refusal`], before what was refused since is built in another way.
    pub fn reset_refusal(&self, earlier: Option<Refusal>) {
        self.refusal.replace(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_telling_reason_is_kept() {
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
