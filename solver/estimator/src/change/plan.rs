//! Another plan comes into force during a run.

use super::deployment::{Deployment, PolicySource};
use super::policies::change_policies;
use super::replicas::{DeadReplica, GroupReplicas, ReplicaLocation};
use super::stations::NewStations;
use super::stewards::Stewardship;
use crate::compile::PipelineCompiler;
use crate::compile::size::check_plan;
use crate::error::SimulateError;
use crate::state::RunState;
use crate::state::serving::StationInfo;
use apportion_domain::{Assignment, Plan, TaskIndex, TimeSpan};

/// Replicas that a group keeps beyond its plan.
#[derive(Clone, Copy, Debug)]
struct Extra {
    group: usize,
    replicas: u32,
}

/// Brings another plan into force.
pub struct PlanSwitch<'s, 'a> {
    /// The run.
    pub run: &'s mut RunState,
    /// The plan in force and its replicas.
    pub deployment: &'s mut Deployment<'a>,
}

impl<'a> PlanSwitch<'_, 'a> {
    /// A plan comes into force: all of it, or nothing if it does not fit.
    ///
    /// # Errors
    /// If it does not fit, or changes something that cannot change during a run.
    pub fn switch_to(&mut self, plan: &Plan) -> Result<(), SimulateError> {
        let parts = self.checked_parts(plan)?;
        self.deployment.counts.plans += 1;
        for (pipeline, part) in parts {
            self.install(pipeline, part)?;
        }
        Ok(())
    }

    /// The parts of a plan, by pipeline.
    fn checked_parts(&self, plan: &Plan) -> Result<Vec<(usize, PipelineCompiler<'a>)>, SimulateError> {
        let mut parts = Vec::new();
        for (pipeline, old) in self.deployment.plans.iter().enumerate() {
            let Some(old) = old else { continue };
            check_plan(old.problem, plan)?;
            let Some(part) = plan.pipeline(&old.pipeline.name) else { continue };
            let name = &old.pipeline.name;
            let serving = match self.deployment.policies {
                PolicySource::Caller => old.serving,
                PolicySource::Plan => part.serving,
            };
            if serving.queueing != old.serving.queueing {
                let what = format!("pipeline {name:?}: another plan may not change where queries wait (`queueing`)");
                return Err(SimulateError::Plan(what));
            }
            let new = old.with_part(part, serving)?;
            // Later steps rely on these two.
            new.state_planner()?;
            for (task, (was, is)) in old.by_task().iter().zip(new.by_task()).enumerate() {
                if is.is_empty() && !was.is_empty() {
                    return Err(new.without_replicas(TaskIndex(task)));
                }
            }
            new.routes()?;
            parts.push((pipeline, new));
        }
        for (_, new) in &parts {
            refuse_other_slots(self.deployment, new)?;
        }
        Ok(parts)
    }

    fn install(&mut self, pipeline: usize, compiler: PipelineCompiler<'a>) -> Result<(), SimulateError> {
        let replicas = &self.deployment.replicas;
        let old = self.deployment.plans[pipeline].as_ref();
        let has_other_policies = old.is_some_and(|old| old.serving != compiler.serving);
        let before: Vec<(u32, u32)> = replicas.groups.iter().map(|c| (c.wanted, c.batch)).collect();
        let extras = extras(self.deployment, pipeline, &compiler);
        let replicas = &mut self.deployment.replicas;
        for group in replicas.groups.iter_mut().filter(|c| c.pipeline as usize == pipeline) {
            group.wanted = 0;
            group.is_planned = false;
        }
        for (task, of_task) in compiler.by_task().into_iter().enumerate() {
            for a in of_task {
                match self.deployment.replicas.find(&compiler.pipeline.name, &a.group) {
                    Some(group) => self.keep_group(group, TaskIndex(task), &compiler, a),
                    None => self.add_group(pipeline, TaskIndex(task), &compiler, a)?,
                }
            }
        }
        let extras = if compiler.part.ladder.is_empty() { fitting(extras, self.deployment) } else { extras };
        extras.into_iter().for_each(|e| self.deployment.replicas.groups[e.group].wanted += e.replicas);
        self.open_tasks(pipeline);
        if has_other_policies {
            change_policies(self.run, self.deployment, pipeline, &compiler)?;
        }
        let groups = self.deployment.replicas.groups.iter().enumerate();
        self.deployment.counts.replicas +=
            groups.filter(|(at, c)| before.get(*at) != Some(&(c.wanted, c.batch))).count() as u64;
        self.deployment.plans[pipeline] = Some(compiler);
        let mut routers = self.deployment.routers(self.run);
        routers.plan_pipeline(pipeline);
        routers.plan_modules(pipeline)?;
        routers.retarget_pipeline(pipeline);
        routers.connect(pipeline);
        Stewardship { run: self.run, deployment: self.deployment }.start(pipeline)
    }

    /// Tasks that never had a replica get a queue, in which queries wait for the first one.
    fn open_tasks(&mut self, pipeline: usize) {
        let has_no_queue = |c: &GroupReplicas| c.counted() + c.leaving.len() + c.dead.len() == 0;
        for at in 0..self.deployment.replicas.groups.len() {
            let group = &self.deployment.replicas.groups[at];
            let is_first = group.pipeline as usize == pipeline && group.position == 0;
            if !is_first || !self.deployment.replicas.of_task(group.pipeline, group.task).all(has_no_queue) {
                continue;
            }
            let is_central = group.is_central;
            let replica = if is_central {
                ReplicaLocation { station: group.stations[0], server: 0 }
            } else {
                NewStations { run: self.run, deployment: self.deployment }.add_station(at)
            };
            let group = &mut self.deployment.replicas.groups[at];
            if !is_central {
                self.run.remove_servers(replica.station, group.servers(replica));
            }
            group.dead.push(DeadReplica::closed(replica));
        }
    }

    /// A group that had replicas before gets its count and its batch.
    fn keep_group(&mut self, group: usize, task: TaskIndex, compiler: &PipelineCompiler<'a>, a: &Assignment) {
        let replicas = &mut self.deployment.replicas.groups[group];
        replicas.wanted = a.replicas;
        replicas.is_planned = true;
        let batcher = compiler.batcher(task, a.batch);
        let is_same = replicas.prototype.batcher() == batcher;
        let Some(service) = compiler.service(a).filter(|_| !is_same) else { return };
        replicas.batch = a.batch;
        replicas.execution = service.last().copied().unwrap_or(TimeSpan::ZERO);
        let compiled = &mut self.run.groups[replicas.group as usize];
        compiled.budget = compiler.budget(replicas.execution);
        compiled.service.clone_from(&service);
        if let (Some(spread), Some(distribution)) = (&mut compiled.spread, compiler.time_distribution(task, a)) {
            spread.distribution = distribution;
        }
        replicas.prototype.reconfigure(batcher, service.clone());
        for &station in &replicas.stations {
            self.run.serving.stations[station as usize].reconfigure(batcher, service.clone());
            self.run.serving.take_outputs(self.run.now, station, |_, _, _| {});
        }
    }

    /// A group that no plan had before. A central queue is there before the first of its replicas.
    fn add_group(
        &mut self,
        pipeline: usize,
        task: TaskIndex,
        compiler: &PipelineCompiler<'a>,
        a: &Assignment,
    ) -> Result<(), SimulateError> {
        let run = &mut *self.run;
        let compiled = compiler.group(&run.pipelines[pipeline], task, a, &mut run.streams)?;
        let (number, group) = (run.groups.len() as u32, self.deployment.replicas.groups.len());
        let prototype = compiler.station(&compiled, task, a, if compiler.is_central() { 0 } else { compiled.slots });
        let mut replicas =
            self.deployment.replicas.without_replicas(compiler.problem, &compiled, number, prototype.clone());
        replicas.is_central = compiler.is_central();
        replicas.wanted = a.replicas;
        run.groups.push(compiled);
        self.deployment.replicas.groups.push(replicas);
        if compiler.is_central() {
            let station = run.serving.stations.len() as u32;
            let router = run.serving.routers.len() as u32;
            let edges = run.groups[number as usize].edges.len();
            run.serving.routers.extend((0..edges).map(|_| None));
            let (pipeline, task_in_pipeline) = (pipeline as u32, task.get() as u32);
            let has_slots = run.groups[number as usize].has_slots;
            let info = StationInfo { group: number, pipeline, task_in_pipeline, router, server: 0, has_slots, joined: 0 };
            self.deployment.replicas.groups[group].stations.push(station);
            NewStations { run, deployment: self.deployment }.put_station(group, prototype, info);
        }
        Ok(())
    }
}

