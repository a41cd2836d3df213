//! What has happened to the machines since the last look?
//!
//! A substrate that does not answer proves nothing: without an observation no machine is lost and no wish expires.

use super::facts::{MachineAgent, MachineRecord, MachineStage};
use apportion_substrates::{MachineState, ObservedMachine};
use std::collections::BTreeMap;
use std::time::Duration;

/// A substrate may take this long to show a machine that it was asked for.
pub const UNSEEN_MAX: Duration = Duration::from_secs(60);
/// A machine whose agent is silent for longer is given back, unless most agents of machines are silent.
pub const SILENT_MAX: Duration = Duration::from_secs(120);

/// The limits of wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WishLimits {
    /// A wish expires after this time.
    pub wish_max: Duration,
    /// Longer times of some hardware types.
    pub by_hardware: BTreeMap<String, Duration>,
}

impl WishLimits {
    fn of(&self, hardware: &str) -> Duration {
        self.by_hardware.get(hardware).map_or(self.wish_max, |longer| self.wish_max.max(*longer))
    }
}

/// Why a wish did not come true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WishEnd {
    /// Its time is over.
    #[error("it has not come within {} s; the substrate says: {said}", .waited.as_secs())]
    Late {
        /// How long it was waited for.
        waited: Duration,
        /// The substrate's last words.
        said: String,
    },
    /// The substrate has ended it.
    #[error("the substrate has ended it: {0}")]
    Failed(String),
    /// The substrate does not know it.
    #[error("the substrate does not know it")]
    Unknown,
    /// An agent with its name came with another type.
    #[error("it came as {found}: expected {asked}")]
    OtherType {
        /// The agent's type.
        found: String,
        /// The type that was asked for.
        asked: String,
    },
}

/// What has happened to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineEvent {
    /// Its agent has come.
    Came {
        /// Its devices.
        devices: u32,
        /// The time since it was asked for.
        after: Duration,
    },
    /// It was alive and waits for its turn again, for example after a preemption.
    WaitsAgain(String),
    /// It never came.
    Expired(WishEnd),
    /// It is gone though nobody told it to end.
    Lost(String),
    /// It has ended as it was told.
    Ended,
}

/// What has happened to one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineNote {
    /// Its name.
    pub name: String,
    /// Its hardware type.
    pub hardware: String,
    /// What has happened.
    pub event: MachineEvent,
    /// Its stage from now on. A machine that begins to end here must be told.
    pub stage: MachineStage,
}

/// One machine with what is seen of it.
struct Look<'a> {
    record: &'a MachineRecord,
    agent: Option<&'a MachineAgent>,
    /// `None`: the substrate did not answer. `Some(None)`: it does not show the machine.
    seen: Option<Option<&'a ObservedMachine>>,
    age: Duration,
}

/// What has happened to the machines. `seen` has what each machine's substrate shows; `None`: it did not answer.
#[must_use]
pub fn reconcile(
    records: &[MachineRecord],
    agents: &BTreeMap<String, MachineAgent>,
    seen: Option<&BTreeMap<String, ObservedMachine>>,
    limits: &WishLimits,
    now: Duration,
) -> Vec<MachineNote> {
    let came = |record: &&MachineRecord| matches!(record.stage, MachineStage::Alive | MachineStage::Cordoned);
    let is_silent = |record: &&MachineRecord| agents.get(&record.name).is_none_or(|a| a.silent_for > SILENT_MAX);
    let (all, silent) = (records.iter().filter(came).count(), records.iter().filter(came).filter(is_silent).count());
    // If most are silent, the network to them has probably failed, and they still serve.
    let may_end_silent = silent * 2 <= all;
    let note = |record: &MachineRecord| {
        let look = Look {
            record,
            agent: agents.get(&record.name),
            seen: seen.map(|seen| seen.get(&record.name)),
            age: now.saturating_sub(record.since),
        };
        let Judgement { event, stage } = match record.stage {
            MachineStage::Coming => look.judge_wish(limits.of(&record.hardware))?,
            MachineStage::Alive | MachineStage::Cordoned if may_end_silent => {
                look.judge_loss().or_else(|| look.judge_silence())?
            }
            MachineStage::Alive | MachineStage::Cordoned => look.judge_loss()?,
            MachineStage::Ending => look.judge_end()?,
            MachineStage::Ended => return None,
        };
        Some(MachineNote { name: record.name.clone(), hardware: record.hardware.clone(), event, stage })
    };
    records.iter().filter_map(note).collect()
}

