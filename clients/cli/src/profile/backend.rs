//! How are `--backend`, `--shape` and `--share` of `apportion profile` read?

use crate::args::{ArgumentError, http_url};
use apportion_domain::Share;
use apportion_profiler::{AxisSizes, GivenShape};
use apportion_wire::BadInput;
use std::str::FromStr;

/// What runs the variants that are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfiledBackend {
    /// ONNX Runtime on this machine.
    Onnx,
    /// The server at this URL.
    Remote(String),
}

/// Why `--backend`, `--shape` or `--share` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendArgumentError {
    /// No backend.
    #[error("expected onnx or remote=http://host:port")]
    Backend,
    /// No server.
    #[error(transparent)]
    Url(#[from] ArgumentError),
    /// No sizes of an input.
    #[error(
        "expected the name of an input and sizes above 0 of its axes but the first, for example image=3x224x224; several \
         inputs as ids=128,mask=128; a share of the queries above 0 and at most 1 as ids=128@0.9"
    )]
    Shape,
    /// No share that is measured beside neighbours.
    #[error("expected 0.5, 0.25 or 0.125; whole devices are measured in any case")]
    Share,
    /// An input has two sizes in one shape.
    #[error("the input {0} has two sizes in one shape: give one option for each shape")]
    InputTwice(String),
}

impl FromStr for ProfiledBackend {
    type Err = BackendArgumentError;

    fn from_str(text: &str) -> Result<Self, BackendArgumentError> {
        match text.split_once('=') {
            None if text == "onnx" => Ok(Self::Onnx),
            Some(("remote", url)) => Ok(Self::Remote(http_url(url)?)),
            _ => Err(BackendArgumentError::Backend),
        }
    }
}

/// One `--shape`: the sizes of some inputs, and their share of the queries.
#[derive(Clone, Debug, PartialEq)]
pub struct InputShape(pub GivenShape);

impl FromStr for InputShape {
    type Err = BackendArgumentError;

    /// Reads `INPUT=SIZExSIZE[,INPUT=SIZE..][@SHARE]`. Sizes of one input may have commas between them too.
    fn from_str(text: &str) -> Result<Self, BackendArgumentError> {
        let (inputs, share) = match text.rsplit_once('@') {
            Some((inputs, share)) if !share.contains('=') => (inputs, Some(share_of_queries(share)?)),
            _ => (text, None),
        };
        let (mut shape, mut last) = (GivenShape { share, ..GivenShape::default() }, None);
        for part in inputs.split(',') {
            let words = match part.rsplit_once('=') {
                Some((name, words)) if !name.is_empty() => {
                    if shape.sizes.insert(name.to_owned(), Vec::new()).is_some() {
                        return Err(BackendArgumentError::InputTwice(name.to_owned()));
                    }
                    last = Some(name);
                    words
                }
                Some(_) => return Err(BackendArgumentError::Shape),
                None => part,
            };
            let Some(name) = last else { return Err(BackendArgumentError::Shape) };
            let sizes = shape.sizes.entry(name.to_owned()).or_default();
            for word in words.split('x') {
                let size = word.trim().parse().ok().filter(|size: &usize| *size > 0);
                sizes.push(size.ok_or(BackendArgumentError::Shape)?);
            }
        }
        Ok(Self(shape))
    }
}

/// Parses a share of a device: a half, a quarter or an eighth.
///
/// # Errors
/// If the text is no such number.
pub fn device_share(text: &str) -> Result<Share, BackendArgumentError> {
    let share = text.trim().parse().ok().and_then(Share::new);
    share.filter(|share| *share != Share::WHOLE).ok_or(BackendArgumentError::Share)
}

/// The shares, the largest first, each once.
pub fn distinct_shares(shares: &[Share]) -> Vec<Share> {
    let mut distinct = shares.to_vec();
    distinct.sort_unstable_by_key(|share| std::cmp::Reverse(*share));
    distinct.dedup();
    distinct
}

fn share_of_queries(text: &str) -> Result<f64, BackendArgumentError> {
    let share = text.trim().parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    share.ok_or(BackendArgumentError::Shape)
}

/// The shapes as the profiler has them.
pub fn given_shapes(shapes: &[InputShape]) -> Vec<GivenShape> {
    shapes.iter().map(|InputShape(shape)| shape.clone()).collect()
}

