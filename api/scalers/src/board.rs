//! Which replicas are desired, as far as this process knows?

use crate::limits::{BOARD_AGE_MAX, NAMES_LISTED_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The name of the only metric. A replica is worth 1 of it.
pub const METRIC: &str = "apportion_desired_replicas";

/// All advice at one moment.
#[derive(Clone, Debug)]
pub struct Board {
    /// When it was read.
    pub read_at: Instant,
    /// The advised pipelines by name.
    pub pipelines: BTreeMap<String, PipelineAdvice>,
}

/// The advice for one pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineAdvice {
    /// Every profiled group. One without replicas is desired to have none. Empty: there is no advice yet.
    pub groups: Vec<DesiredGroup>,
    /// Age of the demand when the board was read.
    pub demand_age: Duration,
    /// The moment of the demand, as RFC 3339.
    pub seen_at: String,
    /// Why the advice is held although the demand is unknown; `None` while it is known.
    pub held: Option<String>,
}

/// The desired replicas of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredGroup {
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// The replicas.
    pub replicas: u32,
}

impl DesiredGroup {
    /// The name that a key says: `task`, `variant` or `hardware`.
    #[must_use]
    pub fn name(&self, key: &str) -> Option<&str> {
        match key {
            "task" => Some(&self.task),
            "variant" => Some(&self.variant),
            "hardware" => Some(&self.hardware),
            _ => None,
        }
    }
}

/// Which groups of a pipeline are asked for. Without a name, all names count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupQuery {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: Option<String>,
    /// The variant.
    pub variant: Option<String>,
    /// The hardware type.
    pub hardware: Option<String>,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredReplicas {
    /// The replicas of all groups of the query together.
    pub replicas: u32,
    /// Age of the demand behind them.
    pub demand_age: Duration,
    /// Why the advice is held although the demand is unknown.
    pub held: Option<String>,
}

/// Why a query has no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownReplicas {
    /// Nothing was read yet.
    #[error("the service starts: it has read no advice yet")]
    NoBoard,
    /// The database has not answered for too long.
    #[error("the advice was read {age_s} s ago: expected at most {max_s} s", max_s = BOARD_AGE_MAX.as_secs())]
    OldBoard {
        /// Age of the board in seconds.
        age_s: u64,
    },
    /// The pipeline is not advised.
    #[error("pipeline {found:?}: expected one with a source of demand: {known}")]
    Pipeline {
        /// The name.
        found: String,
        /// The advised pipelines.
        known: String,
    },
    /// The pipeline has no advice yet.
    #[error("pipeline {0:?} has no advice yet")]
    NoAdvice(String),
    /// No group of the pipeline has this name.
    #[error("{key} {found:?}: expected one of {known}")]
    Group {
        /// The kind of name.
        key: &'static str,
        /// The name.
        found: String,
        /// The names of this kind.
        known: String,
    },
}

/// Advice that is fresh enough to be told.
///
/// # Errors
/// If there is none.
pub fn fresh(board: Option<&Board>, now: Instant) -> Result<&Board, UnknownReplicas> {
    let board = board.ok_or(UnknownReplicas::NoBoard)?;
    let age = now.saturating_duration_since(board.read_at);
    if age > BOARD_AGE_MAX { Err(UnknownReplicas::OldBoard { age_s: age.as_secs() }) } else { Ok(board) }
}

impl Board {
    /// The replicas of a query.
    ///
    /// # Errors
    /// If they are not known: a name is wrong, or there is no advice.
    pub fn desired(&self, query: &GroupQuery, now: Instant) -> Result<DesiredReplicas, UnknownReplicas> {
        let advice = self.pipelines.get(&query.pipeline).ok_or_else(|| UnknownReplicas::Pipeline {
            found: query.pipeline.clone(),
            known: listed(self.pipelines.keys().map(String::as_str)),
        })?;
        if advice.groups.is_empty() {
            return Err(UnknownReplicas::NoAdvice(query.pipeline.clone()));
        }
        let mut groups: Vec<&DesiredGroup> = advice.groups.iter().collect();
        for (key, wanted) in [("task", &query.task), ("variant", &query.variant), ("hardware", &query.hardware)] {
            let Some(wanted) = wanted else { continue };
            if !groups.iter().any(|group| group.name(key) == Some(wanted)) {
                let known = listed(groups.iter().filter_map(|group| group.name(key)));
                return Err(UnknownReplicas::Group { key, found: wanted.clone(), known });
            }
            groups.retain(|group| group.name(key) == Some(wanted));
        }
        Ok(DesiredReplicas {
            replicas: groups.iter().map(|group| group.replicas).sum(),
            demand_age: advice.demand_age + now.saturating_duration_since(self.read_at),
            held: advice.held.clone(),
        })
    }
}

