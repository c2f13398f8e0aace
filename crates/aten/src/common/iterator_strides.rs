//! The strides that PyTorch's TensorIterator gives a new result.

use crate::view::dense_strides;

/// Dense strides for `sizes`, where dimensions lie in memory as in the operands, whose strides are given. Stride 0 says
/// nothing of a dimension. The first operand that says something of two dimensions decides their order.
pub(crate) fn iterator_strides(sizes: &[i64], operands: &[Vec<i64>]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    let is_outside = |inner: usize, outer: usize| {
        operands.iter().find_map(|strides| match (strides[inner], strides[outer]) {
            (0, _) | (_, 0) => None,
            (a, b) if a == b => (sizes[inner] > sizes[outer]).then_some(true),
            (a, b) => Some(a > b),
        })
    };
    for i in 1..order.len() {
        let mut place = i;
        for before in (0..i).rev() {
            match is_outside(order[before], order[place]) {
                Some(true) => {
                    order.swap(before, place);
                    place = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order.reverse();
    dense_strides(sizes, &order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_lie_as_in_the_operands() {
        assert_eq!(iterator_strides(&[2, 3, 4], &[vec![12, 4, 1]]), [12, 4, 1]);
        assert_eq!(iterator_strides(&[2, 3, 4], &[vec![1, 8, 2]]), [1, 8, 2]);
        // The first operand says nothing of dimension 0, and the second one only of that.
        assert_eq!(iterator_strides(&[2, 3, 2], &[vec![0, 1, 9], vec![1, 0, 0]]), [6, 1, 3]);
        assert_eq!(iterator_strides(&[], &[vec![]]), Vec::<i64>::new());
    }
}
