//! What computes the batches of a variant, and with how many threads?

use crate::serving::named;
use std::str::FromStr;

/// Most threads that a variant may ask for.
pub const VARIANT_THREADS_MAX: u32 = 1_024;

named! {
    /// What computes the batches of a model file: an execution provider of ONNX Runtime.
    Provider default Cpu {
        /// The processor.
        Cpu = "cpu",
        /// NVIDIA's devices.
        Cuda = "cuda",
        /// NVIDIA's devices, by engines that TensorRT builds. CUDA computes the nodes that it cannot.
        TensorRt = "tensorrt",
    }
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Cuda, Self::TensorRt];

    /// ONNX Runtime's name of it.
    #[must_use]
    pub const fn runtime_name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::TensorRt => "TensorrtExecutionProvider",
        }
    }

    /// Whether its devices are NVIDIA's.
    #[must_use]
    pub const fn is_on_gpu(self) -> bool {
        !matches!(self, Self::Cpu)
    }
}

/// This text is the name of no [`Provider`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected one of {known}", known = Provider::NAMES.join(", "))]
pub struct UnknownProvider(pub String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        Self::from_name(text).ok_or_else(|| UnknownProvider(text.to_owned()))
    }
}

/// What a variant asks of its execution. Where it asks nothing, it runs as its device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VariantExecution {
    /// Threads of one batch on the processor, from 1 to [`VARIANT_THREADS_MAX`].
    pub threads: Option<u32>,
    /// What computes its batches.
    pub provider: Option<Provider>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_read_by_name_and_others_refused() {
        for provider in Provider::ALL {
            assert_eq!(provider.name().parse(), Ok(provider));
        }
        assert_eq!(Provider::ALL.map(Provider::name), Provider::NAMES);
        for wrong in ["", "CUDA", "gpu", "cuda:0"] {
            let error = wrong.parse::<Provider>().expect_err(wrong).to_string();
            assert!(error.contains("expected one of cpu, cuda, tensorrt"), "{wrong}: {error}");
        }
    }
}
