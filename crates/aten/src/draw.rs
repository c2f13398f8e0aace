//! The random numbers that a call with sizes as inputs draws.

use stablehlo::Factor;

/// A draw of as many random numbers as a tensor with sizes that change has elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The bytes of random bits for each element.
    pub element: u64,
    /// The factors of the number of elements.
    pub factors: Vec<Factor>,
}

impl Draw {
    /// The sizes that the number of elements depends on.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.factors.iter().filter_map(|factor| factor.size)
    }

    /// The number of 128-bit blocks at these sizes.
    pub fn blocks(&self, sizes: &[i64]) -> u64 {
        let length = |factor: &Factor| factor.size.map_or(factor.capacity, |size| sizes[size as usize]);
        let count: i64 = self.factors.iter().map(length).product();
        (count.unsigned_abs() * self.element).div_ceil(16)
    }
}
