//! Which choices does an export need that a plan does not make? Images, addresses, and how a system names its devices.

use apportion_domain::Problem;
use apportion_wire::{BadInput, parse_tree};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The settings file. Every key may be absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSettings {
    /// The service's address for agents, `http://host:7071`.
    pub join: Option<String>,
    /// The service's address for autoscalers, `host:7072`.
    pub scaler: Option<String>,
    /// A Prometheus that scrapes the service. ScaledObjects ask it instead of the service.
    pub prometheus: Option<String>,
    /// Container images.
    pub images: ImageSettings,
    /// Settings of hardware types, by name.
    pub hardware: BTreeMap<String, DeviceSettings>,
    /// The longest run of a job, in Slurm's form. Default: one day.
    pub time: Option<String>,
}

/// Container images.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageSettings {
    /// Of the service.
    pub service: Option<String>,
    /// Of agents on processors.
    pub agent: Option<String>,
    /// Of agents on GPUs.
    pub agent_gpu: Option<String>,
    /// Of a variant's own model server, by the variant's name. With them, Kubernetes runs these instead of agents.
    pub variants: BTreeMap<String, String>,
    /// The port of these servers. Default: 8000.
    pub port: Option<u16>,
    /// The path by which they say that they are ready. Default: `/v2/health/ready`.
    pub ready_path: Option<String>,
}

/// What a system calls the devices of a hardware type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceSettings {
    /// Whether its devices are GPUs. Default: yes, unless its name begins with `cpu`.
    pub gpu: Option<bool>,
    /// Processors of each device. Default: 1.
    pub cpus: Option<u32>,
    /// Labels of its nodes in Kubernetes. Default: `apportion/hardware` with the type's name.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The name of its devices in Kubernetes. Default: `nvidia.com/gpu`.
    pub resource: Option<String>,
    /// Its `--gres` in Slurm. Default: `gpu:1`; an empty text leaves it out.
    pub gres: Option<String>,
    /// Its `--constraint` in Slurm. Default: the type's name; an empty text leaves it out.
    pub constraint: Option<String>,
    /// Its partition in Slurm.
    pub partition: Option<String>,
    /// Its `accelerator_type` in Ray.
    pub accelerator_type: Option<String>,
}

impl ExportSettings {
    /// Whether the devices of a hardware type are GPUs.
    #[must_use]
    pub fn is_gpu(&self, hardware: &str) -> bool {
        let said = self.hardware.get(hardware).and_then(|device| device.gpu);
        said.unwrap_or(!hardware.to_ascii_lowercase().starts_with("cpu"))
    }

    /// The settings of a hardware type.
    pub(crate) fn device(&self, hardware: &str) -> DeviceSettings {
        self.hardware.get(hardware).cloned().unwrap_or_default()
    }

    /// The image of the agents on a hardware type.
    pub(crate) fn agent_image(&self, hardware: &str) -> &str {
        match self.is_gpu(hardware) {
            true => self.images.agent_gpu.as_deref().unwrap_or("apportion-agent-cuda"),
            false => self.images.agent.as_deref().unwrap_or("apportion-agent"),
        }
    }

    /// Checks the names against the problem's, and texts against what a line of a script can hold.
    pub(crate) fn check(&self, problem: &Problem) -> Result<(), BadInput> {
        const FILE: &str = "--settings";
        if let Some(name) = self.hardware.keys().find(|name| problem.hardware_named(name).is_none()) {
            let known: Vec<&str> = problem.hardware.iter().map(|h| h.name.as_str()).collect();
            let expected = format!("a hardware type of the problem: {}", known.join(", "));
            return Err(BadInput::one(FILE, "/hardware", format!("{name:?}"), expected));
        }
        let tasks = || problem.pipelines.iter().flat_map(|p| p.tasks.iter());
        let is_known = |name: &str| tasks().any(|t| t.variants.iter().any(|v| v.name == name));
        if let Some(name) = self.images.variants.keys().find(|name| !is_known(name)) {
            return Err(BadInput::one(FILE, "/images/variants", format!("{name:?}"), "a variant of the problem"));
        }
        let words = self.hardware.iter().flat_map(|(name, device)| {
            let texts = [("gres", &device.gres), ("constraint", &device.constraint), ("partition", &device.partition)];
            texts.map(|(key, text)| (format!("/hardware/{name}/{key}"), text.as_deref()))
        });
        for (at, text) in words.chain([("/time".to_owned(), self.time.as_deref())]) {
            if let Some(text) = text.filter(|text| !is_option(text)) {
                return Err(BadInput::one(FILE, at, format!("{text:?}"), "a word of Slurm, without spaces or quotes"));
            }
        }
        Ok(())
    }
}

/// Whether a text can stand in a line `#SBATCH --option=TEXT`.
pub(crate) fn is_option(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:,&|[]*()=+/@".contains(c))
}

/// Reads a settings file, JSON or YAML.
///
/// # Errors
/// If a key is unknown or a value has another type.
pub fn read_settings(file: &str, text: &str) -> Result<ExportSettings, BadInput> {
    let tree = parse_tree(file, text)?;
    serde_json::from_value(tree).map_err(|e| BadInput::one(file, "", e, "settings of an export"))
}
