//! A planned pipeline in numbers. Estimator and agents construct their machines from it.
//!
//! A driver makes one [`Outline`] of a plan or of a target, and takes tuner, state planner and reserves from it.

use crate::routing::most_accurate_first::{UnknownGroup, graph, server};
use crate::routing::tables::TaskGraph;
use crate::scaling::state_planner::{Module, Staffing, StatePlanner, TooManyPaths};
use crate::scaling::tuner::{TrafficEnvelope, TunedTask, Tuner};
use apportion_domain::{Assignment, Dropping, Hardware, Pipeline, PipelinePlan, TaskIndex, TimeSpan};

/// One group of the plan, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedGroup {
    /// Its task, by position.
    pub task: usize,
    /// Accuracy of its variant, 0 to 1.
    pub accuracy: f64,
    /// The throughput of one replica with full batches, in queries per second.
    pub replica_qps: f64,
    /// Time of a full batch.
    pub execution: TimeSpan,
    /// Queries that one query makes here by its profile, for each child of its task in that order.
    pub fanout: Vec<f64>,
    /// Replicas in the plan.
    pub replicas: u32,
    /// Part of its task's queries that the plan sends here; 0 if the plan does not say.
    pub traffic_share: f64,
}

impl PlannedGroup {
    /// The throughput of all planned replicas with full batches, in queries per second.
    fn capacity_qps(&self) -> f64 {
        self.replica_qps * f64::from(self.replicas)
    }

    /// Its weight among the groups of its task: the plan's share, otherwise its capacity.
    fn weight(&self) -> f64 {
        if self.traffic_share > 0.0 { self.traffic_share } else { self.capacity_qps() }
    }
}

/// One pipeline's part of a plan, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Tasks, and the tasks that their queries go to.
    pub graph: TaskGraph,
    /// By task: all tasks that wait for it, joins included.
    pub after: Vec<Vec<usize>>,
    /// Groups with replicas, in the plan's order.
    pub groups: Vec<PlannedGroup>,
    /// The time that a request may take.
    pub slo: TimeSpan,
    /// By task, the time of the hop into it. That of the root has the time at the ingress.
    pub hops: Vec<TimeSpan>,
    /// Batches that a query may take at a task, its own included (Loki section 4.1).
    pub queue_factor: f64,
    /// The dropping policy.
    pub dropping: Dropping,
    /// The demand that the plan was made for, in requests per second.
    pub demand_qps: f64,
}

impl Outline {
    /// Of a pipeline's part of a plan; groups are its assignments with replicas, in that order.
    ///
    /// # Errors
    /// If an assignment has a name that the pipeline or the hardware does not know.
    pub fn of(pipeline: &Pipeline, hardware: &[Hardware], part: &PipelinePlan) -> Result<Self, UnknownGroup> {
        let group = |a: &Assignment| {
            let one = server(pipeline, hardware, &Assignment { replicas: 1, ..a.clone() })?;
            Ok(PlannedGroup {
                task: one.task,
                accuracy: one.accuracy,
                replica_qps: one.capacity_qps,
                execution: TimeSpan::from_millis(1e3 * f64::from(a.batch) / one.capacity_qps),
                fanout: one.fanout,
                replicas: a.replicas,
                traffic_share: a.traffic_share,
            })
        };
        let after = |t: usize| pipeline.edges_from(TaskIndex(t)).map(|e| e.to.get()).collect();
        Ok(Self {
            graph: graph(pipeline),
            after: (0..pipeline.tasks.len()).map(after).collect(),
            groups: part.assignments.iter().filter(|a| a.replicas > 0).map(group).collect::<Result<_, _>>()?,
            slo: TimeSpan::from_millis(pipeline.slo_ms),
            hops: (0..pipeline.tasks.len()).map(|t| TimeSpan::from_millis(pipeline.hop_ms(TaskIndex(t)))).collect(),
            queue_factor: pipeline.queue_factor,
            dropping: part.serving.dropping,
            demand_qps: part.demand_qps,
        })
    }

    fn of_task(&self, task: usize) -> impl Iterator<Item = &PlannedGroup> + Clone {
        self.groups.iter().filter(move |g| g.task == task)
    }

    /// A task whose groups have these `replicas`, by group.
    #[must_use]
    pub fn staffing(&self, replicas: &[u32], task: usize) -> Staffing {
        let of_task = self.groups.iter().zip(replicas).filter(|(g, _)| g.task == task);
        let staffing = |(g, &n): (&PlannedGroup, &u32)| {
            let throughput_qps = g.replica_qps * f64::from(n);
            Staffing { execution: g.execution, throughput_qps }
        };
        Staffing::together(of_task.map(staffing))
    }

    /// Time of a full batch of a task's slowest group.
    fn slowest(&self, task: usize) -> TimeSpan {
        self.of_task(task).map(|g| g.execution).max().unwrap_or(TimeSpan::ZERO)
    }

