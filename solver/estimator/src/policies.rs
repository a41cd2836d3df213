//! The policies of one pipeline, built from their names: stations, backup tables, module states.

use crate::SimulateError;
use crate::fleet::{Compiler, QUEUE_LEN_MAX, Query};
use crate::routes::{Routes, variant_named};
use crate::steering::Steered;
use apportion_domain::{Assignment, Dropping, GroupName, Moment, Span, TaskIndex};
use apportion_serving::batcher::Batcher;
use apportion_serving::modules::Module;
use apportion_serving::replica::Input;
use apportion_serving::{Dropper, Router, StatePlanner, Station};
use std::collections::BTreeMap;

impl Compiler<'_> {
    /// A station of the group that was compiled last.
    pub(crate) fn station(&self, task: TaskIndex, a: &Assignment, servers: u32) -> Station<Query> {
        let is_last = self.pipeline.children(task).next().is_none();
        let dropping = self.serving.dropping;
        let batcher = Batcher::of(self.serving.batching, a.batch, Span::from_millis(self.reserve_ms[task.get()]));
        let service = self.fleet.groups[self.fleet.groups.len() - 1].service.clone();
        let station = Station::new(servers, batcher, Dropper::of(dropping, is_last), QUEUE_LEN_MAX).with_service(service);
        let station = if StatePlanner::needs(dropping).1 { station.monitored() } else { station };
        if StatePlanner::sorts(dropping) { station.by_remaining_time() } else { station }
    }

    /// How long a query may take at a group before it is behind (Loki section 5.2): its wait and its batch, as the latency rules
    /// reckon with them, `queue_factor` batches. The network is not part of it on either side.
    pub(crate) fn budget(&self, execution: Span) -> Span {
        match self.serving.dropping {
            Dropping::PerTask | Dropping::Reroute => Span::from_millis(self.pipeline.queue_factor * execution.as_millis()),
            _ => Span::from_nanos(u64::MAX),
        }
    }

    /// Time of a full batch of a group.
    fn execution(&self, a: &Assignment) -> Option<Span> {
        let task = self.pipeline.task_named(&a.group.task)?;
        let variant = variant_named(self.pipeline, task, &a.group.variant)?;
        let hardware = self.problem.hardware_named(&a.group.hardware)?;
        self.pipeline.variant(task, variant).profile.service(hardware, a.group.share, a.batch)
    }

    /// By task, the longest way from its end to the end of the pipeline in milliseconds, with the hop charge of each task's
    /// slowest group (the latency rule `task_budget`): what `wait_until` leaves to later tasks.
    pub(crate) fn reserves_ms(&self, by_task: &[Vec<&Assignment>]) -> Vec<f64> {
        let p = self.pipeline;
        let charge_ms = |t: usize| {
            let latencies = by_task[t].iter().filter_map(|a| self.execution(a)).map(Span::as_millis);
            let slowest = latencies.fold(0.0, f64::max);
            if slowest > 0.0 { p.hop_charge_ms(slowest) } else { 0.0 }
        };
        let mut reserve = vec![0.0; by_task.len()];
        for &task in p.order().iter().rev() {
            let after = |edge: &apportion_domain::Edge| charge_ms(edge.to.get()) + reserve[edge.to.get()];
            reserve[task.get()] = p.edges_from(task).map(after).fold(0.0, f64::max);
        }
        reserve
    }

    /// A router over the groups of a task with their backup table: those with capacity to spare, most accurate first.
    pub(crate) fn with_backup(&self, router: Router, routes: &Routes<'_>, to: TaskIndex, groups: &[&GroupName]) -> Router {
        let assigned = |g: &&GroupName| routes.assignments().iter().find(|a| a.group == **g);
        let execution = |g: &&GroupName| assigned(g).and_then(|a| self.execution(a)).unwrap_or(Span::ZERO);
        let accuracy = |g: &GroupName| {
            let variant = variant_named(self.pipeline, to, &g.variant);
            variant.map_or(0.0, |v| self.pipeline.variant(to, v).accuracy)
        };
        let mut backup: Vec<u32> = (0..groups.len() as u32).filter(|&g| routes.is_backup(groups[g as usize])).collect();
        backup.sort_by(|&a, &b| accuracy(groups[b as usize]).total_cmp(&accuracy(groups[a as usize])));
        router.with_backup(groups.iter().map(execution).collect(), backup)
    }

    /// Plans the module states, where the policy looks at them, and tells the stations what is known at the start.
    pub(crate) fn steer(
        &mut self,
        by_task: &[Vec<&Assignment>],
        capacities: &BTreeMap<&GroupName, f64>,
        line: u32,
    ) -> Result<(), SimulateError> {
        let (needs_views, they_change) = StatePlanner::needs(self.serving.dropping);
        if !needs_views {
            return Ok(());
        }
        let p = self.pipeline;
        let module = |t: usize| {
            let throughput_qps: f64 = by_task[t].iter().map(|a| capacities[&a.group]).sum();
            let weighted = |a: &&Assignment| self.execution(a).map_or(0.0, |e| e.as_millis() * capacities[&a.group]);
            let sum: f64 = by_task[t].iter().map(weighted).sum();
            let execution = Span::from_millis(if throughput_qps > 0.0 { sum / throughput_qps } else { 0.0 });
            Module { execution, throughput_qps, after: p.edges_from(TaskIndex(t)).map(|e| e.to.get()).collect() }
        };
        let modules = (0..p.tasks.len()).map(module).collect();
        let network = Span::from_millis(p.network_ms);
        let planner = StatePlanner::new(self.serving.dropping, Span::from_millis(p.slo_ms), network, modules);
        let planner = planner.map_err(|e| SimulateError::Unsupported {
            pipeline: p.name.clone(),
            what: format!("dropping {:?} with {e}", self.serving.dropping.name()),
        })?;
        let stations = self.fleet.lines[line as usize].stations.clone();
        for &station in &stations {
            let task = self.fleet.floor.places[station as usize].task_of_line as usize;
            let view = planner.view(task);
            self.fleet.floor.stations[station as usize].handle(Moment::ZERO, Input::Steer { view });
            self.fleet.floor.settle(Moment::ZERO, station, |_, _| {});
        }
        if they_change {
            self.fleet.steered.push(Steered { planner, stations, delay: network + network });
        }
        Ok(())
    }
}
