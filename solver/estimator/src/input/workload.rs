//! When queries enter each pipeline's root.

use crate::random::RandomStream;
use apportion_domain::{ArrivalTrace, Moment, Problem};

/// Length of the default trace in seconds.
pub const DEFAULT_SECONDS: u64 = 60;
/// Root seed of the default trace.
pub const DEFAULT_SEED: u64 = 1;
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// How arrivals are drawn inside a second of a rates trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps, the first query at the start.
    Uniform,
    /// Gamma gaps with this coefficient of variation: 1 is Poisson, 0 is uniform.
    Gamma(f64),
}

/// The load of each pipeline of the problem.
#[derive(Clone, Debug)]
pub struct Workload {
    /// One trace per pipeline, in the problem's order.
    pub traces: Vec<ArrivalTrace>,
    /// How arrivals are drawn from rates.
    pub arrivals: ArrivalProcess,
    /// Root seed.
    pub seed: u64,
}

impl Workload {
    /// The default trace: Poisson at each pipeline's demand, 60 s, seed 1.
    #[must_use]
    pub fn default_for(problem: &Problem) -> Self {
        let constant = |qps: f64| ArrivalTrace::Rates((0..DEFAULT_SECONDS).map(|second| (second, qps)).collect());
        let traces = problem.pipelines.iter().map(|p| constant(p.demand_qps)).collect();
        Self { traces, arrivals: ArrivalProcess::Poisson, seed: DEFAULT_SEED }
    }
}

/// All arrivals of a trace. `name` names the random stream under `seed`: a pipeline's name gives the arrivals that a
/// simulation of the pipeline would see.
#[must_use]
pub fn draw(trace: &ArrivalTrace, process: ArrivalProcess, seed: u64, name: &str) -> Vec<Moment> {
    Arrivals::new(trace, process, seed, name).collect()
}

/// The arrivals of one trace, drawn lazily: a trace of rates costs no memory per query.
///
/// Each process is a renewal process in operational time, which is the number of queries expected so far. Gaps have the
/// mean 1 there, and the rate in force stretches them. So a gap may span seconds of different rates.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    source: Source<'a>,
}

#[derive(Clone, Debug)]
enum Source<'a> {
    Listed(std::slice::Iter<'a, Moment>),
    Drawn(Drawn<'a>),
}

/// Number of arrivals that are drawn at once: enough that the data of a draw stays in registers.
const DRAWN_AT_ONCE: usize = 64;

#[derive(Clone, Debug)]
struct Drawn<'a> {
    seconds: std::slice::Iter<'a, (u64, f64)>,
    gap: Gap,
    stream: RandomStream,
    second: u64,
    qps: f64,
    /// Part of the second gone by, 0 to 1.
    gone: f64,
    /// Expected queries until the next arrival.
    ahead: f64,
    /// Arrivals that were drawn, of which `given` have been taken.
    buffer: Vec<Moment>,
    given: usize,
}

#[derive(Clone, Copy, Debug)]
enum Gap {
    Exponential,
    Equal,
    Gamma { shape: f64 },
}

impl<'a> Arrivals<'a> {
    /// The arrivals of each pipeline.
    pub(crate) fn of(problem: &Problem, workload: &'a Workload) -> Vec<Self> {
        let traces = problem.pipelines.iter().zip(&workload.traces);
        traces.map(|(p, trace)| Self::new(trace, workload.arrivals, workload.seed, &p.name)).collect()
    }

    /// The arrivals of the pipeline called `name` under this root seed.
    #[must_use]
    pub fn new(trace: &'a ArrivalTrace, process: ArrivalProcess, seed: u64, name: &str) -> Self {
        let rows = match trace {
            ArrivalTrace::Arrivals(moments) => return Self { source: Source::Listed(moments.iter()) },
            ArrivalTrace::Rates(rows) => rows.iter(),
        };
        let gap = match process {
            ArrivalProcess::Poisson => Gap::Exponential,
            ArrivalProcess::Gamma(cv) if cv > 0.0 => Gap::Gamma { shape: 1.0 / (cv * cv) },
            ArrivalProcess::Uniform | ArrivalProcess::Gamma(_) => Gap::Equal,
        };
        let stream = RandomStream::new(seed, &format!("arrivals/{name}"));
        let (buffer, given) = (Vec::with_capacity(DRAWN_AT_ONCE), 0);
        let mut drawn = Drawn { seconds: rows, gap, stream, second: 0, qps: 0.0, gone: 1.0, ahead: 0.0, buffer, given };
        if !matches!(gap, Gap::Equal) {
            drawn.ahead = gap.draw(&mut drawn.stream);
        }
        Self { source: Source::Drawn(drawn) }
    }
}

impl Gap {
    #[inline(always)]
    fn draw(self, stream: &mut RandomStream) -> f64 {
        match self {
            Self::Exponential => stream.exponential(),
            Self::Equal => 1.0,
            Self::Gamma { shape } => stream.gamma(shape) / shape,
        }
    }
}

