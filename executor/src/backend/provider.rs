//! Which of ONNX Runtime's execution providers does a variant ask for, and which one do its nodes really run on?
//!
//! The runtime silently places the nodes that a provider cannot run on the CPU. A library that has the CUDA provider may
//! still lack CUDA's own libraries and the device. So two rules are strict. A provider that cannot be set up is an error.
//! After loading, one batch runs with the runtime's profiling on, which names the provider of each node.

use super::BackendError;
use super::error::{ExecutionError, RuntimeProfileError};
use apportion_domain::{Provider, VariantExecution};
use ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider, ExecutionProviderDispatch, TensorRT};
use std::collections::{BTreeMap, BTreeSet};

/// How a variant is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionSettings {
    /// On which provider.
    pub provider: Provider,
    /// The provider's number of the device; the CPU has one.
    pub device: u32,
    /// Threads of one batch on the CPU; 0: as many as there are cores.
    pub threads: usize,
}

impl ExecutionSettings {
    /// On the CPU with this number of threads.
    #[must_use]
    pub const fn on_cpu(threads: usize) -> Self {
        Self { provider: Provider::Cpu, device: 0, threads }
    }

    /// The settings of a variant on a device with these settings: as it asks, where the device can.
    ///
    /// # Errors
    /// [`ExecutionError::Provider`] if the provider has other devices. [`ExecutionError::Threads`] if the device is a
    /// processor with fewer threads: the variant would take those of other devices.
    pub fn of_variant(self, asked: VariantExecution) -> Result<Self, ExecutionError> {
        let provider = asked.provider.unwrap_or(self.provider);
        if provider.is_on_gpu() != self.provider.is_on_gpu() {
            return Err(ExecutionError::Provider { asked: provider, here: self.provider });
        }
        let threads = asked.threads.map_or(self.threads, |threads| threads as usize);
        if provider == Provider::Cpu && self.threads > 0 && threads > self.threads {
            return Err(ExecutionError::Threads { asked: threads, here: self.threads });
        }
        Ok(Self { provider, threads, ..self })
    }

    /// The providers of a session beside the CPU's, which it always has. One that cannot be set up is an error.
    pub(super) fn dispatches(self) -> Vec<ExecutionProviderDispatch> {
        let device = i32::try_from(self.device).unwrap_or(i32::MAX);
        // Several variants share a device: an arena that doubles takes what the next one needs.
        let cuda = || {
            CUDA::default().with_device_id(device).with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested).build()
        };
        let tensor_rt = || TensorRT::default().with_device_id(device).build();
        match self.provider {
            Provider::Cpu => Vec::new(),
            Provider::Cuda => vec![cuda().error_on_failure()],
            Provider::TensorRt => vec![tensor_rt().error_on_failure(), cuda().error_on_failure()],
        }
    }

    /// That a variant does not run where it should, and what to do.
    pub(super) fn refused(self, file: &str, detail: &str) -> BackendError {
        let device = match self.provider {
            Provider::Cpu => String::new(),
            Provider::Cuda | Provider::TensorRt => format!(" on device {}", self.device),
        };
        BackendError::Provider {
            file: file.to_owned(),
            asked: format!("{}{device}", self.provider.runtime_name()),
            detail: detail.trim().trim_end_matches('.').to_owned(),
            offered: offered().join(", "),
        }
    }
}

/// The providers that the loaded library was built with, of those that are known here.
fn offered() -> Vec<&'static str> {
    let has = |p: &Provider| match p {
        Provider::Cpu => true,
        Provider::Cuda => CUDA::is_available().unwrap_or(false),
        Provider::TensorRt => TensorRT::is_available().unwrap_or(false),
    };
    Provider::ALL.iter().filter(|p| has(p)).map(|p| p.runtime_name()).collect()
}

/// The nodes that ran, by the provider that ran them (ONNX Runtime's name of it): operators with how many nodes of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed(pub BTreeMap<String, BTreeMap<String, usize>>);

#[derive(serde::Deserialize)]
struct Traced {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    args: TracedArgs,
}

#[derive(Default, serde::Deserialize)]
struct TracedArgs {
    #[serde(default)]
    op_name: String,
    #[serde(default)]
    provider: String,
}

