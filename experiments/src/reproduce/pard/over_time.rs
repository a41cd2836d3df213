//! How do budgets, waits, queues and orders change over time under PARD (section 5.3, Fig. 12 and 13)?

use super::case::{BurstyTrace, DRAIN_SECONDS, OverloadCase, capacities_qps, make_case, traces};
use super::module_times::{ModuleTimes, NEAR, TimeSpread, aggregates, inversions};
use crate::reproduce::lab;
use crate::reproduce::lab::{Lab, Seconds, drop_rate, geometric_mean, in_parallel, mean, quantile};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::Dropping;
use apportion_estimator::Scenario;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, optional, percent};

/// The policies that differ in the order of the queue alone, the paper's first.
const ORDERS: [Dropping; 5] =
    [Dropping::Pard, Dropping::PardInstant, Dropping::PardFcfs, Dropping::PardLbf, Dropping::PardHbf];

/// Pipeline lv, as in the paper's Fig. 12.
const PIPELINE: usize = 1;

/// The factor at which one variance is far greater than another.
const FAR_GREATER: f64 = 2.0;

/// Loads with plots: built-in steep bursts, and the paper's trace if the data folder has it.
const SHOWN: [&str; 2] = ["bursts x2", "twitter bursty"];

/// One policy on one load.
struct PolicyRun {
    policy: Dropping,
    times: ModuleTimes,
    missed: f64,
    /// For each second, whether it or one just before offers more than the plan serves.
    overloaded: Vec<bool>,
}

fn run_policy(lab: &Lab, made: &OverloadCase, policy: Dropping) -> Result<PolicyRun, Failure> {
    let scenario = Scenario { modules: true, ..Scenario::default() };
    let workload = made.workload(lab.held_out_seed());
    let run = lab::replay_with_scenario(&made.problem, &made.plan, &workload, policy, scenario)?;
    let overloaded = Seconds::of(&run.simulation.requests).overloaded(made.capacity_qps, DRAIN_SECONDS);
    let times = ModuleTimes::new(run.modules, made.problem.pipelines[0].tasks.len());
    Ok(PolicyRun { policy, times, missed: drop_rate(&run.simulation.total), overloaded })
}

/// A choice of seconds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondsOf {
    /// The overloaded seconds.
    Overload,
    /// All others.
    Rest,
}

impl PolicyRun {
    fn is_overloaded(&self, second: usize) -> bool {
        self.overloaded.get(second).copied().unwrap_or(false)
    }

    /// The mean queueing time in all modules together in ms, over these seconds.
    fn queueing_ms(&self, seconds: SecondsOf) -> f64 {
        let chosen = (0..self.times.seconds()).filter(|&s| self.is_overloaded(s) == (seconds == SecondsOf::Overload));
        mean(&chosen.map(|s| self.times.queueing_ms(s)).collect::<Vec<_>>())
    }
}

/// All policies on one load.
struct OrderRuns {
    trace: String,
    case: OverloadCase,
    runs: Vec<PolicyRun>,
}

impl OrderRuns {
    fn of(&self, policy: Dropping) -> &PolicyRun {
        self.runs.iter().find(|r| r.policy == policy).expect("every order was run")
    }

    fn task_names(&self) -> Vec<String> {
        self.case.problem.pipelines[0].tasks.iter().map(|t| t.name.clone()).collect()
    }

    fn plot(&self, what: &str, y: &str, series: Vec<Series>) -> Plot {
        Plot { title: format!("{}: {what}", self.trace), x: "time (s)".into(), y: y.into(), series, places: vec![] }
    }
}

fn run_orders(lab: &Lab) -> Result<Vec<OrderRuns>, Failure> {
    let mut loads = Vec::new();
    for trace in traces(lab)? {
        let Some(made) = make_case(lab, PIPELINE, None, &trace)? else { continue };
        lab.show_step(format!("pard-over-time: {}", trace.name));
        let runs = in_parallel(&ORDERS, |&policy| run_policy(lab, &made, policy))?;
        let BurstyTrace { name: trace, .. } = trace;
        loads.push(OrderRuns { trace, case: made, runs });
    }
    Ok(loads)
}

/// A part of the report: claims, tables and plots of one panel.
#[derive(Default)]
struct Panel {
    claims: Vec<Claim>,
    tables: Vec<TitledTable>,
    plots: Vec<Plot>,
}

