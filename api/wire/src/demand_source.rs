//! Where does the service learn demand and deployment of a pipeline that has no agents?

use crate::record::record;
use crate::states::ReplanMode;
use apportion_domain::Invalid;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

record! {
    /// Where the demand of a pipeline without agents comes from. It has one of both keys.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DemandSourceSpec {
        /// A query to a Prometheus with one series: the queries per second at the pipeline's root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prometheus: Option<PrometheusQuerySpec> => optional.or_null(),
        /// A client posts it to `/v1/pipelines/{name}/demand`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pushed: Option<PushedFactSpec> => optional.or_null(),
    }
}

record! {
    /// Where the deployed replicas of a pipeline without agents come from. It has one of both keys.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DeploymentSourceSpec {
        /// A query to a Prometheus with one series for each group. The labels `pipeline`, `task`, `variant` (or `model`),
        /// `hardware` and `batch` name the group. A label may be absent where the pipeline leaves one choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prometheus: Option<PrometheusQuerySpec> => optional.or_null(),
        /// A client posts them to `/v1/pipelines/{name}/deployment`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pushed: Option<PushedFactSpec> => optional.or_null(),
    }
}

record! {
    /// A query to a Prometheus. The service asks only servers that its configuration lists.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PrometheusQuerySpec {
        /// The server's URL, without `/api/v1`.
        pub url: String => required,
        /// The query, in PromQL.
        pub query: String => required,
        /// Seconds for one answer, 0.1 to 10; default 5.
        #[serde(default = "timeout_s")]
        pub timeout_s: f64 => optional,
        /// Largest age in seconds of the samples that the query reads, 1 to 3600; default 90.
        #[serde(default = "age_max_s")]
        pub age_max_s: f64 => optional,
    }
}

record! {
    /// A fact that a client posts.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PushedFactSpec {
        /// Seconds for which the newest value counts, 1 to 3600; default 90.
        #[serde(default = "age_max_s")]
        pub age_max_s: f64 => optional,
    }
}

fn timeout_s() -> f64 {
    5.0
}

fn age_max_s() -> f64 {
    90.0
}

/// The refused sources of the replan settings with this mode.
pub(crate) fn check_sources(
    mode: &str,
    demand: Option<&DemandSourceSpec>,
    deployed: Option<&DeploymentSourceSpec>,
) -> Vec<Invalid> {
    let mut problems = Vec::new();
    if let Some(source) = demand {
        if mode != ReplanMode::Advisory.name() {
            let found = format!("a source of demand with the mode {mode}");
            problems.push(Invalid::new("/replan/demand", found, "the mode advisory beside it, or no such member"));
        }
        problems.extend(check_source(source.prometheus.as_ref(), source.pushed.as_ref(), "/replan/demand"));
    }
    if let Some(source) = deployed {
        if demand.is_none() {
            let found = "a source of the deployment without one of demand";
            problems.push(Invalid::new("/replan/deployed", found, "`demand` beside it, or no such member"));
        }
        problems.extend(check_source(source.prometheus.as_ref(), source.pushed.as_ref(), "/replan/deployed"));
    }
    problems
}

fn check_source(query: Option<&PrometheusQuerySpec>, pushed: Option<&PushedFactSpec>, at: &str) -> Vec<Invalid> {
    let mut problems = Vec::new();
    if query.is_some() == pushed.is_some() {
        let found = if query.is_some() { "both keys" } else { "neither key" };
        problems.push(Invalid::new(at, found, "either prometheus or pushed"));
    }
    if let Some(seconds) = query.map(|query| query.timeout_s).filter(|seconds| !(0.1..=10.0).contains(seconds)) {
        problems.push(Invalid::new(format!("{at}/prometheus/timeout_s"), seconds, "a number from 0.1 to 10"));
    }
    let ages = [("prometheus", query.map(|query| query.age_max_s)), ("pushed", pushed.map(|pushed| pushed.age_max_s))];
    for (key, age) in ages {
        if let Some(seconds) = age.filter(|seconds| !(1.0..=3_600.0).contains(seconds)) {
            problems.push(Invalid::new(format!("{at}/{key}/age_max_s"), seconds, "a number from 1 to 3600"));
        }
    }
    problems
}
