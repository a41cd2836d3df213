//! Which tables and plots show the headline's results?

use super::cases::{Case, Row, RowSummary, SettingTrial};
use super::contest::RunOutcome;
use super::findings::Findings;
use super::trials::OTHER_POLICIES;
use crate::reproduce::lab::{mean, rate_quantile};
use crate::reproduce::report::{Plot, Series, TitledTable};
use apportion_domain::Dropping;
use apportion_support::output::{TextTable, number, optional, percent};

/// All tables.
pub fn all(findings: &Findings) -> Vec<TitledTable> {
    vec![
        stretches(findings),
        summaries(findings),
        cases(findings),
        bounds(findings),
        settings(findings),
        policies(findings),
        surprises(findings),
    ]
}

/// The rows that a contender has.
fn rows_of(findings: &Findings, contender: usize) -> impl Iterator<Item = Row> {
    let is_tuned = findings.protocol.contenders[contender].is_tuned();
    Row::ALL.into_iter().filter(move |row| is_tuned || *row == Row::Default)
}

/// What was played: every stretch with its rates.
fn stretches(findings: &Findings) -> TitledTable {
    let header =
        ["traces", "stretch", "use", "seconds", "requests", "median queries/s", "highest", "seconds without a query"];
    let mut table = TextTable::new(&header);
    for set in &findings.traces {
        let used = set.judged.iter().map(|stretch| (stretch, "judged"));
        for (stretch, used) in std::iter::once((&set.train, "chooses")).chain(used) {
            let rates = &stretch.rates;
            table.row(vec![
                set.name.clone(),
                stretch.name.clone(),
                used.into(),
                rates.len().to_string(),
                format!("{:.0}", rates.iter().sum::<f64>()),
                number(rate_quantile(rates, 0.5)),
                number(rates.iter().copied().fold(0.0, f64::max)),
                rates.iter().filter(|rate| **rate <= 0.0).count().to_string(),
            ]);
        }
    }
    TitledTable { title: "What was played, before a pipeline's factor on the rates".into(), table }
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |share| format!("{:.0} %", 100.0 * share))
}

fn summaries(findings: &Findings) -> TitledTable {
    let mut table = TextTable::new(&[
        "traces",
        "who",
        "setting",
        "runs that hold (95 %)",
        "lack of the others, points",
        "cost over ours (95 %)",
        "cost over the bound (95 %)",
        "saved of what can be saved",
        "cases never reached",
        "cases lost",
    ]);
    let hpas = findings.hpas();
    for set in findings.sets() {
        let cases = findings.cases_of(Some(set));
        for contender in 0..findings.protocol.contenders.len() {
            for row in rows_of(findings, contender) {
                let RowSummary { held, shortfall, to_ours, to_bound, unreached, lost } = cases.summary(contender, row);
                table.row(vec![
                    set.to_owned(),
                    findings.name(contender).to_owned(),
                    row.name().into(),
                    held.in_words(),
                    shortfall.map_or_else(|| "-".into(), |points| format!("{points:.2}")),
                    to_ours.in_words(),
                    to_bound.in_words(),
                    share(cases.saved_share(contender, row, &hpas)),
                    unreached.to_string(),
                    lost.to_string(),
                ]);
            }
        }
    }
    let title = format!(
        "All traces side by side: runs of {} seeds that reach {}; costs are geometric means over cases",
        findings.protocol.seeds.judge.len(),
        percent(findings.protocol.attainment)
    );
    TitledTable { title, table }
}

/// The least and the greatest attainment over seeds.
fn attainments(outcomes: &[RunOutcome]) -> String {
    let all: Vec<f64> = outcomes.iter().map(|o| o.attainment()).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    match outcomes.len() {
        0 => "-".into(),
        1 => percent(least),
        _ => format!("{} (least {})", percent(mean(&all)), percent(least)),
    }
}

fn cases(findings: &Findings) -> TitledTable {
    let attainment = findings.protocol.attainment;
    let mut table = TextTable::new(&[
        "pipeline and trace",
        "who",
        "set before",
        "cost/h",
        "attainment",
        "over the bound",
        "default: cost/h",
        "attainment",
        "in hindsight",
        "cost/h",
    ]);
    for case in &findings.cases {
        for (at, of) in case.contenders.iter().enumerate() {
            let bound = case.bound.as_ref().map(|b| b.cost_per_hour);
            let cost = of.cost(Row::Chosen, attainment);
            let over = cost.zip(bound).map_or_else(|| "-".into(), |(cost, bound)| format!("{:.2}", cost / bound));
            let hindsight = of.hindsight(attainment);
            let none = if findings.protocol.contenders[at].is_tuned() { "none reaches it" } else { "-" };
            table.row(vec![
                case.name.to_string(),
                findings.name(at).to_owned(),
                of.chosen.as_ref().map_or_else(|| "-".into(), |scaler| scaler.in_words()),
                optional(cost),
                attainments(&of.outcomes(Row::Chosen, attainment)),
                over,
                optional(of.cost(Row::Default, attainment)),
                attainments(&of.outcomes(Row::Default, attainment)),
                hindsight.map_or_else(|| none.into(), |trial| trial.scaler.in_words()),
                optional(of.cost(Row::Hindsight, attainment)),
            ]);
        }
    }
    TitledTable { title: "Cases: costs and attainments are means over the seeds".into(), table }
}

