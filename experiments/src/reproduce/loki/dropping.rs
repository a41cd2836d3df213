//! How much do Loki's early dropping and rerouting help while plans change (section 6.3)?

use super::rerouting::{compare_hand_made_plans, percent_of};
use super::traffic::{LoadShape, loading_traffic_problem, shapes};
use crate::reproduce::contenders::{CONTENDERS, TWO_STEP};
use crate::reproduce::lab::{Lab, drop_rate, in_parallel, mean, with_pipeline};
use crate::reproduce::replanning::PlansByDemand;
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use anyhow::anyhow;
use apportion_domain::{Dropping, Estimate, Plan, Problem, RoutingPolicy};
use apportion_estimator::{LateQueries, Replay};
use apportion_serving::most_accurate_first;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, percent};

/// One reading of the paper's four policies, from no dropping to rerouting.
struct Reading {
    name: &'static str,
    policies: [Dropping; 4],
    tables: TableSource,
}

/// The source of tables and backup tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableSource {
    /// They are those of the plan.
    Plan,
    /// They are made each second from the measured load (section 5.1).
    MeasuredLoad,
}

const BACK: [Dropping; 4] = [Dropping::Naive, Dropping::LastTask, Dropping::PerTask, Dropping::Reroute];

const AHEAD: [Dropping; 4] = [Dropping::Naive, Dropping::LastTask, Dropping::PerTaskAhead, Dropping::RerouteAhead];

const READINGS: [Reading; 3] = [
    Reading { name: "after a task (section 5.2)", policies: BACK, tables: TableSource::Plan },
    Reading {
        name: "after a task, tables by the second (sections 5.1, 5.2)",
        policies: BACK,
        tables: TableSource::MeasuredLoad,
    },
    Reading { name: "before a task (section 6.3)", policies: AHEAD, tables: TableSource::Plan },
];

/// The least difference at which rerouting misses less: a tenth of a point.
const LESS_MIN: f64 = 0.001;

/// The sums over the runs of one reading.
#[derive(Default)]
struct PolicySums {
    /// By policy, by run.
    missed: [Vec<f64>; 4],
    late: [Vec<f64>; 4],
    accuracy: [Vec<f64>; 4],
    /// The fates of late queries in the runs with rerouting.
    behind: LateQueries,
    /// Requests in time with rerouting, minus those with per-task dropping.
    saved: i64,
    requests: u64,
}

impl PolicySums {
    fn means(&self) -> [f64; 4] {
        self.missed.each_ref().map(|missed| mean(missed))
    }

    /// Runs in which each policy of this range misses no more than the one before.
    fn ordered(&self, policies: std::ops::Range<usize>) -> usize {
        let is_ordered = |&run: &usize| policies.clone().skip(1).all(|p| self.missed[p][run] <= self.missed[p - 1][run]);
        (0..self.missed[0].len()).filter(is_ordered).count()
    }

    fn add(&mut self, policy: usize, e: &Estimate) {
        self.missed[policy].push(drop_rate(e));
        self.late[policy].push(e.late as f64 / e.requests.max(1) as f64);
        self.accuracy[policy].push(e.accuracy);
    }
}

impl PolicySums {
    fn add_late(&mut self, per_task: &Replay, reroute: &Replay) {
        self.behind += reroute.late;
        self.saved += reroute.simulation.total.ok as i64 - per_task.simulation.total.ok as i64;
        self.requests += reroute.simulation.total.requests;
    }
}

