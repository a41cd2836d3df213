//! Which times did the modules of one run measure in each second (PARD section 5.3)?

use crate::reproduce::lab::{mean_ms, variance};
use apportion_estimator::ModulePeriod;
use apportion_serving::Priority;
use apportion_serving::monitor::BatchEntry;

/// The reports of the modules of one pipeline.
pub struct ModuleTimes {
    /// By second, then by module.
    periods: Vec<ModulePeriod>,
    modules: usize,
}

/// Standard deviations over queries in ms, summed over the modules as if modules were independent.
pub struct TimeSpread {
    /// Of the time in queues.
    pub queueing: f64,
    /// Of the time in batches that have not started.
    pub wait: f64,
    /// Of the time in batches that run.
    pub execution: f64,
}

/// An arrival of a query at a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModuleArrival {
    /// Its moment in ms.
    pub at_ms: f64,
    /// The rest of the query's SLO in ms.
    pub left_ms: f64,
}

impl ModuleTimes {
    /// Module times from reports by period, then by module.
    pub fn new(periods: Vec<ModulePeriod>, modules: usize) -> Self {
        assert!(periods.len().is_multiple_of(modules), "a report of each module for each period");
        Self { periods, modules }
    }

    /// Number of seconds.
    pub fn seconds(&self) -> usize {
        self.periods.len() / self.modules
    }

    fn at(&self, second: usize, module: usize) -> &ModulePeriod {
        &self.periods[second * self.modules + module]
    }

    /// Mean time in the queue of one module for the queries that entered a batch in this second.
    fn queued_ms(&self, second: usize, module: usize) -> f64 {
        mean_ms(self.at(second, module).queries.entries.iter().map(|e| e.queued))
    }

    /// The same, summed over all modules.
    pub fn queueing_ms(&self, second: usize) -> f64 {
        (0..self.modules).map(|m| self.queued_ms(second, m)).sum()
    }

    /// The time that a module takes in this second: the sum of the means of queueing, batch wait and execution.
    pub fn need_ms(&self, second: usize, module: usize) -> f64 {
        let queries = &self.at(second, module).queries;
        let started = [&queries.waits, &queries.executions].map(|spans| mean_ms(spans.iter().copied()));
        self.queued_ms(second, module) + started.iter().sum::<f64>()
    }

    /// The SLO split in proportion to mean execution times.
    pub fn parts(&self, slo_ms: f64) -> Vec<f64> {
        let execution =
            |m| mean_ms((0..self.seconds()).flat_map(move |s| self.at(s, m).queries.executions.iter().copied()));
        let all: Vec<f64> = (0..self.modules).map(execution).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|e| slo_ms * e / sum.max(f64::MIN_POSITIVE)).collect()
    }

    /// Queueing, batch waits and executions of a module's queries in the chosen seconds, in ms.
    fn samples(&self, module: usize, is_chosen: &impl Fn(usize) -> bool) -> [Vec<f64>; 3] {
        let mut samples: [Vec<f64>; 3] = Default::default();
        for second in (0..self.seconds()).filter(|s| is_chosen(*s)) {
            let queries = &self.at(second, module).queries;
            samples[0].extend(queries.entries.iter().map(|e| e.queued.as_millis()));
            samples[1].extend(queries.waits.iter().map(|w| w.as_millis()));
            samples[2].extend(queries.executions.iter().map(|e| e.as_millis()));
        }
        samples
    }

    /// The spread of each part of the queries' time, over the chosen seconds.
    pub fn spread(&self, is_chosen: impl Fn(usize) -> bool) -> TimeSpread {
        let mut sums = [0.0; 3];
        for module in 0..self.modules {
            sums.iter_mut().zip(self.samples(module, &is_chosen)).for_each(|(sum, values)| *sum += variance(&values));
        }
        let [queueing, wait, execution] = sums.map(f64::sqrt);
        TimeSpread { queueing, wait, execution }
    }

    /// Arrivals at a module in the chosen seconds, in order.
    pub fn arrivals(&self, module: usize, is_chosen: impl Fn(usize) -> bool) -> Vec<ModuleArrival> {
        let chosen = (0..self.seconds()).filter(|s| is_chosen(*s));
        let entries = chosen.flat_map(|s| &self.at(s, module).queries.entries);
        let arrival = |e: &BatchEntry| ModuleArrival {
            at_ms: e.at.as_millis() - e.queued.as_millis(),
            left_ms: (e.left + e.queued).as_millis(),
        };
        let mut arrivals: Vec<ModuleArrival> = entries.map(arrival).collect();
        arrivals.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        arrivals
    }

    fn is_high_first(&self, second: usize, module: usize) -> bool {
        self.at(second, module).priority == Priority::HighBudgetFirst
    }

    /// How often the order of a module's queues changed, over all modules.
    pub fn switches(&self) -> usize {
        let switches_of_module =
            |m| (1..self.seconds()).filter(move |&s| self.is_high_first(s, m) != self.is_high_first(s - 1, m)).count();
        (0..self.modules).map(switches_of_module).sum()
    }

    /// Share of the modules' seconds in which queries with the most time left came first.
    pub fn high_first(&self) -> f64 {
        let high = self.periods.iter().filter(|p| p.priority == Priority::HighBudgetFirst).count();
        high as f64 / self.periods.len().max(1) as f64
    }

    /// Arrivals at a module over its capacity, by second.
    pub fn load(&self, module: usize, capacity_qps: f64) -> Vec<(f64, f64)> {
        (0..self.seconds()).map(|s| (s as f64, self.at(s, module).arrived as f64 / capacity_qps)).collect()
    }

    /// The order of a module's queues as steps: 1 with the most left first, else 0.
    pub fn order(&self, module: usize) -> Vec<(f64, f64)> {
        let level = |s| f64::from(u8::from(self.is_high_first(s, module)));
        (0..self.seconds()).flat_map(|s| [(s as f64 + 1.0, level(s)), (s as f64 + 2.0, level(s))]).collect()
    }
}