/// Replicas beyond the next plan's that stay until its steward decides. The last steward had added them. Under a plan with
/// a ladder, replicas of the last plan that the next one lacks stay too.
fn extras(deployment: &Deployment<'_>, pipeline: usize, next: &PipelineCompiler<'_>) -> Vec<Extra> {
    let has_ladder = !next.part.ladder.is_empty();
    let scales = if has_ladder { deployment.scenario.ladders } else { deployment.scenario.tuners };
    let Some(of) = deployment.plans[pipeline].as_ref().filter(|_| scales) else { return Vec::new() };
    let extra = |a: &Assignment| {
        let group = deployment.replicas.find(&of.pipeline.name, &a.group)?;
        let same = next.part.assignments.iter().find(|b| b.group == a.group && b.replicas > 0)?;
        let own = if has_ladder { a.replicas.min(same.replicas) } else { a.replicas };
        Some(Extra { group, replicas: deployment.replicas.groups[group].wanted.saturating_sub(own) })
    };
    of.part.assignments.iter().filter_map(extra).collect()
}

/// As many of the extra replicas as the plan leaves room for: a plan's own replicas come first.
fn fitting(extras: Vec<Extra>, deployment: &Deployment<'_>) -> Vec<Extra> {
    let mut room = deployment.replicas.free_eighths();
    let fits = |extra: Extra| {
        let group = &deployment.replicas.groups[extra.group];
        let Some(free) = &mut room[group.hardware] else { return extra };
        let kept = (*free / group.eighths.max(1)).min(u64::from(extra.replicas));
        *free -= kept * group.eighths;
        Extra { replicas: kept as u32, ..extra }
    };
    extras.into_iter().map(fits).collect()
}

/// A replica of a `continuous` task keeps its slots.
fn refuse_other_slots(deployment: &Deployment<'_>, new: &PipelineCompiler<'_>) -> Result<(), SimulateError> {
    let replicas = &deployment.replicas;
    for (task, of_task) in new.by_task().into_iter().enumerate().filter(|(t, _)| new.is_continuous(TaskIndex(*t))) {
        let group = |a: &Assignment| replicas.find(&new.pipeline.name, &a.group).map(|at| &replicas.groups[at]);
        let pairs = of_task.iter().filter_map(|a| group(a).map(|c| (c.batch, a.batch)));
        let mut others = pairs.filter(|(before, after)| before != after);
        if let Some((before, after)) = others.next() {
            let (pipeline, task) = (&new.pipeline.name, &new.pipeline.tasks[task].name);
            return Err(SimulateError::changed_slots(pipeline, task, before, after));
        }
    }
    Ok(())
}
