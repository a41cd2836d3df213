//! New stations and servers, for replicas that begin to serve.

use super::deployment::Deployment;
use super::replicas::ReplicaLocation;
use crate::state::query::SimulatedQuery;
use crate::state::serving::{StartRank, StationInfo};
use crate::state::{RunState, ServerId};
use apportion_serving::Station;

/// Adds stations and servers to a run.
pub struct NewStations<'s, 'a> {
    /// The run.
    pub run: &'s mut RunState,
    /// The plan in force and its replicas.
    pub deployment: &'s mut Deployment<'a>,
}

impl NewStations<'_, '_> {
    /// Adds the servers of one replica, one for each of its slots, at a group's central queue.
    pub fn add_server(&mut self, group: usize) -> ReplicaLocation {
        let group = &mut self.deployment.replicas.groups[group];
        let station = group.stations[0];
        let run = &mut *self.run;
        let machine = &run.serving.stations[station as usize];
        let slots = group.slots;
        let is_free = |server: u32| machine.is_gone(server) && !run.stale.contains(ServerId { station, server });
        // The station knows no more servers than were ever numbered, so one of the first numbers is free.
        let mut firsts = (0..group.numbered).step_by(slots as usize);
        let first = firsts.find(|&s| (s..s + slots).all(is_free)).unwrap_or(group.numbered);
        if first >= group.numbered {
            let info: &mut StationInfo = &mut run.serving.infos[station as usize];
            let (old, numbered) = (info.server..info.server + group.numbered, 2 * group.numbered + slots);
            info.server = run.statistics.add_servers(old, numbered);
            group.numbered = numbered;
        }
        for server in first..first + slots {
            run.serving.add_server(run.now, station, server);
        }
        ReplicaLocation { station, server: first }
    }

    /// Adds a station to a group whose replicas have queues of their own. A station without a replica is used again.
    pub fn add_station(&mut self, group: usize) -> ReplicaLocation {
        let of_group = &mut self.deployment.replicas.groups[group];
        if let Some(station) = of_group.free.pop() {
            return ReplicaLocation { station, server: 0 };
        }
        let station = self.run.serving.stations.len() as u32;
        let router = self.run.serving.routers.len() as u32;
        let compiled = of_group.group as usize;
        let edges = self.run.groups[compiled].edges.len();
        let phase = of_group.stations.len() as u32;
        let sibling = of_group.stations.first().map(|&s| self.run.serving.infos[s as usize].router as usize);
        for edge in 0..edges {
            let to = self.run.groups[compiled].edges[edge].to;
            let copy = match sibling {
                Some(first) => self.run.serving.routers[first + edge].as_ref().map(|r| r.for_another_sender(phase)),
                None => self.deployment.routers(self.run).new_router(group, to),
            };
            self.run.serving.routers.push(copy);
        }
        let of_group = &mut self.deployment.replicas.groups[group];
        let server = self.run.statistics.add_servers(0..0, of_group.slots);
        of_group.stations.push(station);
        let (pipeline, task_in_pipeline) = (of_group.pipeline, of_group.task);
        let (group_at, has_slots) = (of_group.group, self.run.groups[compiled].has_slots);
        let info = StationInfo { group: group_at, pipeline, task_in_pipeline, router, server, has_slots, joined: 0 };
        let prototype = of_group.prototype.clone();
        self.put_station(group, prototype, info);
        ReplicaLocation { station, server: 0 }
    }

    /// Puts the newest station of a group where it belongs in the order in which stations start.
    pub fn put_station(&mut self, group: usize, machine: Station<SimulatedQuery>, info: StationInfo) {
        let station = self.run.serving.stations.len() as u32;
        let groups = &self.deployment.replicas.groups;
        if self.run.serving.ranks.is_empty() {
            let ranked = groups.iter().flat_map(|g| {
                let rank = |(at, &station): (usize, &u32)| (station, g.rank(at));
                g.stations.iter().enumerate().map(rank).collect::<Vec<_>>()
            });
            let mut ranked: Vec<(u32, StartRank)> = ranked.filter(|(ranked, _)| *ranked < station).collect();
            ranked.sort_unstable();
            self.run.serving.ranks = ranked.into_iter().map(|(_, rank)| rank).collect();
        }
        let group = &groups[group];
        self.run.serving.ranks.push(group.rank(group.stations.len() - 1));
        self.run.serving.stations.push(machine);
        self.run.serving.infos.push(info);
        self.run.pipelines[info.pipeline as usize].stations.push(station);
        if let Some(modules) = self.run.modules.of_pipeline(info.pipeline) {
            modules.stations.push(station);
            let steward = self.deployment.stewards.get(info.pipeline as usize).and_then(Option::as_ref);
            let of_steward = steward.and_then(|s| s.view(info.task_in_pipeline));
            let view = of_steward.unwrap_or_else(|| modules.planner.view(info.task_in_pipeline as usize));
            self.run.serving.set_view(self.run.now, station, view);
        }
    }
}
