//! How are rows of tensors repeated?

use apportion_node::tensor::{Tensor, concatenate};

/// Number of different batches at each size, so that the times do not depend on one input.
const WINDOWS_MAX: usize = 16;

/// `count` rows from row `start` on. After the last row, the first follows. The tensor has at least one row.
#[must_use]
pub fn cycle(tensor: &Tensor, start: usize, count: usize) -> Tensor {
    let rows = tensor.rows();
    let start = start % rows;
    if start + count <= rows {
        return tensor.slice(start, count);
    }
    let all: Vec<Tensor> = (0..count).map(|i| tensor.row((start + i) % rows)).collect();
    concatenate(&all.iter().collect::<Vec<_>>()).expect("rows of one tensor have one shape")
}

/// Batches of one size, spread over all the samples, so that a fan-out is seen with its usual content. The samples have at
/// least one row.
#[must_use]
pub fn windows(samples: &[Tensor], batch: u32) -> Vec<Vec<Tensor>> {
    let size = batch as usize;
    let rows = samples.iter().map(Tensor::rows).min().unwrap_or(0);
    assert!(rows > 0, "samples to measure with");
    let windows = rows.div_ceil(size).min(WINDOWS_MAX);
    let start = |window: usize| window * rows / windows;
    (0..windows).map(|w| samples.iter().map(|s| cycle(s, start(w), size)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_node::tensor::Datatype;

    #[test]
    fn rows_repeat_after_the_last() {
        let data = vec![1, 2, 3, 4, 5, 6].into();
        let t = Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape: vec![3, 2], data };
        assert_eq!(cycle(&t, 1, 2).data.as_ref(), [3, 4, 5, 6]);
        let long = cycle(&t, 5, 5);
        assert_eq!((long.rows(), long.data.as_ref()), (5, [5, 6, 1, 2, 3, 4, 5, 6, 1, 2].as_slice()));
        let batches = windows(std::slice::from_ref(&t), 2);
        assert_eq!(batches.iter().map(|b| b[0].data[0]).collect::<Vec<_>>(), [1, 3]);
    }
}
