//! Which settings do substrates have?

mod kubernetes;

pub use kubernetes::{KubernetesHardware, KubernetesMachines};

use crate::checks::{RefusedSetting, check_hardware, check_zones, refused};
use crate::names::{WORD_CHARS_MAX, is_fleet_word};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Longest time of a setting, in seconds: a week.
const SECONDS_MAX: f64 = 604_800.0;
/// Most changes of an hour.
const CHANGES_MAX: u32 = 100_000;

/// The settings file of the substrates. Every key may be absent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubstrateSettings {
    /// Name of the fleet. It is the first part of every machine's name, so two services need two names.
    pub fleet: String,
    /// Where agents join, `http://host:7071`. Default: the address at which this service listens for agents.
    pub join: Option<String>,
    /// A machine goes back after it had no replica, and its type too many devices, for this time, in seconds.
    pub idle_s: f64,
    /// A wish expires after this time, in seconds, or after twice the hardware type's `provision_s` if that is longer.
    pub wish_s: f64,
    /// Most machines that are asked for or given back in an hour.
    pub changes_per_hour_max: u32,
    /// Whether changes are only told.
    pub dry_run: bool,
    /// Agents as child processes of this service.
    pub local: Option<LocalSettings>,
    /// Agents as jobs of Slurm.
    pub slurm: Option<SlurmSettings>,
    /// Agents as Pods of Kubernetes.
    pub kubernetes: Option<KubernetesMachines>,
}

impl Default for SubstrateSettings {
    fn default() -> Self {
        Self {
            fleet: "apportion".to_owned(),
            join: None,
            idle_s: 300.0,
            wish_s: 900.0,
            changes_per_hour_max: 60,
            dry_run: false,
            local: None,
            slurm: None,
            kubernetes: None,
        }
    }
}

/// Settings of the substrate `local`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSettings {
    /// The program.
    pub agent: PathBuf,
    /// Further arguments of every agent.
    pub arguments: Vec<String>,
    /// An agent that ends by itself starts again, at most so many times in a row.
    pub restarts_max: u32,
    /// The hardware types, by name.
    pub hardware: BTreeMap<String, LocalHardware>,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self { agent: "apportion-agent".into(), arguments: Vec::new(), restarts_max: 5, hardware: BTreeMap::new() }
    }
}

/// A hardware type of the substrate `local`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalHardware {
    /// Devices of one machine.
    pub devices: u32,
    /// Further arguments of its agents.
    pub arguments: Vec<String>,
}

impl Default for LocalHardware {
    fn default() -> Self {
        Self { devices: 1, arguments: Vec::new() }
    }
}

/// Settings of the substrate `slurm`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmSettings {
    /// The agent's program on the nodes.
    pub agent: String,
    /// Further arguments of every agent.
    pub arguments: Vec<String>,
    /// Where agents listen, for clients and for each other.
    pub listen: String,
    /// Folder on the nodes for the state of agents. Default: `.apportion` in the home directory.
    pub state_dir: Option<String>,
    /// Folder on the nodes in which jobs work and write their logs. Default: the service's own.
    pub directory: Option<String>,
    /// Folder of `sbatch`, `squeue` and `scancel`. Default: they are on the `PATH`.
    pub commands: Option<PathBuf>,
    /// The slurmrestd that is asked in the place of commands.
    pub rest: Option<SlurmRest>,
    /// The hardware types, by name.
    pub hardware: BTreeMap<String, SlurmHardware>,
}

impl Default for SlurmSettings {
    fn default() -> Self {
        Self {
            agent: "apportion-agent".to_owned(),
            arguments: Vec::new(),
            listen: "0.0.0.0:0".to_owned(),
            state_dir: None,
            directory: None,
            commands: None,
            rest: None,
            hardware: BTreeMap::new(),
        }
    }
}