/// Loki Fig. 7: what early dropping and rerouting are worth while plans change.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let headrooms = lab.full_or_quick(vec![1.0, 1.3, 1.7, 2.2], vec![1.3]);
    let shapes = shapes(lab)?;
    let mut table = TextTable::new(&["judged", "load", "headroom", "none", "last-task", "per-task", "rerouting"]);
    let mut summed: Vec<PolicySums> = Vec::new();
    let mut plots = Vec::new();
    let mut ways = RerouteChances::default();
    for reading in &READINGS {
        let problem = problem_of_reading(lab, reading)?;
        let planned = PlansByDemand::new(lab, &problem, CONTENDERS[TWO_STEP]);
        let planned = match reading.tables {
            TableSource::Plan => planned,
            TableSource::MeasuredLoad => planned.with_steward(),
        };
        let mut of_reading = PolicySums::default();
        for shape in &shapes {
            for &headroom in &headrooms {
                lab.show_step(format!("loki-dropping: {}, {}, headroom {headroom}", reading.name, shape.name));
                let rows = run_policies_of(lab, &planned, shape, headroom, reading)?;
                table.row(table_row(reading, shape, headroom, &rows));
                rows.iter().enumerate().for_each(|(i, run)| of_reading.add(i, &run.simulation.total));
                of_reading.add_late(&rows[2], &rows[3]);
            }
        }
        if ways.plans == 0 {
            ways.add(&problem, &planned.plans_made());
        }
        plots.push(plot(reading, &shapes, &headrooms, &of_reading));
        summed.push(of_reading);
    }
    let (by_hand, works) = compare_hand_made_plans(lab)?;
    Ok(Report {
        name: "loki-dropping",
        title: "Early dropping and opportunistic rerouting while plans change",
        source: "Loki, Fig. 7",
        method: method(),
        claims: claims(&summed, &ways).into_iter().chain([works]).collect(),
        tables: vec![
            TitledTable { title: "Means over the runs".into(), table: table_of_means(&summed) },
            TitledTable {
                title: "Queries that were behind with rerouting (beyond any group: by more than the whole next batch \
                        takes; saved: beside per-task \
                        dropping)"
                    .into(),
                table: table_of_late_queries(&summed),
            },
            by_hand,
            TitledTable { title: "Missed root requests by run".into(), table },
        ],
        plots,
    })
}

fn problem_of_reading(lab: &Lab, reading: &Reading) -> Result<Problem, Failure> {
    let problem = loading_traffic_problem(lab)?;
    match reading.tables {
        TableSource::MeasuredLoad => {
            with_pipeline(&problem, 0, |d| d.serving.routing = Some(RoutingPolicy::MostAccurateFirst))
        }
        TableSource::Plan => Ok(problem),
    }
}

fn run_policies_of(
    lab: &Lab,
    planned: &PlansByDemand<'_>,
    shape: &LoadShape,
    headroom: f64,
    reading: &Reading,
) -> Result<Vec<Replay>, Failure> {
    let runs = in_parallel(&reading.policies, |&p| planned.run(&shape.rates, lab.held_out_seed(), headroom, p))?;
    let require_run = |run: Option<Replay>| run.ok_or_else(|| anyhow!("no plan to start with on {}", shape.name).into());
    runs.into_iter().map(require_run).collect()
}

fn table_row(reading: &Reading, shape: &LoadShape, headroom: f64, rows: &[Replay]) -> Vec<String> {
    let missed = rows.iter().map(|run| percent(drop_rate(&run.simulation.total)));
    [reading.name.into(), shape.name.into(), number(headroom)].into_iter().chain(missed).collect()
}

fn table_of_means(summed: &[PolicySums]) -> TextTable {
    let mut table = TextTable::new(&["judged", "policy", "missed", "late", "accuracy", "runs"]);
    for (reading, of_reading) in READINGS.iter().zip(summed) {
        for (i, policy) in reading.policies.iter().enumerate() {
            let missed = &of_reading.missed[i];
            table.row(vec![
                reading.name.into(),
                policy.name().into(),
                percent(mean(missed)),
                percent(mean(&of_reading.late[i])),
                number(mean(&of_reading.accuracy[i])),
                missed.len().to_string(),
            ]);
        }
    }
    table
}

