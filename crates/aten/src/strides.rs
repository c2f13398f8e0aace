//! Strides of dense tensors, and the order of their dimensions in memory.

/// The strides of a dense row-major tensor.
pub fn contiguous_strides(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for i in (0..sizes.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * sizes[i + 1].max(1);
    }
    strides
}

/// The strides of a dense tensor whose dimensions lie in memory in this order, outermost first.
pub fn dense_strides(sizes: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut inner) = (vec![1; sizes.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = inner;
        inner *= sizes[axis].max(1);
    }
    strides
}

/// The order of dimensions in memory, outermost first, if sizes and strides describe a dense tensor (every element of
/// `0..numel` exactly once). `None` otherwise.
pub fn memory_order(sizes: &[i64], strides: &[i64]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if sizes.contains(&0) {
        return Some(order);
    }
    // Dimensions of size 1 stay next to the dimension before them.
    order.sort_by_key(|&i| {
        (std::cmp::Reverse(if sizes[i] == 1 { effective_stride(sizes, strides, i) } else { strides[i] }), i)
    });
    let mut expected = 1;
    for &i in order.iter().rev() {
        if sizes[i] != 1 {
            if strides[i] != expected {
                return None;
            }
            expected *= sizes[i];
        }
    }
    Some(order)
}

/// The stride for sorting: a dimension of size 1 may have any stride, so it sorts with the next dimension of size
/// above 1.
fn effective_stride(sizes: &[i64], strides: &[i64], i: usize) -> i64 {
    (i + 1..sizes.len()).find(|&j| sizes[j] != 1).map_or(1, |j| strides[j].saturating_mul(sizes[j]))
}

/// The strides that PyTorch's TensorIterator gives a new result of these sizes: those of a dense tensor whose dimensions
/// lie in memory as in the operands, whose strides are given. Stride 0 says nothing of a dimension. The first operand that
/// says something of two dimensions decides their order.
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
