//! The search against the plain algorithm: every action of every round judged by a run of the whole workload.

use super::assemble::assemble;
use super::initialise::{bottleneck, initialise};
use super::judge::SettingJudge;
use super::minimise::{MinimiseResult, minimise};
use super::settings::{SettingArithmetic, TaskSetting};
use crate::fixtures::{chain, draft, idle_task, problem, task, variant};
use crate::replay;
use apportion_domain::ArrivalTrace;
use apportion_domain::{HardwareIndex, LatencyRule, PipelineIndex, Problem, SLACK, Share, StopReason, TaskIndex};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// The plain algorithm, as slow and obvious as it can be.
struct Plain<'a> {
    arithmetic: SettingArithmetic<'a>,
    workload: &'a Workload,
    limits: &'a RunLimits,
}

impl Plain<'_> {
    fn is_feasible(&self, settings: &[TaskSetting]) -> bool {
        let problem = self.arithmetic.problem;
        self.arithmetic.within_devices(settings)
            && assemble(&self.arithmetic, settings).is_some_and(|plan| {
                replay::replay(problem, &plan, self.workload, self.limits)
                    .is_ok_and(|s| replay::percentile_misses(problem, &s.pipelines).iter().all(|&miss| miss <= 0.0))
            })
    }

    fn initialise(&self) -> Option<Vec<TaskSetting>> {
        let problem = self.arithmetic.problem;
        let mut settings = Vec::new();
        for p in (0..problem.pipelines.len()).map(PipelineIndex) {
            for t in (0..problem.pipeline(p).tasks.len()).map(TaskIndex) {
                settings.push(self.arithmetic.fastest_setting(p, t)?);
            }
            if self.arithmetic.service_ms(p, &settings) > problem.pipeline(p).slo_ms {
                return None;
            }
        }
        while !self.is_feasible(&settings) {
            let bottleneck = bottleneck(&self.arithmetic, &settings)?;
            settings[bottleneck].replicas += 1;
        }
        Some(settings)
    }

    fn minimise(&self, mut settings: Vec<TaskSetting>) -> Vec<TaskSetting> {
        loop {
            let before = self.arithmetic.cost_per_hour(&settings);
            let mut best: Option<(f64, Vec<TaskSetting>)> = None;
            for i in 0..settings.len() {
                for candidate in self.actions(&settings, i) {
                    let saving = before - self.arithmetic.cost_per_hour(&candidate);
                    let saves_more = saving >= 0.0 && best.as_ref().is_none_or(|(most, _)| saving > *most);
                    if self.is_feasible(&candidate) && saves_more {
                        best = Some((saving, candidate));
                    }
                }
            }
            match best {
                Some((_, better)) => settings = better,
                None => return settings,
            }
        }
    }

    fn actions(&self, settings: &[TaskSetting], i: usize) -> Vec<Vec<TaskSetting>> {
        let with = |changed: TaskSetting| {
            let mut all = settings.to_vec();
            all[i] = changed;
            all
        };
        let mut actions: Vec<Vec<TaskSetting>> = Vec::new();
        let s = &settings[i];
        if s.replicas > self.arithmetic.replicas_min(s) {
            actions.push(with(TaskSetting { replicas: s.replicas - 1, ..s.clone() }));
        }
        let variant = self.arithmetic.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        for (hardware, share) in variant.profile.places().filter(|&place| place != (s.hardware, s.share)) {
            if self.arithmetic.problem.fits_memory(variant.memory_mib, hardware, share) {
                actions.extend(self.moved(settings, i, hardware, share));
            }
        }
        let rows = variant.profile.on(s.hardware, s.share);
        if let Some(larger) = rows.iter().rfind(|r| r.batch > s.batch && r.batch <= 2 * s.batch) {
            actions.push(with(TaskSetting { batch: larger.batch, ..s.clone() }));
        }
        actions
    }

    /// Every batch and count on another place by increasing cost, until one holds.
    fn moved(&self, settings: &[TaskSetting], i: usize, hardware: HardwareIndex, share: Share) -> Option<Vec<TaskSetting>> {
        let (arithmetic, s) = (self.arithmetic, &settings[i]);
        let pipeline = arithmetic.problem.pipeline(s.pipeline);
        let rows = pipeline.variant(s.task, s.variant).profile.on(hardware, share);
        for replicas in arithmetic.replicas_min(s).. {
            let mut batch = rows[0].batch;
            loop {
                let mut all = settings.to_vec();
                all[i] = TaskSetting { hardware, share, batch, replicas, ..s.clone() };
                if arithmetic.cost_per_hour(&all) >= arithmetic.cost_per_hour(settings) || !arithmetic.within_devices(&all)
                {
                    return None;
                }
                let capacity = f64::from(replicas - pipeline.survive) * arithmetic.profile_row(&all[i]).throughput_qps();
                if capacity + SLACK >= arithmetic.load_qps(&all[i], &all) && self.is_feasible(&all) {
                    return Some(all);
                }
                let Some(larger) = rows.iter().rfind(|r| r.batch > batch && r.batch <= 2 * batch) else { break };
                all[i].batch = larger.batch;
                if arithmetic.service_ms(s.pipeline, &all) > pipeline.slo_ms {
                    break;
                }
                batch = larger.batch;
            }
        }
        None
    }
}