impl Placed {
    /// Reads what the runtime's profiling has written: an array of events, of which those of the category `Node` name
    /// operator and provider. A node that ran several times counts once.
    ///
    /// # Errors
    /// [`RuntimeProfileError::Json`] if it has another form.
    pub fn read(profile: &str) -> Result<Self, RuntimeProfileError> {
        let events: Vec<Traced> = serde_json::from_str(profile).map_err(RuntimeProfileError::Json)?;
        let mut seen = BTreeSet::new();
        let mut placed = Self::default();
        for event in events {
            let TracedArgs { op_name, provider } = event.args;
            if event.cat == "Node" && !provider.is_empty() && seen.insert(event.name) {
                *placed.0.entry(provider).or_default().entry(op_name).or_default() += 1;
            }
        }
        Ok(placed)
    }

    /// How many nodes ran on a provider.
    #[must_use]
    pub fn nodes(&self, provider: &str) -> usize {
        self.0.get(provider).map_or(0, |operators| operators.values().sum())
    }

    /// The nodes that ran elsewhere than on this provider, in words; none if all ran there.
    #[must_use]
    pub fn elsewhere(&self, than: Provider) -> Option<String> {
        let others = self.0.iter().filter(|(provider, _)| *provider != than.runtime_name());
        let operators =
            |of: &BTreeMap<String, usize>| of.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ");
        let all: Vec<String> = others.map(|(provider, of)| format!("{} on {provider}", operators(of))).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_runs_as_it_asks_where_the_device_can() {
        let device = |provider, threads| ExecutionSettings { provider, device: 3, threads };
        let asks = |threads, provider| VariantExecution { threads, provider };
        let cases = [
            (device(Provider::Cpu, 4), asks(None, None), Ok(device(Provider::Cpu, 4))),
            (device(Provider::Cpu, 4), asks(Some(2), Some(Provider::Cpu)), Ok(device(Provider::Cpu, 2))),
            (device(Provider::Cpu, 0), asks(Some(64), None), Ok(device(Provider::Cpu, 64))),
            (device(Provider::Cpu, 1), asks(Some(2), None), Err(ExecutionError::Threads { asked: 2, here: 1 })),
            (device(Provider::Cuda, 1), asks(Some(2), None), Ok(device(Provider::Cuda, 2))),
            (device(Provider::Cuda, 1), asks(None, Some(Provider::TensorRt)), Ok(device(Provider::TensorRt, 1))),
            (device(Provider::TensorRt, 1), asks(None, Some(Provider::Cuda)), Ok(device(Provider::Cuda, 1))),
            (
                device(Provider::Cpu, 1),
                asks(None, Some(Provider::Cuda)),
                Err(ExecutionError::Provider { asked: Provider::Cuda, here: Provider::Cpu }),
            ),
            (
                device(Provider::Cuda, 1),
                asks(None, Some(Provider::Cpu)),
                Err(ExecutionError::Provider { asked: Provider::Cpu, here: Provider::Cuda }),
            ),
        ];
        for (device, asked, expected) in cases {
            assert_eq!(device.of_variant(asked), expected, "{asked:?} on {device:?}");
        }
    }

    #[test]
    fn nodes_are_counted_once_by_provider_and_operator() {
        let node = |name: &str, op: &str, provider: &str| {
            format!(r#"{{"cat":"Node","name":"{name}","args":{{"op_name":"{op}","provider":"{provider}"}}}}"#)
        };
        let events = [
            r#"{"cat":"Session","name":"model_run","args":{}}"#.to_owned(),
            r#"{"cat":"Node","name":"c1_fence_before","args":{"op_name":"Conv"}}"#.to_owned(),
            node("c1_kernel_time", "Conv", "CUDAExecutionProvider"),
            node("c1_kernel_time", "Conv", "CUDAExecutionProvider"),
            node("c2_kernel_time", "Conv", "CUDAExecutionProvider"),
            node("s_kernel_time", "Shape", "CPUExecutionProvider"),
        ];
        let placed = Placed::read(&format!("[{}]", events.join(","))).expect("a profile");
        assert_eq!((placed.nodes("CUDAExecutionProvider"), placed.nodes("CPUExecutionProvider")), (2, 1));
        assert_eq!(placed.elsewhere(Provider::Cuda).as_deref(), Some("1 Shape on CPUExecutionProvider"));
        assert_eq!(placed.elsewhere(Provider::Cpu).as_deref(), Some("2 Conv on CUDAExecutionProvider"));
        assert_eq!(Placed::default().elsewhere(Provider::Cuda), None);
        assert!(Placed::read("{").expect_err("no JSON").to_string().contains("the runtime's profile"));
    }
}
