//! The stewards of a run: what they are told, what they answer, and how late.

use crate::SimulateError;
use crate::adopt::Sent;
use crate::blueprint::Blueprint;
use crate::changes::{Changes, Due};
use crate::driver::Run;
use crate::scenario::Scenario;
use apportion_domain::{LadderStep, Moment, Span};
use apportion_serving::router::Part;
use apportion_serving::steward::{Config, Input, PERIOD, Scaler, Steering, Steward};
use apportion_serving::{Envelope, Ladder, Monitor, Outline, View};

/// Resolution of the arrivals that a steward is told, as agents report them.
const BIN: Span = apportion_serving::tuner::BIN_MAX;

/// The steward of one pipeline, and what is known around it.
#[derive(Debug)]
pub struct Stewarded {
    steward: Steward,
    /// The crew of each of its groups.
    crews: Vec<usize>,
    /// Replicas that each group has in any case: only a ladder was shown what fewer than the plan's hold.
    least: Vec<u32>,
    /// Plans of the pipeline so far: an answer about a former one counts for nothing.
    generation: u64,
    /// Requests that were offered since the last report, by bin.
    offered: Vec<(Moment, u32)>,
    /// What stations were told last; empty if nothing yet.
    views: Vec<View>,
    /// What cannot be carried out while replicas of the former plan stand in.
    pending: Option<Steering>,
}

impl Stewarded {
    /// What the stations of a task were told last.
    pub fn view(&self, task: u32) -> Option<View> {
        self.views.get(task as usize).copied()
    }

    /// A request was offered.
    pub fn arrived(&mut self, now: Moment) {
        let bin = Moment::from_nanos(now.as_nanos() / BIN.as_nanos() * BIN.as_nanos());
        match self.offered.last_mut() {
            Some((last, count)) if *last == bin => *count += 1,
            _ => self.offered.push((bin, 1)),
        }
    }
}

/// What one steward is told about one period.
#[derive(Debug)]
pub struct Report {
    line: usize,
    offered: Vec<(Moment, u32)>,
    /// By crew: queries that ended, what they made for each child, replicas that serve.
    crews: Vec<(usize, u64, Vec<u64>, u32)>,
    monitors: Vec<(usize, Monitor)>,
}

/// What one steward wants.
#[derive(Debug)]
pub struct Answer {
    line: usize,
    generation: u64,
    steering: Steering,
}

/// What scales the replicas of a plan, from those that there are: its ladder, or the tuner where it has none and leaves devices spare.
fn scaler(b: &Blueprint<'_>, changes: &Changes<'_>, crews: &[usize]) -> Result<Option<Scaler>, SimulateError> {
    let Scenario { ladders, tuners, .. } = changes.scenario;
    let planned = b.part.assignments.iter().filter(|a| a.replicas > 0);
    let mut has_more = planned.zip(crews).map(|(a, &crew)| changes.crews.crews[crew].wanted > a.replicas);
    match b.part.ladder.is_empty() {
        false if ladders => climbs(b, changes, crews),
        true if tuners && (changes.crews.has_spare(crews) || has_more.any(|more| more)) => tunes(b, changes, crews),
        _ => Ok(None),
    }
}

/// The tuner of a plan, as agents have it: no trace is at hand there, so a steady load stands in for its sample.
fn tunes(b: &Blueprint<'_>, changes: &Changes<'_>, crews: &[usize]) -> Result<Option<Scaler>, SimulateError> {
    let outline = Outline::of(b.pipeline, &b.problem.hardware, &b.part);
    let outline = outline.map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", b.pipeline.name)))?;
    if outline.demand_qps <= 0.0 {
        return Ok(None);
    }
    let mut replicas = vec![0; b.pipeline.tasks.len()];
    outline.groups.iter().zip(crews).for_each(|(group, &crew)| replicas[group.task] += changes.crews.crews[crew].wanted);
    let sample = Envelope::of_rate(outline.service(), outline.demand_qps);
    Ok(Some(Scaler::Tuner(outline.tuner(&sample, outline.demand_qps, replicas))))
}

/// The plan's ladder, if it has one, from the replicas that there are.
fn climbs(b: &Blueprint<'_>, changes: &Changes<'_>, crews: &[usize]) -> Result<Option<Scaler>, SimulateError> {
    if b.part.ladder.is_empty() {
        return Ok(None);
    }
    let planned = || b.part.assignments.iter();
    let of = |step: &LadderStep| {
        let counts = planned().zip(&step.replicas).filter(|(a, _)| a.replicas > 0);
        LadderStep { rate_qps: step.rate_qps, replicas: counts.map(|(_, &n)| n.max(1)).collect() }
    };
    let replicas = crews.iter().map(|&c| changes.crews.crews[c].wanted).collect();
    Ok(Some(Scaler::Ladder(Ladder::new(b.part.ladder.iter().map(of).collect(), replicas, 1.0))))
}

