//! The fewest replicas of each group that hold one rate.

use super::price::replica_price;
use super::room::fits;
use crate::held_out::effort::JudgeEffort;
use crate::held_out::judge::{JudgedPlan, judge};
use crate::held_out::verdict::is_accepted;
use crate::replay;
use crate::replay::ReplayVerdict;
use apportion_domain::{Assignment, Pipeline, Plan, Problem, StopReason};
use apportion_estimator::Workload;
use apportion_mip::RunLimits;

/// Most replicas of a group in a step, as a factor on the replicas that the rate alone needs. Beyond it the rate cannot be
/// held.
const REPLICAS_OVER_MAX: u32 = 8;
/// While a rate does not hold, the busiest group grows by one replica in this many, at least by one. Superfluous
/// replicas are removed afterwards.
const GROWTH: u32 = 12;
/// The replicas of each group for one rate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepReplicas {
    /// These hold it.
    Held(Vec<u32>),
    /// No number of replicas holds it.
    NothingHolds,
    /// The replicas that hold it need more devices than there are.
    TooFewDevices,
}

/// The search for the step of one rate.
pub(super) struct StepSearch<'a> {
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    plan: &'a Plan,
    rate_qps: f64,
    workload: Workload,
    /// Its requests that may miss.
    misses_max: u64,
    limits: &'a RunLimits,
}

impl<'a> StepSearch<'a> {
    /// Of a plan of one pipeline. `workload` is the load of the rate, which is in queries per second.
    pub(super) fn new(
        problem: &'a Problem,
        plan: &'a Plan,
        rate_qps: f64,
        workload: Workload,
        limits: &'a RunLimits,
    ) -> Result<Self, StopReason> {
        let misses_max = replay::misses_max(problem, &workload, limits)?;
        Ok(Self { problem, pipeline: &problem.pipelines[0], plan, rate_qps, workload, misses_max, limits })
    }

    /// The fewest replicas that hold the rate, none fewer than `floor`. Up to the demand they are at most the plan's where
    /// these suffice. The error is why the search ended early.
    pub(super) fn find_step(&self, floor: &[u32]) -> Result<StepReplicas, StopReason> {
        let demand_qps = self.pipeline.demand_qps;
        if self.rate_qps <= demand_qps
            && let Some(held) = self.find_held_replicas(floor, &self.planned_where_counted())?
        {
            return Ok(StepReplicas::Held(held));
        }
        if self.rate_qps < demand_qps {
            return Ok(StepReplicas::TooFewDevices);
        }
        let unlimited = vec![u32::MAX; floor.len()];
        Ok(match self.find_held_replicas(floor, &unlimited)? {
            None => StepReplicas::NothingHolds,
            Some(held) if fits(self.problem, &self.plan_with(&held)) => StepReplicas::Held(held),
            Some(_) => StepReplicas::TooFewDevices,
        })
    }

    /// The plan's replicas, at least `floor`, and what the devices allow beyond them: one more at the busiest group, until
    /// there is no room for it.
    pub(super) fn most_on_devices(&self, floor: &[u32]) -> Vec<u32> {
        let mut replicas: Vec<u32> = self.planned().zip(floor).map(|(planned, &least)| planned.max(least)).collect();
        while let Some(&busiest) = self.busiest_last(&replicas).last() {
            replicas[busiest] += 1;
            if !fits(self.problem, &self.plan_with(&replicas)) {
                replicas[busiest] -= 1;
                break;
            }
        }
        replicas
    }

    fn planned(&self) -> impl Iterator<Item = u32> {
        self.plan.pipelines[0].assignments.iter().map(|a| a.replicas)
    }

    /// The plan's replicas of groups whose devices are counted. The others may have any number.
    fn planned_where_counted(&self) -> Vec<u32> {
        let is_counted = |a: &Assignment| {
            let hardware = self.problem.hardware_named(&a.group.hardware);
            hardware.is_some_and(|h| self.problem.hardware_at(h).count.is_some())
        };
        let assignments = &self.plan.pipelines[0].assignments;
        assignments.iter().map(|a| if is_counted(a) { a.replicas } else { u32::MAX }).collect()
    }

    /// Replicas that hold the rate on fresh samples, none fewer than `floor` and more than `ceiling`; `None` if no such
    /// number does.
    fn find_held_replicas(&self, floor: &[u32], ceiling: &[u32]) -> Result<Option<Vec<u32>>, StopReason> {
        let Some(mut replicas) = self.find_fewest_replicas(floor, ceiling)? else { return Ok(None) };
        let mut failed = replicas.clone();
        while !self.holds_fresh(&replicas)? {
            failed.clone_from(&replicas);
            if !self.grow(floor, ceiling, &mut replicas) {
                return Ok(None);
            }
        }
        // the last growth added replicas of one group, and some of them may be superfluous
        for i in 0..replicas.len() {
            while replicas[i] - failed[i] > 1 {
                let middle = failed[i] + (replicas[i] - failed[i]) / 2;
                let held = std::mem::replace(&mut replicas[i], middle);
                if !self.holds_fresh(&replicas)? {
                    (failed[i], replicas[i]) = (middle, held);
                }
            }
        }
        Ok(Some(replicas))
    }

