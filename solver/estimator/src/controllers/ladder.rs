//! Plans' own ladders in the loop of a run.

use super::TUNER_PERIOD;
use crate::scenario::{Controller, Event, GroupSeen, Observation};
use apportion_domain::{PipelinePlan, Plan, Problem, Span};
use apportion_serving::Ladder;

struct Climber {
    /// By pipeline of the problem, if its plan has a ladder.
    ladders: Vec<Option<(Ladder, PipelinePlan)>>,
}

/// The ladders of the pipelines whose plans have one; `None` if none has. A plan that comes later brings no ladder of its own.
#[must_use]
pub fn ladder(problem: &Problem, plan: &Plan) -> Option<Box<dyn Controller>> {
    let of = |name: &str| {
        let part = plan.pipeline(name).filter(|part| !part.ladder.is_empty())?;
        let replicas = part.assignments.iter().map(|a| a.replicas).collect();
        Some((Ladder::new(part.ladder.clone(), replicas, 1.0), part.clone()))
    };
    let ladders: Vec<_> = problem.pipelines.iter().map(|p| of(&p.name)).collect();
    ladders.iter().any(Option::is_some).then(|| Box::new(Climber { ladders }) as Box<dyn Controller>)
}

impl Controller for Climber {
    fn period(&self) -> Span {
        TUNER_PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(Span, Event)> {
        let mut commands = Vec::new();
        for (of, arrivals) in self.ladders.iter_mut().zip(&seen.arrivals) {
            let Some((ladder, part)) = of else { continue };
            arrivals.iter().for_each(|&(at, count)| ladder.arrived(at, count));
            let Some(replicas) = ladder.decide(seen.at) else { continue };
            for (a, &wanted) in part.assignments.iter().zip(replicas) {
                let is_it = |g: &&GroupSeen| g.pipeline == part.name && g.group == a.group;
                commands.extend(seen.groups.iter().find(is_it).map(|group| (Span::ZERO, group.to_have(wanted))));
            }
        }
        commands
    }
}