/// Sums over all modules of queueing, batch wait and execution in ms, drawn as if the modules were independent. The draws
/// are a lattice (a Kronecker sequence), the same in every run.
pub fn aggregates(times: &ModuleTimes) -> [Vec<f64>; 3] {
    const DRAWS: usize = 2_000;
    let mut sums = [const { Vec::new() }; 3];
    sums.iter_mut().for_each(|s| s.resize(DRAWS, 0.0));
    for module in 0..times.modules {
        // square roots of 2, 3, 4... that are no whole numbers
        let step = f64::from(4 * module as u32 + 2).sqrt();
        for (sums, values) in sums.iter_mut().zip(times.samples(module, &|_| true)) {
            for (at, sum) in (1_u32..).zip(sums.iter_mut()).filter(|_| !values.is_empty()) {
                let place = (f64::from(at) * step).fract() * values.len() as f64;
                *sum += values[(place as usize).min(values.len() - 1)];
            }
        }
    }
    sums
}

/// The largest distance in the order of arrival between two compared arrivals.
pub const NEAR: usize = 20;

/// The share of near pairs of arrivals at different moments in which the later one has less time left.
pub fn inversions(arrivals: &[ModuleArrival]) -> f64 {
    let (mut pairs, mut inverted) = (0_u64, 0_u64);
    for (at, first) in arrivals.iter().enumerate() {
        for later in arrivals[at + 1..].iter().take(NEAR).filter(|later| later.at_ms > first.at_ms) {
            pairs += 1;
            inverted += u64::from(later.left_ms < first.left_ms);
        }
    }
    inverted as f64 / pairs.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{Moment, PipelineIndex, TaskIndex, TimeSpan};
    use apportion_serving::monitor::QueryRecords;

    fn period(second: u64, module: usize, queued_ms: &[f64], priority: Priority) -> ModulePeriod {
        let at = Moment::from_millis(1000.0 * second as f64);
        let entry =
            |&ms: &f64| BatchEntry { at, queued: TimeSpan::from_millis(ms), left: TimeSpan::from_millis(100.0 - ms) };
        let queries = QueryRecords {
            entries: queued_ms.iter().map(entry).collect(),
            waits: vec![TimeSpan::from_millis(4.0); queued_ms.len()],
            executions: vec![TimeSpan::from_millis(10.0 * (module + 1) as f64); queued_ms.len()],
        };
        let arrived = queued_ms.len() as u64;
        ModulePeriod { at, pipeline: PipelineIndex(0), task: TaskIndex(module), arrived, queries, priority }
    }

    /// Arrivals from pairs of moment and time left, both in ms.
    fn arrivals(pairs: &[(f64, f64)]) -> Vec<ModuleArrival> {
        pairs.iter().map(|&(at_ms, left_ms)| ModuleArrival { at_ms, left_ms }).collect()
    }

    #[test]
    fn module_times_match_the_reports() {
        let (low, high) = (Priority::LowBudgetFirst, Priority::HighBudgetFirst);
        let periods = vec![
            period(1, 0, &[1.0, 3.0], low),
            period(1, 1, &[6.0], low),
            period(2, 0, &[], high),
            period(2, 1, &[6.0, 6.0], low),
            period(3, 0, &[5.0], low),
            period(3, 1, &[], low),
        ];
        let times = ModuleTimes::new(periods, 2);
        assert_eq!(times.seconds(), 3);
        assert_eq!((times.queueing_ms(0), times.queueing_ms(1)), (8.0, 6.0));
        assert_eq!((times.need_ms(0, 0), times.need_ms(1, 0), times.need_ms(0, 1)), (16.0, 0.0, 30.0));
        assert_eq!(times.parts(300.0), [100.0, 200.0]);
        assert_eq!(times.switches(), 2);
        assert!((times.high_first() - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(times.load(0, 2.0), [(0.0, 1.0), (1.0, 0.0), (2.0, 0.5)]);
        // queueing of 1, 3, 5 has variance 8/3, of 6, 6, 6 none; nothing else differs
        let spread = times.spread(|_| true);
        assert!((spread.queueing - (8.0_f64 / 3.0).sqrt()).abs() < 1e-9 && spread.wait == 0.0 && spread.execution == 0.0);
        // in order of arrival: 3 ms queued came first
        assert_eq!(times.arrivals(0, |s| s == 0), arrivals(&[(997.0, 100.0), (999.0, 100.0)]));
        let [queueing, wait, execution] = aggregates(&times);
        assert!(wait.iter().all(|w| (w - 8.0).abs() < 1e-9) && execution.iter().all(|e| (e - 30.0).abs() < 1e-9));
        let mean = queueing.iter().sum::<f64>() / queueing.len() as f64;
        assert!((mean - 9.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn inversions_ignore_arrivals_at_one_moment() {
        assert_eq!(inversions(&arrivals(&[(1.0, 5.0), (2.0, 6.0), (3.0, 7.0)])), 0.0);
        assert_eq!(inversions(&arrivals(&[(1.0, 5.0), (2.0, 4.0), (2.0, 3.0)])), 1.0);
        assert_eq!(inversions(&arrivals(&[(1.0, 5.0), (2.0, 4.0), (3.0, 6.0)])), 1.0 / 3.0);
        assert_eq!(inversions(&[]), 0.0);
    }
}
