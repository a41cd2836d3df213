//! What is the least cost at which a policy that knows all arrivals reaches the attainment?
//!
//! The clairvoyant policy counts each group's replicas second by second. It knows the arrivals, commands without delay, and
//! begins with the replicas that it wants. Its replicas take as long to load as anybody's and are paid for meanwhile, its
//! queries are served alike, and it keeps one plan for the run. It may also do exactly what any contender did.
//!
//! The search: several plans are played under several [`Level`]s, each of which gives every second the replicas that the
//! plan's ladder has for a multiple of the load around it. A run says what each level costs and misses in each block of ten
//! seconds, or more in a long stretch. Every block then takes the level of the least `cost + price * misses`, so the few
//! misses that are allowed go where they save most. The price is found by bisection, and each mixture is played. The result
//! is a cost that was reached. The true least cost is at most that, and at least the *floor*: the device time of the
//! requests at the cheapest batch anywhere.

use super::cases::{Bound, Case, Row};
use super::contest::{Contest, ContestLoad, RunWish};
use super::protocol::USUAL_SERVICE;
use super::scalers::{GroupFacts, groups_of};
use crate::reproduce::lab::{in_parallel, rate_quantile};
use anyhow::anyhow;
use apportion_domain::{GroupName, LadderStep, Moment, Pipeline, Plan, Problem, TaskIndex, TimeSpan};
use apportion_estimator::scenario::WINDOWS_MAX;
use apportion_estimator::{CutReason, Replay, Scenario, ScenarioEvent, SimulateError, draw};
use apportion_serving::Outline;
use apportion_support::exit::Failure;
use std::collections::BTreeMap;

/// A way to count replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    /// Seconds whose mean load counts: the busiest such window around each second.
    window_s: usize,
    /// Factor on that load.
    factor: f64,
}

/// Windows of levels, in seconds.
const WINDOWS_S: [usize; 2] = [2, 8];

/// Factors of levels.
const FACTORS: [f64; 7] = [0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.25];

fn levels() -> Vec<Level> {
    WINDOWS_S.iter().flat_map(|&window_s| FACTORS.map(|factor| Level { window_s, factor })).collect()
}

/// Seconds of a block of a stretch that has as many windows as seconds.
const BLOCK_S: usize = 10;

/// Seconds of a block of a stretch. Windows of long runs double until there are at most [`WINDOWS_MAX`], and blocks grow
/// with them.
fn block_seconds(seconds: usize) -> usize {
    let window_s = std::iter::successors(Some(1), |length| Some(2 * length)).find(|length| seconds / length < WINDOWS_MAX);
    BLOCK_S * window_s.unwrap_or(1)
}

/// Steps of the bisection of the price of a miss.
const BISECTIONS: usize = 10;

/// Prices of a miss between which the bisection begins, in hours of the dearest block's cost.
const PRICES: [f64; 2] = [1e-6, 1e3];

/// A plan that the clairvoyant policy may keep.
struct ClairvoyantPlan {
    plan: Plan,
    steps: Vec<LadderStep>,
    names: Vec<GroupName>,
    /// Loading times by assignment, in whole seconds.
    load_s: Vec<usize>,
    words: String,
}

/// Replicas by second, then by assignment.
type ReplicaTable = Vec<Vec<u32>>;

/// A level's cost and misses in one block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BlockResult {
    cost: f64,
    missed: f64,
}

/// Looks for the least cost of a case; `None` if nothing reaches the attainment.
///
/// # Errors
/// If a plan does not fit its problem.
pub fn seek(contest: &Contest<'_>, load: &ContestLoad, rates: &[f64], case: &Case) -> Result<Option<Bound>, Failure> {
    let attainment = contest.protocol.attainment;
    let counts = arrivals_by_second(contest, load, rates.len());
    let plans = candidate_plans(contest, rates)?;
    let found = in_parallel(&plans, |plan| Clairvoyant { contest, load, plan, counts: &counts }.least())?;
    let own = found.into_iter().zip(&plans).filter_map(|(cost, plan)| Some((cost?, plan.words.clone())));
    let imitated = case.contenders.iter().zip(&contest.protocol.contenders).filter_map(|(results, entry)| {
        let first = [Row::Default, Row::Chosen, Row::Hindsight]
            .into_iter()
            .filter_map(|row| results.outcomes(row, attainment).first().copied()?.point());
        let holding = first.filter(|p| p.attainment >= attainment).map(|p| p.cost_per_hour);
        Some((holding.min_by(f64::total_cmp)?, format!("as {}", entry.name)))
    });
    let least = own.chain(imitated).min_by(|(a, _), (b, _)| a.total_cmp(b));
    let floor_per_hour = floor(contest, &counts)?;
    Ok(least.map(|(cost_per_hour, how)| Bound { cost_per_hour, floor_per_hour, how }))
}

