//! Another plan comes into force during a run.

use crate::SimulateError;
use crate::blueprint::Blueprint;
use crate::changes::Changes;
use crate::crews::{Crew, Dead, Seat};
use crate::driver::Run;
use crate::fleet::{Place, Query, check_plan};
use apportion_domain::{Assignment, GroupName, Plan, Span, TaskIndex};
use apportion_serving::outline::provided;
use apportion_serving::router::{Part, Serving};
use apportion_serving::{Router, Station};

/// What one sender does with the groups of one task.
pub(crate) struct Sent {
    /// By group.
    pub parts: Vec<Part>,
    /// Times of full batches; empty where nothing is rerouted.
    pub execution: Vec<Span>,
    /// Positions of groups with capacity to spare.
    pub backup: Vec<u32>,
}

impl<'a> Run<'a> {
    /// Brings the plan of the start into force: from now on routers know what is planned.
    pub(crate) fn plan_routers(&mut self, changes: &Changes<'a>) {
        (0..self.lines.len()).for_each(|line| self.plan_routers_of(changes, line));
    }

    /// A plan comes into force: all of it, or nothing if it does not fit.
    pub(crate) fn adopt(&mut self, changes: &mut Changes<'a>, plan: &Plan) -> Result<(), SimulateError> {
        let mut parts = Vec::new();
        for (line, old) in changes.blueprints.iter().enumerate() {
            let Some(old) = old else { continue };
            check_plan(old.problem, plan)?;
            let Some(part) = plan.pipeline(&old.pipeline.name) else { continue };
            let name = &old.pipeline.name;
            let serving = if changes.is_served_as_asked { old.serving } else { part.serving };
            if serving.queueing != old.serving.queueing {
                let what = format!("pipeline {name:?}: another plan may not change where queries wait (`queueing`)");
                return Err(SimulateError::Plan(what));
            }
            let new = old.another(part, serving)?;
            // What cannot fail later.
            new.state_planner()?;
            for (task, (was, is)) in old.by_task().iter().zip(new.by_task()).enumerate() {
                if is.is_empty() && !was.is_empty() {
                    return Err(new.without_replicas(TaskIndex(task)));
                }
            }
            new.routes()?;
            parts.push((line, new));
        }
        for (_, new) in &parts {
            refuse_other_slots(changes, new)?;
        }
        changes.plans += 1;
        for (line, blueprint) in parts {
            self.install(changes, line, blueprint)?;
        }
        Ok(())
    }

    fn install(&mut self, changes: &mut Changes<'a>, line: usize, b: Blueprint<'a>) -> Result<(), SimulateError> {
        let is_served_otherwise = changes.blueprints[line].as_ref().is_some_and(|old| old.serving != b.serving);
        let before: Vec<(u32, u32)> = changes.crews.crews.iter().map(|c| (c.wanted, c.batch)).collect();
        let added = added(changes, line, &b);
        for crew in changes.crews.crews.iter_mut().filter(|c| c.line as usize == line) {
            crew.wanted = 0;
            crew.is_planned = false;
        }
        for (task, of_task) in b.by_task().into_iter().enumerate() {
            for a in of_task {
                match changes.crews.find(&b.pipeline.name, &a.group) {
                    Some(at) => self.keep_group(changes, (at, TaskIndex(task)), &b, a),
                    None => self.new_group(changes, (line, TaskIndex(task)), &b, a)?,
                }
            }
        }
        let added = if b.part.ladder.is_empty() { fitting(added, changes) } else { added };
        added.into_iter().for_each(|(crew, more)| changes.crews.crews[crew].wanted += more);
        self.open_tasks(changes, line);
        if is_served_otherwise {
            self.serve_by(changes, line, &b)?;
        }
        let crews = changes.crews.crews.iter().enumerate();
        changes.changed += crews.filter(|(at, c)| before.get(*at) != Some(&(c.wanted, c.batch))).count() as u64;
        changes.blueprints[line] = Some(b);
        self.plan_routers_of(changes, line);
        self.plan_states(changes, line)?;
        for at in 0..changes.crews.crews.len() {
            if changes.crews.crews[at].line as usize == line && changes.crews.crews[at].position == 0 {
                self.retarget_task(changes, at);
            }
        }
        self.connect(changes, line);
        self.start_steward(changes, line)
    }

