//! Which settings does the substrate `kubernetes` have?

use crate::checks::{RefusedSetting, check_hardware, check_zones, refused};
use crate::names::is_name_of_dns;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest pause before an agent is told to end, in seconds. The service ends a machine 60 s after it has told it.
const PRE_STOP_S_MAX: u32 = 30;
/// Most characters of a fleet or a hardware type: Kubernetes allows no more in the value of a label.
const LABEL_CHARS_MAX: usize = 63;

/// Settings of the substrate `kubernetes`. `--kubernetes` of the service says which cluster it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesMachines {
    /// Namespace of the Pods.
    pub namespace: String,
    /// Image with the agent.
    pub image: String,
    /// The agent's program in the image.
    pub agent: String,
    /// Further arguments of every agent.
    pub arguments: Vec<String>,
    /// Further variables of every agent, by name.
    pub env: BTreeMap<String, String>,
    /// Secret of the namespace whose key `token` is the token of the agents.
    pub token_secret: String,
    /// Secret with the access to the registry of the image.
    pub pull_secret: Option<String>,
    /// An agent is told to end this long after its Pod was deleted, in seconds. Meanwhile Services forget the Pod.
    pub pre_stop_s: u32,
    /// The hardware types, by name.
    pub hardware: BTreeMap<String, KubernetesHardware>,
}

impl Default for KubernetesMachines {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            image: String::new(),
            agent: "apportion-agent".to_owned(),
            arguments: Vec::new(),
            env: BTreeMap::new(),
            token_secret: "apportion".to_owned(),
            pull_secret: None,
            pre_stop_s: 5,
            hardware: BTreeMap::new(),
        }
    }
}

/// A hardware type of the substrate `kubernetes`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesHardware {
    /// Devices of one machine, which is one Pod.
    pub devices: u32,
    /// The resource of a device, for example `nvidia.com/gpu`: a Pod has the limit `devices` of it. Default: no limit.
    pub resource: Option<String>,
    /// Processors of one Pod, for example `4` or `500m`. Default: one for each device.
    pub cpu: Option<String>,
    /// Memory of one Pod, for example `8Gi`. It is a limit too.
    pub memory: Option<String>,
    /// Labels of the nodes that have the devices.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the Pod, as in its manifest.
    pub tolerations: Vec<Value>,
    /// Local queue of Kueue that admits the Pod.
    pub queue: Option<String>,
    /// Priority class of the Pod.
    pub priority_class: Option<String>,
    /// The zones in which its Pods can stand: values of the nodes' label `topology.kubernetes.io/zone`.
    pub zones: Vec<String>,
    /// Another image for this type.
    pub image: Option<String>,
    /// Further arguments of its agents.
    pub arguments: Vec<String>,
}

impl Default for KubernetesHardware {
    fn default() -> Self {
        Self {
            devices: 1,
            resource: None,
            cpu: None,
            memory: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            queue: None,
            priority_class: None,
            zones: Vec::new(),
            image: None,
            arguments: Vec::new(),
        }
    }
}

impl KubernetesMachines {
    /// Checks every value. The names of fleet and hardware types are parts of the names of Pods.
    pub(crate) fn check(&self, fleet: &str) -> Result<(), RefusedSetting> {
        check_word("/fleet", fleet)?;
        let names = [("/kubernetes/namespace", &self.namespace), ("/kubernetes/token_secret", &self.token_secret)];
        let optional = self.pull_secret.iter().map(|name| ("/kubernetes/pull_secret", name));
        for (pointer, name) in names.into_iter().chain(optional) {
            check_name(pointer, name)?;
        }
        if self.pre_stop_s > PRE_STOP_S_MAX {
            let expected = format!("seconds from 0 to {PRE_STOP_S_MAX}");
            return Err(refused("/kubernetes/pre_stop_s", self.pre_stop_s, expected));
        }
        for (name, hardware) in &self.hardware {
            let pointer = format!("/kubernetes/hardware/{name}");
            check_hardware(&pointer, name, hardware.devices)?;
            check_word(&pointer, name)?;
            hardware.check(&pointer)?;
            check_zones(&pointer, hardware.zones.iter())?;
            let image = hardware.image.as_ref().unwrap_or(&self.image);
            if image.is_empty() || image.contains(char::is_whitespace) {
                let place = if hardware.image.is_some() { format!("{pointer}/image") } else { "/kubernetes/image".into() };
                let expected = "an image with the agent, for example registry.example.com/apportion-agent:1";
                return Err(refused(place, format!("{image:?}"), expected));
            }
        }
        Ok(())
    }
}