/// Requests that arrive in each second.
fn arrivals_by_second(contest: &Contest<'_>, load: &ContestLoad, seconds: usize) -> Vec<f64> {
    let workload = &load.workload;
    let name = &contest.problem.pipelines[0].name;
    let mut counts = vec![0.0; seconds];
    for arrival in draw(&workload.traces[0], workload.arrivals, workload.seed, name) {
        let second = (arrival.as_nanos() / 1_000_000_000) as usize;
        counts[second.min(seconds.saturating_sub(1))] += 1.0;
    }
    counts
}

/// The plan that all start from, and ours for the median, the nineteenth twentieth and the highest rate.
fn candidate_plans(contest: &Contest<'_>, rates: &[f64]) -> Result<Vec<ClairvoyantPlan>, Failure> {
    let usual = contest.plans_of(USUAL_SERVICE);
    let mut steps: Vec<i32> = [0.5, 0.95, 1.0].map(|q| usual.grid_step(rate_quantile(rates, q))).to_vec();
    steps.dedup();
    let ours = steps.into_iter().filter_map(|step| usual.plan_on_grid(step));
    let mut plans = vec![clairvoyant_plan(contest, contest.start.plan.clone(), contest.start.steps.clone())?];
    for plan in ours {
        let ladder = plan.pipelines[0].ladder.clone();
        if !ladder.is_empty() {
            plans.push(clairvoyant_plan(contest, plan, ladder)?);
        }
    }
    Ok(plans)
}

fn clairvoyant_plan(contest: &Contest<'_>, mut plan: Plan, steps: Vec<LadderStep>) -> Result<ClairvoyantPlan, Failure> {
    let part = &mut plan.pipelines[0];
    part.ladder.clear();
    let words = format!("knowing all, by the plan for {:.0} queries/s", part.demand_qps);
    let mut load_s = Vec::new();
    for a in &plan.pipelines[0].assignments {
        let mut single = plan.clone();
        single.pipelines[0].assignments = vec![a.clone()];
        single.pipelines[0].assignments[0].replicas = a.replicas.max(1);
        let groups: Vec<GroupFacts> = groups_of(&contest.problem, &single)?;
        load_s.push((groups[0].load.as_millis() / 1e3).ceil() as usize);
    }
    let names = plan.pipelines[0].assignments.iter().map(|a| a.group.clone()).collect();
    Ok(ClairvoyantPlan { plan, steps, names, load_s, words })
}

/// The busiest mean over `window` seconds that contain each second.
fn busiest_around(counts: &[f64], window: usize) -> Vec<f64> {
    let window = window.clamp(1, counts.len().max(1));
    let means: Vec<f64> = counts.windows(window).map(|w| w.iter().sum::<f64>() / window as f64).collect();
    let around = |second: usize| {
        let first = second.saturating_sub(window - 1);
        let last = second.min(means.len().saturating_sub(1));
        means[first.min(last)..=last].iter().copied().fold(0.0, f64::max)
    };
    (0..counts.len()).map(around).collect()
}

/// Commands so that the replicas of each second are ready then: each second also asks for what the next `load_s` seconds
/// need. So a replica stays where loading another would take longer than the gap.
fn ahead(wanted: &ReplicaTable, load_s: &[usize]) -> ReplicaTable {
    let at = |second: usize| {
        let until = |load: usize| (second + load).min(wanted.len() - 1);
        let most = |(group, &load): (usize, &usize)| wanted[second..=until(load)].iter().map(|row| row[group]).max();
        load_s.iter().enumerate().map(|pair| most(pair).unwrap_or(1)).collect()
    };
    (0..wanted.len()).map(at).collect()
}

/// The level of each block that is least by `cost + price * misses`.
fn cheapest_levels(results: &[Vec<BlockResult>], price: f64) -> Vec<usize> {
    let blocks = results.first().map_or(0, Vec::len);
    let total = |level: usize, block: usize| results[level][block].cost + price * results[level][block].missed;
    let least =
        |block: usize| (0..results.len()).min_by(|&a, &b| total(a, block).total_cmp(&total(b, block))).unwrap_or_default();
    (0..blocks).map(least).collect()
}

