//! Which replicas of the whole fleet can this agent use, and what does it announce of its own?

use super::peers::PeerTable;
use crate::layout::{self, Layout, LayoutPipeline};
use crate::node::replicas::{LocalReplica, LocalReplicas};
use crate::node::route::{ReadyRoutes, RouteConstraints, RouteDecision};
use crate::node::site::Site;
use crate::wire::{Announced, Message, PendingReplica, ReplicaLoad};
use apportion_domain::TimeSpan;
use apportion_serving::patience::{GIVE_UP_MIN, patience};
use std::sync::Arc;

/// Shortest time after which a request is given up.
pub const GIVE_UP_NS_MIN: u64 = GIVE_UP_MIN.as_nanos();
/// How long queries of a task wait for a plan with replicas of it after its last one was lost.
pub const REPAIR_NS: u64 = GIVE_UP_NS_MIN;
/// Longest time between two announcements of the replicas here, in nanoseconds.
const ANNOUNCE_NS: u64 = 400_000_000;
/// After a target has come, so long until an agent takes those that it cannot reach for lost: connections take a moment.
const SETTLE_NS: u64 = 2_000_000_000;

/// The target in force, the other agents, and the routes to all ready replicas.
pub struct FleetState {
    layout: Arc<Layout>,
    /// When the target in force came.
    target_ns: u64,
    peers: PeerTable,
    routes: ReadyRoutes,
    /// When the replicas here were last announced.
    announced_ns: u64,
    /// When the ready replicas last changed.
    changed_ns: u64,
}

impl FleetState {
    /// A fleet without a target, as an agent sees it.
    pub fn new(agent: u64) -> Self {
        Self {
            layout: Arc::default(),
            target_ns: 0,
            peers: PeerTable::default(),
            routes: ReadyRoutes::of(agent),
            announced_ns: 0,
            changed_ns: 0,
        }
    }

    /// The target in force, as it is steered.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// A pipeline of the target in force.
    pub fn pipeline(&self, name: &str) -> Option<&Arc<LayoutPipeline>> {
        self.layout.pipelines.get(name)
    }

    /// A new target comes into force: agents and pipelines that it does not have are forgotten.
    pub fn replace_target(&mut self, layout: &Arc<Layout>, now_ns: u64) {
        // An agent that is new to the fleet may have announced its replicas before the target that names it came here.
        let last = &self.layout.agents;
        self.peers.forget_lost(|agent| last.contains_key(&agent) && !layout.agents.contains_key(&agent));
        self.routes.keep(|pipeline| layout.pipelines.contains_key(pipeline));
        self.layout = layout.clone();
        self.target_ns = now_ns;
    }

    /// The target in force is steered: it has this form now.
    pub fn set_steered_layout(&mut self, layout: Layout) {
        self.layout = Arc::new(layout);
    }

    /// The other agents.
    pub fn peers(&self) -> &PeerTable {
        &self.peers
    }

    /// The other agents.
    pub fn peers_mut(&mut self) -> &mut PeerTable {
        &mut self.peers
    }

    /// The routes to the ready replicas.
    pub fn routes(&self) -> &ReadyRoutes {
        &self.routes
    }

    /// The routes to the ready replicas.
    pub fn routes_mut(&mut self) -> &mut ReadyRoutes {
        &mut self.routes
    }

    /// A place for a query, by the tables that are in force.
    pub fn place(&mut self, pipeline: &str, task: &str, way: &RouteConstraints) -> RouteDecision {
        let of = self.layout.pipelines.get(pipeline).map(AsRef::as_ref);
        self.routes.place(pipeline, of, task, way)
    }

    /// When the ready replicas last changed, in nanoseconds of the agent's clock.
    pub fn changed_ns(&self) -> u64 {
        self.changed_ns
    }

    /// Whether all tasks of a pipeline of the target can be reached.
    pub fn reaches_all_tasks(&self, pipeline: &str) -> bool {
        self.pipeline(pipeline).is_some_and(|p| p.tasks.iter().all(|t| self.routes.reaches(pipeline, &t.name)))
    }

    /// After how many nanoseconds a request of this pipeline is given up. Everything that waits for it waits as long.
    pub fn patience_ns(&self, pipeline: &str) -> u64 {
        let slo_ns = self.pipeline(pipeline).map_or(0, |p| p.slo_ns);
        patience(TimeSpan::from_nanos(slo_ns)).as_nanos()
    }

    /// Whether a target has come so lately that some agents may not have been heard of yet.
    pub fn is_settling(&self, now_ns: u64) -> bool {
        now_ns < self.target_ns + SETTLE_NS
    }

