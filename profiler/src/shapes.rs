//! Which shapes do the queries of a task have, and with which shares?
//!
//! Example: `ids=128@0.9` and `ids=512@0.1`. 90 % of the queries have 128 tokens, and 10 % have 512. A batch has queries of
//! one shape, so each shape is measured by itself.

use apportion_domain::{SHAPES_MAX, SHARES_SLACK};
use apportion_executor::tensor::TensorSignature;
use std::collections::BTreeMap;

/// The sizes of an input's axes but the first, by its name.
pub type AxisSizes = BTreeMap<String, Vec<usize>>;

/// Sizes for some inputs, as the caller gives them. An input that is missing has the sizes of its variants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenShape {
    /// At least one input.
    pub sizes: AxisSizes,
    /// Share of the queries that have them; `None` if no shape has one: all are then equally frequent.
    pub share: Option<f64>,
}

/// Why the given shapes of a task cannot be measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ShapesError {
    /// More than [`SHAPES_MAX`].
    #[error(
        "they have {0} shapes: expected at most {SHAPES_MAX}; pad the inputs to a bucket of lengths, with the transform \
         `pad`"
    )]
    TooMany(usize),
    /// Some shapes have a share and some have none.
    #[error("{with} of {all} shapes have a share: expected one for each shape, as in --shape ids=128@0.9, or for none")]
    SomeShares {
        /// Shapes with a share.
        with: usize,
        /// All shapes.
        all: usize,
    },
    /// The shares do not sum to 1.
    #[error("the shares of their {count} shapes sum to {sum}: expected 1")]
    ShareSum {
        /// The number of shapes.
        count: usize,
        /// The sum of the shares.
        sum: f64,
    },
    /// A shape is there twice.
    #[error("the shape {sizes:?} is given twice: expected it once, with the share of all its queries")]
    Twice {
        /// The shape.
        sizes: AxisSizes,
    },
}

/// One shape of the queries of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskShape {
    /// The sizes that were given.
    pub(crate) sizes: AxisSizes,
    /// Share of the queries.
    pub(crate) share: f64,
}

/// The shapes of the queries of a task with these inputs, at least one. Given shapes without an input of the task do not
/// count. The others are one shape together if they have no shares and no input occurs twice; else each is a shape.
///
/// # Errors
/// As [`ShapesError`] lists.
pub(crate) fn task_shapes(inputs: &[TensorSignature], given: &[GivenShape]) -> Result<Vec<TaskShape>, ShapesError> {
    let own = |shape: &GivenShape| -> AxisSizes {
        let is_own = |name: &String| inputs.iter().any(|input| input.name == *name);
        shape.sizes.iter().filter(|(name, _)| is_own(name)).map(|(name, sizes)| (name.clone(), sizes.clone())).collect()
    };
    let mine: Vec<GivenShape> = given.iter().map(|shape| GivenShape { sizes: own(shape), share: shape.share }).collect();
    let mine: Vec<GivenShape> = mine.into_iter().filter(|shape| !shape.sizes.is_empty()).collect();
    let with = mine.iter().filter(|shape| shape.share.is_some()).count();
    let mut together = AxisSizes::new();
    let named: usize = mine.iter().map(|shape| shape.sizes.len()).sum();
    mine.iter().for_each(|shape| together.extend(shape.sizes.clone()));
    if with == 0 && together.len() == named {
        return Ok(vec![TaskShape { sizes: together, share: 1.0 }]);
    }
    if with != 0 && with != mine.len() {
        return Err(ShapesError::SomeShares { with, all: mine.len() });
    }
    let equal = 1.0 / mine.len() as f64;
    let shape = |GivenShape { sizes, share }: GivenShape| TaskShape { sizes, share: share.unwrap_or(equal) };
    checked(mine.into_iter().map(shape).collect())
}