    /// Tasks that never had a replica get a queue in which what comes waits for the first one.
    fn open_tasks(&mut self, changes: &mut Changes<'a>, line: usize) {
        let has_no_place = |c: &Crew| c.counted() + c.leaving.len() + c.dead.len() == 0;
        for at in 0..changes.crews.crews.len() {
            let crew = &changes.crews.crews[at];
            let is_first = crew.line as usize == line && crew.position == 0;
            if !is_first || !changes.crews.of_task(crew.line, crew.task).all(has_no_place) {
                continue;
            }
            let seat =
                if crew.is_central { Seat { station: crew.stations[0], server: 0 } } else { self.add_station(changes, at) };
            let crew = &mut changes.crews.crews[at];
            if !crew.is_central {
                self.end_servers(seat.station, crew.servers(seat));
            }
            crew.dead.push(Dead::closed(seat));
        }
    }

    /// A group that had replicas before gets its number and its batch.
    fn keep_group(&mut self, changes: &mut Changes<'a>, (at, task): (usize, TaskIndex), b: &Blueprint<'a>, a: &Assignment) {
        let crew = &mut changes.crews.crews[at];
        crew.wanted = a.replicas;
        crew.is_planned = true;
        let batcher = b.batcher(task, a.batch);
        let is_same = crew.prototype.batcher() == batcher;
        let Some(service) = b.service(a).filter(|_| !is_same) else { return };
        crew.batch = a.batch;
        crew.execution = service.last().copied().unwrap_or(Span::ZERO);
        let group = &mut self.groups[crew.group_at as usize];
        group.budget = b.budget(crew.execution);
        group.service.clone_from(&service);
        if let (Some(spread), Some(law)) = (&mut group.spread, b.law(task, a)) {
            spread.law = law;
        }
        crew.prototype.reconfigure(batcher, service.clone());
        for &station in &crew.stations {
            self.floor.stations[station as usize].reconfigure(batcher, service.clone());
            self.floor.settle(self.now, station, |_, _| {});
        }
    }

    /// A group that no plan had before. Where its replicas share a queue, the queue is there before the first of them.
    fn new_group(
        &mut self,
        changes: &mut Changes<'a>,
        (line, task): (usize, TaskIndex),
        b: &Blueprint<'a>,
        a: &Assignment,
    ) -> Result<(), SimulateError> {
        let group = b.group((line as u32, &self.lines[line]), task, a, &mut self.streams)?;
        let (group_at, crew_at) = (self.groups.len() as u32, changes.crews.crews.len());
        let prototype = b.station(&group, task, a, if b.is_central() { 0 } else { group.slots });
        let mut crew = changes.crews.of(b.problem, &group, group_at, prototype.clone());
        crew.is_central = b.is_central();
        crew.wanted = a.replicas;
        self.groups.push(group);
        changes.crews.crews.push(crew);
        if b.is_central() {
            let station = self.floor.stations.len() as u32;
            let router = self.floor.routers.len() as u32;
            let edges = self.groups[group_at as usize].edges.len();
            self.floor.routers.extend((0..edges).map(|_| None));
            let place = Place { group: group_at, line: line as u32, task_of_line: task.get() as u32, router, server: 0 };
            changes.crews.crews[crew_at].stations.push(station);
            self.put_station(changes, crew_at, prototype, place);
        }
        Ok(())
    }

    /// The station that is the newest of a crew's, put where it belongs.
    pub(crate) fn put_station(&mut self, changes: &Changes<'a>, crew_at: usize, machine: Station<Query>, place: Place) {
        let station = self.floor.stations.len() as u32;
        let ranked = changes.crews.crews.iter().flat_map(|c| {
            let rank = |(at, &station): (usize, &u32)| (station, [c.line, c.task, c.position as u32, at as u32]);
            c.stations.iter().enumerate().map(rank).collect::<Vec<_>>()
        });
        if self.floor.ranks.is_empty() {
            let mut ranked: Vec<(u32, [u32; 4])> = ranked.filter(|r| r.0 < station).collect();
            ranked.sort_unstable();
            self.floor.ranks = ranked.into_iter().map(|r| r.1).collect();
        }
        let crew = &changes.crews.crews[crew_at];
        self.floor.ranks.push([crew.line, crew.task, crew.position as u32, crew.stations.len() as u32 - 1]);
        self.floor.stations.push(machine);
        self.floor.places.push(place);
        self.lines[place.line as usize].stations.push(station);
        if let Some(steered) = self.steering.of_line(place.line) {
            steered.stations.push(station);
            let of_steward = changes.stewards.get(place.line as usize).and_then(Option::as_ref);
            let told = of_steward.and_then(|s| s.view(place.task_of_line));
            let view = told.unwrap_or_else(|| steered.planner.view(place.task_of_line as usize));
            self.floor.steer(self.now, station, view);
        }
    }

