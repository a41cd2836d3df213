//! How are `--backend`, `--shape` and `--share` of `apportion profile` read?

use crate::args::{ArgumentError, http_url};
use apportion_domain::Share;
use std::collections::BTreeMap;
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
    #[error("expected the name of an input and sizes above 0 of its axes but the first, for example image=3,224,224")]
    Shape,
    /// No share that is measured beside neighbours.
    #[error("expected 0.5, 0.25 or 0.125; whole devices are measured in any case")]
    Share,
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

/// The sizes of an input's axes but the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputShape {
    /// Name of the input.
    pub input: String,
    /// The sizes.
    pub sizes: Vec<usize>,
}

impl FromStr for InputShape {
    type Err = BackendArgumentError;

    fn from_str(text: &str) -> Result<Self, BackendArgumentError> {
        let (input, sizes) =
            text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or(BackendArgumentError::Shape)?;
        let size = |word: &str| word.trim().parse().ok().filter(|size: &usize| *size > 0);
        let sizes: Option<Vec<usize>> = sizes.split(',').map(size).collect();
        Ok(Self { input: input.to_owned(), sizes: sizes.ok_or(BackendArgumentError::Shape)? })
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

/// The sizes by the name of the input.
pub fn sizes(shapes: &[InputShape]) -> BTreeMap<String, Vec<usize>> {
    shapes.iter().map(|shape| (shape.input.clone(), shape.sizes.clone())).collect()
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
        let shape = InputShape { input: "image".into(), sizes: vec![3, 224, 224] };
        assert_eq!("image=3,224,224".parse(), Ok(shape));
        for wrong in ["", "image", "image=", "=3", "image=3,0", "image=3,-1", "image=3x224"] {
            assert_eq!(wrong.parse::<InputShape>(), Err(BackendArgumentError::Shape), "{wrong}");
        }
    }
}
