//! Which requests does the gateway accept, and when does it run one of them again?

use super::arrival::{AcceptedArrival, Arrival};
use super::choosers::RequestWithNeeds;
use super::pending::Pending;
use super::state::{AGAIN_SLO_PARTS, GatewayState};
use super::waiting::WaitTerms;
use crate::chooser::{AskedChoice, ChosenVariants, UnmetNeeds};
use crate::layout::LayoutPipeline;
use crate::node::fleet::{FleetState, GIVE_UP_NS_MIN};
use crate::node::replicas::LocalReplicas;
use crate::node::request::RequestAnswer;
use crate::node::site::Site;
use crate::node::tallies::Tallies;
use crate::policies::LEVEL_OFFLINE;
use crate::tensor::Tensor;

/// How long an offline request without a timeout waits for its answer, in nanoseconds.
const OFFLINE_PATIENCE_NS: u64 = 3_600_000_000_000;

/// A run of a request that is due.
pub struct DueRun {
    /// The gateway's number of the request.
    pub request: u64,
    /// Name of the task at which it begins.
    pub root: String,
}

impl GatewayState {
    /// Accepts a request, whose first run is then due; or answers it at once.
    pub fn accept(
        &mut self,
        arrival: Arrival,
        site: &mut Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
        tallies: &mut Tallies,
    ) -> Option<DueRun> {
        let name = &arrival.pipeline;
        let Some(pipeline) = fleet.pipeline(name) else {
            site.answer(arrival.caller, RequestAnswer::NotReady(format!("pipeline {name} is not in the target")));
            return None;
        };
        assert!(rows_of(&arrival.inputs) > 0, "the gateway refuses empty requests");
        match self.choose_for(&arrival, site, fleet, replicas) {
            Ok(chosen) => {
                let accepted = AcceptedArrival { arrival, chosen, arrived_ns: site.now_ns() };
                self.admit(accepted, site, fleet, replicas, tallies)
            }
            Err(unmet) => {
                let choices = &mut tallies.requests_of(name.clone()).choices;
                match &unmet {
                    UnmetNeeds::Never(_) => choices.unmet += 1,
                    UnmetNeeds::NotNow(_) => choices.not_ready += 1,
                    UnmetNeeds::Unloaded(_) => choices.unloaded += 1,
                }
                let terms = WaitTerms { pipeline, patience_ns: fleet.patience_ns(name) };
                self.answer_or_wait(arrival, unmet, &terms, site);
                None
            }
        }
    }

    /// The variants for a request that says what it needs.
    pub(super) fn choose_for(
        &mut self,
        arrival: &Arrival,
        site: &Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
    ) -> Result<Option<ChosenVariants>, UnmetNeeds> {
        let Some(needs) = arrival.terms.needs else { return Ok(None) };
        let asked = AskedChoice { needs, variants: &arrival.terms.variants };
        let asking = RequestWithNeeds { pipeline: &arrival.pipeline, asked, rows: rows_of(&arrival.inputs) };
        self.choosers.choose(site.now(), &asking, fleet, replicas).map(Some)
    }

    /// Takes a request whose variants are chosen: its first run is due, unless its pipeline cannot be reached.
    pub(super) fn admit(
        &mut self,
        accepted: AcceptedArrival,
        site: &mut Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
        tallies: &mut Tallies,
    ) -> Option<DueRun> {
        let arrival = &accepted.arrival;
        let (name, caller) = (&arrival.pipeline, arrival.caller);
        let pipeline = fleet.pipeline(name)?;
        // Offline requests take the capacity that is left over: nothing is planned for them.
        if arrival.terms.level != LEVEL_OFFLINE {
            tallies.count_offered(name, rows_of(&arrival.inputs), site.now_ns());
        }
        let counts = tallies.requests_of(name.clone());
        if let Some(chosen) = &accepted.chosen {
            counts.choices.made += 1;
            counts.choices.regret_nano += chosen.regret_nano;
        }
        let root = pipeline.tasks[pipeline.root].name.clone();
        if let Some(why) = why_not_ready(name, &root, site, fleet, replicas) {
            counts.failed += 1;
            site.answer(caller, RequestAnswer::NotReady(why));
            return None;
        }
        let request = self.requests.insert(pending(accepted, pipeline, site.now_ns(), fleet));
        Some(DueRun { request, root })
    }