/// Both searches on one load; how many settings were simulated at most once.
fn check(problem: &Problem, workload: &Workload, what: &str) {
    let limits = RunLimits::new(Arc::new(Duration::default));
    let judge = SettingJudge::new(problem, workload, &limits).expect("few requests");
    let plain = Plain { arithmetic: judge.arithmetic, workload, limits: &limits };
    let expected = plain.initialise();
    let found = initialise(&judge).ok();
    assert_eq!(found, expected, "{what}: Algorithm 1");
    let Some(start) = found else { return };
    let expected = MinimiseResult { settings: plain.minimise(start.clone()), stopped: StopReason::Finished };
    assert_eq!(minimise(&judge, start), expected, "{what}: Algorithm 2");
}

fn rates(qps: &[f64], seed: u64) -> Workload {
    let trace = ArrivalTrace::Rates((0..).zip(qps.iter().copied()).collect());
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed }
}

#[test]
fn the_search_agrees_with_the_plain_algorithm() {
    for seed in 0..6 {
        let steady = rates(&[300.0; 6], seed);
        let bursty = rates(&[120.0, 150.0, 800.0, 130.0, 400.0, 90.0], seed);
        for slo_ms in [35.0, 60.0, 120.0, 400.0] {
            let tight = problem(chain(slo_ms));
            check(&tight, &steady, &format!("chain, {slo_ms} ms, steady, seed {seed}"));
            check(&tight, &bursty, &format!("chain, {slo_ms} ms, bursty, seed {seed}"));
        }
    }
}

#[test]
fn the_search_agrees_on_several_hardware_types_and_few_devices() {
    let rows =
        |ms: f64| [(0, 1, ms), (0, 2, 1.3 * ms), (0, 4, 2.0 * ms), (0, 8, 3.5 * ms), (1, 1, 4.0 * ms), (1, 2, 7.0 * ms)];
    for (seed, ms) in [(1, [4.0, 9.0, 3.0]), (2, [8.0, 2.0, 6.0]), (3, [5.0, 5.0, 5.0])] {
        let tasks = ["a", "b", "c"].iter().zip(ms);
        let tasks = tasks.map(|(name, ms)| task(name, vec![variant(name, 1.0, 1.0, &rows(ms))])).collect();
        let all = problem(draft(250.0, tasks, &[(0, 1), (0, 2)]));
        check(&all, &rates(&[200.0, 260.0, 180.0, 400.0], seed), &format!("fork, seed {seed}"));
        let few = all.changed(|d| d.hardware[0].count = Some(7)).expect("a valid problem");
        check(&few, &rates(&[200.0, 260.0, 180.0, 400.0], seed), &format!("fork on seven, seed {seed}"));
    }
}

#[test]
fn a_second_thread_changes_nothing() {
    let problem = problem(chain(120.0));
    let workload = rates(&[300.0, 100.0, 500.0], 7);
    let limits = RunLimits::new(Arc::new(Duration::default));
    let found = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            let judge = SettingJudge::new(&problem, &workload, &limits).expect("few requests");
            let start = initialise(&judge).ok().expect("a start");
            minimise(&judge, start)
        })
    };
    assert_eq!(found(1), found(2));
}

#[test]
fn a_task_without_queries_takes_no_time_under_rule_path() {
    let path = idle_task();
    let budgets = path.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget).expect("still valid");
    // twice the latencies of a-l and of b-l, with batch 1 on the fastest hardware
    for (problem, service_ms) in [(path, 20.0), (budgets, 140.0)] {
        let arithmetic = SettingArithmetic { problem: &problem };
        let setting = |t| arithmetic.fastest_setting(PipelineIndex(0), TaskIndex(t)).expect("a variant that fits");
        let found = arithmetic.service_ms(PipelineIndex(0), &[setting(0), setting(1)]);
        assert!((found - service_ms).abs() < 1e-9, "{found} for {service_ms}");
    }
}