impl<'a> Run<'a> {
    /// Stewards begin, if the scenario has any.
    ///
    /// # Errors
    /// If a pipeline has too many paths for PARD's states.
    pub(crate) fn start_stewards(&mut self, changes: &mut Changes<'a>) -> Result<(), SimulateError> {
        if !changes.scenario.is_steered() {
            return Ok(());
        }
        self.floor.made.resize(self.floor.routers.len().max(1), 0);
        self.floor.done.resize(self.floor.stations.len(), 0);
        changes.stewards.resize_with(self.lines.len(), || None);
        for line in 0..self.lines.len() {
            self.start_steward(changes, line)?;
        }
        changes.push(Moment::ZERO + changes.scenario.telling(), Due::Tell);
        Ok(())
    }

    /// The plan in force of a pipeline gets a steward of its own, which goes on from what the last one has seen.
    pub(crate) fn start_steward(&mut self, changes: &mut Changes<'a>, line: usize) -> Result<(), SimulateError> {
        let Some(b) = changes.blueprints[line].as_ref().filter(|_| changes.scenario.is_steered()) else { return Ok(()) };
        let fails = |e: &dyn std::fmt::Display| SimulateError::Plan(format!("pipeline {:?}: {e}", b.pipeline.name));
        let of_plan = b.part.assignments.iter().filter(|a| a.replicas > 0);
        let crews: Vec<usize> = of_plan.filter_map(|a| changes.crews.find(&b.pipeline.name, &a.group)).collect();
        let scaler = scaler(b, changes, &crews)?;
        let is_tuned = b.part.ladder.is_empty();
        let least = b.part.assignments.iter().filter(|a| a.replicas > 0).map(|a| if is_tuned { a.replicas } else { 1 });
        let least = least.collect();
        let config = Config::of(b.pipeline, &b.problem.hardware, &b.part, scaler).map_err(|e| fails(&e))?;
        let mut steward = Steward::new(config, self.now, 0).map_err(|e| fails(&e))?;
        let old = changes.stewards[line].take();
        if let Some(old) = &old {
            let was: Vec<Option<usize>> = crews.iter().map(|c| old.crews.iter().position(|o| o == c)).collect();
            steward.inherit(&old.steward, &was);
        }
        let (generation, offered) = old.map_or_else(Default::default, |o| (o.generation + 1, o.offered));
        let (views, pending) = (Vec::new(), None);
        changes.stewards[line] = Some(Stewarded { steward, crews, least, generation, offered, views, pending });
        // It plans the module states from now on.
        if let Some(steered) = self.steering.of_line(line as u32) {
            steered.is_fixed = true;
        }
        Ok(())
    }

    /// Arrivals are reported, and at the end of a period the rest: the agents' reports set out.
    pub(crate) fn tell_stewards(&mut self, changes: &mut Changes<'a>) {
        // A plan that came into force at this very moment may have brought stations.
        self.floor.count_new();
        let at = self.now + changes.scenario.report_delay;
        let is_period = self.now.as_nanos().is_multiple_of(PERIOD.as_nanos());
        for line in 0..changes.stewards.len() {
            let Some(stewarded) = &mut changes.stewards[line] else { continue };
            let offered = std::mem::take(&mut stewarded.offered);
            let mut report = Report { line, offered, crews: Vec::new(), monitors: Vec::new() };
            for (crew_at, crew) in changes.crews.crews.iter().enumerate().filter(|(_, c)| c.line as usize == line) {
                let mut made = vec![0; self.groups[crew.group_at as usize].edges.len()];
                let mut done = 0;
                for &station in crew.stations.iter().filter(|_| is_period) {
                    let first = self.floor.places[station as usize].router as usize;
                    let counts = &mut self.floor.made[first..][..made.len()];
                    made.iter_mut().zip(counts).for_each(|(sum, count)| *sum += std::mem::take(count));
                    done += std::mem::take(&mut self.floor.done[station as usize]);
                    if let Some(monitor) = self.floor.stations[station as usize].monitor() {
                        report.monitors.push((crew.task as usize, std::mem::take(monitor)));
                    }
                }
                report.crews.push((crew_at, done, made, crew.believed()));
            }
            changes.push(at, Due::Told(Box::new(report)));
        }
        changes.push(self.now + changes.scenario.telling(), Due::Tell);
    }

