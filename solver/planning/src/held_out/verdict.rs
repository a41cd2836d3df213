//! What do the intervals of a judgement say about a plan?

use apportion_domain::{JudgedOn, JudgedPipeline, JudgedVerdict, StopReason};

/// The answer for all pipelines together.
pub(super) fn verdict(pipelines: &[JudgedPipeline]) -> JudgedVerdict {
    let has = |verdict| pipelines.iter().any(|p| p.verdict == verdict);
    match () {
        () if has(JudgedVerdict::Misses) => JudgedVerdict::Misses,
        () if has(JudgedVerdict::Undecided) => JudgedVerdict::Undecided,
        () => JudgedVerdict::Holds,
    }
}

/// Whether fewer requests than asked were in time.
pub(super) fn is_doubtful(p: &JudgedPipeline) -> bool {
    p.verdict != JudgedVerdict::Holds && p.attainment < p.percentile / 100.0
}

/// Whether the samples leave a plan that may hold: none of its pipelines had fewer requests in time than asked.
pub(crate) fn may_hold(judged: &JudgedOn) -> bool {
    !judged.pipelines.iter().any(is_doubtful)
}

/// Whether a search ends with this plan: it holds, or no sample shows a reason to tighten further.
pub(crate) fn is_accepted(judged: &JudgedOn) -> bool {
    let is_clean = |p: &JudgedPipeline| match p.verdict {
        JudgedVerdict::Holds => true,
        JudgedVerdict::Undecided => p.attainment >= 1.0,
        JudgedVerdict::Misses => false,
    };
    judged.pipelines.iter().all(is_clean)
}

/// By how much each pipeline misses the percentile, or else the lower end of its interval: 0 where the pipeline holds.
pub(crate) fn interval_misses(judged: &JudgedOn) -> Vec<f64> {
    let miss = |p: &JudgedPipeline| match p.verdict {
        JudgedVerdict::Holds => 0.0,
        _ if is_doubtful(p) => p.percentile / 100.0 - p.attainment,
        JudgedVerdict::Misses | JudgedVerdict::Undecided => (p.percentile / 100.0 - p.attainment_low).max(0.0),
    };
    judged.pipelines.iter().map(miss).collect()
}

/// Why a plan that is not accepted is no better.
pub(crate) fn stop_reason(judged: &JudgedOn) -> StopReason {
    match judged.verdict {
        JudgedVerdict::Undecided => StopReason::TraceUndecided,
        JudgedVerdict::Holds | JudgedVerdict::Misses => StopReason::TraceNotMet,
    }
}