/// PARD Fig. 12 and 13.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let loads = run_orders(lab)?;
    let shown: Vec<&OrderRuns> = match loads.iter().filter(|l| SHOWN.contains(&l.trace.as_str())).collect::<Vec<_>>() {
        none if none.is_empty() => loads.iter().take(1).collect(),
        some => some,
    };
    let panels = [
        budgets(&shown),
        uncertainty(&loads, &shown),
        queueing(&loads, &shown),
        remaining(&shown),
        switches(&loads, &shown),
    ];
    let (mut claims, mut tables, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for panel in panels {
        claims.extend(panel.claims);
        tables.extend(panel.tables);
        plots.extend(panel.plots);
    }
    Ok(Report {
        name: "pard-over-time",
        title: "PARD over time: budgets, waits, queues, remaining time, changes of order",
        source: "PARD, Fig. 12 and 13",
        method: "Pipeline lv with the plan and the traces of pard-goodput, one draw. Every second the stations of each \
                 module report every query: its time in the queue, its wait in the batch, the time of the batch, and \
                 the rest of its SLO. The policies differ in the order of the queue alone. The paper's runs scale while \
                 they serve, so its peaks in Fig. 12(a) are cold starts. Here the plan does not change, and peaks are \
                 bursts. Our copy lacks the paper's figures, so its text is compared."
            .into(),
        claims,
        tables,
        plots,
    })
}

/// Fig. 12(a): the part of the SLO that each module takes, by second.
fn budgets(shown: &[&OrderRuns]) -> Panel {
    let mut table = TextTable::new(&[
        "load",
        "module",
        "mean ms",
        "least ms",
        "most ms",
        "changes by (mean ms/s)",
        "fixed part ms",
        "seconds above it",
    ]);
    let mut panel = Panel::default();
    let mut sum = SecondsAbove::default();
    for load in shown {
        let run = load.of(Dropping::Pard);
        let slo_ms = load.case.problem.pipelines[0].slo_ms;
        let parts = run.times.parts(slo_ms);
        let mut series = Vec::new();
        for (m, name) in load.task_names().into_iter().enumerate() {
            let needs: Vec<f64> = (0..run.times.seconds()).map(|s| run.times.need_ms(s, m)).collect();
            let steps: Vec<f64> = needs.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
            table.row(vec![
                load.trace.clone(),
                name.clone(),
                number(mean(&needs)),
                number(quantile(&needs, 0.0)),
                number(quantile(&needs, 1.0)),
                number(mean(&steps)),
                number(parts[m]),
                needs.iter().filter(|n| **n > parts[m]).count().to_string(),
            ]);
            series.push(Series { name, points: (0..).map(f64::from).zip(needs).collect() });
        }
        let seconds = seconds_above(run, &parts, slo_ms);
        sum.all += seconds.all;
        sum.movable += seconds.movable;
        panel.plots.push(load.plot(
            "what each module takes of the SLO (queueing, batch wait, execution)",
            "mean of the second (ms)",
            series,
        ));
    }
    panel.claims.push(budgets_claim(&sum));
    panel.tables.push(TitledTable {
        title: "Fig. 12(a): what each module takes of the SLO under pard, by second (the fixed part: in proportion to \
                execution times)"
            .into(),
        table,
    });
    panel
}

/// The claim of Fig. 12(a).
fn budgets_claim(seconds: &SecondsAbove) -> Claim {
    let SecondsAbove { all, movable } = seconds;
    Claim {
        claimed: "Modules' demands on the latency budget change quickly, and a fixed split cannot move budget to where it \
                  is needed (section \
                  5.3, Fig. 12(a))"
            .into(),
        seen: format!(
            "in {all} seconds a module takes more than its fixed part of the SLO, in {movable} of them while all \
             together stay within it"
        ),
        verdict: ClaimVerdict::of(*movable > 0),
        why: "Where the parts of all modules together exceed the SLO in the same second, no split would help either."
            .into(),
    }
}

/// Numbers of seconds in which a module takes more than its part of the SLO.
#[derive(Default)]
struct SecondsAbove {
    /// All of them.
    all: usize,
    /// Those of them in which all modules together stay within the SLO.
    movable: usize,
}

fn seconds_above(run: &PolicyRun, parts: &[f64], slo_ms: f64) -> SecondsAbove {
    let mut seconds = SecondsAbove::default();
    for second in 0..run.times.seconds() {
        let needs: Vec<f64> = (0..parts.len()).map(|m| run.times.need_ms(second, m)).collect();
        let is_above = needs.iter().zip(parts).any(|(need, part)| need > part);
        seconds.all += usize::from(is_above);
        seconds.movable += usize::from(is_above && needs.iter().sum::<f64>() <= slo_ms);
    }
    seconds
}

