//! Which load does a demo play, and how slow are its devices? Both fit the profile, the devices and the free processors.
//!
//! Pure functions: the caller plans and measures.

use crate::live::fleet::MULTIPLE;
use serde::Serialize;

/// Factor on the observed load that plans are made for.
pub const HEADROOM: f64 = 1.2;
/// The high load, in parts of the load that all devices serve with the most accurate variants. The first one that shows
/// both steps is played.
///
/// Above 1 no number of replicas of these variants could serve it. Down to 0.95 the plan for it, with its headroom, still
/// needs cheaper variants, even if the service measures a tenth too little.
const PEAKS: [f64; 4] = [1.1, 1.05, 1.0, 0.95];
/// Arrivals scatter: the load that the service measures may be wrong by this part, in both directions.
const SCATTER: f64 = 0.1;
/// The smallest demand that is tried, as a part of the devices' capacity.
const DEMAND_MIN: f64 = 0.02;
/// Halvings of the interval of the largest demand for the most accurate variants. The result is exact to 0.4 % of the
/// capacity.
const HALVINGS: u32 = 8;

/// How a demand can be served so that the plan holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandFit {
    /// With the most accurate variants, by enough replicas of them.
    Accurately,
    /// With cheaper variants.
    Cheaply,
    /// Not at all.
    Never,
}

/// The load of a demo: `base_qps`, twice that, and `base_qps` again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FittedLoad {
    /// The low rate.
    pub base_qps: f64,
    /// The largest demand that the devices serve with the most accurate variants.
    pub accurate_qps: f64,
    /// Whether twice the low rate needs cheaper variants.
    pub needs_cheaper: bool,
}

impl FittedLoad {
    /// The high rate.
    pub fn peak_qps(&self) -> f64 {
        2.0 * self.base_qps
    }
}

/// The load for devices that serve at most `capacity_qps` with the most accurate variants and no lost time. `serves` plans
/// for a demand. `None` if no plan holds at any demand.
pub fn fit_load(capacity_qps: f64, mut serves: impl FnMut(f64) -> DemandFit) -> Option<FittedLoad> {
    let (mut most, mut too_much) = (DEMAND_MIN * capacity_qps, capacity_qps);
    if serves(most) != DemandFit::Accurately {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(most, too_much);
        let end = if serves(middle) == DemandFit::Accurately { &mut most } else { &mut too_much };
        *end = middle;
    }
    let accurate_qps = most;
    let shows_both = |&peak_qps: &f64| {
        let demand_qps = HEADROOM * peak_qps;
        // Above `accurate_qps` without a gap: a check loop can fail at one demand and hold at a higher one.
        serves(0.5 * demand_qps) == DemandFit::Accurately
            && [1.0 - SCATTER, 1.0, 1.0 + SCATTER].iter().all(|part| serves(part * demand_qps) == DemandFit::Cheaply)
    };
    let peak_qps = PEAKS.iter().map(|part| part * accurate_qps).find(shows_both);
    let all_accurate = accurate_qps / HEADROOM / (1.0 + SCATTER);
    let base_qps = 0.5 * peak_qps.unwrap_or(all_accurate);
    Some(FittedLoad { base_qps, accurate_qps, needs_cheaper: peak_qps.is_some() })
}

/// The part of the free processors that a demo may use. With a larger part, queries would queue for processors and not for
/// devices.
pub const USE_MAX: f64 = 0.6;
/// A batch that shares its processor with other work ends before its slot is free, with this factor to spare.
const STRETCH_SPARE: f64 = 2.0;

/// The free processors of a machine, and the processor time of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FreeProcessors {
    /// Processors of the machine.
    pub processors: f64,
    /// Processors that a program gets when it asks for all.
    pub free: f64,
    /// Processor seconds of a request, all of the demo's processes together.
    pub request_s: f64,
}

/// How slow the demo's devices are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceSlowness {
    /// A device holds its slot for this multiple of the measured time.
    pub multiple: f64,
    /// Processors that the high load then takes.
    pub needed: f64,
    /// Processors that it may take.
    pub allowed: f64,
    /// Whether these are enough.
    pub fits: bool,
}

/// The multiple at which the high load fits into the free processors. `peak_qps` is the load at a multiple of 1; at twice
/// the multiple the devices serve half the load. Above `multiple_max` the most accurate variants are too slow for the
/// objective. `asked` overrules everything.
pub fn fit_multiple(peak_qps: f64, free: &FreeProcessors, multiple_max: f64, asked: Option<f64>) -> DeviceSlowness {
    let (needed, allowed) = (peak_qps * free.request_s, USE_MAX * free.free);
    let wanted = MULTIPLE.max(needed / allowed.max(1e-3)).max(least_multiple(free));
    // With enough free processors, the slowest allowed devices are fine.
    let multiple = asked.unwrap_or_else(|| wanted.min(multiple_max));
    slowness_at_load(peak_qps / multiple, free, multiple)
}