    /// By task, the time that the batching discipline `wait_until` leaves to later tasks. It is the longest way from the
    /// task's end to the end of the pipeline, with the hop charge of each task's slowest group (the latency rule
    /// `task_budget`).
    #[must_use]
    pub fn reserves(&self) -> Vec<TimeSpan> {
        let charge = |task: usize| match self.slowest(task) {
            TimeSpan::ZERO => TimeSpan::ZERO,
            slowest => TimeSpan::from_millis(self.queue_factor * slowest.as_millis()) + self.hops[task],
        };
        let mut reserves = vec![TimeSpan::ZERO; self.after.len()];
        // A pass for each task settles any order of the tasks.
        for _ in 0..self.after.len() {
            for (task, after) in self.after.iter().enumerate() {
                reserves[task] = after.iter().map(|&to| charge(to) + reserves[to]).max().unwrap_or(TimeSpan::ZERO);
            }
        }
        reserves
    }

    /// Planner of PARD's module states for the planned replicas; `None` if the dropping policy does not use them.
    ///
    /// # Errors
    /// If the pipeline has too many paths for them.
    pub fn state_planner(&self) -> Result<Option<StatePlanner>, TooManyPaths> {
        if !StatePlanner::needs_views(self.dropping) {
            return Ok(None);
        }
        let planned: Vec<u32> = self.groups.iter().map(|g| g.replicas).collect();
        let module = |(task, after): (usize, &Vec<usize>)| {
            let Staffing { execution, throughput_qps } = self.staffing(&planned, task);
            Module { execution, throughput_qps, after: after.clone(), hop: self.hops[task] }
        };
        let modules = self.after.iter().enumerate().map(module).collect();
        StatePlanner::new(self.dropping, self.slo, modules).map(Some)
    }

    /// Queries at each task for one at the root, with the mix of groups that the plan serves: s_m of InferLine (SoCC'20,
    /// section 5).
    #[must_use]
    pub fn scales(&self) -> Vec<f64> {
        let mut scales = vec![0.0; self.graph.children.len()];
        if let Some(&root) = self.graph.order.first() {
            scales[root] = 1.0;
        }
        for &task in &self.graph.order {
            let total: f64 = self.of_task(task).map(PlannedGroup::weight).sum();
            for (child, &to) in self.graph.children[task].iter().enumerate() {
                let mean: f64 = self.of_task(task).map(|g| g.weight() / total * g.fanout[child]).sum();
                scales[to] += scales[task] * mean;
            }
        }
        scales
    }

    /// Service time of the pipeline: full batches of the slowest groups along its longest path. InferLine's smallest
    /// window.
    #[must_use]
    pub fn service(&self) -> TimeSpan {
        let mut below = vec![TimeSpan::ZERO; self.after.len()];
        for _ in 0..self.after.len() {
            for (task, after) in self.after.iter().enumerate() {
                let longest = after.iter().map(|&to| below[to]).max().unwrap_or(TimeSpan::ZERO);
                below[task] = self.slowest(task) + longest;
            }
        }
        below.into_iter().max().unwrap_or(TimeSpan::ZERO)
    }

    /// Planned replicas of each task.
    #[must_use]
    pub fn replicas_by_task(&self) -> Vec<u32> {
        (0..self.after.len()).map(|task| self.of_task(task).map(|g| g.replicas).sum()).collect()
    }

    /// InferLine's tuner, of tasks that have these `replicas`. The plan was made for a sample with this envelope (whose
    /// shortest window is [`Outline::service`]) and this mean rate at the root.
    #[must_use]
    pub fn tuner(&self, sample: &TrafficEnvelope, offered_qps: f64, replicas: Vec<u32>) -> Tuner {
        let planned = self.replicas_by_task();
        let tuned = |(task, scale): (usize, f64)| {
            let capacity_qps: f64 = self.of_task(task).map(PlannedGroup::capacity_qps).sum();
            TunedTask {
                scale,
                replica_qps: capacity_qps / f64::from(planned[task].max(1)),
                provisioning: offered_qps * scale / capacity_qps,
            }
        };
        Tuner::new(sample, self.scales().into_iter().enumerate().map(tuned).collect(), replicas)
    }

    /// Replicas of each group for those of each task: a task with several groups is scaled as a whole, its groups in
    /// proportion.
    #[must_use]
    pub fn by_group(&self, by_task: &[u32]) -> Vec<u32> {
        let planned = self.replicas_by_task();
        let part =
            |g: &PlannedGroup| f64::from(by_task[g.task]) * f64::from(g.replicas) / f64::from(planned[g.task].max(1));
        self.groups.iter().map(|g| (part(g) - 1e-9).ceil().max(1.0) as u32).collect()
    }
}