fn checked(shapes: Vec<TaskShape>) -> Result<Vec<TaskShape>, ShapesError> {
    check_count(shapes.len())?;
    let sum: f64 = shapes.iter().map(|shape| shape.share).sum();
    let is_share = |share: f64| share > 0.0 && share <= 1.0;
    if !shapes.iter().all(|shape| is_share(shape.share)) || (sum - 1.0).abs() > SHARES_SLACK {
        return Err(ShapesError::ShareSum { count: shapes.len(), sum });
    }
    let is_twice = |at: &usize| shapes[..*at].iter().any(|other| other.sizes == shapes[*at].sizes);
    match (0..shapes.len()).find(is_twice) {
        Some(twice) => Err(ShapesError::Twice { sizes: shapes[twice].sizes.clone() }),
        None => Ok(shapes),
    }
}

/// Refuses more than [`SHAPES_MAX`] shapes.
pub(crate) fn check_count(count: usize) -> Result<(), ShapesError> {
    if count > SHAPES_MAX { Err(ShapesError::TooMany(count)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_executor::tensor::Datatype;

    fn inputs(names: &[&str]) -> Vec<TensorSignature> {
        let input =
            |name: &&str| TensorSignature { name: (*name).to_owned(), datatype: Datatype::Int64, shape: vec![-1, -1] };
        names.iter().map(input).collect()
    }

    fn sizes(of: &[(&str, usize)]) -> AxisSizes {
        of.iter().map(|&(name, size)| (name.to_owned(), vec![size])).collect()
    }

    fn given(of: &[(&str, usize)], share: Option<f64>) -> GivenShape {
        GivenShape { sizes: sizes(of), share }
    }

    fn shape(of: &[(&str, usize)], share: f64) -> TaskShape {
        TaskShape { sizes: sizes(of), share }
    }

    #[test]
    fn sizes_of_several_inputs_are_one_shape() {
        let of_task = |given: &[GivenShape]| task_shapes(&inputs(&["ids", "mask"]), given);
        let both = [given(&[("ids", 8)], None), given(&[("mask", 8)], None), given(&[("image", 3)], None)];
        assert_eq!(of_task(&both), Ok(vec![shape(&[("ids", 8), ("mask", 8)], 1.0)]));
        assert_eq!(of_task(&[]), Ok(vec![shape(&[], 1.0)]), "the shapes of the variants");
        assert_eq!(of_task(&both[2..]), Ok(vec![shape(&[], 1.0)]), "another task's input");
    }

    #[test]
    fn an_input_with_two_sizes_has_two_shapes() {
        let of_task = |given: &[GivenShape]| task_shapes(&inputs(&["ids"]), given);
        let plain = [given(&[("ids", 8)], None), given(&[("ids", 16), ("other", 2)], None)];
        assert_eq!(of_task(&plain), Ok(vec![shape(&[("ids", 8)], 0.5), shape(&[("ids", 16)], 0.5)]));
        let shared = [given(&[("ids", 8)], Some(0.9)), given(&[("ids", 16)], Some(0.1))];
        assert_eq!(of_task(&shared), Ok(vec![shape(&[("ids", 8)], 0.9), shape(&[("ids", 16)], 0.1)]));
        assert_eq!(of_task(&[given(&[("ids", 8)], Some(1.0))]), Ok(vec![shape(&[("ids", 8)], 1.0)]));
    }

    #[test]
    fn shapes_that_no_queries_can_have_are_refused() {
        let refused = |given: &[GivenShape]| task_shapes(&inputs(&["ids"]), given).expect_err("refused").to_string();
        let one = |size: usize, share: Option<f64>| given(&[("ids", size)], share);
        assert!(refused(&[one(8, Some(0.9)), one(16, None)]).contains("1 of 2 shapes have a share"));
        assert!(refused(&[one(8, Some(0.9)), one(16, Some(0.2))]).contains("sum to 1.1: expected 1"));
        assert!(refused(&[one(8, Some(2.0)), one(16, Some(-1.0))]).contains("sum to 1: expected 1"));
        assert!(refused(&[one(8, Some(f64::NAN))]).contains("sum to NaN"));
        assert!(refused(&[one(8, None), one(8, None)]).contains("{\"ids\": [8]} is given twice"));
        let many = |count: usize| (1..=count).map(|size| one(size, None)).collect::<Vec<GivenShape>>();
        assert_eq!(task_shapes(&inputs(&["ids"]), &many(16)).map(|shapes| shapes.len()), Ok(16));
        assert!(refused(&many(17)).starts_with("they have 17 shapes: expected at most 16; pad the inputs"));
    }
}