/// Whether a high load fits into the free processors, with devices of this multiple.
pub fn slowness_at_load(peak_qps: f64, free: &FreeProcessors, multiple: f64) -> DeviceSlowness {
    let (needed, allowed) = (peak_qps * free.request_s, USE_MAX * free.free);
    let fits = needed <= allowed * 1.001 && multiple >= least_multiple(free) * 0.999;
    DeviceSlowness { multiple, needed, allowed, fits }
}

/// The multiple at which a batch that shares its processor with other work ends before its slot is free.
fn least_multiple(free: &FreeProcessors) -> f64 {
    STRETCH_SPARE * free.processors / free.free.max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that serve up to one demand accurately and up to another cheaply.
    fn devices(accurate_qps: f64, cheap_qps: f64) -> impl Fn(f64) -> DemandFit {
        move |qps| match qps {
            qps if qps <= accurate_qps => DemandFit::Accurately,
            qps if qps <= cheap_qps => DemandFit::Cheaply,
            _ => DemandFit::Never,
        }
    }

    #[test]
    fn only_the_doubled_load_needs_cheaper_variants() {
        // However the devices compare to the bound without lost time, and from a load of one query in minutes to thousands
        // a second.
        for scale in [0.01, 1.0, 100.0, 1e4] {
            for (accurate, cheap) in [(1.0, 2.0), (0.99, 1.6), (0.6, 0.9), (0.3, 9.0), (0.05, 0.08)] {
                let serves = devices(accurate * scale, cheap * scale);
                let fitted = fit_load(scale, &serves).expect("it can be served");
                assert!(fitted.needs_cheaper, "{accurate}, {cheap}: {fitted:?}");
                assert!((fitted.accurate_qps / scale - accurate).abs() < 0.005, "{fitted:?}");
                for part in [0.9, 1.0, 1.1] {
                    assert_eq!(serves(part * HEADROOM * fitted.peak_qps()), DemandFit::Cheaply, "{fitted:?}");
                    assert_eq!(serves(part * HEADROOM * fitted.base_qps), DemandFit::Accurately, "{fitted:?}");
                }
            }
        }
    }

    #[test]
    fn without_useful_cheap_variants_the_load_stays_accurate() {
        for cheap in [0.8, 0.82, 0.9] {
            let serves = devices(0.8, cheap);
            let fitted = fit_load(1.0, &serves).expect("it can be served");
            assert!(!fitted.needs_cheaper, "{fitted:?}");
            assert_eq!(serves(1.05 * HEADROOM * fitted.peak_qps()), DemandFit::Accurately, "{fitted:?}");
        }
        assert_eq!(fit_load(1.0, devices(0.001, 5.0)), None, "no accurate plan at any demand");
    }

    #[test]
    fn a_load_near_a_failing_plan_is_skipped() {
        // Right above the most for the accurate variants the check loop gives up.
        let serves = |qps: f64| if (1.31..1.35).contains(&qps) { DemandFit::Never } else { devices(1.0, 5.0)(qps) };
        let fitted = fit_load(1.2, serves).expect("it can be served");
        assert!(fitted.needs_cheaper && !(1.31..1.35).contains(&(HEADROOM * fitted.peak_qps())), "{fitted:?}");
    }

    #[test]
    fn devices_are_slower_on_a_busy_machine() {
        // (queries/s at a multiple of 1, processors, free, seconds of a request, most, asked), (multiple, fits)
        let table = [
            ((1_000.0, 2.0, 2.0, 0.010, 25.0, None), (10.0, true)),
            ((4_000.0, 2.0, 2.0, 0.010, 40.0, None), (33.333, true)),
            ((1_000.0, 2.0, 0.5, 0.010, 40.0, None), (33.333, true)),
            ((1_000.0, 2.0, 0.5, 0.010, 25.0, None), (25.0, false)),
            ((100.0, 2.0, 0.1, 0.001, 60.0, None), (40.0, true)),
            ((100.0, 64.0, 64.0, 0.005, 3.0, None), (3.0, true)),
            ((1_000.0, 2.0, 2.0, 0.010, 25.0, Some(5.0)), (5.0, false)),
            ((1_000.0, 2.0, 2.0, 0.010, 25.0, Some(100.0)), (100.0, true)),
        ];
        for ((peak_qps, processors, free, request_s, most, asked), (multiple, fits)) in table {
            let slowness = fit_multiple(peak_qps, &FreeProcessors { processors, free, request_s }, most, asked);
            assert!((slowness.multiple - multiple).abs() < 1e-2, "{slowness:?}");
            assert_eq!(slowness.fits, fits, "{slowness:?}");
        }
    }
}
