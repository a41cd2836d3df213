//! What becomes of the requests that wait for variants?
//!
//! Example: three requests wait for a group. Its replica becomes ready, and the three of them run.

use super::accept::DueRun;
use super::arrival::{AcceptedArrival, Arrival};
use super::state::GatewayState;
use super::waiting::{TurnedAway, WaitTerms, WaitingRequest};
use crate::chooser::UnmetNeeds;
use crate::layout::LayoutPipeline;
use crate::node::fleet::FleetState;
use crate::node::replicas::LocalReplicas;
use crate::node::request::RequestAnswer;
use crate::node::site::Site;
use crate::node::tallies::Tallies;

/// What becomes of a request that waits.
enum NextStep {
    Run(AcceptedArrival),
    Wait(WaitingRequest),
    Answer(RequestAnswer),
}

impl GatewayState {
    /// A request that nothing loaded serves: it is answered, or waits for what could be loaded.
    pub(super) fn answer_or_wait(&mut self, arrival: Arrival, unmet: UnmetNeeds, of: &WaitTerms<'_>, site: &mut Site) {
        let caller = arrival.caller;
        let unloaded = match unmet {
            UnmetNeeds::Never(why) => return site.answer(caller, RequestAnswer::Unmet(why)),
            UnmetNeeds::NotNow(why) => return site.answer(caller, RequestAnswer::NotReady(why)),
            UnmetNeeds::Unloaded(unloaded) => unloaded,
        };
        if !unloaded.is_loading {
            self.waiting.say_want(&arrival, &unloaded.groups, site);
        }
        if let Err(TurnedAway { caller, why }) = self.waiting.add(arrival, unloaded, of, site.now_ns()) {
            site.answer(caller, RequestAnswer::NotReady(why));
        }
    }

    /// Looks at the requests that wait: which of them can run now? The others are answered if they wait in vain.
    pub fn resume_waiting(
        &mut self,
        site: &mut Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
        tallies: &mut Tallies,
    ) -> Vec<DueRun> {
        let now_ns = site.now_ns();
        self.waiting.forget_old_wants(now_ns);
        if self.waiting.may_rest(now_ns, fleet.changed_ns()) {
            return Vec::new();
        }
        self.report_loads(site, fleet, replicas);
        let mut due = Vec::new();
        for waiting in self.waiting.take(now_ns, fleet.changed_ns()) {
            let caller = waiting.arrival.caller;
            match self.next_step(waiting, site, fleet, replicas) {
                NextStep::Run(accepted) => due.extend(self.admit(accepted, site, fleet, replicas, tallies)),
                NextStep::Wait(waiting) => self.waiting.put_back(waiting),
                NextStep::Answer(answer) => site.answer(caller, answer),
            }
        }
        due
    }

    fn next_step(
        &mut self,
        waiting: WaitingRequest,
        site: &mut Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
    ) -> NextStep {
        let now_ns = site.now_ns();
        let in_vain = |why: &str| NextStep::Answer(RequestAnswer::NotReady(format!("{} {why}", waiting.variants)));
        if site.is_leaving() {
            return NextStep::Answer(RequestAnswer::NotReady("this agent is stopping".into()));
        }
        if now_ns >= waiting.until_ns {
            let is_timed = waiting.is_timed_out(now_ns);
            return if is_timed { NextStep::Answer(RequestAnswer::TimedOut) } else { in_vain("was not ready in time") };
        }
        match self.choose_for(&waiting.arrival, site, fleet, replicas) {
            Ok(chosen) => {
                let WaitingRequest { arrival, arrived_ns, .. } = waiting;
                NextStep::Run(AcceptedArrival { arrival, chosen, arrived_ns })
            }
            Err(UnmetNeeds::Never(why)) => NextStep::Answer(RequestAnswer::Unmet(why)),
            Err(UnmetNeeds::NotNow(why)) => {
                let is_coming = fleet.pipeline(&waiting.arrival.pipeline).is_some_and(|of| has_any(of, &waiting.groups));
                if is_coming { NextStep::Wait(waiting) } else { NextStep::Answer(RequestAnswer::NotReady(why)) }
            }
            Err(UnmetNeeds::Unloaded(unloaded)) if unloaded.is_loading => NextStep::Wait(waiting),
            Err(UnmetNeeds::Unloaded(_)) if waiting.is_unanswered(now_ns) => {
                in_vain("would do, and the service has not loaded it (GET /v1/events?kind=on-demand has the reason)")
            }
            Err(UnmetNeeds::Unloaded(unloaded)) => {
                self.waiting.say_want(&waiting.arrival, &unloaded.groups, site);
                NextStep::Wait(WaitingRequest { groups: unloaded.groups, variants: unloaded.variants, ..waiting })
            }
        }
    }
}

/// Whether the target has a replica of one of these groups.
fn has_any(of: &LayoutPipeline, groups: &[u64]) -> bool {
    of.replicas.iter().any(|r| groups.contains(&r.group))
}