/// Fig. 12(b): the uncertain part of the later time.
fn uncertainty(loads: &[OrderRuns], shown: &[&OrderRuns]) -> Panel {
    let mut table = TextTable::new(&[
        "load",
        "seconds",
        "sum of queueing, sd ms",
        "sum of batch waits, sd ms",
        "sum of executions, sd ms",
    ]);
    let (mut most, mut over) = ([0; 2], Vec::new());
    for load in loads {
        let run = load.of(Dropping::Pard);
        for (i, name) in ["all", "not overloaded"].into_iter().enumerate() {
            let TimeSpread { queueing, wait, execution } = run.times.spread(|s| i == 0 || !run.is_overloaded(s));
            most[i] += usize::from(wait > queueing && wait > execution);
            if i == 0 {
                over.push((wait / queueing.max(execution)).powi(2));
            }
            table.row(vec![load.trace.clone(), name.into(), number(queueing), number(wait), number(execution)]);
        }
    }
    let plots = shown.iter().map(|load| Plot {
        x: "time in all modules (ms)".into(),
        ..load.plot("sums of queueing, batch waits and executions over the modules", "share of requests below (%)", {
            let sums = aggregates(&load.of(Dropping::Pard).times);
            ["queueing", "batch wait", "execution"]
                .map(String::from)
                .into_iter()
                .zip(sums)
                .map(|(name, sums)| distribution(name, &sums))
                .collect()
        })
    });
    Panel {
        plots: plots.collect(),
        claims: vec![Claim {
            claimed: "The sum of batch waits has a far greater variance than those of queueing and of execution (section \
                      5.3, Fig. 12(b))"
                .into(),
            seen: format!(
                "the greatest on {} of {} loads, by a factor of {} over the next on the mean; on {} without the seconds \
                 of overload",
                most[0],
                loads.len(),
                optional(geometric_mean(&over)),
                most[1]
            ),
            verdict: ClaimVerdict::of(most[0] == loads.len() && over.iter().all(|factor| *factor >= FAR_GREATER)),
            why: "A batch here holds the queries that entered it, and its time is that of its size. With less load \
                  batches get smaller, so execution times differ as much as batch waits. The paper's batch sizes are \
                  set beforehand."
                .into(),
        }],
        tables: vec![TitledTable {
            title: "Fig. 12(b): standard deviation over queries, summed over the modules as if independent".into(),
            table,
        }],
    }
}

/// The distribution of some values, in steps of two percent.
fn distribution(name: String, values: &[f64]) -> Series {
    let points = (0..=50).map(|k| f64::from(2 * k)).map(|percent| (quantile(values, percent / 100.0), percent));
    Series { name, points: points.collect() }
}

/// Fig. 12(c): the growth of queues under other orders.
fn queueing(loads: &[OrderRuns], shown: &[&OrderRuns]) -> Panel {
    let mut table = TextTable::new(&["load", "order", "queueing under overload ms", "otherwise ms", "missed"]);
    let mut longer = [0; 2];
    let mut judged = 0;
    for load in loads.iter().filter(|l| l.of(Dropping::Pard).overloaded.contains(&true)) {
        judged += 1;
        let own = load.of(Dropping::Pard).queueing_ms(SecondsOf::Overload);
        for run in &load.runs {
            let other = [Dropping::PardFcfs, Dropping::PardLbf].iter().position(|p| *p == run.policy);
            if let Some(at) = other {
                longer[at] += usize::from(run.queueing_ms(SecondsOf::Overload) > own);
            }
            let [over, otherwise] = [SecondsOf::Overload, SecondsOf::Rest].map(|of| number(run.queueing_ms(of)));
            table.row(vec![load.trace.clone(), run.policy.name().into(), over, otherwise, percent(run.missed)]);
        }
    }
    let line = |run: &PolicyRun| Series {
        name: run.policy.name().into(),
        points: (0..run.times.seconds()).map(|s| (s as f64, run.times.queueing_ms(s))).collect(),
    };
    let plots = shown.iter().map(|load| {
        // The line of pard-lbf would cover that of pard-fcfs if all queries queue at the first module.
        let chosen = [Dropping::PardFcfs, Dropping::Pard];
        load.plot(
            "queueing in all modules by order",
            "mean of the second (ms)",
            chosen.iter().map(|p| line(load.of(*p))).collect(),
        )
    });
    Panel {
        plots: plots.collect(),
        claims: vec![Claim {
            claimed: "In bursts requests pile up in order of arrival (pard-fcfs) and with the least time left first \
                      (pard-lbf): they queue longer \
                      than under the full policy (section 5.3, Fig. 12(c))"
                .into(),
            seen: format!("pard-fcfs queues longer on {} of {judged} loads, pard-lbf on {}", longer[0], longer[1]),
            verdict: ClaimVerdict::of(longer.iter().all(|n| *n == judged)),
            why: "Queueing is measured on queries that enter a batch. Queries that are given up while others pass them \
                  are not in it. Where all queries queue at the first module, pard-fcfs and pard-lbf are the same: the \
                  oldest query has the least time left."
                .into(),
        }],
        tables: vec![TitledTable {
            title: "Fig. 12(c): queueing by order, mean over seconds of the sum over modules".into(),
            table,
        }],
    }
}