fn bounds(findings: &Findings) -> TitledTable {
    let header = ["pipeline and trace", "bound, cost/h", "who reached it", "floor, cost/h", "all start from"];
    let mut table = TextTable::new(&header);
    for case in &findings.cases {
        let bound = case.bound.as_ref();
        table.row(vec![
            case.name.to_string(),
            optional(bound.map(|b| b.cost_per_hour)),
            bound.map_or_else(|| "-".into(), |b| b.how.clone()),
            optional(bound.map(|b| b.floor_per_hour)),
            case.plan.clone().unwrap_or_else(|| "no plan".into()),
        ]);
    }
    TitledTable { title: "Bounds (first seed) and plans".into(), table }
}

fn settings(findings: &Findings) -> TitledTable {
    let mut table = TextTable::new(&["pipeline", "chosen on", "who", "setting"]);
    for chosen in &findings.chosen {
        for (at, scaler) in chosen.settings.iter().enumerate() {
            let Some(scaler) = scaler else { continue };
            let name = &chosen.name;
            let who = findings.name(at).to_owned();
            table.row(vec![name.pipeline.clone(), name.stretch.clone(), who, scaler.in_words()]);
        }
    }
    TitledTable { title: "Settings that were chosen".into(), table }
}

fn policies(findings: &Findings) -> TitledTable {
    let mut table =
        TextTable::new(&["who", "dropping", "cases that hold", "mean attainment", "cost over that with per_task"]);
    let attainment = findings.protocol.attainment;
    let tuned = (0..findings.protocol.contenders.len()).filter(|&at| findings.protocol.contenders[at].is_tuned());
    for contender in tuned {
        let per_task = |case: &Case| case.contenders[contender].outcomes(Row::Chosen, attainment).first().copied();
        for dropping in [Dropping::PerTask].into_iter().chain(OTHER_POLICIES) {
            let (mut points, mut ratios) = (Vec::new(), Vec::new());
            for of_case in &findings.policies {
                let Some(usual) = per_task(&findings.cases[of_case.case]) else { continue };
                let other = of_case.points.iter().find(|p| p.contender == contender && p.dropping == dropping);
                let outcome = other.map_or(usual, |p| p.outcome);
                points.push(outcome.attainment());
                if let (Some(a), Some(b)) = (outcome.point(), usual.point()) {
                    ratios.push(a.cost_per_hour / b.cost_per_hour);
                }
            }
            // a case without a plan has nothing in time under any policy
            points.extend(findings.lost().map(|_| 0.0));
            let held = points.iter().filter(|share| **share >= attainment).count();
            table.row(vec![
                findings.name(contender).to_owned(),
                dropping.name().into(),
                format!("{held} of {}", points.len()),
                percent(mean(&points)),
                number(mean(&ratios)),
            ]);
        }
    }
    TitledTable { title: "The settings set before under other dropping policies (first seed)".into(), table }
}

fn surprises(findings: &Findings) -> TitledTable {
    let mut header = vec!["pipeline and trace"];
    let tuned: Vec<usize> =
        (0..findings.protocol.contenders.len()).filter(|&at| findings.protocol.contenders[at].is_tuned()).collect();
    header.extend(tuned.iter().map(|&at| findings.name(at)));
    let mut table = TextTable::new(&header);
    for surprise in &findings.surprised {
        let cell = |&at: &usize| surprise.outcomes[at].map_or_else(|| "-".into(), |o| percent(o.attainment()));
        table.row([surprise.name.to_string()].into_iter().chain(tuned.iter().map(cell)).collect());
    }
    for case in findings.lost() {
        table.row([case.name.to_string()].into_iter().chain(tuned.iter().map(|_| "lost".into())).collect());
    }
    let factor = findings.protocol.constants.late_step;
    let title = format!("Attainment if the load is {factor} times as high in the last third, as set before (first seed)");
    TitledTable { title, table }
}

/// Attainment by cost of every setting under the first seed.
pub fn plot(findings: &Findings, case: &Case) -> Plot {
    let curve = |(at, trials): (usize, &Vec<SettingTrial>)| {
        let point = |trial: &SettingTrial| trial.outcome.point().map(|p| (p.cost_per_hour, 100.0 * p.attainment));
        let mut points: Vec<(f64, f64)> = trials.iter().filter_map(point).collect();
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        // A setting that costs more and attains less than another is not on the curve.
        let mut best = f64::NEG_INFINITY;
        points.retain(|&(_, attained)| {
            let is_better = attained > best;
            best = best.max(attained);
            is_better
        });
        Series { name: findings.name(at).to_owned(), points }
    };
    let tuned = case.contenders.iter().map(|c| &c.curve).enumerate().filter(|(_, curve)| !curve.is_empty());
    Plot {
        title: format!("{}: attainment by cost", case.name),
        x: "cost per hour".into(),
        y: "attainment (%)".into(),
        series: tuned.map(curve).collect(),
        places: vec![],
    }
}
