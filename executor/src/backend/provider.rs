//! Which of ONNX Runtime's execution providers does a variant ask for, and which one do its nodes really run on?
//!
//! The runtime silently places the nodes that a provider cannot run on the CPU. A library that has the CUDA provider may
//! still lack CUDA's own libraries and the device. So two rules are strict. A provider that cannot be set up is an error.
//! After loading, one batch runs with the runtime's profiling on, which names the provider of each node.

use super::BackendError;
use super::error::{RuntimeProfileError, UnknownProvider};
use ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider, ExecutionProviderDispatch};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Where variants are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    /// The processor.
    #[default]
    Cpu,
    /// NVIDIA's devices.
    Cuda,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Cuda];

    /// Its name on the command line, in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }

    /// ONNX Runtime's name of it.
    #[must_use]
    pub const fn runtime_name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
        }
    }
}

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownProvider(text.to_owned()))
    }
}

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

    /// The providers of a session beside the CPU's, which it always has. One that cannot be set up is an error.
    pub(super) fn dispatches(self) -> Vec<ExecutionProviderDispatch> {
        match self.provider {
            Provider::Cpu => Vec::new(),
            Provider::Cuda => {
                let device = i32::try_from(self.device).unwrap_or(i32::MAX);
                // Several variants share a device: an arena that doubles takes what the next one needs.
                let cuda =
                    CUDA::default().with_device_id(device).with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested);
                vec![cuda.build().error_on_failure()]
            }
        }
    }

    /// That a variant does not run where it should, and what to do.
    pub(super) fn refused(self, file: &str, detail: &str) -> BackendError {
        let device = match self.provider {
            Provider::Cpu => String::new(),
            Provider::Cuda => format!(" on device {}", self.device),
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
    let has_cuda = CUDA::is_available().unwrap_or(false);
    let has = |p: &Provider| *p == Provider::Cpu || has_cuda;
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
    fn providers_are_read_by_name_and_others_refused() {
        for provider in Provider::ALL {
            assert_eq!(provider.name().parse(), Ok(provider));
        }
        for wrong in ["", "CUDA", "gpu", "cuda:0"] {
            let error = wrong.parse::<Provider>().expect_err(wrong).to_string();
            assert!(error.contains("expected cpu or cuda"), "{wrong}: {error}");
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