    /// Whether an agent is known to be there.
    pub fn is_reached(&self, site: &Site, agent: u64) -> bool {
        agent == site.agent() || self.peers.is_connected(agent)
    }

    /// Announces the replicas if that is due.
    pub fn announce_if_due(&mut self, site: &mut Site, replicas: &LocalReplicas) {
        if site.now_ns() >= self.announced_ns + ANNOUNCE_NS {
            self.announce(site, replicas);
        }
    }

    /// Says to all peers which replicas here take queries.
    pub fn announce(&mut self, site: &mut Site, replicas: &LocalReplicas) {
        self.announced_ns = site.now_ns();
        let ready: Vec<Announced> = replicas.ready().map(LocalReplica::announcement).collect();
        let coming: Vec<PendingReplica> = replicas.iter().filter_map(LocalReplica::coming_announcement).collect();
        let yielding = replicas.yielding();
        let loads: Vec<(u64, ReplicaLoad)> = replicas.ready().map(|r| (r.id, r.load())).collect();
        let failed: Vec<u64> = replicas.ids(LocalReplica::has_failed);
        for listener in self.peers.listeners() {
            let (replicas, coming, yielding) = (ready.clone(), coming.clone(), yielding.clone());
            let (loads, failed) = (loads.clone(), failed.clone());
            let ready = Message::Ready { agent: site.agent(), replicas, coming, yielding, loads, failed };
            site.send(listener, ready);
        }
    }

    /// Makes the routes anew from the replicas that are ready, here and at other agents.
    pub fn reroute(&mut self, site: &Site, replicas: &LocalReplicas) {
        let own = site.agent();
        let here = replicas.ready().map(|r| (own, r.announcement()));
        // An agent that is not in the target keeps its connection, for the requests that it has sent, but gets nothing new.
        let usable = |agent: u64| agent != own && self.layout.agents.contains_key(&agent);
        let connected = self.peers.connected().filter(|(agent, _)| usable(*agent));
        let there = connected.flat_map(|(agent, announced)| announced.ready.iter().map(move |r| (agent, r.clone())));
        self.routes.set(site.now_ns(), here.chain(there));
        // Queries without another replica go to one that drains here: it still serves the queries that it is given.
        for draining in replicas.iter().filter(|r| r.is_up() && !r.takes_queries()) {
            self.routes.add_last(own, draining.announcement());
        }
        self.changed_ns = site.now_ns();
    }

    /// Whether a task that had ready replicas, and has none now, gets one again. So it is in two cases: a replica is loaded
    /// or about to be; or the last one was lost so lately that a new plan may be on its way. Queries wait for that.
    pub fn is_coming(&self, site: &Site, replicas: &LocalReplicas, pipeline: &str, task: &str) -> bool {
        let Some(of) = self.pipeline(pipeline) else { return false };
        let Some(at) = of.position(task) else { return false };
        let is_loading = |id: u64| {
            let here = replicas.get(id).is_some_and(|r| r.coming_announcement().is_some());
            here || self.peers.connected().any(|(_, announced)| announced.coming.iter().any(|c| c.replica == id))
        };
        let Some(lost_ns) = self.routes.lost_ns(pipeline, task) else { return false };
        // Others' replicas of a new target are not known to be coming before those agents have said so.
        let is_new = self.is_settling(site.now_ns()) || site.now_ns() < lost_ns + REPAIR_NS;
        of.replicas.iter().filter(|r| of.groups[&r.group].task == at).any(|r| is_new || is_loading(r.id))
    }

    /// Whether a replica takes queries, as its agent says.
    pub fn serves(&self, site: &Site, replicas: &LocalReplicas, agent: u64, id: u64) -> bool {
        if agent == site.agent() {
            return replicas.get(id).is_some_and(LocalReplica::takes_queries);
        }
        let announced = self.peers.announcement(agent);
        announced.is_some_and(|announced| announced.ready.iter().any(|ready| ready.replica == id))
    }

    /// Whether a replica is slower than profiled though it is not overloaded, as its agent says.
    pub fn is_disturbed(&self, site: &Site, replicas: &LocalReplicas, place: &layout::LayoutReplica) -> bool {
        if place.agent == site.agent() {
            return replicas.get(place.id).is_some_and(|r| r.load().is_disturbed);
        }
        let announced = self.peers.announcement(place.agent);
        announced.and_then(|announced| announced.loads.get(&place.id)).is_some_and(|load| load.is_disturbed)
    }

    /// Whether a replica was said to have failed by the agent that should have it.
    pub fn has_failed(&self, site: &Site, replicas: &LocalReplicas, agent: u64, id: u64) -> bool {
        let here = agent == site.agent() && replicas.get(id).is_some_and(LocalReplica::has_failed);
        here || self.peers.has_failed(agent, id)
    }
}
