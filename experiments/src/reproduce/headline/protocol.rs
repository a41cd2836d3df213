//! What does the headline compare? The committed file `experiments/protocol.yaml`, read and checked.

use anyhow::{Context, anyhow};
use apportion_domain::{Batching, Dropping};
use apportion_support::exit::Failure;
use apportion_wire::BadInput;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The committed protocol.
const TEXT: &str = include_str!("../../../protocol.yaml");

/// A setting of a contender: values by the names of parameters.
pub type Setting = BTreeMap<String, f64>;

/// The protocol of the headline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadlineProtocol {
    /// Its changes, oldest first.
    pub changes: Vec<ProtocolChange>,
    /// Share of the requests that must be answered in time.
    pub attainment: f64,
    /// Settings of each contender that is tuned.
    pub settings_each: usize,
    /// Seeds of plans and loads.
    pub seeds: ProtocolSeeds,
    /// Figures that all contenders share.
    pub constants: ProtocolConstants,
    /// Figures of our control plane.
    pub ours: ControlPlaneFigures,
    /// The pipelines.
    pub pipelines: Vec<PipelineEntry>,
    /// The pipeline without a data folder.
    pub built_in: BuiltInEntry,
    /// The traces.
    pub trace_sets: Vec<TraceSetEntry>,
    /// The contenders.
    pub contenders: Vec<ContenderEntry>,
}

/// A change of the protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolChange {
    /// The day, as year, month and day.
    pub date: String,
    /// Why it was made.
    pub reason: String,
}

/// Seeds of plans and loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolSeeds {
    /// Of the samples that plans are made on.
    pub plan: u64,
    /// Of the stretch that chooses settings.
    pub train: u64,
    /// Of the judged stretches.
    pub judge: Vec<u64>,
}

/// Figures that all contenders share; the file says what each one means.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolConstants {
    pub load_ms: f64,
    pub start_search_s: f64,
    pub sample_s: usize,
    pub first_s: usize,
    pub report_delay_ms: f64,
    pub command_delay_ms: f64,
    pub replicas_factor_max: u32,
    pub missed_share_max: f64,
    pub hindsight_missed_share_max: f64,
    pub late_step: f64,
    pub single_ladder: LadderRates,
}

/// Rates of a ladder over its plan's.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LadderRates {
    /// The least one.
    pub least: f64,
    /// The factor to the next.
    pub ratio: f64,
    /// How many.
    pub count: i32,
}

/// Figures of our control plane; the file says what each one means.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlPlaneFigures {
    pub planning_s: f64,
    pub weight: f64,
    pub grid: f64,
    pub ladder_up_to: f64,
}

/// A pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineEntry {
    /// Its name in tables.
    pub name: String,
    /// Its problem file, below the data folder.
    pub problem: String,
    /// A factor on the rates of traces.
    pub factor: f64,
}

/// The pipeline that is part of the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltInEntry {
    /// Its name in tables.
    pub name: String,
    /// A factor on the rates of traces.
    pub factor: f64,
}

/// When a set of traces, or a contender, is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlayedWhen {
    /// By every run.
    #[default]
    Always,
    /// When its name is asked for.
    Asked,
}

/// One stretch that chooses settings, and stretches that are judged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSetEntry {
    /// Its name; a manifest may leave it out.
    #[serde(default)]
    pub name: String,
    /// When it is played.
    #[serde(default)]
    pub run: PlayedWhen,
    /// A factor on all rates.
    #[serde(default = "one")]
    pub scale: f64,
    /// The stretch that chooses settings.
    pub train: StretchEntry,
    /// The judged stretches.
    pub judged: Vec<StretchEntry>,
}

/// A part of a file of rates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StretchEntry {
    /// Its name in tables.
    pub name: String,
    /// The file: a CSV file with the columns `second` and `qps`.
    pub file: String,
    /// The column of rates; without it `qps`, or the only one.
    #[serde(default)]
    pub column: Option<String>,
    /// Its first second in the file.
    #[serde(default)]
    pub from_s: usize,
    /// The second after its last; without it, the end of the file.
    #[serde(default)]
    pub until_s: Option<usize>,
}

fn one() -> f64 {
    1.0
}

/// The kinds of scalers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalerKind {
    /// The whole system.
    System,
    /// The whole system, whose headroom follows the measured misses.
    Feedback,
    /// One ladder over one plan.
    Ladder,
    /// InferLine's tuner.
    Tuner,
    /// HPA with a metric of type `Resource`.
    HpaUtilisation,
    /// HPA on queries per second.
    HpaRate,
    /// HPA on queries that wait or run.
    HpaConcurrency,
    /// Knative's autoscaler on queries that wait or run.
    KpaConcurrency,
    /// Knative's autoscaler on queries per second.
    KpaRate,
    /// Ray Serve's autoscaler.
    Ray,
    /// No scaler.
    Fixed,
}