/// One search.
struct Clairvoyant<'c> {
    contest: &'c Contest<'c>,
    load: &'c ContestLoad,
    plan: &'c ClairvoyantPlan,
    counts: &'c [f64],
}

impl Clairvoyant<'_> {
    /// The least cost per hour that reaches the attainment; `None` if no mixture does.
    fn least(&self) -> Result<Option<f64>, Failure> {
        let tables: Vec<ReplicaTable> = levels().into_iter().map(|level| self.replicas(level)).collect();
        let mut best: Option<f64> = None;
        let mut take = |run: &Replay| {
            let holds = run.simulation.total.attainment >= self.contest.protocol.attainment;
            if holds {
                best = Some(best.map_or(run.cost_per_hour, |b| b.min(run.cost_per_hour)));
            }
            holds
        };
        let runs = in_parallel(&tables, |table| self.play(table, RunWish::default()))?;
        let whole: Vec<Replay> = runs.into_iter().flatten().collect();
        whole.iter().for_each(|run| _ = take(run));
        let results: Vec<Vec<BlockResult>> = whole.iter().map(|run| self.blocks(run)).collect();
        let missed_share_max = Some(self.contest.protocol.constants.hindsight_missed_share_max);
        let dearest = results.iter().flatten().map(|b| b.cost).fold(0.0, f64::max);
        let [mut low, mut high] = PRICES.map(|price| (price * dearest).max(1e-12).ln());
        let block_s = block_seconds(self.counts.len());
        // two prices that are close often give one mixture
        let mut played: BTreeMap<Vec<usize>, bool> = BTreeMap::new();
        for _ in 0..BISECTIONS {
            let price = f64::midpoint(low, high);
            let levels = cheapest_levels(&results, price.exp());
            let holds = match played.get(&levels) {
                Some(holds) => *holds,
                None => {
                    let mixture: ReplicaTable =
                        (0..self.counts.len()).map(|second| tables[levels[second / block_s]][second].clone()).collect();
                    // a mixture that misses too much is not played to its end
                    let run = self.play(&mixture, RunWish { missed_share_max, ..RunWish::default() })?;
                    *played.entry(levels).or_insert(run.is_some_and(|run| take(&run)))
                }
            };
            *(if holds { &mut high } else { &mut low }) = price;
        }
        Ok(best)
    }

    /// The replicas that a level wants in each second.
    fn replicas(&self, level: Level) -> ReplicaTable {
        let steps = &self.plan.steps;
        let of = |rate: f64| {
            let step = steps.iter().find(|s| s.rate_qps >= rate).or(steps.last());
            step.map_or_else(Vec::new, |s| s.replicas.iter().map(|&n| n.max(1)).collect())
        };
        busiest_around(self.counts, level.window_s).into_iter().map(|load| of(level.factor * load)).collect()
    }

    /// Plays replicas that are ready in the seconds for which they are wanted. `None` if the run was given up.
    fn play(&self, wanted: &ReplicaTable, wish: RunWish) -> Result<Option<Replay>, Failure> {
        let commands = ahead(wanted, &self.plan.load_s);
        let mut plan = self.plan.plan.clone();
        plan.pipelines[0].assignments.iter_mut().zip(&commands[0]).for_each(|(a, &n)| a.replicas = n);
        let mut events = Vec::new();
        for (second, pair) in commands.windows(2).enumerate() {
            let at = Moment::ZERO + TimeSpan::from_millis(1e3 * (second + 1) as f64);
            for (group, name) in self.plan.names.iter().enumerate().filter(|&(g, _)| pair[0][g] != pair[1][g]) {
                let (pipeline, replicas) = (plan.pipelines[0].name.clone(), pair[1][group]);
                events.push((at, ScenarioEvent::Replicas { pipeline, group: name.clone(), replicas }));
            }
        }
        let scenario = Scenario { events, ..self.contest.scenario() };
        match self.contest.replay(&plan, self.load, scenario, wish) {
            Ok(run) => Ok(Some(run)),
            Err(SimulateError::Cut(CutReason::Missed { .. })) => Ok(None),
            Err(e) => Err(anyhow!("{}: the bound: {e}", self.contest.name).into()),
        }
    }

    /// What a run cost and missed in each block. What follows the last second belongs to the last block.
    fn blocks(&self, run: &Replay) -> Vec<BlockResult> {
        let block_s = block_seconds(self.counts.len());
        let mut blocks = vec![BlockResult::default(); self.counts.len().div_ceil(block_s)];
        let last = blocks.len() - 1;
        for window in &run.windows {
            let second = (window.start.since(Moment::ZERO).as_millis() / 1e3) as usize;
            let block = &mut blocks[(second / block_s).min(last)];
            block.cost += window.cost;
            block.missed += (window.late + window.dropped + window.failed) as f64;
        }
        blocks
    }
}