/// The fates of late queries.
fn table_of_late_queries(summed: &[PolicySums]) -> TextTable {
    let mut table = TextTable::new(&["judged", "requests", "behind", "beyond any group", "rerouted", "requests saved"]);
    for (reading, of_reading) in READINGS.iter().zip(summed) {
        let late = of_reading.behind;
        table.row(vec![
            reading.name.into(),
            of_reading.requests.to_string(),
            late.behind.to_string(),
            percent_of(late.beyond, late.behind),
            percent_of(late.rerouted, late.behind),
            of_reading.saved.to_string(),
        ]);
    }
    table
}

fn plot(reading: &Reading, shapes: &[LoadShape], headrooms: &[f64], of_reading: &PolicySums) -> Plot {
    let line = |(policy, missed): (&Dropping, &Vec<f64>)| Series {
        name: policy.name().into(),
        points: missed.iter().enumerate().map(|(run, missed)| (run as f64, 100.0 * missed)).collect(),
    };
    let short = |shape: &LoadShape| shape.name.split(' ').next().unwrap_or_default().to_owned();
    Plot {
        title: format!("Missed root requests, judged {}", reading.name),
        x: "load and headroom".into(),
        y: "missed (%)".into(),
        series: reading.policies.iter().zip(&of_reading.missed).map(line).collect(),
        places: shapes.iter().flat_map(|s| headrooms.iter().map(move |h| format!("{} {h}", short(s)))).collect(),
    }
}

/// The chances that plans leave for rerouting.
#[derive(Default)]
struct RerouteChances {
    /// The number of plans.
    plans: usize,
    /// Plans in which some task below the root has a backup group with a shorter batch than another group's.
    faster: usize,
    /// Plans in which every task below the root has one variant.
    single: usize,
}

impl RerouteChances {
    fn add(&mut self, problem: &Problem, plans: &[Plan]) {
        let pipeline = &problem.pipelines[0];
        let root = &pipeline.task(pipeline.root()).name;
        for part in plans.iter().map(|p| &p.pipelines[0]) {
            let Ok(routing) = most_accurate_first(pipeline, &problem.hardware, &part.assignments, part.demand_qps) else {
                continue;
            };
            let time = |a: &apportion_domain::Assignment| {
                let task = pipeline.task_named(&a.group.task)?;
                let hardware = problem.hardware_named(&a.group.hardware)?;
                let variant = pipeline.task(task).variants.iter().find(|v| v.name == a.group.variant)?;
                Some(variant.profile.row(hardware, a.group.share, a.batch)?.latency_ms)
            };
            let below: Vec<_> = part.assignments.iter().filter(|a| a.group.task != *root).collect();
            let is_backup = |a: &&&apportion_domain::Assignment| routing.backup.iter().any(|b| b.group == a.group);
            let is_faster =
                |b: &&apportion_domain::Assignment| below.iter().any(|a| a.group.task == b.group.task && time(b) < time(a));
            self.plans += 1;
            self.faster += usize::from(below.iter().filter(is_backup).any(is_faster));
            let alone =
                |a: &&apportion_domain::Assignment| below.iter().filter(|b| b.group.task == a.group.task).count() == 1;
            self.single += usize::from(below.iter().all(alone));
        }
    }
}