impl ScalerKind {
    /// Whether it makes plans of its own. All other scalers start from a common plan and keep it.
    pub fn makes_plans(self) -> bool {
        matches!(self, Self::System | Self::Feedback)
    }
}

/// How queries are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryService {
    /// What happens to a query that will be late.
    pub dropping: Dropping,
    /// When a batch is closed.
    pub batching: Batching,
}

/// How the queries of every contender are served that names no policies of its own: as agents do, and with the early
/// dropping that all need in a burst.
pub const USUAL_SERVICE: QueryService = QueryService { dropping: Dropping::PerTask, batching: Batching::AtStart };

/// Policies by their names; those that an entry leaves out are the usual ones.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    dropping: Option<String>,
    batching: Option<String>,
}

/// A contender with its search space.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContenderEntry {
    /// Its name in tables.
    pub name: String,
    /// When it is played.
    #[serde(default)]
    pub run: PlayedWhen,
    /// What scales.
    pub scaler: ScalerKind,
    /// The configuration without tuning.
    pub default: Setting,
    /// Policies other than the usual ones.
    #[serde(default)]
    serving: ServiceEntry,
    /// Grids of settings.
    #[serde(default)]
    search: Vec<BTreeMap<String, Vec<f64>>>,
}

impl ContenderEntry {
    /// All settings of the search space, in the order of the file; the last parameter varies fastest.
    pub fn settings(&self) -> Vec<Setting> {
        self.search.iter().flat_map(combinations).collect()
    }

    /// How its queries are served.
    ///
    /// # Errors
    /// If a policy is unknown.
    pub fn service(&self) -> Result<QueryService, Failure> {
        let ServiceEntry { dropping, batching } = &self.serving;
        let unknown = |name: &str| anyhow!("protocol.yaml: {:?}: there is no policy {name:?}", self.name);
        let usual = USUAL_SERVICE;
        Ok(QueryService {
            dropping: match dropping {
                Some(name) => Dropping::from_name_or_alias(name).ok_or_else(|| unknown(name))?,
                None => usual.dropping,
            },
            batching: match batching {
                Some(name) => Batching::from_name(name).ok_or_else(|| unknown(name))?,
                None => usual.batching,
            },
        })
    }

    /// Whether a stretch chooses its setting.
    pub fn is_tuned(&self) -> bool {
        !self.search.is_empty()
    }
}

/// All combinations of the values of a grid.
fn combinations(grid: &BTreeMap<String, Vec<f64>>) -> Vec<Setting> {
    grid.iter().fold(vec![Setting::new()], |all, (name, values)| {
        let with = |setting: &Setting, value: f64| {
            let mut longer = setting.clone();
            longer.insert(name.clone(), value);
            longer
        };
        all.iter().flat_map(|setting| values.iter().map(move |&value| with(setting, value))).collect()
    })
}

impl HeadlineProtocol {
    /// The committed protocol.
    ///
    /// # Errors
    /// If the file breaks its own rules.
    pub fn committed() -> Result<Self, Failure> {
        let protocol: Self = serde_saphyr::from_str(TEXT).context("experiments/protocol.yaml")?;
        protocol.check()?;
        Ok(protocol)
    }

    /// The same protocol with only these contenders, in its order. If `names` is empty, it keeps those of every run.
    ///
    /// # Errors
    /// If it has no contender of a name.
    pub fn with_contenders(mut self, names: &[String]) -> Result<Self, Failure> {
        if let Some(unknown) = names.iter().find(|name| !self.contenders.iter().any(|c| c.name == **name)) {
            let known: Vec<&str> = self.contenders.iter().map(|c| c.name.as_str()).collect();
            let expected = format!("one of the protocol's contenders: {}", known.join("; "));
            return Err(BadInput::one("--contender", "", format!("{unknown:?}"), expected).into());
        }
        let is_played = |c: &ContenderEntry| match names {
            [] => c.run == PlayedWhen::Always,
            names => names.contains(&c.name),
        };
        self.contenders.retain(is_played);
        Ok(self)
    }

    /// Changes have dates and reasons, each contender that is tuned has as many settings as the others, and seeds of
    /// training and judging differ.
    fn check(&self) -> Result<(), Failure> {
        let is_dated = |c: &ProtocolChange| c.date.len() == 10 && !c.reason.trim().is_empty();
        if self.changes.is_empty() || !self.changes.iter().all(is_dated) || !self.changes.is_sorted_by_key(|c| &c.date) {
            return Err(anyhow!("protocol.yaml: expected changes in the order of their dates, each with a reason").into());
        }
        for contender in self.contenders.iter().filter(|c| c.is_tuned()) {
            let found = contender.settings().len();
            if found != self.settings_each {
                let (name, each) = (&contender.name, self.settings_each);
                return Err(anyhow!("protocol.yaml: {name:?} has {found} settings, expected {each}").into());
            }
        }
        self.contenders.iter().try_for_each(|contender| contender.service().map(drop))?;
        let is_shared = self.seeds.judge.contains(&self.seeds.train) || self.seeds.judge.contains(&self.seeds.plan);
        if is_shared || self.seeds.judge.is_empty() {
            return Err(anyhow!("protocol.yaml: expected seeds to judge on that nothing else uses").into());
        }
        Ok(())
    }
}