    /// What a sender does under the plan in force.
    fn sent(changes: &Changes<'a>, b: &Blueprint<'a>, from: Option<&GroupName>, line: u32, to: u32) -> Option<Sent> {
        let groups: Vec<(&GroupName, f64)> =
            changes.crews.of_task(line, to).map(|c| (&c.group, c.capacity_qps(1))).collect();
        let names: Vec<&GroupName> = groups.iter().map(|g| g.0).collect();
        // That the tables fit was found when the plan came.
        let routes = b.routes().ok()?;
        let parts = b.parts(from, &routes, &groups);
        let is_rerouted = b.serving.dropping.reroutes();
        let (execution, backup) =
            if is_rerouted { b.backup(&routes, TaskIndex(to as usize), &names) } else { Default::default() };
        Some(Sent { parts, execution, backup })
    }

    /// Routers of a pipeline that lead to a task, by number.
    pub(crate) fn routers_to(&self, line: u32, task: u32, root: u32) -> Vec<u32> {
        let of = &self.lines[line as usize];
        let mut routers: Vec<u32> = of.frontend.filter(|_| task == root).into_iter().collect();
        for &station in &of.stations {
            let place = self.floor.places[station as usize];
            let edges = &self.groups[place.group as usize].edges;
            routers.extend((0..).zip(edges).filter(|(_, e)| e.to == task).map(|(at, _)| place.router + at));
        }
        routers
    }

    /// Senders of a crew's task learn which of the task's replicas serve, and the module states what these can do.
    pub(crate) fn retarget_task(&mut self, changes: &Changes<'a>, at: usize) {
        let (line, task) = (changes.crews.crews[at].line, changes.crews.crews[at].task);
        let Some(b) = &changes.blueprints[line as usize] else { return };
        let of_task: Vec<(Vec<u32>, u32)> =
            changes.crews.of_task(line, task).map(|c| (c.targets(), c.believed())).collect();
        let groups: Vec<Serving<'_>> =
            of_task.iter().map(|(targets, replicas)| Serving { targets, replicas: *replicas }).collect();
        for router in self.routers_to(line, task, b.pipeline.root().get() as u32) {
            if let Some(router) = &mut self.floor.routers[router as usize] {
                // Without any target, queries keep going where they went, and wait for the next replica.
                let _ = router.retarget(&groups);
            }
        }
        self.provision(changes, line, task);
    }

    /// The module states of a task follow the replicas that serve, or those of the plan as long as none does.
    fn provision(&mut self, changes: &Changes<'a>, line: u32, task: u32) {
        let Some(steered) = self.steering.of_line(line).filter(|s| !s.is_fixed) else { return };
        let serve = changes.crews.of_task(line, task).any(|c| c.believed() > 0);
        let replicas = |c: &Crew| if serve { c.believed() } else { c.wanted };
        let of_task = changes.crews.of_task(line, task).filter(|c| replicas(c) > 0);
        let (execution, throughput_qps) = provided(of_task.map(|c| (c.execution, c.capacity_qps(replicas(c)))));
        steered.planner.staff(task as usize, execution, throughput_qps);
    }

    /// The module states follow the plan: those that change as the replicas do, the fixed ones at once.
    fn plan_states(&mut self, changes: &Changes<'a>, line: usize) -> Result<(), SimulateError> {
        let Some(b) = &changes.blueprints[line] else { return Ok(()) };
        let Some(steered) = self.steering.of_line(line as u32).filter(|s| s.is_fixed) else { return Ok(()) };
        let Some(planner) = b.state_planner()? else { return Ok(()) };
        steered.planner = planner;
        steered.tell_all(self.now, &mut self.floor);
        Ok(())
    }

    /// Tells all routers of a pipeline what the plan in force has them do.
    fn plan_routers_of(&mut self, changes: &Changes<'a>, line: usize) {
        let Some(b) = &changes.blueprints[line] else { return };
        let root = b.pipeline.root().get() as u32;
        if let (Some(router), Some(sent)) = (self.lines[line].frontend, Self::sent(changes, b, None, line as u32, root)) {
            self.plan_router(router, &sent);
        }
        for crew in changes.crews.crews.iter().filter(|c| c.line as usize == line) {
            for at in 0..self.groups[crew.group_at as usize].edges.len() {
                let to = self.groups[crew.group_at as usize].edges[at].to;
                let Some(sent) = Self::sent(changes, b, Some(&crew.group), line as u32, to) else { continue };
                for &station in &crew.stations {
                    self.plan_router(self.floor.places[station as usize].router + at as u32, &sent);
                }
            }
        }
    }

