//! What does an agent count between two reports to the control plane?

use crate::layout::ProfiledTime;
use apportion_serving::error_budget::OutcomeCount;
use std::collections::BTreeMap;

/// Width of a bin of arrivals in nanoseconds.
pub const BIN_NS: u64 = 10_000_000;

/// Most bins that are kept for the next report, which are ten minutes; older ones are forgotten.
pub const BINS_MAX: u64 = 60_000;

/// Whose batches they are, in names: groups have new numbers in every plan, and sums go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
}

/// Since the last report.
#[derive(Debug, Default)]
pub struct ReportCounts {
    /// By pipeline.
    pub pipelines: BTreeMap<String, RequestCounts>,
    /// By pipeline and group.
    pub groups: BTreeMap<(String, u64), Batches>,
}

/// Requests at this agent's gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestCounts {
    /// Offered root queries by bin of the agent's clock.
    pub bins: BTreeMap<u64, u32>,
    /// Answered in time.
    pub ok: u64,
    /// Answered late.
    pub late: u64,
    /// Shed.
    pub dropped: u64,
    /// Failed.
    pub failed: u64,
    /// Choices of variants for requests that said what they need.
    pub choices: ChoiceCounts,
}

impl RequestCounts {
    /// The requests that ended, as error budgets count them.
    #[must_use]
    pub const fn outcomes(&self) -> OutcomeCount {
        OutcomeCount { in_time: self.ok, missed: self.late + self.dropped + self.failed }
    }
}

/// Choices of variants for requests that said what they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoiceCounts {
    /// Loaded variants were chosen.
    pub made: u64,
    /// Price of a query on them beyond that on the cheapest variants on offer that would do, in billionths of the currency,
    /// summed over the choices.
    pub regret_nano: u64,
    /// Variants that would do were not loaded, and devices had room for them.
    pub unloaded: u64,
    /// Variants that would do were not ready, or no device had room for them.
    pub not_ready: u64,
    /// No variants on offer would do.
    pub unmet: u64,
}

impl ChoiceCounts {
    /// Adds what was counted later.
    pub fn add(&mut self, later: ChoiceCounts) {
        self.made += later.made;
        self.regret_nano += later.regret_nano;
        self.unloaded += later.unloaded;
        self.not_ready += later.not_ready;
        self.unmet += later.unmet;
    }
}

/// Batches of a group's replicas here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batches {
    /// Whose they are.
    pub labels: Labels,
    /// Queries that were run.
    pub queries: u64,
    /// Batches.
    pub batches: u64,
    /// Time of the batches, in nanoseconds.
    pub busy_ns: u64,
    /// Time that their queries waited, in nanoseconds.
    pub waited_ns: u64,
    /// Queries sent on, by task.
    pub children: BTreeMap<String, u64>,
    /// Queries that were dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Batches that failed.
    pub failed: u64,
    /// Queries that ran alone because their batch had failed.
    pub alone: u64,
    /// Batches that ended, by how many queries they had.
    pub sizes: BTreeMap<usize, SizeCount>,
    /// What ended well, to be compared with the profile.
    pub ended_well: EndedWell,
    /// The batches that ended well, by their time over the profile's.
    pub ratios: RatioCounts,
}

/// Upper bounds of the buckets of [`RatioCounts`]. They are close to each other around 1.
pub const RATIO_BOUNDS: [f64; 21] =
    [0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0, 3.0, 5.0, 10.0];

/// Batches by their time over the profile's. Batches without a time in the profile do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatioCounts {
    /// One count for each of [`RATIO_BOUNDS`], and one for larger ratios.
    pub counts: [u64; RATIO_BOUNDS.len() + 1],
    /// The sum of the ratios, in millionths.
    pub sum_ppm: u64,
}

impl RatioCounts {
    /// Adds one batch.
    pub fn add_batch(&mut self, took_ns: u64, expected: ProfiledTime) {
        let expected_ns = expected.compared_ns(took_ns);
        if expected_ns > 0 {
            let ratio = took_ns as f64 / expected_ns as f64;
            self.counts[RATIO_BOUNDS.partition_point(|bound| *bound < ratio)] += 1;
            self.sum_ppm = self.sum_ppm.saturating_add((1e6 * ratio) as u64);
        }
    }

    fn add(&mut self, later: &Self) {
        self.counts.iter_mut().zip(later.counts).for_each(|(sum, more)| *sum += more);
        self.sum_ppm = self.sum_ppm.saturating_add(later.sum_ppm);
    }
}

/// Batches and queries that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedWell {
    /// Batches, offline ones included.
    pub batches: u64,
    /// Their time, in nanoseconds.
    pub took_ns: u64,
    /// Their time by the profile; 0 without a profile. It is compared with the sum of their times, and not batch by batch:
    /// neighbours take turns on a processor, so that a short batch has either all of it or none.
    pub expected: ProfiledTime,
    /// Queries of requests that were still wanted. The counted children are theirs.
    pub queries: u64,
}

