//! How do plans fare when the machine is not as the profile says?
//!
//! Example: a plan is made on a profile. In service every batch takes 1.25 times as long. How many requests are in time?

mod closed_loop;
mod disturbance;
mod fixed_plans;
mod pipelines;

use self::disturbance::MachineDisturbance;
use self::pipelines::pipelines;
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Claim, ClaimVerdict, Report};
use apportion_support::exit::Failure;
use apportion_support::output::percent;

/// The attainment that the closed loop shall keep.
const KEPT: f64 = 0.95;

/// Fixed plans of every planner, and the closed loop, under disturbances that no planner was told of.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let tried = pipelines(lab)?;
    let fixed = fixed_plans::compare(lab, &tried)?;
    let closed = closed_loop::compare(lab, &tried)?;
    let claims = vec![
        claim(
            &closed,
            MachineDisturbance::Latencies(1.25),
            "With the closed loop, 95 % are in time when every batch takes 1.25 times as long (aim)",
        ),
        claim(
            &closed,
            MachineDisturbance::Latencies(1.5),
            "At 1.5 times the closed loop falls back to accuracy and not to loss: 95 % are in time after the first minute (aim)",
        ),
    ];
    let mut tables = vec![fixed.table];
    tables.extend(closed.tables());
    Ok(Report {
        name: "robustness",
        title: "Plans on machines that are not as the profile says",
        source: "our own aim",
        method: method(),
        claims,
        tables,
        plots: vec![fixed.plot],
    })
}

/// A claim about the closed loop after the first minute.
fn claim(closed: &closed_loop::ClosedLoop, disturbance: MachineDisturbance, claimed: &str) -> Claim {
    let settled = closed.settled(disturbance);
    let kept = settled.iter().filter(|s| s.attainment >= KEPT).count();
    let each: Vec<String> =
        settled.iter().map(|s| format!("{} {} at accuracy {:.2}", s.pipeline, percent(s.attainment), s.accuracy)).collect();
    Claim {
        claimed: claimed.into(),
        seen: format!("{kept} of {} pipelines; {}", settled.len(), each.join(", ")),
        verdict: ClaimVerdict::of_cases(kept, settled.len()),
        why: "The loop counts misses. It raises the demand that plans are made for, until the least accurate variants on \
              all devices are reached. No loop helps where the slowed batches alone exceed the SLO."
            .into(),
    }
}

fn method() -> String {
    format!(
        "The headline's pipelines, each at the demand of its file, with Poisson arrivals. Plans are made on the profile. The \
         estimator then plays them on {} other seeds with a disturbance: all latencies times 1.1, 1.25 and 1.5; every \
         fan-out times 1.3; one replica of the busiest group at half speed; one agent with {} devices lost for good, of the \
         busiest groups. Policies that estimate times know the disturbed ones. A fixed plan stays for {} s. The closed loop \
         plays {} s: plans are made for {} times the load, the service's default. Stewards follow the ladder with the \
         feedback on misses, and every 10 s a round may change the plan by the service's rules for least cost. A lost \
         agent's replicas may come back on spare devices \
         there. A pipeline without a plan counts as nothing in time. The last table plays the slow replica with other ways to \
         share the queries of a group.",
        fixed_plans::SEEDS,
        disturbance::AGENT_DEVICES,
        fixed_plans::SECONDS,
        closed_loop::SECONDS,
        closed_loop::planned_headroom(),
    )
}