/// Some names for a message.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    let more = if names.len() > NAMES_LISTED_MAX { ", ..." } else { "" };
    let first: Vec<&str> = names.into_iter().take(NAMES_LISTED_MAX).collect();
    if first.is_empty() { "there is none".to_owned() } else { format!("{}{more}", first.join(", ")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn photos(read_at: Instant) -> Board {
        let group = |task: &str, variant: &str, hardware: &str, replicas| DesiredGroup {
            task: task.into(),
            variant: variant.into(),
            hardware: hardware.into(),
            replicas,
        };
        let groups = vec![
            group("find", "find-l", "t4", 2),
            group("find", "find-s", "t4", 0),
            group("find", "find-s", "cpu", 3),
            group("read", "read-m", "t4", 4),
        ];
        let advice = PipelineAdvice {
            groups,
            demand_age: Duration::from_secs(2),
            seen_at: "2026-01-02T03:04:05Z".into(),
            held: None,
        };
        let empty = PipelineAdvice::default();
        Board { read_at, pipelines: BTreeMap::from([("photos".into(), advice), ("new".into(), empty)]) }
    }

    fn query(pipeline: &str, names: [&str; 3]) -> GroupQuery {
        let [task, variant, hardware] = names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        GroupQuery { pipeline: pipeline.into(), task, variant, hardware }
    }

    #[test]
    fn names_narrow_the_groups() {
        let now = Instant::now();
        let board = photos(now);
        let replicas = |names| board.desired(&query("photos", names), now).map(|answer| answer.replicas);
        assert_eq!(replicas(["", "", ""]), Ok(9));
        assert_eq!(replicas(["find", "", ""]), Ok(5));
        assert_eq!(replicas(["", "find-s", ""]), Ok(3));
        assert_eq!(replicas(["", "find-s", "t4"]), Ok(0), "the advice has none: a zero that is known");
        let age = board.desired(&query("photos", ["", "", ""]), now + Duration::from_secs(3)).map(|a| a.demand_age);
        assert_eq!(age, Ok(Duration::from_secs(5)));
    }

    #[test]
    fn wrong_names_are_errors_and_never_zero() {
        let now = Instant::now();
        let board = photos(now);
        let said = |pipeline, names| board.desired(&query(pipeline, names), now).expect_err("unknown").to_string();
        assert_eq!(said("fotos", ["", "", ""]), "pipeline \"fotos\": expected one with a source of demand: new, photos");
        assert_eq!(said("new", ["", "", ""]), "pipeline \"new\" has no advice yet");
        assert_eq!(said("photos", ["finds", "", ""]), "task \"finds\": expected one of find, read");
        assert_eq!(said("photos", ["read", "find-l", ""]), "variant \"find-l\": expected one of read-m");
        assert_eq!(said("photos", ["", "read-m", "cpu"]), "hardware \"cpu\": expected one of t4");
    }

    #[test]
    fn an_old_board_answers_nothing() {
        let now = Instant::now();
        let board = photos(now);
        assert!(fresh(Some(&board), now + BOARD_AGE_MAX).is_ok());
        let old = fresh(Some(&board), now + BOARD_AGE_MAX + Duration::from_secs(1)).map(|_| ());
        assert_eq!(old, Err(UnknownReplicas::OldBoard { age_s: 31 }));
        assert_eq!(fresh(None, now).map(|_| ()), Err(UnknownReplicas::NoBoard));
    }
}