    /// After the loss of an agent: requests that stay unanswered for a part of their SLO are run again. Most of them never
    /// touched the lost agent and are answered before.
    pub fn plan_retries(&mut self, site: &Site, fleet: &FleetState) {
        let slo_ns = |pipeline: &str| fleet.pipeline(pipeline).map_or(0, |p| p.slo_ns);
        self.requests.plan_retries(|pipeline| site.now_ns() + slo_ns(pipeline) / AGAIN_SLO_PARTS);
    }

    /// Whether any request may be due to run again or to be given up. To look at each of many at every tick would take
    /// longer than to serve them.
    pub fn is_any_due(&self, site: &Site) -> bool {
        self.requests.is_any_due(site.now_ns())
    }

    /// The requests whose next run is due.
    pub fn due_retries(&self, site: &Site) -> Vec<u64> {
        self.requests.due_retries(site.now_ns())
    }

    /// The next run of a request; none while its pipeline cannot be reached, or if it has its answer.
    pub fn prepare_retry(
        &mut self,
        request: u64,
        site: &Site,
        fleet: &FleetState,
        replicas: &LocalReplicas,
    ) -> Option<DueRun> {
        let pending = self.requests.get_mut(request)?;
        let pipeline = fleet.pipeline(&pending.pipeline);
        let root = pipeline.map(|p| p.tasks[p.root].name.clone());
        let Some(root) = root.filter(|root| fleet.routes().reaches(&pending.pipeline, root)) else {
            // While no agent takes it, the first run may still come back; to fail now would be too early.
            pending.again_ns = Some(site.now_ns() + pipeline.map_or(GIVE_UP_NS_MIN, |p| p.slo_ns) / AGAIN_SLO_PARTS);
            return None;
        };
        pending.again_ns = None;
        // The variants of the request may have gone with the lost agent: others that meet its needs are taken, if there
        // are any.
        if let Some(needs) = pending.terms.needs {
            let asked = AskedChoice { needs, variants: &pending.terms.variants };
            let asking = RequestWithNeeds { pipeline: &pending.pipeline, asked, rows: rows_of(&pending.inputs) };
            if let Ok(chosen) = self.choosers.choose(site.now(), &asking, fleet, replicas) {
                pending.chosen = Some(chosen);
            }
        }
        tracing::debug!(request, "a request is run again because an agent was lost");
        Some(DueRun { request, root })
    }

    /// All due requests were handled: finds the moment at which the next one is due.
    pub fn find_next_due(&mut self) {
        self.requests.find_next_due();
    }
}

/// Why a request cannot run now, if so.
fn why_not_ready(name: &str, root: &str, site: &Site, fleet: &FleetState, replicas: &LocalReplicas) -> Option<String> {
    if site.is_leaving() {
        return Some("this agent is stopping".into());
    }
    let is_served = fleet.routes().reaches(name, root) || fleet.is_coming(site, replicas, name, root);
    (!is_served).then(|| format!("no replica of task {root} is ready"))
}

/// The rows of a request.
fn rows_of(inputs: &[Tensor]) -> u32 {
    inputs.first().map_or(0, Tensor::rows) as u32
}

/// A request that waits for its parts from now on. Its deadline counts from now, but for the timeout that it came with: the
/// time of a load is not the pipeline's.
fn pending(accepted: AcceptedArrival, of: &LayoutPipeline, now_ns: u64, fleet: &FleetState) -> Pending {
    let AcceptedArrival { arrival, chosen, arrived_ns } = accepted;
    let Arrival { pipeline, inputs, terms, caller } = arrival;
    let is_offline = terms.level == LEVEL_OFFLINE;
    let patience_ns = if is_offline { OFFLINE_PATIENCE_NS } else { fleet.patience_ns(&pipeline) };
    let waited_ns = now_ns.saturating_sub(arrived_ns);
    let timeout_ns = terms.timeout_ns.map_or(u64::MAX, |ns| ns.saturating_sub(waited_ns));
    let needed_ns = terms.needs.map_or(u64::MAX, |n| n.latency_ns_max);
    let slo_ns = if is_offline { OFFLINE_PATIENCE_NS } else { of.slo_ns };
    let is_timed = terms.timeout_ns.is_some() && timeout_ns <= patience_ns;
    Pending {
        pipeline,
        inputs,
        terms,
        chosen,
        arrived_ns,
        deadline_ns: now_ns.saturating_add(timeout_ns.min(needed_ns).min(slo_ns)),
        give_up_ns: now_ns.saturating_add(timeout_ns.min(patience_ns)),
        is_timed,
        caller,
        attempts: Vec::new(),
        again_ns: None,
    }
}
