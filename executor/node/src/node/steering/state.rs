//! Who adapts a pipeline to its load between two plans?
//!
//! The first live agent of the target's list hosts the steward of each steered pipeline. All agents send it their
//! measurements and apply its decisions. So the fleet follows a changing load while the control plane is away. When the
//! host is lost, the next agent takes over with a higher term. A new target ends the steering of the last one. It keeps
//! the observed load and the extra replicas.

use super::hosted::{HostedHeadroom, HostedSteward};
use super::lost::LostAgents;
use super::outcomes::FleetOutcomes;
use crate::layout::Layout;
use crate::node::fleet::FleetState;
use crate::node::site::Site;
use crate::node::traffic::TrafficState;
use crate::steering::{TERM_BITS, find_room, free_shares};
use apportion_protocol::v1;
use apportion_serving::Steward;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often arrivals are told to the host.
const REPORT_NS: u64 = 100_000_000;
/// How often the rest is told, and the steering in force is sent again.
const PERIOD_NS: u64 = 1_000_000_000;

/// What is due for a steered pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DueReport {
    /// Its arrivals are reported.
    Arrivals,
    /// Everything is reported, and the steering in force is sent again.
    Everything,
}

/// A steward that this agent hosted for the last target.
pub struct FormerSteward {
    /// The steward.
    pub steward: Steward,
    /// The numbers of its groups, by position.
    pub groups: Vec<u64>,
    /// The requests that ended at all gateways.
    pub outcomes: FleetOutcomes,
}

/// The steering of this agent's pipelines.
#[derive(Default)]
pub struct SteeringState {
    /// The target as it was commanded.
    pub(super) plan: Arc<Layout>,
    /// The pipelines that follow their load.
    pub(super) steered: BTreeSet<String>,
    /// The pipelines whose stewards this agent hosts.
    pub(super) hosted: BTreeMap<String, HostedSteward>,
    pub(super) former: BTreeMap<String, FormerSteward>,
    /// The steering in force, by pipeline.
    pub(super) applied: BTreeMap<String, v1::Steering>,
    pub(super) lost: LostAgents,
    reported_ns: u64,
    period_ns: u64,
}

impl SteeringState {
    /// Time has passed: reports, and for the host, the stewards' next steps.
    pub fn tick(&mut self, traffic: &mut TrafficState) {
        if self.steered.is_empty() || traffic.site.is_leaving() {
            return;
        }
        self.lost.note(&traffic.site, &traffic.fleet);
        let Some(host) = self.host(&traffic.site, &traffic.fleet) else { return };
        if host == traffic.site.agent() {
            self.take_over(&traffic.site);
        } else {
            self.hosted.clear();
        }
        let now_ns = traffic.site.now_ns();
        // By the clock and not by the time since the last: a tick that comes late must not lengthen all periods after it.
        let is_period = now_ns / PERIOD_NS > self.period_ns / PERIOD_NS;
        let due = if is_period { DueReport::Everything } else { DueReport::Arrivals };
        if now_ns / REPORT_NS > self.reported_ns / REPORT_NS {
            self.reported_ns = now_ns;
            self.report(host, due, traffic);
            for pipeline in self.hosted.keys().cloned().collect::<Vec<_>>() {
                self.decide(&pipeline, due, traffic);
            }
            if is_period {
                self.period_ns = now_ns;
            }
        }
    }

    /// The headrooms of the ladders of hosted stewards that the misses move, by pipeline.
    pub fn headrooms(&self) -> impl Iterator<Item = (&String, HostedHeadroom)> {
        self.hosted.iter().filter_map(|(name, hosted)| Some((name, hosted.headroom()?)))
    }

    /// The agent that hosts the stewards: the first of the target's list that lives.
    fn host(&self, site: &Site, fleet: &FleetState) -> Option<u64> {
        fleet.layout().agents.keys().copied().find(|agent| self.lost.is_live(site, fleet, *agent))
    }

    /// Hosts the stewards that are not hosted here yet, above all epochs that were seen.
    fn take_over(&mut self, site: &Site) {
        let room = find_room(&self.plan, &free_shares(&self.plan, |_| true));
        let idle = self.steered.iter().filter(|name| !self.hosted.contains_key(*name)).cloned();
        for name in idle.collect::<Vec<_>>() {
            let Some(of) = self.plan.pipelines.get(&name) else { continue };
            let last = self.applied.get(&name).cloned().unwrap_or_default();
            let epoch = ((last.epoch >> TERM_BITS) + 1) << TERM_BITS;
            // Replicas that another host has added, or released, stay so until this one has seen the load.
            let wanted = of.replicas_under(&last);
            match Steward::new(of.steward_config(room, &last), site.now(), epoch) {
                Ok(mut steward) => {
                    let mut outcomes = FleetOutcomes::default();
                    if let Some(former) = self.former.remove(&name) {
                        let was = |id: u64| former.groups.iter().position(|g| *g == id);
                        let positions: Vec<_> = of.staffed().iter().map(|staffed| was(staffed.id)).collect();
                        steward.inherit(&former.steward, &positions);
                        outcomes = former.outcomes.of_agents(&self.plan.agents);
                    }
                    tracing::info!(pipeline = name, term = epoch >> TERM_BITS, "this agent steers");
                    let last = v1::Steering { host: site.agent(), epoch, ..last };
                    let hosted = HostedSteward { outcomes, ..HostedSteward::new(steward, wanted, last, site.now_ns()) };
                    self.hosted.insert(name, hosted);
                }
                Err(error) => tracing::error!(pipeline = name, %error, "it cannot be steered"),
            }
        }
    }
}
