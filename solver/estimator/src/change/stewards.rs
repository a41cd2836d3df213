//! Stewards: the reports that they get, the decisions that come back, and how late both are.

use super::deployment::Deployment;
use super::replicas::GroupReplicas;
use super::routers::SenderPlan;
use super::schedule::{ChangeEvent, GroupReport, SteeringCommand, StewardReport, TaskMonitor};
use super::steward_state::StewardState;
use crate::compile::{Backup, PipelineCompiler};
use crate::error::SimulateError;
use crate::scenario::{BinCount, Scenario};
use crate::state::RunState;
use apportion_domain::{LadderStep, Moment, TimeSpan};
use apportion_serving::ladder::WINDOW_MIN;
use apportion_serving::router::GroupUse;
use apportion_serving::steward::{PERIOD, Scaler, Steering, Steward, StewardConfig, StewardInput};
use apportion_serving::{Ladder, Outline, TrafficEnvelope};

/// The scaler of a plan, which starts with the present replicas: its ladder, or the tuner if it has none and devices are
/// spare.
fn scaler(
    compiler: &PipelineCompiler<'_>,
    deployment: &Deployment<'_>,
    groups: &[usize],
) -> Result<Option<Scaler>, SimulateError> {
    let Scenario { ladders, tuners, .. } = deployment.scenario;
    let planned = compiler.part.assignments.iter().filter(|a| a.replicas > 0);
    let mut has_more = planned.zip(groups).map(|(a, &group)| deployment.replicas.groups[group].wanted > a.replicas);
    match compiler.part.ladder.is_empty() {
        false if ladders => ladder_of(compiler, deployment, groups),
        true if tuners && (deployment.replicas.has_spare(groups) || has_more.any(|more| more)) => {
            tuner_of(compiler, deployment, groups)
        }
        _ => Ok(None),
    }
}

/// The planned pipeline in numbers.
fn outline_of(compiler: &PipelineCompiler<'_>) -> Result<Outline, SimulateError> {
    Outline::of(compiler.pipeline, &compiler.problem.hardware, &compiler.part)
        .map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", compiler.pipeline.name)))
}

/// The tuner of a plan, as agents have it. Agents have no trace, so a steady load replaces the sample.
fn tuner_of(
    compiler: &PipelineCompiler<'_>,
    deployment: &Deployment<'_>,
    groups: &[usize],
) -> Result<Option<Scaler>, SimulateError> {
    let outline = outline_of(compiler)?;
    if outline.demand_qps <= 0.0 {
        return Ok(None);
    }
    let mut replicas = vec![0; compiler.pipeline.tasks.len()];
    outline
        .groups
        .iter()
        .zip(groups)
        .for_each(|(planned, &group)| replicas[planned.task] += deployment.replicas.groups[group].wanted);
    let sample = TrafficEnvelope::of_rate(outline.service(), outline.demand_qps);
    Ok(Some(Scaler::Tuner(outline.tuner(&sample, outline.demand_qps, replicas))))
}

/// The plan's ladder, if it has one, which starts with the present replicas.
fn ladder_of(
    compiler: &PipelineCompiler<'_>,
    deployment: &Deployment<'_>,
    groups: &[usize],
) -> Result<Option<Scaler>, SimulateError> {
    if compiler.part.ladder.is_empty() {
        return Ok(None);
    }
    let planned = || compiler.part.assignments.iter();
    let of = |step: &LadderStep| {
        let counts = planned().zip(&step.replicas).filter(|(a, _)| a.replicas > 0);
        LadderStep { rate_qps: step.rate_qps, replicas: counts.map(|(_, &n)| n.max(1)).collect() }
    };
    let replicas = groups.iter().map(|&c| deployment.replicas.groups[c].wanted).collect();
    let headroom = deployment.scenario.headroom.for_percentile(compiler.pipeline.percentile);
    let steps: Vec<LadderStep> = compiler.part.ladder.iter().map(of).collect();
    let ladder = Ladder::new(steps, replicas, headroom).with_reaction(reaction(compiler, &deployment.scenario));
    Ok(Some(Scaler::Ladder(ladder)))
}

/// The time from a load to the replicas that answer it: it is seen, reported, answered, and the slowest variant loads.
fn reaction(compiler: &PipelineCompiler<'_>, scenario: &Scenario<'_>) -> TimeSpan {
    let variants = compiler.pipeline.tasks.iter().flat_map(|task| &task.variants);
    let load_ms = variants.map(|v| v.load_ms).fold(0.0, f64::max);
    WINDOW_MIN + scenario.report_delay + scenario.command_delay + TimeSpan::from_millis(load_ms)
}

/// Starts stewards, and carries their reports and decisions.
pub struct Stewardship<'s, 'a> {
    /// The run.
    pub run: &'s mut RunState,
    /// The plan in force and its replicas.
    pub deployment: &'s mut Deployment<'a>,
}