/// Where slurmrestd listens, and as which user it is asked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmRest {
    /// Its address, `http://HOST:PORT`.
    pub url: Option<String>,
    /// Its Unix socket, in the place of an address.
    pub socket: Option<PathBuf>,
    /// The user of the token.
    pub user: Option<String>,
    /// File with the user's token (`scontrol token`). A slurmrestd on a socket may do without.
    pub token_file: Option<PathBuf>,
}

/// A hardware type of the substrate `slurm`. Words have the form that `man sbatch` gives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmHardware {
    /// Devices of one machine.
    pub devices: u32,
    /// Processors of one machine. Default: one for each device.
    pub cpus: Option<u32>,
    /// `--gres`, for example `gpu:t4:2`.
    pub gres: Option<String>,
    /// `--constraint`.
    pub constraint: Option<String>,
    /// `--partition`.
    pub partition: Option<String>,
    /// `--account`.
    pub account: Option<String>,
    /// `--qos`.
    pub qos: Option<String>,
    /// `--mem`.
    pub memory: Option<String>,
    /// `--time`. Default: the partition's.
    pub time: Option<String>,
    /// The zones in which its machines can stand, by name.
    pub zones: BTreeMap<String, SlurmZone>,
    /// Further arguments of its agents.
    pub arguments: Vec<String>,
}

/// How a job gets to the nodes of a zone. Words have the form that `man sbatch` gives.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmZone {
    /// A feature that only its nodes have. It is added to the `--constraint` of the type.
    pub constraint: Option<String>,
    /// Its partition, in the place of that of the type.
    pub partition: Option<String>,
}

impl Default for SlurmHardware {
    fn default() -> Self {
        Self {
            devices: 1,
            cpus: None,
            gres: None,
            constraint: None,
            partition: None,
            account: None,
            qos: None,
            memory: None,
            time: None,
            zones: BTreeMap::new(),
            arguments: Vec::new(),
        }
    }
}

impl SlurmHardware {
    /// The same type on the nodes of one zone. The words of an unknown zone, and of none, are those of the type.
    pub(crate) fn in_zone(&self, zone: Option<&str>) -> Self {
        let Some(SlurmZone { constraint, partition }) = zone.and_then(|zone| self.zones.get(zone)) else {
            return self.clone();
        };
        let both = match (&self.constraint, constraint) {
            (Some(own), Some(more)) => Some(format!("{own}&{more}")),
            (own, more) => more.as_ref().or(own.as_ref()).cloned(),
        };
        let partition = partition.as_ref().or(self.partition.as_ref()).cloned();
        Self { constraint: both, partition, ..self.clone() }
    }

    /// The options of `sbatch` that are given, with their names.
    pub(crate) fn options(&self) -> impl Iterator<Item = SlurmOption<'_>> {
        let all = [
            ("gres", &self.gres),
            ("constraint", &self.constraint),
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("mem", &self.memory),
            ("time", &self.time),
        ];
        all.into_iter().filter_map(|(name, value)| Some(SlurmOption { name, value: value.as_deref()? }))
    }
}

/// An option of `sbatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlurmOption<'a> {
    pub(crate) name: &'static str,
    pub(crate) value: &'a str,
}

impl SubstrateSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is refused.
    pub fn check(&self) -> Result<(), RefusedSetting> {
        if !is_fleet_word(&self.fleet) {
            let expected = format!("1 to {WORD_CHARS_MAX} letters, digits, - and _");
            return Err(refused("/fleet", format!("{:?}", self.fleet), expected));
        }
        for (pointer, seconds, least) in [("/idle_s", self.idle_s, 0.0), ("/wish_s", self.wish_s, 1.0)] {
            if !(least..=SECONDS_MAX).contains(&seconds) {
                return Err(refused(pointer, seconds, format!("seconds from {least} to {SECONDS_MAX}")));
            }
        }
        if self.changes_per_hour_max > CHANGES_MAX {
            let expected = format!("a whole number from 0 to {CHANGES_MAX}");
            return Err(refused("/changes_per_hour_max", self.changes_per_hour_max, expected));
        }
        let is_url = |join: &String| ["http://", "https://"].iter().any(|scheme| join.starts_with(scheme));
        if let Some(join) = self.join.as_ref().filter(|join| !is_url(join)) {
            let expected = "http://HOST:PORT or https://HOST:PORT, several separated by commas";
            return Err(refused("/join", format!("{join:?}"), expected));
        }
        if let Some(local) = &self.local {
            for (name, hardware) in &local.hardware {
                check_hardware(&format!("/local/hardware/{name}"), name, hardware.devices)?;
            }
        }
        self.slurm.as_ref().map_or(Ok(()), check_slurm)?;
        self.kubernetes.as_ref().map_or(Ok(()), |kubernetes| kubernetes.check(&self.fleet))
    }
}