/// What has happened, and the stage that follows.
struct Judgement {
    event: MachineEvent,
    stage: MachineStage,
}

impl Look<'_> {
    fn judge_wish(&self, wish_max: Duration) -> Option<Judgement> {
        let expired = |end: WishEnd, stage: MachineStage| Some(Judgement { event: MachineEvent::Expired(end), stage });
        let asked = &self.record.hardware;
        if let Some(agent) = self.agent.filter(|agent| agent.is_live) {
            if agent.hardware != *asked {
                let end = WishEnd::OtherType { found: agent.hardware.clone(), asked: asked.clone() };
                return expired(end, MachineStage::Ending);
            }
            let event = MachineEvent::Came { devices: agent.devices, after: self.age };
            return Some(Judgement { event, stage: MachineStage::Alive });
        }
        match self.seen? {
            Some(machine) if machine.state == MachineState::Lost => {
                expired(WishEnd::Failed(machine.said.clone()), MachineStage::Ended)
            }
            Some(machine) if self.age > wish_max => {
                let end = WishEnd::Late { waited: self.age, said: machine.said.clone() };
                expired(end, MachineStage::Ending)
            }
            None if self.age > UNSEEN_MAX => expired(WishEnd::Unknown, MachineStage::Ended),
            _ => None,
        }
    }

    /// A machine that ends by itself, or waits for its turn again.
    fn judge_loss(&self) -> Option<Judgement> {
        let lost = |why: &str| Some(Judgement { event: MachineEvent::Lost(why.to_owned()), stage: MachineStage::Ended });
        let is_live = self.agent.is_some_and(|agent| agent.is_live);
        match self.seen? {
            None => lost("the substrate does not know it"),
            Some(machine) => match machine.state {
                MachineState::Lost => lost(&machine.said),
                MachineState::Asked | MachineState::Starting if !is_live => {
                    let stage = match self.record.stage {
                        MachineStage::Cordoned => MachineStage::Ending,
                        _ => MachineStage::Coming,
                    };
                    Some(Judgement { event: MachineEvent::WaitsAgain(machine.said.clone()), stage })
                }
                _ => None,
            },
        }
    }

    fn judge_silence(&self) -> Option<Judgement> {
        self.seen?;
        let silent_for = self.agent.map_or(self.age, |agent| agent.silent_for);
        let is_silent = silent_for > SILENT_MAX && !self.agent.is_some_and(|agent| agent.is_live);
        let why = format!("its agent is silent for {} s", silent_for.as_secs());
        is_silent.then_some(Judgement { event: MachineEvent::Lost(why), stage: MachineStage::Ending })
    }

    fn judge_end(&self) -> Option<Judgement> {
        let is_gone = self.seen?.is_none_or(|machine| machine.state == MachineState::Lost);
        is_gone.then_some(Judgement { event: MachineEvent::Ended, stage: MachineStage::Ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MachineStage::{Alive, Coming, Cordoned, Ended, Ending};
    use MachineState::{Asked, Lost, Running};

    const LIMITS: WishLimits = WishLimits { wish_max: Duration::from_secs(600), by_hardware: BTreeMap::new() };
    const NOW: Duration = Duration::from_secs(1_000_000);

    fn record(name: &str, stage: MachineStage, age_s: u64) -> MachineRecord {
        let since = NOW - Duration::from_secs(age_s);
        MachineRecord { name: name.into(), hardware: "t4".into(), devices: 2, stage, since }
    }

    fn agent(hardware: &str, silent_s: u64) -> MachineAgent {
        let silent_for = Duration::from_secs(silent_s);
        MachineAgent { hardware: hardware.into(), devices: 2, is_live: silent_s < 3, silent_for, is_used: true }
    }

    fn seen(name: &str, state: MachineState) -> ObservedMachine {
        let said = format!("{} as said", state.name());
        let (hardware, handle) = ("t4".into(), "17".into());
        ObservedMachine { name: name.into(), hardware, handle, state, left: None, limit: None, said }
    }

    /// The notes of one machine: its stage and age, its agent, and what the substrate shows.
    fn judge(stage: MachineStage, age_s: u64, agent: Option<MachineAgent>, shows: Option<MachineState>) -> Vec<String> {
        let agents = agent.map(|agent| ("m".to_owned(), agent)).into_iter().collect();
        let observed = shows.map(|state| ("m".to_owned(), seen("m", state))).into_iter().collect();
        let notes = reconcile(&[record("m", stage, age_s)], &agents, Some(&observed), &LIMITS, NOW);
        notes.iter().map(|note| format!("{:?} -> {}", note.event, note.stage.name())).collect()
    }

    #[test]
    fn a_wish_comes_true_or_expires_with_its_reason() {
        let came = ["Came { devices: 2, after: 30s } -> alive"];
        assert_eq!(judge(Coming, 30, Some(agent("t4", 0)), Some(Running)), came);
        assert_eq!(judge(Coming, 600, None, Some(Asked)), [""; 0], "it may still come");
        let late = judge(Coming, 601, None, Some(Asked));
        assert!(
            late[0].contains("Late { waited: 601s, said: \"asked as said\" }") && late[0].ends_with("ending"),
            "{late:?}"
        );
        let other = judge(Coming, 30, Some(agent("a100", 0)), Some(Running));
        assert!(other[0].contains("found: \"a100\", asked: \"t4\"") && other[0].ends_with("ending"), "{other:?}");
        let failed = judge(Coming, 30, None, Some(Lost));
        assert!(failed[0].contains("Failed(\"lost as said\")") && failed[0].ends_with("ended"), "{failed:?}");
        assert_eq!(judge(Coming, 60, None, None), [""; 0], "it may not be shown yet");
        assert_eq!(judge(Coming, 61, None, None), ["Expired(Unknown) -> ended"]);
    }

    #[test]
    fn a_type_that_comes_late_gets_more_time() {
        let longer = WishLimits { by_hardware: [("t4".to_owned(), Duration::from_secs(900))].into(), ..LIMITS };
        assert_eq!((longer.of("t4"), longer.of("a100")), (Duration::from_secs(900), LIMITS.wish_max));
        let shorter = WishLimits { by_hardware: [("t4".to_owned(), Duration::from_secs(9))].into(), ..LIMITS };
        assert_eq!(shorter.of("t4"), LIMITS.wish_max);
    }

    #[test]
    fn a_machine_is_lost_waits_again_or_ends() {
        assert_eq!(judge(Alive, 9, Some(agent("t4", 0)), Some(Running)), [""; 0]);
        assert_eq!(judge(Alive, 9, Some(agent("t4", 9)), Some(Lost)), ["Lost(\"lost as said\") -> ended"]);
        assert_eq!(judge(Cordoned, 9, None, None), ["Lost(\"the substrate does not know it\") -> ended"]);
        assert_eq!(judge(Alive, 9, Some(agent("t4", 9)), Some(Asked)), ["WaitsAgain(\"asked as said\") -> coming"]);
        assert_eq!(judge(Cordoned, 9, Some(agent("t4", 9)), Some(Asked)), ["WaitsAgain(\"asked as said\") -> ending"]);
        assert_eq!(judge(Ending, 9, None, Some(Running)), [""; 0]);
        assert_eq!(judge(Ending, 9, None, None), ["Ended -> ended"]);
        assert_eq!(judge(Ending, 9, None, Some(Lost)), ["Ended -> ended"]);
        assert_eq!(judge(Ended, 9, None, Some(Running)), [""; 0]);
    }

    #[test]
    fn a_substrate_without_an_answer_proves_nothing() {
        for stage in [Coming, Alive, Cordoned, Ending] {
            let records = [record("m", stage, 100_000)];
            let notes = reconcile(&records, &BTreeMap::new(), None, &LIMITS, NOW);
            assert!(notes.is_empty(), "{stage:?}: {notes:?}");
        }
        let agents = [("m".to_owned(), agent("t4", 0))].into();
        let notes = reconcile(&[record("m", Coming, 30)], &agents, None, &LIMITS, NOW);
        assert_eq!(notes.len(), 1, "an agent that comes is proof enough");
    }

    #[test]
    fn a_silent_agent_ends_its_machine_unless_most_are_silent() {
        let records: Vec<_> = ["a", "b", "c"].map(|name| record(name, Alive, 5_000)).into();
        let observed: BTreeMap<_, _> = ["a", "b", "c"].map(|name| (name.to_owned(), seen(name, Running))).into();
        let ended = |silent: &[&str]| {
            let of = |name: &str| agent("t4", if silent.contains(&name) { 121 } else { 0 });
            let agents = ["a", "b", "c"].map(|name| (name.to_owned(), of(name))).into();
            let notes = reconcile(&records, &agents, Some(&observed), &LIMITS, NOW);
            notes.iter().map(|note| format!("{} {}", note.name, note.stage.name())).collect::<Vec<_>>()
        };
        assert_eq!(ended(&["b"]), ["b ending"]);
        assert_eq!(ended(&["a", "b"]), [""; 0]);
    }
}
