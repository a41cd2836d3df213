//! Which scaler does a setting of the protocol mean, for the groups of one plan?

use super::protocol::{QueryService, ScalerKind, Setting};
use anyhow::anyhow;
use apportion_domain::{Assignment, Pipeline, Plan, Problem, TimeSpan};
use apportion_estimator::Controller;
use apportion_estimator::controllers::{
    Hpa, HpaConfig, HpaMetric, HpaRules, Kpa, KpaConfig, KpaMetric, RayServe, RayServeConfig,
};
use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::Headroom;
use apportion_support::exit::Failure;

/// A scaler with one of its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ContestScaler {
    /// What scales.
    pub kind: ScalerKind,
    /// Its setting.
    pub setting: Setting,
    /// How its queries are served.
    pub service: QueryService,
}

/// The facts of a group that targets refer to.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupFacts {
    /// Its batch.
    pub batch: f64,
    /// Queries per second of a replica with full batches.
    pub throughput_qps: f64,
    /// Its replicas in the plan.
    pub replicas: u32,
    /// Its variant's loading time.
    pub load: TimeSpan,
    /// Price of a replica per hour.
    pub price: f64,
}

/// The groups of a plan's only pipeline in the order of reports: by task, then as planned.
///
/// # Errors
/// If the plan names what the problem does not have.
pub fn groups_of(problem: &Problem, plan: &Plan) -> Result<Vec<GroupFacts>, Failure> {
    let pipeline = &problem.pipelines[0];
    let mut planned: Vec<&Assignment> = plan.pipelines[0].assignments.iter().filter(|a| a.replicas > 0).collect();
    planned.sort_by_key(|a| pipeline.task_named(&a.group.task));
    let facts = |a: &&Assignment| {
        facts_of(problem, pipeline, a).ok_or_else(|| anyhow!("the plan names {}, which the problem lacks", a.group).into())
    };
    planned.iter().map(facts).collect()
}

fn facts_of(problem: &Problem, pipeline: &Pipeline, a: &Assignment) -> Option<GroupFacts> {
    let task = pipeline.task_named(&a.group.task)?;
    let variant = pipeline.task(task).variants.iter().find(|v| v.name == a.group.variant)?;
    let hardware = problem.hardware_named(&a.group.hardware)?;
    let time = variant.profile.service(hardware, a.group.share, a.batch)?;
    Some(GroupFacts {
        batch: f64::from(a.batch),
        throughput_qps: f64::from(a.batch) * 1e3 / time.as_millis(),
        replicas: a.replicas,
        load: TimeSpan::from_millis(variant.load_ms),
        price: problem.hardware_at(hardware).price_per_hour * a.group.share.value(),
    })
}

impl ContestScaler {
    /// A value of the setting.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.setting.get(name).copied()
    }

    /// A value that the setting must have.
    ///
    /// # Errors
    /// If it lacks it.
    pub fn value(&self, name: &str) -> Result<f64, Failure> {
        self.get(name).ok_or_else(|| anyhow!("protocol.yaml: a setting of {:?} needs {name:?}", self.kind).into())
    }

    /// The headroom of the stewards' ladders; `None` if the scaler has no stewards.
    ///
    /// # Errors
    /// If the setting lacks a value.
    pub fn headroom(&self) -> Result<Option<Headroom>, Failure> {
        Ok(match self.kind {
            ScalerKind::System => Some(Headroom::Constant(self.value("headroom")?)),
            ScalerKind::Feedback => Some(Headroom::Feedback(Box::new(HeadroomController::new(PROMISE)))),
            _ => None,
        })
    }

    /// The setting, for tables.
    pub fn in_words(&self) -> String {
        let shown = |(name, value): (&String, &f64)| format!("{} {value}", name.trim_end_matches("_s").replace('_', " "));
        self.setting.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// The least replicas of a group: `minReplicas`.
    pub fn least(&self, replicas: u32) -> u32 {
        let share = self.get("minimum").unwrap_or(0.0);
        ((f64::from(replicas) * share).ceil() as u32).max(1)
    }

    /// The autoscaler of these groups, each of which may have `replicas_factor_max` times its planned replicas; `None` for
    /// a scaler of another kind.
    ///
    /// # Errors
    /// If the setting lacks a value, or has one that the scaler does not know.
    pub fn autoscaler(
        &self,
        groups: &[GroupFacts],
        replicas_factor_max: u32,
    ) -> Result<Option<Box<dyn Controller>>, Failure> {
        let most = |group: &GroupFacts| group.replicas * replicas_factor_max;
        let known: &[&str] = match self.kind {
            ScalerKind::HpaUtilisation | ScalerKind::HpaRate | ScalerKind::HpaConcurrency => &HPA_PARAMETERS,
            ScalerKind::KpaConcurrency | ScalerKind::KpaRate => &KPA_PARAMETERS,
            ScalerKind::Ray => &RAY_PARAMETERS,
            ScalerKind::System | ScalerKind::Feedback | ScalerKind::Ladder | ScalerKind::Tuner | ScalerKind::Fixed => {
                return Ok(None);
            }
        };
        if let Some(unknown) = self.setting.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(anyhow!("protocol.yaml: {:?} does not know {unknown:?}", self.kind).into());
        }
        Ok(Some(match self.kind {
            ScalerKind::KpaConcurrency | ScalerKind::KpaRate => {
                let configs = groups.iter().map(|g| self.kpa(g, most(g)));
                Box::new(Kpa::for_groups(configs.collect::<Result<_, _>>()?))
            }
            ScalerKind::Ray => {
                let configs = groups.iter().map(|g| self.ray(g, most(g)));
                Box::new(RayServe::for_groups(configs.collect::<Result<_, _>>()?))
            }
            _ => {
                let configs = groups.iter().map(|g| self.hpa(g, most(g)));
                Box::new(Hpa::for_groups(configs.collect::<Result<_, _>>()?))
            }
        }))
    }

    /// A span of the setting.
    fn span(&self, name: &str, default: TimeSpan) -> TimeSpan {
        self.get(name).map_or(default, |seconds| TimeSpan::from_millis(1e3 * seconds))
    }

    /// The target in queries: `target_queries`, or `target` times the batch.
    fn queries(&self, group: &GroupFacts) -> Result<f64, Failure> {
        match self.get("target_queries") {
            Some(queries) => Ok(queries),
            None => Ok(self.value("target")? * group.batch),
        }
    }

    fn hpa(&self, group: &GroupFacts, replicas_max: u32) -> Result<HpaConfig, Failure> {
        let (metric, target) = match self.kind {
            ScalerKind::HpaRate => (HpaMetric::Rate, self.value("target")? * group.throughput_qps),
            ScalerKind::HpaConcurrency => (HpaMetric::Concurrency, self.queries(group)?),
            _ => (HpaMetric::Utilisation, self.value("target")?),
        };
        let (up, down) = (HpaRules::up(), HpaRules::down());
        Ok(HpaConfig {
            metric,
            target,
            up: HpaRules { stabilisation: self.span("up_window_s", up.stabilisation), ..up },
            down: HpaRules { stabilisation: self.span("down_window_s", down.stabilisation), ..down },
            replicas_min: self.least(group.replicas),
            replicas_max,
            ..HpaConfig::default()
        })
    }

    fn kpa(&self, group: &GroupFacts, replicas_max: u32) -> Result<KpaConfig, Failure> {
        let (metric, target) = match self.kind {
            ScalerKind::KpaRate => (KpaMetric::Rate, self.value("target")? * group.throughput_qps),
            _ => (KpaMetric::Concurrency, self.queries(group)?),
        };
        let default = KpaConfig::default();
        Ok(KpaConfig {
            metric,
            target,
            stable_window: self.span("stable_window_s", default.stable_window),
            panic_threshold: self.get("panic_threshold").unwrap_or(default.panic_threshold),
            down_delay: self.span("down_delay_s", default.down_delay),
            replicas_min: self.least(group.replicas),
            replicas_max,
            ..default
        })
    }

    fn ray(&self, group: &GroupFacts, replicas_max: u32) -> Result<RayServeConfig, Failure> {
        let default = RayServeConfig::default();
        Ok(RayServeConfig {
            target_ongoing: self.queries(group)?,
            upscale_delay: self.span("upscale_delay_s", default.upscale_delay),
            downscale_delay: self.span("downscale_delay_s", default.downscale_delay),
            look_back: self.span("look_back_s", default.look_back),
            replicas_min: self.least(group.replicas),
            replicas_max,
            ..default
        })
    }
}