fn claims(summed: &[PolicySums], ways: &RerouteChances) -> Vec<Claim> {
    let beyond = |s: &PolicySums| {
        format!("{} were behind by more than the whole next batch takes", percent_of(s.behind.beyond, s.behind.behind))
    };
    let rerouted = |s: &PolicySums| percent_of(s.behind.rerouted, s.behind.behind);
    let mut claims = Vec::new();
    for (reading, of_reading) in READINGS.iter().zip(summed) {
        let means = of_reading.means();
        let shown: Vec<String> =
            reading.policies.iter().zip(&means).map(|(p, m)| format!("{} {}", p.name(), percent(*m))).collect();
        let runs = of_reading.missed[0].len();
        let describe_order = |what: &str, policies| format!("{what} in {} of {runs} runs", of_reading.ordered(policies));
        claims.push(Claim {
            claimed: format!(
                "No dropping misses most, then last-task, then per-task dropping (section 6.3); here judged {}",
                reading.name
            ),
            seen: format!("on the mean {}; {}", shown.join(", "), describe_order("this order", 0..3)),
            verdict: ClaimVerdict::of(means[..3].windows(2).all(|m| m[0] >= m[1])),
            why: match (reading.policies[2], reading.tables) {
                (Dropping::PerTask, TableSource::Plan) => {
                    "The pipeline has two levels, so a query is judged once, after the first. Where the first is \
                     overloaded, the time is spent by then: both policies have served the same queries, and per-task \
                     dropping gives up more of them. Where the second is overloaded, per-task dropping drops nothing \
                     there (the late ones in the table), and last-task dropping does."
                }
                (Dropping::PerTask, TableSource::MeasuredLoad) => "As above: tables do not change when a query is judged.",
                _ => "Dropped before they run, queries that will be late leave their time to others.",
            }
            .into(),
        });
        claims.push(Claim {
            claimed: format!("Rerouting misses less than per-task dropping (section 6.3); here judged {}", reading.name),
            seen: format!("{} against {}; {}", percent(means[3]), percent(means[2]), describe_order("no more", 2..4)),
            verdict: ClaimVerdict::of(means[3] < means[2] - LESS_MIN),
            why: match reading.tables {
                TableSource::MeasuredLoad => format!(
                    "As above; of the queries behind {}, and {} were rerouted.",
                    beyond(of_reading),
                    rerouted(of_reading)
                ),
                TableSource::Plan => format!(
                    "Hardly anything can be rerouted. Of the queries behind {}, which no faster batch makes up for, and \
                     {} were rerouted. Of {} plans {} have a single variant for each task below the root, and {} a \
                     backup group whose batch takes less than another's. Batches are as large as the latency budget \
                     allows, whatever the variant. So a faster variant has larger batches, and not shorter ones.",
                    beyond(of_reading),
                    rerouted(of_reading),
                    ways.plans,
                    ways.single,
                    ways.faster
                ),
            },
        });
    }
    claims
}

/// The method, in words.
fn method() -> String {
    "The runs of loki-phases with two-step planning, at several headrooms; only the dropping policy differs. The paper \
     defines per-task dropping and rerouting twice. By its section 5.2 a query is judged when it leaves a task, by the \
     time that it took there (`per_task`, `reroute`). By section 6.3 a query is dropped before a task that it is \
     expected to overrun (`per_task-ahead`, `reroute-ahead`). The rule on leaving a task is the same; before it, the \
     task's part of the SLO is in proportion to batch times. Both are here. Section 5.2 also runs with tables and \
     backup tables that are made each second from the measured load (section 5.1). The second and the third were added \
     because the first did not give the paper's order. The plans made by hand are for a chain of two tasks; tables send \
     nothing to the second task's faster variant."
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_ordered_by_missed_share() {
        let missed = [vec![0.9, 0.9, 0.1], vec![0.5, 0.2, 0.1], vec![0.4, 0.3, 0.1], vec![0.4, 0.1, 0.2]];
        let summed = PolicySums { missed, ..PolicySums::default() };
        assert_eq!((summed.ordered(0..3), summed.ordered(2..4), summed.ordered(0..4)), (2, 2, 1));
        assert!((summed.means()[3] - 0.7 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn reroute_chances_count_groups_with_spare_capacity() {
        let lab = Lab::quick();
        let problem = loading_traffic_problem(&lab).expect("built in");
        let planned = PlansByDemand::new(&lab, &problem, CONTENDERS[TWO_STEP]);
        let plans: Vec<Plan> = [20.0, 100.0].into_iter().filter_map(|qps| planned.plan_at(qps)).collect();
        assert_eq!(plans, planned.plans_made(), "each demand has a plan of its own");
        let mut ways = RerouteChances::default();
        ways.add(&problem, &plans);
        assert_eq!((ways.plans, ways.single + ways.faster <= 2), (2, true), "with one variant there is nothing faster");
    }
}