    /// A report has arrived: the steward looks, and what it wants sets out.
    pub(crate) fn told(&mut self, changes: &mut Changes<'a>, mut report: Report) {
        let (now, line) = (self.now, report.line);
        let Some(stewarded) = &mut changes.stewards[line] else { return };
        let steward = &mut stewarded.steward;
        for &(bin, count) in &report.offered {
            steward.handle(now, Input::Offered { bin, count });
        }
        for (crew, queries, children, replicas) in &report.crews {
            let Some(group) = stewarded.crews.iter().position(|c| c == crew) else { continue };
            steward.handle(now, Input::Made { group, queries: *queries, children });
            steward.handle(now, Input::Ready { group, replicas: *replicas });
        }
        for (task, monitor) in &mut report.monitors {
            steward.handle(now, Input::Measured { task: *task, monitor });
        }
        steward.handle(now, Input::Tick);
        let steering = steward.poll_output().or_else(|| stewarded.pending.take());
        let generation = stewarded.generation;
        if let Some(steering) = steering {
            let at = now + changes.scenario.command_delay;
            changes.push(at, Due::Steer(Box::new(Answer { line, generation, steering })));
        }
    }

    /// What a steward wants has arrived.
    pub(crate) fn steer(&mut self, changes: &mut Changes<'a>, answer: Answer) {
        let Answer { line, generation, mut steering } = answer;
        let Some(stewarded) = changes.stewards[line].as_mut().filter(|s| s.generation == generation) else { return };
        let wanted = std::mem::take(&mut steering.replicas);
        for ((&crew, &least), wanted) in stewarded.crews.iter().zip(&stewarded.least).zip(wanted) {
            let (crew, wanted) = (&mut changes.crews.crews[crew], wanted.max(least));
            changes.changed += u64::from(crew.wanted != wanted);
            crew.wanted = wanted;
        }
        if !steering.views.is_empty() {
            stewarded.views.clone_from(&steering.views);
            for &station in &self.lines[line].stations {
                let task = self.floor.places[station as usize].task_of_line as usize;
                self.floor.steer(self.now, station, steering.views[task]);
            }
        }
        let stands_in = changes.crews.crews.iter().any(|c| c.line as usize == line && !c.is_planned && c.believed() > 0);
        if stands_in {
            // A steward knows the groups of its plan alone: its tables hold once these serve alone.
            stewarded.pending = Some(steering);
            return;
        }
        if !steering.tables.is_empty() {
            changes.steerings += 1;
            self.retable(changes, line, &steering);
        }
    }

    fn retable(&mut self, changes: &Changes<'a>, line: usize, steering: &Steering) {
        let Some(stewarded) = &changes.stewards[line] else { return };
        let group_of = |crew: usize| stewarded.crews.iter().position(|&c| c == crew).map(|g| g as u32);
        for table in &steering.tables {
            let from = table.from.map(|g| stewarded.crews[g as usize]);
            let part = |(at, crew): (usize, &crate::crews::Crew)| {
                let fraction = table.entries.iter().find(|e| Some(e.0) == group_of(at)).map_or(0.0, |e| e.1);
                let stand_in = if crew.is_planned { 0.0 } else { crew.capacity_qps(1) };
                Part { fraction, planned: crew.believed().max(1), stand_in }
            };
            let of_task = || {
                changes.crews.crews.iter().enumerate().filter(|(_, c)| (c.line as usize, c.task) == (line, table.to_task))
            };
            let place = |g: u32| of_task().position(|(at, _)| group_of(at) == Some(g));
            let sent = Sent {
                parts: of_task().map(part).collect(),
                execution: of_task().map(|(_, c)| c.execution).collect(),
                backup: steering.backup.iter().filter_map(|b| place(b.0)).map(|p| p as u32).collect(),
            };
            self.plan_sender(changes, line, from, table.to_task, &sent);
        }
        for at in 0..changes.crews.crews.len() {
            if changes.crews.crews[at].line as usize == line && changes.crews.crews[at].position == 0 {
                self.retarget_task(changes, at);
            }
        }
    }

    /// Tells the routers of one sender, a crew or the frontend, to one task what they do.
    fn plan_sender(&mut self, changes: &Changes<'a>, line: usize, from: Option<usize>, to: u32, sent: &Sent) {
        let Some(from) = from else {
            self.lines[line].frontend.into_iter().for_each(|router| self.plan_router(router, sent));
            return;
        };
        let crew = &changes.crews.crews[from];
        let edges = &self.groups[crew.group_at as usize].edges;
        let Some(edge) = edges.iter().position(|e| e.to == to) else { return };
        for &station in &crew.stations {
            self.plan_router(self.floor.places[station as usize].router + edge as u32, sent);
        }
    }
}
