//! Routers and module states follow the plan in force and the replicas that serve.

use super::replicas::{GroupReplicas, Replicas};
use crate::compile::{Backup, PipelineCompiler, TaskGroup};
use crate::error::SimulateError;
use crate::state::RunState;
use apportion_domain::{GroupName, TaskIndex};
use apportion_serving::Router;
use apportion_serving::modules::Staffing;
use apportion_serving::router::{GroupUse, Serving};

/// The use that a plan makes of the groups of one task, for one sender.
pub struct SenderPlan {
    /// By group.
    pub parts: Vec<GroupUse>,
    /// Where queries go that are behind.
    pub backup: Backup,
}

/// Targets of a group's queries, how many replicas they stand for, and how many there should be.
struct GroupTargets {
    targets: Vec<u32>,
    replicas: u32,
    wanted: u32,
}

impl GroupTargets {
    fn of(group: &GroupReplicas) -> Self {
        Self { targets: group.targets(), replicas: group.known_to_senders(), wanted: group.wanted }
    }

    fn serving(all: &[Self]) -> Vec<Serving<'_>> {
        all.iter().map(|g| Serving { targets: &g.targets, replicas: g.replicas, wanted: g.wanted }).collect()
    }
}

/// Changes the routers of a run.
pub struct RouterUpdates<'s, 'a> {
    /// The run.
    pub run: &'s mut RunState,
    /// The replicas of each group.
    pub replicas: &'s Replicas,
    /// The part in force, by pipeline.
    pub plans: &'s [Option<PipelineCompiler<'a>>],
}