impl EndedWell {
    /// Adds one batch.
    pub fn add_batch(&mut self, took_ns: u64, expected: ProfiledTime) {
        self.batches += 1;
        self.took_ns += took_ns;
        self.expected += expected;
    }

    /// The time of the profile that the batches' time is compared with, in nanoseconds.
    #[must_use]
    pub fn compared_ns(&self) -> u64 {
        self.expected.compared_ns(self.took_ns)
    }

    fn add(&mut self, later: EndedWell) {
        self.batches += later.batches;
        self.took_ns += later.took_ns;
        self.expected += later.expected;
        self.queries += later.queries;
    }
}

/// Batches of one size that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeCount {
    /// How many.
    pub batches: u64,
    /// Their time, in nanoseconds.
    pub busy_ns: u64,
}

impl SizeCount {
    /// Adds batches of this size that ended later.
    pub fn add(&mut self, batches: u64, busy_ns: u64) {
        self.batches += batches;
        self.busy_ns += busy_ns;
    }
}

impl ReportCounts {
    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pipelines.is_empty() && self.groups.is_empty()
    }

    /// Adds what was counted later.
    pub fn add(&mut self, later: ReportCounts) {
        for (name, more) in later.pipelines {
            let sum = self.pipelines.entry(name).or_default();
            more.bins.into_iter().for_each(|(bin, n)| *sum.bins.entry(bin).or_default() += n);
            if let Some(oldest) = sum.bins.keys().next_back().map(|last| last.saturating_sub(BINS_MAX)) {
                sum.bins = sum.bins.split_off(&oldest);
            }
            sum.ok += more.ok;
            sum.late += more.late;
            sum.dropped += more.dropped;
            sum.failed += more.failed;
            sum.choices.add(more.choices);
        }
        for (group, more) in later.groups {
            self.groups.entry(group).or_default().add(&more);
        }
    }
}

impl Batches {
    /// Adds what was counted later.
    pub fn add(&mut self, later: &Batches) {
        self.labels.clone_from(&later.labels);
        self.queries += later.queries;
        self.batches += later.batches;
        self.busy_ns += later.busy_ns;
        self.waited_ns += later.waited_ns;
        self.failed += later.failed;
        self.alone += later.alone;
        self.ended_well.add(later.ended_well);
        self.ratios.add(&later.ratios);
        later.children.iter().for_each(|(task, n)| *self.children.entry(task.clone()).or_default() += n);
        later.drops.iter().for_each(|(reason, n)| *self.drops.entry(reason).or_default() += n);
        for (size, more) in &later.sizes {
            self.sizes.entry(*size).or_default().add(more.batches, more.busy_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let mut all = RatioCounts::default();
        for (took_ns, expected_ns) in [(100, 100), (101, 100), (10_000, 100), (7, 0)] {
            all.add_batch(took_ns, ProfiledTime::certain(expected_ns));
        }
        let seen: Vec<_> = all.counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(seen, [(8, &1), (9, &1), (RATIO_BOUNDS.len(), &1)]);
        assert_eq!((RATIO_BOUNDS[8], all.sum_ppm), (1.0, 102_010_000));
        let mut twice = Batches { ratios: all, ..Batches::default() };
        twice.add(&Batches { ratios: all, ..Batches::default() });
        assert_eq!((twice.ratios.counts[8], twice.ratios.sum_ppm), (2, 204_020_000));
    }

    #[test]
    fn turns_of_a_processor_are_no_slowness() {
        // A batch takes 1 us alone and 2 us beside a neighbour. Two have the processor, and the third waits for its turn.
        let expected = ProfiledTime { alone_ns: 1_000, beside_ns: 2_000 };
        let mut all = EndedWell::default();
        [1_000, 1_000, 4_000].into_iter().for_each(|took_ns| all.add_batch(took_ns, expected));
        assert_eq!((all.took_ns, all.compared_ns()), (6_000, 6_000));
        all.add_batch(10_000, expected);
        assert_eq!((all.took_ns, all.compared_ns()), (16_000, 8_000), "a slow one counts beside the others");
        let quick = EndedWell { batches: 4, took_ns: 2_000, expected: all.expected, queries: 0 };
        assert_eq!(quick.compared_ns(), 4_000, "even alone they take longer");
        let mut ratios = RatioCounts::default();
        [1_500, 500, 4_000].into_iter().for_each(|took_ns| ratios.add_batch(took_ns, expected));
        assert_eq!((ratios.counts[8], ratios.sum_ppm), (1, 3_500_000), "1, a half, and two");
    }

    #[test]
    fn bounds_of_ratios_increase() {
        assert!(RATIO_BOUNDS.windows(2).all(|pair| pair[0] < pair[1]), "{RATIO_BOUNDS:?}");
    }
}