fn check_slurm(slurm: &SlurmSettings) -> Result<(), RefusedSetting> {
    for (name, hardware) in &slurm.hardware {
        let pointer = format!("/slurm/hardware/{name}");
        check_hardware(&pointer, name, hardware.devices)?;
        hardware.options().try_for_each(|option| check_option(&pointer, option))?;
        check_zones(&pointer, hardware.zones.keys())?;
        for (zone, SlurmZone { constraint, partition }) in &hardware.zones {
            let pointer = format!("{pointer}/zones/{zone}");
            let words = [("constraint", constraint), ("partition", partition)];
            let mut words =
                words.into_iter().filter_map(|(name, value)| Some(SlurmOption { name, value: value.as_deref()? }));
            if words.clone().next().is_none() {
                return Err(refused(pointer, "neither", "a constraint or a partition, which leads to its nodes"));
            }
            words.try_for_each(|option| check_option(&pointer, option))?;
        }
    }
    let texts = [("/slurm/state_dir", &slurm.state_dir), ("/slurm/directory", &slurm.directory)];
    for (pointer, text) in texts {
        if let Some(text) = text.as_ref().filter(|text| !text.starts_with('/') || text.contains(['\n', '%', '\\'])) {
            return Err(refused(pointer, format!("{text:?}"), "an absolute path without % and \\"));
        }
    }
    slurm.rest.as_ref().map_or(Ok(()), check_rest)
}

fn check_option(pointer: &str, SlurmOption { name, value }: SlurmOption<'_>) -> Result<(), RefusedSetting> {
    if !value.is_empty() && value.chars().all(is_option_char) {
        return Ok(());
    }
    let expected = format!("a word of Slurm for --{name}, without spaces or quotes");
    let key = if name == "mem" { "memory" } else { name };
    Err(refused(format!("{pointer}/{key}"), format!("{value:?}"), expected))
}

fn check_rest(rest: &SlurmRest) -> Result<(), RefusedSetting> {
    let is_place = match (&rest.url, &rest.socket) {
        (Some(url), None) => url.starts_with("http://"),
        (None, Some(socket)) => socket.is_absolute(),
        _ => false,
    };
    if !is_place {
        let found = format!("url {:?}, socket {:?}", rest.url, rest.socket);
        return Err(refused("/slurm/rest", found, "one of url, http://HOST:PORT, and socket, an absolute path"));
    }
    let has_token = rest.token_file.is_some();
    if has_token != rest.user.is_some() || (rest.url.is_some() && !has_token) {
        let found = format!("user {:?}, token_file {:?}", rest.user, rest.token_file);
        return Err(refused("/slurm/rest", found, "user and token_file together; a url needs them"));
    }
    Ok(())
}