impl Stewardship<'_, '_> {
    /// Stewards begin, if the scenario has any.
    ///
    /// # Errors
    /// If a pipeline has too many paths for PARD's states.
    pub fn start_all(&mut self) -> Result<(), SimulateError> {
        if !self.deployment.scenario.is_steered() {
            return Ok(());
        }
        self.run.serving.count_made_queries();
        self.deployment.stewards.resize_with(self.run.pipelines.len(), || None);
        for pipeline in 0..self.run.pipelines.len() {
            self.start(pipeline)?;
        }
        let period = self.deployment.scenario.report_period();
        self.deployment.schedule.push(Moment::ZERO + period, ChangeEvent::StewardPeriod);
        Ok(())
    }

    /// The plan in force of a pipeline gets its own steward, which starts with the load that the last one has seen.
    ///
    /// # Errors
    /// If the pipeline has too many paths for PARD's states.
    pub fn start(&mut self, pipeline: usize) -> Result<(), SimulateError> {
        let deployment = &mut *self.deployment;
        let is_steered = deployment.scenario.is_steered();
        let Some(compiler) = deployment.plans[pipeline].as_ref().filter(|_| is_steered) else { return Ok(()) };
        let fails = |e: &dyn std::fmt::Display| SimulateError::Plan(format!("pipeline {:?}: {e}", compiler.pipeline.name));
        let planned = || compiler.part.assignments.iter().filter(|a| a.replicas > 0);
        let groups: Vec<usize> =
            planned().filter_map(|a| deployment.replicas.find(&compiler.pipeline.name, &a.group)).collect();
        let scaler = scaler(compiler, deployment, &groups)?;
        let is_tuned = compiler.part.ladder.is_empty();
        let replicas_min = planned().map(|a| if is_tuned { a.replicas } else { 1 }).collect();
        let config = StewardConfig::of(compiler.pipeline, &compiler.problem.hardware, &compiler.part, scaler)
            .map_err(|e| fails(&e))?;
        let mut steward = Steward::new(config, self.run.now, 0).map_err(|e| fails(&e))?;
        let old = deployment.stewards[pipeline].take();
        if let Some(old) = &old {
            let was: Vec<Option<usize>> = groups.iter().map(|g| old.groups.iter().position(|o| o == g)).collect();
            steward.inherit(&old.steward, &was);
        }
        let (generation, offered, ended) = old.map_or_else(Default::default, |o| (o.generation + 1, o.offered, o.ended));
        let (views, pending) = (Vec::new(), None);
        deployment.stewards[pipeline] =
            Some(StewardState { steward, groups, replicas_min, generation, offered, ended, views, pending });
        // From now on it plans the module states.
        if let Some(modules) = self.run.modules.of_pipeline(pipeline as u32) {
            modules.is_fixed = true;
        }
        Ok(())
    }

    /// The agents' reports set out: arrivals each time, and everything else at the end of a period.
    pub fn send_reports(&mut self) {
        // A plan that came into force at this very moment may have brought stations.
        self.run.serving.count_new();
        let at = self.run.now + self.deployment.scenario.report_delay;
        let is_period = self.run.now.as_nanos().is_multiple_of(PERIOD.as_nanos());
        for pipeline in 0..self.deployment.stewards.len() {
            let Some(state) = &mut self.deployment.stewards[pipeline] else { continue };
            let offered = std::mem::take(&mut state.offered);
            let ended = self.run.statistics.outcomes(pipeline);
            let ended = ended.since(std::mem::replace(&mut state.ended, ended));
            let mut report = StewardReport { pipeline, offered, ended, groups: Vec::new(), monitors: Vec::new() };
            for (number, group) in self.deployment.replicas.groups.iter().enumerate() {
                if group.pipeline as usize == pipeline {
                    let of_group = report_of(self.run, group, number, is_period, &mut report);
                    report.groups.push(of_group);
                }
            }
            self.deployment.schedule.push(at, ChangeEvent::StewardReport(Box::new(report)));
        }
        let next = self.run.now + self.deployment.scenario.report_period();
        self.deployment.schedule.push(next, ChangeEvent::StewardPeriod);
    }