/// A cost per hour below which no policy can be. Each task has a replica all the time. The queries of the share that must
/// be answered take at least the device time of the cheapest batch on any hardware.
fn floor(contest: &Contest<'_>, counts: &[f64]) -> Result<f64, Failure> {
    let (problem, pipeline) = (&contest.problem, &contest.problem.pipelines[0]);
    let outline = Outline::of(pipeline, &problem.hardware, &contest.start.plan.pipelines[0])
        .map_err(|e| anyhow!("{}: {e}", contest.name))?;
    let answered_qps = contest.protocol.attainment * counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    let scales = outline.scales();
    let tasks = scales.iter().enumerate().filter(|(_, scale)| **scale > 0.0);
    let cost = |(task, scale): (usize, &f64)| {
        let Cheapest { replica, query_second } = cheapest(problem, pipeline, TaskIndex(task));
        replica.max(answered_qps * scale * query_second)
    };
    Ok(tasks.map(cost).sum())
}

/// The cheapest prices of a task.
struct Cheapest {
    /// A replica, per hour.
    replica: f64,
    /// A query per second, per hour.
    query_second: f64,
}

fn cheapest(problem: &Problem, pipeline: &Pipeline, task: TaskIndex) -> Cheapest {
    let mut least = Cheapest { replica: f64::INFINITY, query_second: f64::INFINITY };
    for variant in &pipeline.task(task).variants {
        for row in variant.profile.rows().iter().filter(|row| row.latency_ms <= pipeline.slo_ms) {
            let price = problem.hardware_at(row.hardware).price_per_hour * row.share.value();
            least.replica = least.replica.min(price);
            least.query_second = least.query_second.min(price * row.latency_ms / 1e3 / f64::from(row.batch));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_window_around_a_second_counts() {
        assert_eq!(busiest_around(&[1.0, 3.0, 5.0, 1.0], 2), [2.0, 4.0, 4.0, 3.0]);
        assert_eq!(busiest_around(&[1.0, 3.0], 1), [1.0, 3.0]);
        assert_eq!(busiest_around(&[1.0, 3.0], 9), [2.0, 2.0]);
    }

    #[test]
    fn replicas_are_commanded_a_loading_time_ahead() {
        let wanted: ReplicaTable = [1, 1, 1, 4, 1, 1, 3, 1, 1, 1].map(|n| vec![n, n]).to_vec();
        let commands = ahead(&wanted, &[0, 2]);
        let of = |group: usize| commands.iter().map(|row| row[group]).collect::<Vec<u32>>();
        assert_eq!(of(0), [1, 1, 1, 4, 1, 1, 3, 1, 1, 1]);
        // Four from two seconds before; the gap of two seconds is bridged with three.
        assert_eq!(of(1), [1, 4, 4, 4, 3, 3, 3, 1, 1, 1]);
    }

    #[test]
    fn blocks_of_long_stretches_are_longer() {
        assert_eq!([1, 1_200, 8_191, 8_192, 16_383, 16_384, 86_400].map(block_seconds), [10, 10, 10, 20, 20, 40, 160]);
    }

    #[test]
    fn misses_go_where_they_save_most() {
        let block = |cost, missed| BlockResult { cost, missed };
        // The second block saves 9 for one miss, the first 1 for one.
        let results = [vec![block(1.0, 1.0), block(1.0, 1.0)], vec![block(2.0, 0.0), block(10.0, 0.0)]];
        assert_eq!(cheapest_levels(&results, 0.5), [0, 0]);
        assert_eq!(cheapest_levels(&results, 5.0), [1, 0]);
        assert_eq!(cheapest_levels(&results, 50.0), [1, 1]);
    }
}