fn is_option_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.:,&|[]*()=+/@".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slurm(hardware: SlurmHardware) -> SubstrateSettings {
        let hardware = [("t4".to_owned(), hardware)].into();
        SubstrateSettings { slurm: Some(SlurmSettings { hardware, ..SlurmSettings::default() }), ..Default::default() }
    }

    #[test]
    fn slurmrestd_has_one_place_and_a_user_with_token() {
        let refused = |rest: &serde_json::Value| {
            let rest: SlurmRest = serde_json::from_value(rest.clone()).expect("settings");
            let slurm = Some(SlurmSettings { rest: Some(rest), ..SlurmSettings::default() });
            SubstrateSettings { slurm, ..Default::default() }.check().err().map(|refused| refused.to_string())
        };
        let token = |place: &str, value: &str| json!({place: value, "user": "u", "token_file": "/t"});
        for right in [json!({"socket": "/run/rest"}), token("url", "http://h:6820"), token("socket", "/run/rest")] {
            assert_eq!(refused(&right), None, "{right}");
        }
        let wrong = [
            (json!({}), "expected one of url"),
            (token("url", "h:6820"), "expected one of url"),
            (json!({"url": "http://h:6820", "socket": "/run/rest"}), "expected one of url"),
            (json!({"url": "http://h:6820"}), "a url needs them"),
            (json!({"socket": "/run/rest", "user": "u"}), "user and token_file together"),
        ];
        for (rest, expected) in wrong {
            let said = refused(&rest).unwrap_or_else(|| panic!("accepted: {rest}"));
            assert!(said.starts_with("/slurm/rest: ") && said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_zone_adds_its_words_to_those_of_the_type() {
        let zone = |constraint: Option<&str>, partition: Option<&str>| SlurmZone {
            constraint: constraint.map(str::to_owned),
            partition: partition.map(str::to_owned),
        };
        let hardware = SlurmHardware {
            constraint: Some("t4".into()),
            partition: Some("batch".into()),
            zones: [("a".into(), zone(Some("rack1"), None)), ("b".into(), zone(None, Some("far")))].into(),
            ..SlurmHardware::default()
        };
        let words = |zone: Option<&str>| {
            let of = hardware.in_zone(zone);
            format!("{} {}", of.constraint.unwrap_or_default(), of.partition.unwrap_or_default())
        };
        assert_eq!(
            [None, Some("a"), Some("b"), Some("c")].map(words),
            ["t4 batch", "t4&rack1 batch", "t4 far", "t4 batch"]
        );
        let plain = SlurmHardware { constraint: None, ..hardware.clone() };
        assert_eq!(plain.in_zone(Some("a")).constraint.as_deref(), Some("rack1"));
        assert_eq!(slurm(hardware).check(), Ok(()));
        for (name, of, expected) in [
            ("a", zone(None, None), "/slurm/hardware/t4/zones/a: neither: expected a constraint or a partition"),
            ("a", zone(Some("x y"), None), "/slurm/hardware/t4/zones/a/constraint: \"x y\": expected a word of Slurm"),
            ("a b", zone(Some("x"), None), "/slurm/hardware/t4/zones: \"a b\": expected"),
        ] {
            let hardware = SlurmHardware { zones: [(name.to_owned(), of)].into(), ..SlurmHardware::default() };
            let said = slurm(hardware).check().expect_err(expected).to_string();
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn wrong_settings_are_refused_with_their_place() {
        let gres = |text: &str| slurm(SlurmHardware { gres: Some(text.into()), ..SlurmHardware::default() });
        assert_eq!(gres("gpu:t4:2").check(), Ok(()));
        let cases = [
            (gres("gpu; rm"), "/slurm/hardware/t4/gres: \"gpu; rm\": expected a word of Slurm for --gres"),
            (slurm(SlurmHardware { devices: 0, ..SlurmHardware::default() }), "/slurm/hardware/t4/devices: 0: expected"),
            (SubstrateSettings { fleet: "a.b".into(), ..Default::default() }, "/fleet: \"a.b\": expected 1 to 64"),
            (SubstrateSettings { idle_s: f64::NAN, ..Default::default() }, "/idle_s: NaN: expected seconds"),
            (SubstrateSettings { wish_s: 0.5, ..Default::default() }, "/wish_s: 0.5: expected seconds from 1"),
            (SubstrateSettings { join: Some("h:7".into()), ..Default::default() }, "/join: \"h:7\": expected http://"),
        ];
        for (settings, expected) in cases {
            let said = settings.check().expect_err(expected).to_string();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