    /// A report has arrived: the steward decides, and its decision sets out.
    pub fn take_report(&mut self, mut report: StewardReport) {
        let (now, pipeline) = (self.run.now, report.pipeline);
        let Some(state) = &mut self.deployment.stewards[pipeline] else { return };
        let steward = &mut state.steward;
        for &BinCount { bin, count } in &report.offered {
            steward.handle(now, StewardInput::Offered { bin, count });
        }
        steward.handle(now, StewardInput::Ended(report.ended));
        for of_group in &report.groups {
            let Some(group) = state.groups.iter().position(|g| *g == of_group.group) else { continue };
            steward.handle(now, StewardInput::Made { group, queries: of_group.ended, children: &of_group.made });
            steward.handle(now, StewardInput::Ready { group, replicas: of_group.replicas });
        }
        for TaskMonitor { task, monitor } in &mut report.monitors {
            steward.handle(now, StewardInput::Measured { task: *task, monitor });
        }
        steward.handle(now, StewardInput::Tick);
        let steering = steward.poll_output().or_else(|| state.pending.take());
        let generation = state.generation;
        if let Some(steering) = steering {
            let at = now + self.deployment.scenario.command_delay;
            let command = SteeringCommand { pipeline, generation, steering };
            self.deployment.schedule.push(at, ChangeEvent::Steering(Box::new(command)));
        }
    }

    /// A steward's decision has arrived.
    pub fn apply(&mut self, command: SteeringCommand) {
        let SteeringCommand { pipeline, generation, mut steering } = command;
        let Deployment { stewards, replicas, counts, .. } = &mut *self.deployment;
        let Some(state) = stewards[pipeline].as_mut().filter(|s| s.generation == generation) else { return };
        let wanted = std::mem::take(&mut steering.replicas);
        for ((&group, &least), wanted) in state.groups.iter().zip(&state.replicas_min).zip(wanted) {
            let (group, wanted) = (&mut replicas.groups[group], wanted.max(least));
            counts.replicas += u64::from(group.wanted != wanted);
            group.wanted = wanted;
        }
        if !steering.views.is_empty() {
            state.views.clone_from(&steering.views);
            for &station in &self.run.pipelines[pipeline].stations {
                let task = self.run.serving.infos[station as usize].task_in_pipeline as usize;
                self.run.serving.set_view(self.run.now, station, steering.views[task]);
            }
        }
        let stands_in = |c: &GroupReplicas| c.pipeline as usize == pipeline && !c.is_planned && c.known_to_senders() > 0;
        if replicas.groups.iter().any(stands_in) {
            // A steward only knows the groups of its plan. Its tables take effect once these serve alone.
            state.pending = Some(steering);
            return;
        }
        if !steering.tables.is_empty() {
            counts.steerings += 1;
            self.apply_tables(pipeline, &steering);
        }
    }

    fn apply_tables(&mut self, pipeline: usize, steering: &Steering) {
        let Some(state) = &self.deployment.stewards[pipeline] else { return };
        let replicas = &self.deployment.replicas;
        let group_of = |number: usize| state.groups.iter().position(|&c| c == number).map(|g| g as u32);
        let mut routers = self.deployment.routers(self.run);
        for table in &steering.tables {
            let from = table.from.map(|g| state.groups[g as usize]);
            let part = |(at, group): (usize, &GroupReplicas)| {
                let entry = table.entries.iter().find(|(to, _)| Some(*to) == group_of(at));
                let fraction = entry.map_or(0.0, |&(_, fraction)| fraction);
                let stand_in = if group.is_planned { 0.0 } else { group.capacity_qps(1) };
                GroupUse { fraction, planned: group.known_to_senders().max(1), stand_in }
            };
            let is_of_task = |c: &GroupReplicas| (c.pipeline as usize, c.task) == (pipeline, table.to_task);
            let of_task = || replicas.groups.iter().enumerate().filter(|(_, c)| is_of_task(c));
            let position = |g: u32| of_task().position(|(at, _)| group_of(at) == Some(g));
            let plan = SenderPlan {
                parts: of_task().map(part).collect(),
                backup: Backup {
                    execution: of_task().map(|(_, c)| c.execution).collect(),
                    groups: steering.backup.iter().filter_map(|&(group, _)| position(group)).map(|p| p as u32).collect(),
                },
            };
            routers.plan_sender(pipeline, from, table.to_task, &plan);
        }
        routers.retarget_pipeline(pipeline);
    }
}

/// The report about one group. At the end of a period, counts and monitors of its stations are taken.
fn report_of(
    run: &mut RunState,
    group: &GroupReplicas,
    number: usize,
    is_period: bool,
    report: &mut StewardReport,
) -> GroupReport {
    let mut made = vec![0; run.groups[group.group as usize].edges.len()];
    let mut ended = 0;
    for &station in group.stations.iter().filter(|_| is_period) {
        let first = run.serving.infos[station as usize].router as usize;
        let counts = &mut run.serving.made[first..][..made.len()];
        made.iter_mut().zip(counts).for_each(|(sum, count)| *sum += std::mem::take(count));
        ended += std::mem::take(&mut run.serving.done[station as usize]);
        if let Some(monitor) = run.serving.stations[station as usize].monitor() {
            report.monitors.push(TaskMonitor { task: group.task as usize, monitor: std::mem::take(monitor) });
        }
    }
    GroupReport { group: number, ended, made, replicas: group.known_to_senders() }
}