/// Parameters of HPA's settings.
const HPA_PARAMETERS: [&str; 5] = ["target", "target_queries", "up_window_s", "down_window_s", "minimum"];

/// Parameters of the settings of Knative's autoscaler.
const KPA_PARAMETERS: [&str; 6] =
    ["target", "target_queries", "stable_window_s", "panic_threshold", "down_delay_s", "minimum"];

/// Parameters of Ray Serve's settings.
const RAY_PARAMETERS: [&str; 6] =
    ["target", "target_queries", "upscale_delay_s", "downscale_delay_s", "look_back_s", "minimum"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::headline::protocol::{HeadlineProtocol, USUAL_SERVICE};

    fn group() -> GroupFacts {
        let load = TimeSpan::from_millis(5e3);
        GroupFacts { batch: 4.0, throughput_qps: 50.0, replicas: 3, load, price: 1.0 }
    }

    #[test]
    fn every_setting_of_the_protocol_is_understood() {
        let protocol = HeadlineProtocol::committed().expect("a valid file");
        let mut autoscalers = 0;
        for contender in &protocol.contenders {
            for setting in contender.settings().into_iter().chain([contender.default.clone()]) {
                let scaler = ContestScaler { kind: contender.scaler, setting, service: USUAL_SERVICE };
                let made = scaler.autoscaler(&[group()], 10).unwrap_or_else(|e| panic!("{}: {e:?}", contender.name));
                autoscalers += usize::from(made.is_some());
            }
        }
        // Six of every run, and the same with the dropping of PARD.
        assert_eq!(autoscalers, 12 * (protocol.settings_each + 1));
    }

    #[test]
    fn targets_belong_to_a_replica_of_the_group() {
        let scaler = |kind, pairs: &[(&str, f64)]| ContestScaler {
            kind,
            setting: pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            service: USUAL_SERVICE,
        };
        let rate = scaler(ScalerKind::HpaRate, &[("target", 0.5), ("minimum", 1.5)]).hpa(&group(), 30).expect("settings");
        assert_eq!((rate.target, rate.replicas_min, rate.replicas_max), (25.0, 5, 30));
        let ray = scaler(ScalerKind::Ray, &[("target", 0.5), ("look_back_s", 10.0)]).ray(&group(), 30).expect("settings");
        assert_eq!((ray.target_ongoing, ray.look_back), (2.0, TimeSpan::from_millis(1e4)));
        let absolute = scaler(ScalerKind::Ray, &[("target_queries", 7.0)]).ray(&group(), 30).expect("settings");
        assert_eq!((absolute.target_ongoing, absolute.replicas_min), (7.0, 1));
        assert!(scaler(ScalerKind::Ray, &[]).ray(&group(), 30).is_err());
        assert!(scaler(ScalerKind::Ray, &[("target", 1.0), ("window", 1.0)]).autoscaler(&[group()], 9).is_err());
    }
}