    pub(crate) fn plan_router(&mut self, router: u32, sent: &Sent) {
        if let Some(router) = &mut self.floor.routers[router as usize] {
            router.plan(sent.parts.clone(), sent.execution.clone(), sent.backup.clone());
        }
    }

    /// A router from a group to a task, as the plan in force and the replicas that serve have it. Without any of these it leads
    /// where queries wait for the next one; `None` if there is no such place.
    pub(crate) fn new_router(&self, changes: &Changes<'a>, at: usize, to: u32) -> Option<Router> {
        let crew = &changes.crews.crews[at];
        let b = changes.blueprints[crew.line as usize].as_ref()?;
        let of_task = || changes.crews.of_task(crew.line, to);
        let targets: Vec<(Vec<u32>, u32)> = of_task().map(|c| (c.targets(), c.believed())).collect();
        let groups: Vec<Serving<'_>> =
            targets.iter().map(|(targets, replicas)| Serving { targets, replicas: *replicas }).collect();
        let waits = || of_task().flat_map(|c| c.dead.iter().map(|d| d.seat.station)).next();
        let first: Vec<u32> = targets.iter().flat_map(|t| &t.0).copied().next().or_else(waits).into_iter().collect();
        let mut router = Router::new(b.within(), &[(1.0, &first)], 0)?;
        let sent = Self::sent(changes, b, Some(&crew.group), crew.line, to)?;
        router.plan(sent.parts, sent.execution, sent.backup);
        let _ = router.retarget(&groups);
        Some(router)
    }

    /// Gives the queues of central groups that have just come their routers.
    fn connect(&mut self, changes: &Changes<'a>, line: usize) {
        for (at, crew) in changes.crews.crews.iter().enumerate().filter(|(_, c)| c.line as usize == line) {
            for edge in 0..self.groups[crew.group_at as usize].edges.len() {
                let to = self.groups[crew.group_at as usize].edges[edge].to;
                for &station in &crew.stations {
                    let router = self.floor.places[station as usize].router as usize + edge;
                    if self.floor.routers[router].is_none() {
                        self.floor.routers[router] = self.new_router(changes, at, to);
                    }
                }
            }
        }
    }
}

/// What stays, by crew, beyond what the next plan gives its groups, until its steward has looked: what the last one's had added, and,
/// under a plan with a ladder, of its own what the next one has not.
fn added(changes: &Changes<'_>, line: usize, next: &Blueprint<'_>) -> Vec<(usize, u32)> {
    let has_ladder = !next.part.ladder.is_empty();
    let scales = if has_ladder { changes.scenario.ladders } else { changes.scenario.tuners };
    let Some(of) = changes.blueprints[line].as_ref().filter(|_| scales) else { return Vec::new() };
    let more = |a: &Assignment| {
        let crew = changes.crews.find(&of.pipeline.name, &a.group)?;
        let same = next.part.assignments.iter().find(|b| b.group == a.group && b.replicas > 0)?;
        let own = if has_ladder { a.replicas.min(same.replicas) } else { a.replicas };
        Some((crew, changes.crews.crews[crew].wanted.saturating_sub(own)))
    };
    of.part.assignments.iter().filter_map(more).collect()
}

/// Of what was added, as much as the plan leaves room for: a plan's own replicas come first.
fn fitting(added: Vec<(usize, u32)>, changes: &Changes<'_>) -> Vec<(usize, u32)> {
    let mut room = changes.crews.room();
    let fits = |(at, more): (usize, u32)| {
        let crew = &changes.crews.crews[at];
        let Some(free) = &mut room[crew.hardware] else { return (at, more) };
        let kept = (*free / crew.eighths.max(1)).min(u64::from(more));
        *free -= kept * crew.eighths;
        (at, kept as u32)
    };
    added.into_iter().map(fits).collect()
}

/// A replica of a `continuous` task keeps the slots that it has.
fn refuse_other_slots(changes: &Changes<'_>, new: &Blueprint<'_>) -> Result<(), SimulateError> {
    for (task, of_task) in new.by_task().into_iter().enumerate().filter(|(t, _)| new.is_continuous(TaskIndex(*t))) {
        let crew = |a: &Assignment| changes.crews.find(&new.pipeline.name, &a.group).map(|at| &changes.crews.crews[at]);
        let pairs = of_task.iter().filter_map(|a| crew(a).map(|c| (c.batch, a.batch)));
        let mut others = pairs.filter(|(was, is)| was != is);
        if let Some(slots) = others.next() {
            return Err(crate::scenario::other_slots(&new.pipeline.name, &new.pipeline.tasks[task].name, slots));
        }
    }
    Ok(())
}
