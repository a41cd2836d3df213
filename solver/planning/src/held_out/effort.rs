//! How much work may a judgement take, and after how many samples does it look?
//!
//! A *look* may decide, so each look spends a part of the error ([`error_of_look`]). A *peek* comes before the first look.
//! It only sorts out plans that will hardly hold, promises nothing, and spends no error.

use super::verdict::verdict;
use apportion_domain::{ArrivalTrace, JudgedPipeline, JudgedVerdict, Pipeline, Problem};
use apportion_estimator::interval::{RunCount, attainment_interval, error_of_look, independent_max, interval_after};
use apportion_estimator::{Workload, expected_requests};

/// Least samples at the first look. With fewer, Student's t makes the interval much wider than the requests do.
const FIRST_SAMPLES_MIN: u64 = 4;
/// Samples at the first look where even a plan without a late request stays undecided.
const FIRST_SAMPLES_UNDECIDED: u64 = 8;
/// Samples that a judgement may take, however long they are.
const SAMPLES_ALLOWED: u64 = 16;
/// Samples at the first peek: one for each of two cores.
const PEEK_SAMPLES: u64 = 2;
/// Samples of a judgement that ends at once.
const FEW_SAMPLES: u64 = 4;
/// One standard error to each side: a search gives a plan up if even the upper end is too low.
const PLAUSIBLE_ERROR: f64 = 0.32;
/// Most samples. With them a load of one request per minute is decided.
const SAMPLES_MAX: u64 = 4096;

/// When a judgement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndWhen {
    /// When the plan holds or misses.
    Decided,
    /// As soon as it is not plausible that the last look shows that the plan holds. More samples may still move the plan
    /// from undecided to misses, but a search asks only for plans that hold.
    Doubtful,
    /// After a few samples, decided or not.
    AtOnce,
}

/// How much work a judgement may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgeEffort {
    /// Queries that all samples may serve together, over all tasks of a plan. A few samples may exceed it.
    visits_max: f64,
    end: EndWhen,
}

impl JudgeEffort {
    /// For a plan: about half a second of one core.
    pub const PLAN: Self = Self { visits_max: 6e6, end: EndWhen::Decided };
    /// For plans that are compared each second or so: four samples.
    pub const ROUND: Self = Self { visits_max: 0.0, end: EndWhen::AtOnce };
    /// For a plan of which nothing is asked.
    pub(crate) const ANSWER: Self = Self { visits_max: 4e5, end: EndWhen::Decided };
    /// For a plan among many of a search.
    pub(crate) const SEARCH: Self = Self { visits_max: 6e6, end: EndWhen::Doubtful };
    /// For a step of a ladder, of which there are many.
    pub(crate) const STEP: Self = Self { visits_max: 2e5, end: EndWhen::Doubtful };
}

/// A moment of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JudgeStop {
    /// Samples until then.
    pub samples: u64,
    /// The number of the look, from 1; 0 for a peek.
    pub look: i32,
}

impl JudgeStop {
    /// The error that this stop's interval may have.
    pub fn error(self) -> f64 {
        error_of_look(self.look.max(1))
    }
}

/// The stops of a judgement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LookSchedule {
    end: EndWhen,
    /// Samples at the first look.
    first: u64,
    /// The last look.
    last: JudgeStop,
    /// The least attainment at which the last look could show that a plan holds, by pipeline.
    aims: Vec<f64>,
}

impl LookSchedule {
    /// The stops of a judgement of plans with so many visits in a sample. The number of samples doubles from look to look.
    pub fn new(problem: &Problem, workload: &Workload, effort: JudgeEffort, visits: f64) -> Self {
        let allowed = ((effort.visits_max / visits) as u64).clamp(SAMPLES_ALLOWED, SAMPLES_MAX);
        let first = match effort.end {
            EndWhen::AtOnce => FEW_SAMPLES,
            EndWhen::Decided | EndWhen::Doubtful => first_samples(problem, workload, allowed),
        };
        let doublings = if effort.end == EndWhen::AtOnce { 0 } else { (allowed / first).max(1).ilog2() };
        let last = JudgeStop { samples: first << doublings, look: 1 + doublings as i32 };
        Self { end: effort.end, first, last, aims: aims(problem, workload, last) }
    }

    /// The least attainments of a plan that is worth a judgement, by pipeline.
    pub fn into_aims(self) -> Vec<f64> {
        self.aims
    }

    /// The first stop: a peek for a search, or else a look.
    pub fn start(&self) -> JudgeStop {
        match self.end {
            EndWhen::Doubtful => JudgeStop { samples: PEEK_SAMPLES, look: 0 },
            EndWhen::Decided | EndWhen::AtOnce => JudgeStop { samples: self.first, look: 1 },
        }
    }

    /// The next stop; `None` after the last one.
    pub fn after(&self, stop: JudgeStop) -> Option<JudgeStop> {
        let doubled = 2 * stop.samples;
        match stop.look {
            0 if doubled < self.first => Some(JudgeStop { samples: doubled, look: 0 }),
            0 => Some(JudgeStop { samples: self.first, look: 1 }),
            look => (look < self.last.look).then_some(JudgeStop { samples: doubled, look: look + 1 }),
        }
    }