impl<'a> RouterUpdates<'_, 'a> {
    /// Gives all routers the plan of the start.
    pub fn plan_all(&mut self) {
        (0..self.plans.len()).for_each(|pipeline| self.plan_pipeline(pipeline));
    }

    /// Gives all routers of a pipeline the plan in force.
    pub fn plan_pipeline(&mut self, pipeline: usize) {
        let Some(compiler) = &self.plans[pipeline] else { return };
        let number = pipeline as u32;
        let root = compiler.pipeline.root().get() as u32;
        if let Some(plan) = self.sender_plan(compiler, None, number, root) {
            self.run.pipelines[pipeline].ingresses.clone().for_each(|router| self.set_plan(router, &plan));
        }
        for group in self.replicas.groups.iter().filter(|c| c.pipeline == number) {
            for at in 0..self.run.groups[group.group as usize].edges.len() {
                let to = self.run.groups[group.group as usize].edges[at].to;
                let Some(plan) = self.sender_plan(compiler, Some(&group.name), number, to) else { continue };
                for &station in &group.stations {
                    self.set_plan(self.run.serving.infos[station as usize].router + at as u32, &plan);
                }
            }
        }
    }

    /// Gives the routers of one sender to one task a plan. The sender is a group, or the ingresses.
    pub fn plan_sender(&mut self, pipeline: usize, from: Option<usize>, to: u32, plan: &SenderPlan) {
        let Some(from) = from else {
            self.run.pipelines[pipeline].ingresses.clone().for_each(|router| self.set_plan(router, plan));
            return;
        };
        let group = &self.replicas.groups[from];
        let edges = &self.run.groups[group.group as usize].edges;
        let Some(edge) = edges.iter().position(|e| e.to == to) else { return };
        for &station in &group.stations {
            self.set_plan(self.run.serving.infos[station as usize].router + edge as u32, plan);
        }
    }

    fn set_plan(&mut self, router: u32, plan: &SenderPlan) {
        if let Some(router) = &mut self.run.serving.routers[router as usize] {
            router.plan(plan.parts.clone(), plan.backup.execution.clone(), plan.backup.groups.clone());
        }
    }

    /// The use that the plan in force makes of the groups of a task, for a sender.
    fn sender_plan(
        &self,
        compiler: &PipelineCompiler<'a>,
        from: Option<&GroupName>,
        pipeline: u32,
        to: u32,
    ) -> Option<SenderPlan> {
        let of_task = self.replicas.of_task(pipeline, to);
        let groups: Vec<TaskGroup<'_>> =
            of_task.map(|c| TaskGroup { name: &c.name, replica_qps: c.capacity_qps(1) }).collect();
        let names: Vec<&GroupName> = groups.iter().map(|g| g.name).collect();
        // The tables fit: they were checked when the plan came.
        let routes = compiler.routes().ok()?;
        let parts = compiler.parts(from, &routes, &groups);
        let is_rerouted = compiler.serving.dropping.reroutes();
        let backup = if is_rerouted { compiler.backup(&routes, TaskIndex(to as usize), &names) } else { Backup::default() };
        Some(SenderPlan { parts, backup })
    }

    /// Senders to a group's task learn which of the task's replicas serve. The module states learn the throughput of these
    /// replicas.
    pub fn retarget_task(&mut self, group: usize) {
        let (pipeline, task) = (self.replicas.groups[group].pipeline, self.replicas.groups[group].task);
        let Some(compiler) = &self.plans[pipeline as usize] else { return };
        let targets: Vec<GroupTargets> = self.replicas.of_task(pipeline, task).map(GroupTargets::of).collect();
        let groups = GroupTargets::serving(&targets);
        for router in self.run.routers_to(pipeline, task, compiler.pipeline.root().get() as u32) {
            if let Some(router) = &mut self.run.serving.routers[router as usize] {
                // Without any target, queries keep their way and wait for the next replica.
                let _ = router.retarget(&groups);
            }
        }
        self.update_modules(pipeline, task);
    }

    /// As [`RouterUpdates::retarget_task`], for all tasks of a pipeline.
    pub fn retarget_pipeline(&mut self, pipeline: usize) {
        for at in 0..self.replicas.groups.len() {
            if self.replicas.groups[at].pipeline as usize == pipeline && self.replicas.groups[at].position == 0 {
                self.retarget_task(at);
            }
        }
    }

    /// The module states of a task follow the replicas that serve. While none serves, they follow the plan's.
    fn update_modules(&mut self, pipeline: u32, task: u32) {
        let Some(modules) = self.run.modules.of_pipeline(pipeline).filter(|s| !s.is_fixed) else { return };
        let is_served = self.replicas.of_task(pipeline, task).any(|c| c.known_to_senders() > 0);
        let replicas = |c: &GroupReplicas| if is_served { c.known_to_senders() } else { c.wanted };
        let of_task = self.replicas.of_task(pipeline, task).filter(|c| replicas(c) > 0);
        let staffing = |c: &GroupReplicas| Staffing { execution: c.execution, throughput_qps: c.capacity_qps(replicas(c)) };
        modules.planner.staff(task as usize, Staffing::together(of_task.map(staffing)));
    }

    /// Module states that only change with the plan follow the plan in force.
    ///
    /// # Errors
    /// If the pipeline has too many paths for them.
    pub fn plan_modules(&mut self, pipeline: usize) -> Result<(), SimulateError> {
        let Some(compiler) = &self.plans[pipeline] else { return Ok(()) };
        let now = self.run.now;
        let Some(modules) = self.run.modules.of_pipeline(pipeline as u32).filter(|s| s.is_fixed) else { return Ok(()) };
        let Some(planner) = compiler.state_planner()? else { return Ok(()) };
        modules.planner = planner;
        modules.send_views(now, &mut self.run.serving);
        Ok(())
    }

    /// A router from a group to a task, by the plan in force and the replicas that serve. Without such replicas it leads to
    /// a station where queries wait for the next one; `None` if there is no such station.
    #[must_use]
    pub fn new_router(&self, group: usize, to: u32) -> Option<Router> {
        let group = &self.replicas.groups[group];
        let compiler = self.plans[group.pipeline as usize].as_ref()?;
        let of_task = || self.replicas.of_task(group.pipeline, to);
        let targets: Vec<GroupTargets> = of_task().map(GroupTargets::of).collect();
        let waits = || of_task().flat_map(|c| c.dead.iter().map(|d| d.replica.station)).next();
        let first: Vec<u32> = targets.iter().flat_map(|t| &t.targets).copied().next().or_else(waits).into_iter().collect();
        let mut router = Router::new(compiler.within(), &[(1.0, &first)], 0)?;
        let plan = self.sender_plan(compiler, Some(&group.name), group.pipeline, to)?;
        router.plan(plan.parts, plan.backup.execution, plan.backup.groups);
        let _ = router.retarget(&GroupTargets::serving(&targets));
        Some(router)
    }

    /// Gives new central queues their routers.
    pub fn connect(&mut self, pipeline: usize) {
        for (at, group) in self.replicas.groups.iter().enumerate().filter(|(_, c)| c.pipeline as usize == pipeline) {
            for edge in 0..self.run.groups[group.group as usize].edges.len() {
                let to = self.run.groups[group.group as usize].edges[edge].to;
                for &station in &group.stations {
                    let router = self.run.serving.infos[station as usize].router as usize + edge;
                    if self.run.serving.routers[router].is_none() {
                        self.run.serving.routers[router] = self.new_router(at, to);
                    }
                }
            }
        }
    }
}