/// The SHA-256 of the committed protocol, in hexadecimal digits.
pub fn hash() -> String {
    Sha256::digest(TEXT.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_protocol_keeps_its_rules() {
        let protocol = HeadlineProtocol::committed().expect("a valid file");
        let tuned = protocol.contenders.iter().filter(|c| c.is_tuned());
        for contender in tuned {
            let mut settings: Vec<String> = contender.settings().iter().map(|s| format!("{s:?}")).collect();
            settings.sort();
            settings.dedup();
            assert_eq!(settings.len(), protocol.settings_each, "{} repeats a setting", contender.name);
        }
        assert_eq!(hash().len(), 64);
    }

    #[test]
    fn contenders_are_chosen_by_name() {
        let protocol = || HeadlineProtocol::committed().expect("a valid file");
        let with = |names: &[&str]| protocol().with_contenders(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        let names = |p: HeadlineProtocol| p.contenders.into_iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names(with(&["fixed", "ours"]).expect("both are there")), ["ours", "fixed"]);
        assert_eq!(names(with(&["Ray Serve, pard"]).expect("it is asked for")), ["Ray Serve, pard"]);
        let (usual, all) = (names(with(&[]).expect("those of every run")), protocol().contenders);
        assert!(usual.contains(&"Ray Serve".into()) && !usual.contains(&"Ray Serve, pard".into()), "{usual:?}");
        assert_eq!(usual.len(), all.iter().filter(|c| c.run == PlayedWhen::Always).count());
        let refused = with(&["our"]).expect_err("a wrong name").to_string();
        assert!(refused.contains("\"our\"") && refused.contains("ours, feedback"), "{refused}");
    }

    /// A rival with another dropping policy has the search space of the same rival without it.
    #[test]
    fn dropping_changes_no_search_space() {
        let protocol = HeadlineProtocol::committed().expect("a valid file");
        let named = |name: &str| protocol.contenders.iter().find(|c| c.name == name);
        let mut compared = 0;
        for with in protocol.contenders.iter().filter(|c| c.run == PlayedWhen::Asked) {
            let usual = with.name.strip_suffix(", pard").or(with.name.strip_suffix(", pard, tuned")).and_then(named);
            let usual = usual.unwrap_or_else(|| panic!("{}: no such contender without pard", with.name));
            assert_eq!((with.scaler, with.settings()), (usual.scaler, usual.settings()), "{}", with.name);
            let [dropping, others] = [with, usual].map(|c| c.service().expect("known policies").dropping);
            assert_eq!((dropping, others), (Dropping::Pard, Dropping::PerTask), "{}", with.name);
            compared += 1;
        }
        assert_eq!(compared, 9);
    }

    #[test]
    fn judged_stretches_share_no_second_with_their_training() {
        let protocol = HeadlineProtocol::committed().expect("a valid file");
        for set in &protocol.trace_sets {
            let end = |s: &StretchEntry| s.until_s.unwrap_or(usize::MAX);
            let overlaps =
                |s: &&StretchEntry| s.file == set.train.file && s.from_s < end(&set.train) && set.train.from_s < end(s);
            assert!(!set.judged.is_empty());
            assert_eq!(set.judged.iter().filter(overlaps).count(), 0, "{}", set.name);
        }
    }

    #[test]
    fn a_grid_is_all_combinations() {
        let grid = BTreeMap::from([("a".to_owned(), vec![1.0, 2.0]), ("b".to_owned(), vec![3.0, 4.0, 5.0])]);
        let all: Vec<(f64, f64)> = combinations(&grid).iter().map(|s| (s["a"], s["b"])).collect();
        assert_eq!(all, [(1.0, 3.0), (1.0, 4.0), (1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (2.0, 5.0)]);
    }

    #[test]
    fn another_number_of_settings_is_refused() {
        let mut protocol = HeadlineProtocol::committed().expect("a valid file");
        protocol.settings_each += 1;
        assert!(protocol.check().is_err());
        protocol.settings_each -= 1;
        let undated = HeadlineProtocol { changes: Vec::new(), ..protocol.clone() };
        assert!(protocol.check().is_ok() && undated.check().is_err());
        let mut of = |name: &str, scaler| {
            protocol.contenders[0].serving.dropping = Some(name.to_owned());
            protocol.contenders[0].scaler = scaler;
            protocol.check().is_ok()
        };
        assert_eq!([of("pard", ScalerKind::System), of("pad", ScalerKind::System)], [true, false]);
        assert_eq!([of("pard", ScalerKind::Ray), of("pad", ScalerKind::Ray)], [true, false]);
        protocol.seeds.judge.push(protocol.seeds.train);
        assert!(protocol.check().is_err());
    }
}