    /// The load of each group if it has so many replicas, 1 being all of their capacity.
    fn busy(&self, replicas: &[u32]) -> Vec<f64> {
        let one = |(a, &n): (&Assignment, &u32)| {
            a.utilisation * f64::from(a.replicas) * self.rate_qps / (self.pipeline.demand_qps * f64::from(n))
        };
        self.plan.pipelines[0].assignments.iter().zip(replicas).map(one).collect()
    }

    /// The groups by their load, the busiest last.
    fn busiest_last(&self, replicas: &[u32]) -> Vec<usize> {
        let busy = self.busy(replicas);
        let mut groups: Vec<usize> = (0..busy.len()).collect();
        groups.sort_by(|&a, &b| busy[a].total_cmp(&busy[b]));
        groups
    }

    /// The replicas of each group whose capacity is just enough for the rate.
    fn for_rate(&self) -> Vec<u32> {
        let ones = vec![1; self.plan.pipelines[0].assignments.len()];
        self.busy(&ones).iter().map(|load| (load - 1e-9).ceil().max(1.0) as u32).collect()
    }

    /// Adds replicas at the busiest group that is below its ceiling. Returns whether there is one, and has not more than is
    /// worth a try.
    fn grow(&self, floor: &[u32], ceiling: &[u32], replicas: &mut [u32]) -> bool {
        let groups = self.busiest_last(replicas);
        let Some(&busiest) = groups.iter().rfind(|&&at| replicas[at] < ceiling[at]) else { return false };
        let more = (replicas[busiest] / GROWTH).max(1);
        replicas[busiest] = replicas[busiest].saturating_add(more).min(ceiling[busiest]);
        replicas[busiest] <= REPLICAS_OVER_MAX.saturating_mul(self.for_rate()[busiest].max(floor[busiest]))
    }

    /// The fewest replicas that hold the rate on the sample, none fewer than `floor` and more than `ceiling`; `None` if no
    /// such number does.
    pub(super) fn find_fewest_replicas(&self, floor: &[u32], ceiling: &[u32]) -> Result<Option<Vec<u32>>, StopReason> {
        let assignments = &self.plan.pipelines[0].assignments;
        let least = self.for_rate().into_iter().zip(floor).zip(ceiling);
        let least: Vec<u32> = least.map(|((n, &floor), &ceiling)| n.min(ceiling).max(floor)).collect();
        let mut replicas = least.clone();
        while !self.holds(&replicas)? {
            if !self.grow(floor, ceiling, &mut replicas) {
                return Ok(None);
            }
        }
        let price = |i: usize| replica_price(self.problem, &assignments[i]);
        let mut dearest: Vec<usize> = (0..replicas.len()).collect();
        dearest.sort_by(|&a, &b| price(b).total_cmp(&price(a)).then(a.cmp(&b)));
        for i in dearest {
            // Bisection between a count that fails and one that holds. It assumes that more replicas never harm.
            let mut fails = least[i] - 1;
            while replicas[i] - fails > 1 {
                let fewer = fails + (replicas[i] - fails) / 2;
                let held = std::mem::replace(&mut replicas[i], fewer);
                if !self.holds(&replicas)? {
                    (fails, replicas[i]) = (fewer, held);
                }
            }
        }
        Ok(Some(replicas))
    }

    /// The plan with these replicas.
    fn plan_with(&self, replicas: &[u32]) -> Plan {
        let mut plan = self.plan.clone();
        plan.pipelines[0].assignments.iter_mut().zip(replicas).for_each(|(a, &n)| a.replicas = n);
        plan
    }

    /// Whether these replicas meet the percentile on fresh samples. Other numbers of replicas get other samples. A plan
    /// that the estimator refuses does not hold.
    pub(super) fn holds_fresh(&self, replicas: &[u32]) -> Result<bool, StopReason> {
        let plan = self.plan_with(replicas);
        let purpose = format!("step/{replicas:?}");
        let judged = JudgedPlan { problem: self.problem, plan: &plan, workload: &self.workload, purpose: &purpose };
        match judge(&judged, JudgeEffort::STEP, self.limits) {
            Ok(simulation) => Ok(simulation.total.judged_on.as_ref().is_some_and(is_accepted)),
            Err(no) => no.stopped.map_or(Ok(false), Err),
        }
    }

    /// Whether these replicas meet the percentile on the sample. The error is why there is no verdict.
    pub(super) fn holds(&self, replicas: &[u32]) -> Result<bool, StopReason> {
        match replay::check_percentiles(
            self.problem,
            &self.plan_with(replicas),
            &self.workload,
            self.misses_max,
            self.limits,
        ) {
            ReplayVerdict::Holds => Ok(true),
            ReplayVerdict::Misses => Ok(false),
            ReplayVerdict::Unknown(stopped) => Err(stopped),
        }
    }
}