    /// Whether a plan needs more samples after this stop.
    pub fn asks_for_more(&self, stop: JudgeStop, found: &Found<'_>) -> bool {
        // a peek that finds no doubt decides nothing
        let is_open = stop.look == 0 || verdict(found.pipelines) == JudgedVerdict::Undecided;
        match self.end {
            EndWhen::Decided => is_open,
            EndWhen::Doubtful => is_open && !self.is_hopeless(stop, found),
            EndWhen::AtOnce => false,
        }
    }

    /// Whether no plausible plan with these results attains what the last look could show to be enough. A few samples of
    /// which one is bad say little, and do not refuse a plan.
    fn is_hopeless(&self, stop: JudgeStop, found: &Found<'_>) -> bool {
        let cannot_hold = |(i, p): (usize, &JudgedPipeline)| {
            let groups = groups_of(&found.problem.pipelines[i], &found.workload.traces[i], stop.samples);
            let plausible = attainment_interval(&found.counts[i], groups, PLAUSIBLE_ERROR);
            p.verdict != JudgedVerdict::Holds && plausible.high < self.aims[i]
        };
        found.pipelines.iter().enumerate().any(cannot_hold)
    }
}

/// The least attainment at which this look could show that a plan holds, by pipeline. Where even a plan without a late
/// request stays undecided, it is the percentile.
fn aims(problem: &Problem, workload: &Workload, last: JudgeStop) -> Vec<f64> {
    let least = |(p, trace): (&Pipeline, &ArrivalTrace)| {
        let asked = p.percentile / 100.0;
        let worth_max = groups_of(p, trace, 2).min(2.0 * expected_requests(trace));
        let is_shown = |missed: u64| {
            let run = RunCount { requests: SHARES, missed };
            interval_after(&[run; 2], 0.5 * last.samples as f64, worth_max, last.error()).low >= asked
        };
        let (mut shown, mut open) = (0, (SHARES as f64 * (1.0 - asked)) as u64 + 1);
        while is_shown(0) && open - shown > 1 {
            let middle = u64::midpoint(shown, open);
            *(if is_shown(middle) { &mut shown } else { &mut open }) = middle;
        }
        if is_shown(0) { 1.0 - shown as f64 / SHARES as f64 } else { asked }
    };
    problem.pipelines.iter().zip(&workload.traces).map(least).collect()
}

/// Steps between an attainment of 0 and of 1.
const SHARES: u64 = 1_000_000;

/// What the samples of a stop show of one plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub problem: &'a Problem,
    pub workload: &'a Workload,
    /// By pipeline, then by sample.
    pub counts: &'a [Vec<RunCount>],
    pub pipelines: &'a [JudgedPipeline],
}

/// Samples at the first look: the fewest that show of a plan without a late request that it holds, if at most `allowed` do.
fn first_samples(problem: &Problem, workload: &Workload, allowed: u64) -> u64 {
    let is_enough = |samples: u64| {
        problem.pipelines.iter().zip(&workload.traces).all(|(p, trace)| {
            let run = RunCount { requests: expected_requests(trace) as u64, missed: 0 };
            let clean = interval_after(&[run; 2], 0.5 * samples as f64, groups_of(p, trace, 2), error_of_look(1));
            run.requests == 0 || clean.low >= p.percentile / 100.0
        })
    };
    if !is_enough(allowed) {
        return FIRST_SAMPLES_UNDECIDED;
    }
    let (mut few, mut enough) = (FIRST_SAMPLES_MIN - 1, allowed);
    while enough - few > 1 {
        let middle = u64::midpoint(few, enough);
        *(if is_enough(middle) { &mut enough } else { &mut few }) = middle;
    }
    enough
}

/// The largest number of independent requests in so many samples.
pub(super) fn groups_of(p: &Pipeline, trace: &ArrivalTrace, samples: u64) -> f64 {
    independent_max(samples as f64 * seconds(trace) * 1e3 / p.slo_ms)
}