impl Drawn<'_> {
    #[inline]
    fn next(&mut self) -> Option<Moment> {
        if self.given == self.buffer.len() {
            self.draw();
        }
        let next = self.buffer.get(self.given).copied();
        self.given += usize::from(next.is_some());
        next
    }

    /// Draws the next arrivals, if any are left.
    #[inline(never)]
    fn draw(&mut self) {
        self.buffer.clear();
        self.given = 0;
        let mut stream = self.stream.clone();
        while self.buffer.len() < DRAWN_AT_ONCE {
            let start = self.second * NANOS as u64;
            let (qps, mut gone, mut ahead) = (self.qps, self.gone, self.ahead);
            let mut left = qps * (1.0 - gone);
            // A rounding error of the sum of equal gaps must not push the last arrival of a second into the next one.
            while ahead < left - 1e-9 * qps && self.buffer.len() < DRAWN_AT_ONCE {
                gone += ahead / qps;
                ahead = self.gap.draw(&mut stream);
                self.buffer.push(Moment::from_nanos(start + rounded(gone * NANOS)));
                left = qps * (1.0 - gone);
            }
            (self.gone, self.ahead) = (gone, ahead);
            if ahead >= left - 1e-9 * qps {
                let Some(&(second, qps)) = self.seconds.next() else { break };
                self.ahead = (ahead - left).max(0.0);
                (self.second, self.qps, self.gone) = (second, qps, 0.0);
            }
        }
        self.stream = stream;
    }
}

/// The nearest whole number, ties to even, of a number from 0 to below 2^51. The last bit of the sum is worth 1, so the
/// addition rounds. A call of `round_ties_even` costs more than anything else in an arrival except its logarithm.
#[inline]
fn rounded(x: f64) -> u64 {
    const ONE_IS_LAST: f64 = (1u64 << 52) as f64;
    (x + ONE_IS_LAST).to_bits() - ONE_IS_LAST.to_bits()
}

impl Iterator for Arrivals<'_> {
    type Item = Moment;

    #[inline]
    fn next(&mut self) -> Option<Moment> {
        match &mut self.source {
            Source::Listed(moments) => moments.next().copied(),
            Source::Drawn(drawn) => drawn.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rows: &[(u64, f64)], process: ArrivalProcess, seed: u64) -> Vec<Moment> {
        let trace = ArrivalTrace::rates(rows.to_vec()).expect("rates");
        Arrivals::new(&trace, process, seed, "p").collect()
    }

    #[test]
    fn fast_rounding_equals_round_ties_even() {
        let halves = (0..2_000).map(|n| f64::from(n) / 2.0);
        let mut stream = RandomStream::new(1, "rounded");
        let drawn: Vec<f64> = (0..100_000).map(|n| stream.exponential() * 10f64.powi(n % 15)).collect();
        for x in halves.chain(drawn).chain([1e9, 2f64.powi(51) - 0.5]) {
            assert_eq!(rounded(x), x.round_ties_even() as u64, "{x}");
        }
    }

    #[test]
    fn uniform_arrivals_start_each_second_and_keep_their_gap() {
        let ms: Vec<f64> =
            drawn(&[(0, 4.0), (1, 2.0), (5, 1.0)], ArrivalProcess::Uniform, 1).into_iter().map(Moment::as_millis).collect();
        assert_eq!(ms, [0.0, 250.0, 500.0, 750.0, 1000.0, 1500.0, 5000.0]);
        for qps in [3.0, 7.0, 560.0, 997.0] {
            let rows: Vec<_> = (0..10).map(|s| (s, qps)).collect();
            assert_eq!(drawn(&rows, ArrivalProcess::Uniform, 1).len(), (10.0 * qps) as usize, "{qps}");
        }
    }

    #[test]
    fn gaps_have_the_requested_mean_and_variation() {
        let rows: Vec<_> = (0..200).map(|s| (s, 500.0)).collect();
        for (process, cv) in
            [(ArrivalProcess::Poisson, 1.0), (ArrivalProcess::Gamma(2.0), 2.0), (ArrivalProcess::Gamma(0.5), 0.5)]
        {
            let arrivals = drawn(&rows, process, 3);
            let gaps: Vec<f64> = arrivals.windows(2).map(|w| w[1].since(w[0]).as_millis()).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean - 2.0).abs() < 0.05, "{process:?}: mean gap {mean} ms");
            assert!((variance.sqrt() / mean - cv).abs() < 0.05 * cv, "{process:?}: {}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn arrivals_only_depend_on_seed_and_name() {
        let rows: Vec<_> = (0..20).map(|s| (s, if s % 3 == 0 { 0.0 } else { 90.5 })).collect();
        let a = drawn(&rows, ArrivalProcess::Poisson, 1);
        assert_eq!(a, drawn(&rows, ArrivalProcess::Poisson, 1));
        assert_ne!(a, drawn(&rows, ArrivalProcess::Poisson, 2));
        assert!(a.windows(2).all(|w| w[0] <= w[1]));
        let silent = |m: &Moment| (m.as_nanos() / 1_000_000_000).is_multiple_of(3);
        assert!(!a.iter().any(silent), "no arrivals in seconds of rate 0");
    }

    #[test]
    fn listed_arrivals_pass_through() {
        let moments = vec![Moment::from_nanos(3), Moment::from_nanos(3), Moment::from_nanos(9)];
        let trace = ArrivalTrace::arrivals(moments.clone()).expect("arrivals");
        assert_eq!(Arrivals::new(&trace, ArrivalProcess::Poisson, 1, "p").collect::<Vec<_>>(), moments);
    }
}