/// The sizes by the name of the input, for a job of the service: its agents measure one shape.
///
/// # Errors
/// If a share is given, or an input has several sizes.
pub fn one_shape(shapes: &[InputShape]) -> Result<AxisSizes, BadInput> {
    const EXPECTED: &str = "one shape without a share, because the agents of a profile job measure one; without --server, \
                            each shape is measured on this machine, or on another server with --backend remote";
    let refused = |found: String| BadInput::one("--shape", "", found, EXPECTED);
    let mut all = AxisSizes::new();
    for InputShape(GivenShape { sizes, share }) in shapes {
        if let Some(share) = share {
            return Err(refused(format!("a share of {share}")));
        }
        for (name, sizes) in sizes {
            if all.insert(name.clone(), sizes.clone()).is_some() {
                return Err(refused(format!("several shapes of the input {name}")));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_this_machine_or_a_server() {
        assert_eq!("onnx".parse(), Ok(ProfiledBackend::Onnx));
        assert_eq!("remote=http://gpu1:8000".parse(), Ok(ProfiledBackend::Remote("http://gpu1:8000".into())));
        for wrong in ["", "remote", "remote=", "remote=gpu1:8000", "emulated", "onnx=1"] {
            let error = wrong.parse::<ProfiledBackend>().expect_err(wrong).to_string();
            assert!(error.contains("expected"), "{wrong}: {error}");
        }
    }

    fn shape(sizes: &[(&str, &[usize])], share: Option<f64>) -> InputShape {
        let sizes = sizes.iter().map(|(name, sizes)| ((*name).to_owned(), sizes.to_vec())).collect();
        InputShape(GivenShape { sizes, share })
    }

    fn read(text: &str) -> InputShape {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn a_share_is_a_part_of_a_device() {
        let shares: Vec<Share> = ["0.25", " .5", "0.125", "0.5"].map(|text| device_share(text).expect("a share")).into();
        let values: Vec<f64> = distinct_shares(&shares).iter().map(|share| share.value()).collect();
        assert_eq!(values, [0.5, 0.25, 0.125]);
        for wrong in ["", "1", "0", "0.3", "2", "-0.5", "half", "nan"] {
            assert_eq!(device_share(wrong), Err(BackendArgumentError::Share), "{wrong}");
        }
    }

    #[test]
    fn a_shape_has_a_name_and_sizes() {
        for same in ["image=3,224,224", "image=3x224x224", "image=3,224x224"] {
            assert_eq!(read(same), shape(&[("image", &[3, 224, 224])], None), "{same}");
        }
        let both: [(&str, &[usize]); 2] = [("ids", &[128]), ("mask", &[128, 2])];
        assert_eq!(read("ids=128,mask=128x2"), shape(&both, None));
        assert_eq!(read("ids=128,mask=128x2@0.25"), shape(&both, Some(0.25)));
        assert_eq!(read("a@b=7"), shape(&[("a@b", &[7])], None), "a name may have any sign but = and ,");
        let wrong = ["", "image", "image=", "=3", "image=3,0", "image=3,-1", "image=3xx4", "3,image=4", "x=1@", "x=1@0"];
        for wrong in wrong.into_iter().chain(["x=1@1.5", "x=1@nan", "x=1@9%"]) {
            assert_eq!(wrong.parse::<InputShape>(), Err(BackendArgumentError::Shape), "{wrong}");
        }
        let twice = "x=1,x=2".parse::<InputShape>().expect_err("two sizes").to_string();
        assert_eq!(twice, "the input x has two sizes in one shape: give one option for each shape");
    }

    #[test]
    fn a_job_measures_one_shape() {
        let of = |texts: &[&str]| one_shape(&texts.iter().map(|text| read(text)).collect::<Vec<_>>());
        let both = of(&["ids=128", "mask=128"]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(both.into_iter().collect::<Vec<_>>(), [("ids".to_owned(), vec![128]), ("mask".to_owned(), vec![128])]);
        let refused = |texts: &[&str]| of(texts).expect_err("several shapes").to_string();
        assert!(refused(&["ids=128", "ids=512"]).starts_with("--shape: several shapes of the input ids: expected one"));
        assert!(refused(&["ids=128@1"]).starts_with("--shape: a share of 1: expected one shape without a share"));
    }
}