/// The seconds of a trace in which requests may come.
fn seconds(trace: &ArrivalTrace) -> f64 {
    match trace {
        ArrivalTrace::Rates(rows) => rows.iter().filter(|&&(_, qps)| qps > 0.0).count() as f64,
        ArrivalTrace::Arrivals(moments) => match (moments.first(), moments.last()) {
            (Some(&first), Some(last)) => (last.since(first).as_millis() / 1e3).max(1.0),
            _ => 0.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use apportion_estimator::ArrivalProcess;

    fn steady(qps: f64, seconds: u64) -> Workload {
        let trace = ArrivalTrace::Rates((0..seconds).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
    }

    #[test]
    fn the_first_look_can_decide_a_clean_plan() {
        let problem = problem(chain(120.0));
        let clean = |seconds: u64, samples: u64| {
            let run = RunCount { requests: 300 * seconds, missed: 0 };
            let groups = independent_max(samples as f64 * seconds as f64 * 1e3 / 120.0);
            attainment_interval(&vec![run; samples as usize], groups, error_of_look(1)).low
        };
        for seconds in [2, 10, 60, 1200] {
            let first = first_samples(&problem, &steady(300.0, seconds), SAMPLES_MAX);
            assert!(clean(seconds, first) >= 0.99, "{seconds} s: {first}");
            assert!(first == FIRST_SAMPLES_MIN || clean(seconds, first - 1) < 0.99, "{seconds} s: {first}");
        }
        assert_eq!(first_samples(&problem, &steady(300.0, 1200), SAMPLES_ALLOWED), FIRST_SAMPLES_MIN);
        assert_eq!(first_samples(&problem, &steady(300.0, 2), SAMPLES_ALLOWED), FIRST_SAMPLES_UNDECIDED);
        // Without requests nothing is asked.
        assert_eq!(first_samples(&problem, &steady(0.0, 60), SAMPLES_ALLOWED), FIRST_SAMPLES_MIN);
    }

    fn schedule(effort: JudgeEffort, seconds: u64, visits: f64) -> Vec<(u64, i32)> {
        let schedule = LookSchedule::new(&problem(chain(120.0)), &steady(300.0, seconds), effort, visits);
        let stops = std::iter::successors(Some(schedule.start()), |&stop| schedule.after(stop));
        stops.map(|stop| (stop.samples, stop.look)).collect()
    }

    #[test]
    fn samples_double_from_look_to_look() {
        assert_eq!(schedule(JudgeEffort::ROUND, 1200, 1e3), [(4, 1)]);
        assert_eq!(schedule(JudgeEffort::PLAN, 1200, 3e5), [(4, 1), (8, 2), (16, 3)]);
        assert_eq!(schedule(JudgeEffort::SEARCH, 1200, 1e9), [(2, 0), (4, 1), (8, 2), (16, 3)]);
        assert_eq!(schedule(JudgeEffort::PLAN, 2, 1e9), [(8, 1), (16, 2)]);
        let short = schedule(JudgeEffort::SEARCH, 30, 1e5);
        assert_eq!(short, [(2, 0), (4, 0), (8, 0), (11, 1), (22, 2), (44, 3)]);
    }

    #[test]
    fn the_least_attainment_is_shown_by_the_last_look() {
        let (problem, workload) = (problem(chain(120.0)), steady(300.0, 30));
        let least = LookSchedule::new(&problem, &workload, JudgeEffort::SEARCH, 1e5).into_aims()[0];
        let at = |attainment: f64| {
            let requests = 1_000_000;
            let run = RunCount { requests, missed: ((1.0 - attainment) * requests as f64).round() as u64 };
            let groups = independent_max(44.0 * 30.0 * 1e3 / 120.0);
            attainment_interval(&[run; 44], groups, error_of_look(3)).low
        };
        assert!(least > 0.99 && least < 1.0, "{least}");
        assert!(at(least) >= 0.99 - 1e-6 && at(least - 2e-4) < 0.99, "{least}: {} {}", at(least), at(least - 2e-4));
        // Sixteen samples of 2 s show nothing.
        assert_eq!(LookSchedule::new(&problem, &steady(300.0, 2), JudgeEffort::SEARCH, 1e9).into_aims(), [0.99]);
    }

    #[test]
    fn a_judgement_that_cannot_decide_ends() {
        let problem = problem(chain(120.0));
        let workload = steady(300.0, 20);
        let found = |attainment: f64, missed: &[u64]| {
            let counts: Vec<RunCount> = missed.iter().map(|&missed| RunCount { requests: 6000, missed }).collect();
            let percentile = problem.pipelines[0].percentile;
            let verdict = JudgedVerdict::Undecided;
            ([counts], [JudgedPipeline { percentile, attainment, verdict, ..JudgedPipeline::default() }])
        };
        let schedule = LookSchedule::new(&problem, &workload, JudgeEffort::SEARCH, 1e5);
        let asks = |end: &LookSchedule, (counts, pipelines): &([Vec<RunCount>; 1], [JudgedPipeline; 1])| {
            let stop = JudgeStop { samples: counts[0].len() as u64, look: i32::from(counts[0].len() > 2) };
            end.asks_for_more(stop, &Found { problem: &problem, workload: &workload, counts, pipelines })
        };
        let close = found(0.9905, &[57; 12]);
        assert!(!asks(&schedule, &close), "the last look could not show it");
        assert!(asks(&LookSchedule { end: EndWhen::Decided, ..schedule.clone() }, &close), "a plan is judged to the end");
        assert!(asks(&schedule, &found(0.998, &[12; 12])) && asks(&schedule, &found(1.0, &[0; 12])));
        assert!(asks(&schedule, &found(0.9905, &[57; 2])), "two samples know too little");
        assert!(!asks(&schedule, &found(0.9, &[600; 2])), "two samples may know enough");
        let mut one_is_bad = [0; 12];
        one_is_bad[5] = 900;
        assert!(asks(&schedule, &found(0.9875, &one_is_bad)), "the next samples may all be good");
    }
}