impl KubernetesHardware {
    fn check(&self, pointer: &str) -> Result<(), RefusedSetting> {
        let is_key = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        if let Some(resource) = self.resource.as_ref().filter(|text| !is_key(text)) {
            let expected = "a resource of nodes, for example nvidia.com/gpu";
            return Err(refused(format!("{pointer}/resource"), format!("{resource:?}"), expected));
        }
        for (key, quantity) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            if let Some(quantity) = quantity.as_ref().filter(|text| !is_quantity(text)) {
                let expected = "a quantity of Kubernetes, for example 500m or 8Gi";
                return Err(refused(format!("{pointer}/{key}"), format!("{quantity:?}"), expected));
            }
        }
        for (key, name) in [("queue", &self.queue), ("priority_class", &self.priority_class)] {
            name.as_ref().map_or(Ok(()), |name| check_name(&format!("{pointer}/{key}"), name))?;
        }
        if let Some(at) = self.tolerations.iter().position(|toleration| !toleration.is_object()) {
            let expected = "an object, for example {key: gpu, operator: Exists}";
            return Err(refused(format!("{pointer}/tolerations/{at}"), &self.tolerations[at], expected));
        }
        Ok(())
    }
}

/// Checks a part of the names of Pods, which is the value of a label too.
fn check_word(pointer: &str, word: &str) -> Result<(), RefusedSetting> {
    if is_name_of_dns(word) && word.len() <= LABEL_CHARS_MAX {
        return Ok(());
    }
    let expected = format!("1 to {LABEL_CHARS_MAX} small letters, digits, - and ., as in names of Pods");
    Err(refused(pointer, format!("{word:?}"), expected))
}

fn check_name(pointer: &str, name: &str) -> Result<(), RefusedSetting> {
    match is_name_of_dns(name) {
        true => Ok(()),
        false => Err(refused(pointer, format!("{name:?}"), "small letters, digits, - and ., as in names of Kubernetes")),
    }
}

/// Whether a text is a number with a unit, such as `1.5` or `8Gi`. The API checks the unit.
fn is_quantity(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is said of settings with one hardware type of this name.
    fn said(fleet: &str, name: &str, more: &Value, hardware: &Value) -> Option<String> {
        let mut settings = json!({"image": "agent:1", "hardware": {name: hardware}});
        for (key, value) in more.as_object().into_iter().flatten() {
            settings[key] = value.clone();
        }
        let settings: KubernetesMachines = serde_json::from_value(settings).expect("settings");
        settings.check(fleet).err().map(|refused| refused.to_string())
    }

    #[test]
    fn whole_settings_are_accepted() {
        let hardware = json!({
            "devices": 2, "resource": "nvidia.com/gpu", "cpu": "1.5", "memory": "8Gi", "node_selector": {"gpu": "t4"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}], "queue": "inference", "priority_class": "serving",
        });
        let more = json!({"namespace": "ml", "env": {"RUST_LOG": "debug"}, "pull_secret": "registry", "pre_stop_s": 0});
        assert_eq!(said("app-1", "t4.large", &more, &hardware), None);
    }

    #[test]
    fn wrong_settings_are_refused_with_their_place() {
        let none = json!({});
        let type_of = |key: &str, value: Value| json!({key: value});
        let cases = [
            (said("App", "t4", &none, &none), "/fleet: \"App\": expected 1 to 63 small letters"),
            (said("app", "T4", &none, &none), "/kubernetes/hardware/T4: \"T4\": expected 1 to 63 small letters"),
            (said("app", "t4.", &none, &none), "/kubernetes/hardware/t4.: \"t4.\": expected 1 to 63 small letters"),
            (said("app", "t4", &json!({"image": ""}), &none), "/kubernetes/image: \"\": expected an image with the agent"),
            (said("app", "t4", &json!({"namespace": "a b"}), &none), "/kubernetes/namespace: \"a b\": expected small"),
            (said("app", "t4", &json!({"pre_stop_s": 31}), &none), "/kubernetes/pre_stop_s: 31: expected seconds from 0"),
            (said("app", "t4", &none, &type_of("devices", json!(0))), "/kubernetes/hardware/t4/devices: 0: expected"),
            (
                said("app", "t4", &none, &type_of("resource", json!("a b"))),
                "/kubernetes/hardware/t4/resource: \"a b\": expected a resource of nodes",
            ),
            (
                said("app", "t4", &none, &type_of("memory", json!("much"))),
                "/kubernetes/hardware/t4/memory: \"much\": expected a quantity",
            ),
            (
                said("app", "t4", &none, &type_of("queue", json!("A"))),
                "/kubernetes/hardware/t4/queue: \"A\": expected small letters",
            ),
            (
                said("app", "t4", &none, &type_of("tolerations", json!([1]))),
                "/kubernetes/hardware/t4/tolerations/0: 1: expected an object",
            ),
            (
                said("app", "t4", &none, &type_of("image", json!("a b"))),
                "/kubernetes/hardware/t4/image: \"a b\": expected an image",
            ),
        ];
        for (said, expected) in cases {
            let said = said.unwrap_or_else(|| panic!("accepted: {expected}"));
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