/// Fig. 12(d): the rest of the SLO of consecutive requests.
fn remaining(shown: &[&OrderRuns]) -> Panel {
    const POINTS: usize = 40;
    let mut table =
        TextTable::new(&["load", "module", "mean ms", "5 % below ms", "95 % below ms", "a later arrival has less left"]);
    let (mut plots, mut inverted) = (Vec::new(), Vec::new());
    for load in shown {
        let run = load.of(Dropping::Pard);
        let names = load.task_names();
        let mut series = Vec::new();
        for module in [1, names.len() - 1] {
            let arrivals = run.times.arrivals(module, |s| !run.is_overloaded(s));
            let left: Vec<f64> = arrivals.iter().map(|a| a.left_ms).collect();
            let share = inversions(&arrivals);
            inverted.push(share);
            let [mean, low, high] = [mean(&left), quantile(&left, 0.05), quantile(&left, 0.95)].map(number);
            table.row(vec![load.trace.clone(), names[module].clone(), mean, low, high, percent(share)]);
            series.push(Series {
                name: names[module].clone(),
                points: left.iter().take(POINTS).enumerate().map(|(i, l)| (i as f64, *l)).collect(),
            });
        }
        plots.push(Plot {
            x: "arrivals at the module, in order".into(),
            ..load.plot(
                &format!("what the first {POINTS} arrivals outside a burst have left"),
                "left of the SLO (ms)",
                series,
            )
        });
    }
    let shown: Vec<String> = inverted.iter().map(|s| percent(*s)).collect();
    Panel {
        plots,
        claims: vec![Claim {
            claimed: "What requests have left of their SLO varies much and does not follow their order of arrival \
                      (section 5.3, Fig. 12(d))"
                .into(),
            seen: format!(
                "of two arrivals at most {NEAR} apart, the later has less left in {} (0 % if order told all, 50 % if \
                 nothing)",
                shown.join(", ")
            ),
            verdict: ClaimVerdict::of(inverted.iter().all(|s| (0.25..=0.75).contains(s))),
            why: "Queries of one batch arrive at the next module at one moment; such pairs are not counted.".into(),
        }],
        tables: vec![TitledTable {
            title: "Fig. 12(d): left of the SLO on arrival at a module, outside bursts".into(),
            table,
        }],
    }
}

/// Fig. 13: the number of changes of order with and without delayed transition.
fn switches(loads: &[OrderRuns], shown: &[&OrderRuns]) -> Panel {
    const COMPARED: [Dropping; 2] = [Dropping::Pard, Dropping::PardInstant];
    let mut table = TextTable::new(&["load", "policy", "changes of order", "of module seconds: most left first", "missed"]);
    let (mut more, mut worse) = (0, 0);
    for load in loads {
        let [own, instant] = COMPARED.map(|p| load.of(p));
        more += usize::from(instant.times.switches() > own.times.switches());
        worse += usize::from(instant.missed > own.missed);
        for run in [own, instant] {
            let (switches, high) = (run.times.switches().to_string(), percent(run.times.high_first()));
            table.row(vec![load.trace.clone(), run.policy.name().into(), switches, high, percent(run.missed)]);
        }
    }
    let mut plots = Vec::new();
    for load in shown {
        let capacities = capacities_qps(&load.case.problem, &load.case.plan);
        let least = (0..capacities.len()).min_by(|&a, &b| capacities[a].total_cmp(&capacities[b])).unwrap_or_default();
        for run in COMPARED.map(|p| load.of(p)) {
            let title = format!("{}: load of module {:?} and its order", run.policy.name(), load.task_names()[least]);
            let series = vec![
                Series { name: "load over capacity".into(), points: run.times.load(least, capacities[least]) },
                Series { name: "order (1: most left first, 0: least left first)".into(), points: run.times.order(least) },
            ];
            plots.push(load.plot(&title, "load over capacity; order", series));
        }
    }
    Panel {
        plots,
        claims: vec![Claim {
            claimed: "Without delayed transition the order changes more often while the load fluctuates, and more is \
                      dropped (section 5.3, Fig. 13)"
                .into(),
            seen: format!("changes more often on {more} of {} loads, drops more on {worse}", loads.len()),
            verdict: ClaimVerdict::of(more == loads.len() && worse == loads.len()),
            why: "The band of section 4.3 is as wide as the load varies about its mean. So it delays the change to the \
                  order that a burst needs, and it prevents a change that noise causes. pard-ablations has the \
                  difference with its interval."
                .into(),
        }],
        tables: vec![TitledTable { title: "Fig. 13: changes of order".into(), table }],
    }
}
