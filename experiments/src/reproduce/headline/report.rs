//! How does a run of the headline go? Plans, training, judging, bounds, and the report.

use super::cases::{Case, CaseName, ContenderCase, ContenderScalers};
use super::contest::{Contest, ContestInput, ContestLoad, contest_problem, plans_by_demand};
use super::findings::{CasePolicies, ChosenSettings, Findings, Surprise};
use super::pipelines::{PlayedPipeline, RateFactor, played_pipelines};
use super::protocol::{HeadlineProtocol, hash};
use super::traces::{STRETCH_REQUESTS_MAX, STRETCH_REQUESTS_MIN, TraceSet, read_sets};
use super::{bound, claims, overload, tables, trials};
use crate::reproduce::lab::Lab;
use crate::reproduce::report::Report;
use apportion_support::exit::Failure;
use apportion_support::output::percent;
use apportion_wire::BadInput;

/// The pipelines as a contest plays them.
fn read_pipelines(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<PlayedPipeline>, Failure> {
    let load_ms = protocol.constants.load_ms;
    let prepared = |played: PlayedPipeline| {
        let problem = contest_problem(&played.problem, load_ms)?;
        Ok(PlayedPipeline { problem, ..played })
    };
    played_pipelines(lab, protocol)?.into_iter().map(prepared).collect()
}

/// Stretches that are scaled to a user's demand are bounded as files are.
///
/// # Errors
/// If a stretch has too few requests, or too many.
fn check_requests(pipeline: &PlayedPipeline, set: &TraceSet) -> Result<(), Failure> {
    let RateFactor::ToDemand(demand_qps) = pipeline.factor else { return Ok(()) };
    for stretch in set.judged.iter().chain([&set.train]) {
        let requests: f64 = stretch.rates.iter().sum();
        if !(STRETCH_REQUESTS_MIN..=STRETCH_REQUESTS_MAX).contains(&requests) {
            let found = format!("{requests:.0} requests of stretch {:?} at {demand_qps} queries/s", stretch.name);
            let expected = format!(
                "{STRETCH_REQUESTS_MIN} to {STRETCH_REQUESTS_MAX}: another demand_qps, or another length of the stretch"
            );
            return Err(BadInput::one(&format!("pipeline {}", pipeline.name), "", found, expected).into());
        }
    }
    Ok(())
}

/// A run in progress.
struct HeadlineRun<'l> {
    lab: &'l Lab,
    contenders: Vec<ContenderScalers>,
    findings: Findings,
}

impl HeadlineRun<'_> {
    /// Plays all sets of traces on one pipeline.
    fn play_pipeline(&mut self, pipeline: &PlayedPipeline, sets: &[TraceSet]) -> Result<(), Failure> {
        let protocol = self.findings.protocol.clone();
        let plans = plans_by_demand(self.lab, &protocol, &pipeline.problem)?;
        for set in sets {
            let set = scaled(set, pipeline.factor.on(&set.train.rates));
            check_requests(pipeline, &set)?;
            self.lab.show_step(format!("headline: {}, {}", pipeline.name, set.train.name));
            let (name, problem, train) = (pipeline.name.clone(), &pipeline.problem, &set.train.rates[..]);
            let input = ContestInput { name, problem, plans: &plans, train };
            match Contest::new(self.lab, &protocol, input)? {
                Some(contest) => self.play_set(&contest, &set)?,
                None => self.lose_set(&pipeline.name, &set),
            }
        }
        Ok(())
    }

    fn play_set(&mut self, contest: &Contest<'_>, set: &TraceSet) -> Result<(), Failure> {
        let settings = trials::choose_settings(contest, &self.contenders, &set.train.rates)?;
        for stretch in &set.judged {
            let mut case = trials::judge(contest, &self.contenders, &settings, &set.name, stretch)?;
            if self.lab.contenders.is_empty() {
                let (first_s, seed) = (contest.protocol.constants.first_s, contest.protocol.seeds.judge[0]);
                let load = ContestLoad::new(&stretch.rates, first_s, seed);
                case.bound = bound::seek(contest, &load, &stretch.rates, &case)?;
            }
            self.lab.show_step(format!("headline: {}", case.name));
            let outcomes = trials::surprise(contest, &settings, stretch)?;
            self.findings.surprised.push(Surprise { name: case.name.clone(), outcomes });
            let points = trials::other_policies(contest, &settings, stretch)?;
            self.findings.policies.push(CasePolicies { case: self.findings.cases.len(), points });
            self.findings.cases.push(case);
        }
        let name = CaseName { set: set.name.clone(), pipeline: contest.name.clone(), stretch: set.train.name.clone() };
        self.findings.chosen.push(ChosenSettings { name, settings });
        Ok(())
    }

    /// Without a plan to start from, every contender has lost every stretch of a set.
    fn lose_set(&mut self, pipeline: &str, set: &TraceSet) {
        let seeds = self.findings.protocol.seeds.judge.len();
        let contenders: Vec<ContenderCase> = self.contenders.iter().map(|c| ContenderCase::lost(c, seeds)).collect();
        for stretch in &set.judged {
            let name = CaseName { set: set.name.clone(), pipeline: pipeline.to_owned(), stretch: stretch.name.clone() };
            self.findings.cases.push(Case { name, plan: None, contenders: contenders.clone(), bound: None });
        }
    }
}

/// The same stretches with a factor on their rates.
fn scaled(set: &TraceSet, factor: f64) -> TraceSet {
    let mut set = set.clone();
    let rates = set.judged.iter_mut().chain([&mut set.train]).flat_map(|stretch| &mut stretch.rates);
    rates.for_each(|rate| *rate *= factor);
    set
}

fn method(protocol: &HeadlineProtocol) -> String {
    let figures = protocol.ours;
    format!(
        "By `experiments/protocol.yaml`, SHA-256 {}. It names pipelines, traces, search spaces, constants and seeds; its last \
         change was on {}. Pipelines \
         have their most accurate variants alone, at the given prices, without a limit on devices. All contenders start from \
         the same plan, for the median rate of the stretch that chooses settings (the mean, where the median is 0). \
         They keep its hardware and batch sizes. \
         Queries are served alike: batches close at start, and dropping is per task. Contenders with another dropping policy \
         have its name in theirs, and start from a plan that is made with it. Ours is the whole system. Every 10 s it \
         measures the load. If the load has reached another demand of a grid (factor {}), it plans again, which takes {} s. The \
         new plan replaces the last if it saves more than ten seconds of its own cost over the last minute. Each plan has a \
         ladder of replica counts, from its demand over {} to {} times it. Stewards, the machines that agents run, follow the \
         ladder. Every tuned contender has {} settings. The cheapest setting that reaches {} on the stretch that chooses is set \
         on the judged stretches (*set before*), which are played under {} seeds. *Default* is the configuration without \
         tuning. *In hindsight* is the cheapest setting that holds on the judged stretch itself, under its first seed. The \
         *bound* is the least cost that a policy reached that knows all arrivals and waits for loading replicas like \
         anybody. A case that cannot be planned is lost for whoever needs the plan. It counts in every share.",
        hash(),
        protocol.changes.last().map_or("no day", |change| &change.date),
        figures.grid,
        figures.planning_s,
        figures.ladder_up_to,
        figures.ladder_up_to,
        protocol.settings_each,
        percent(protocol.attainment),
        protocol.seeds.judge.len(),
    )
}

/// Cost at equal attainment against the autoscalers that people run.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let mut protocol = HeadlineProtocol::committed()?.with_contenders(&lab.contenders)?;
    if lab.quick {
        protocol.seeds.judge.truncate(1);
    }
    // The protocol's seeds hold, whatever the seed of the other comparisons.
    let lab = &Lab { seed: protocol.seeds.plan, ..lab.clone() };
    let sets = read_sets(lab, &protocol)?;
    let pipelines = read_pipelines(lab, &protocol)?;
    let contenders = trials::scalers(lab, &protocol)?;
    let (cases, chosen, surprised, policies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let findings = Findings { protocol, traces: sets.clone(), cases, chosen, surprised, policies };
    let mut run = HeadlineRun { lab, contenders, findings };
    let own = match lab.problems.is_empty() {
        true => "",
        false => "The pipelines are the user's, each at the demand of its file, in the place of the protocol's. ",
    };
    let only = match lab.contenders.is_empty() {
        true => String::new(),
        false => format!("Only these contenders are played, without a bound: {}. ", lab.contenders.join("; ")),
    };
    let own = own.to_owned() + &only;
    for (done, pipeline) in (1..).zip(&pipelines) {
        run.play_pipeline(pipeline, &sets)?;
        let so_far = format!("{done} of {} pipelines. {own}", pipelines.len());
        let report = report_of(&run.findings);
        lab.save_unfinished(&Report { method: so_far + &report.method, ..report })?;
    }
    let report = report_of(&run.findings);
    let (beyond_table, beyond) = overload::compare(lab)?;
    Ok(Report {
        method: own + &report.method,
        claims: report.claims.into_iter().chain([beyond]).collect(),
        tables: report.tables.into_iter().chain([beyond_table]).collect(),
        ..report
    })
}

/// The report of all findings so far.
fn report_of(findings: &Findings) -> Report {
    Report {
        name: "headline",
        title: "Cost at equal attainment against the autoscalers that people run",
        source: "our own aim",
        method: method(&findings.protocol),
        claims: claims::claims(findings),
        plots: findings.cases.iter().filter(|case| case.plan.is_some()).map(|c| tables::plot(findings, c)).collect(),
        tables: tables::all(findings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::headline::traces::Stretch;
    use crate::reproduce::lab::TRAFFIC;

    #[test]
    fn own_pipelines_meet_traces_at_their_demand() {
        let stretch = |rates: &[f64]| Stretch { name: "s".into(), rates: rates.to_vec() };
        let set = TraceSet { name: "t".into(), train: stretch(&[10.0, 20.0, 90.0]), judged: vec![stretch(&[40.0])] };
        let pipeline = |demand_qps: f64| PlayedPipeline {
            name: "p".into(),
            problem: TRAFFIC.problem().expect("a problem"),
            factor: RateFactor::ToDemand(demand_qps),
        };
        let at = |demand_qps: f64| scaled(&set, pipeline(demand_qps).factor.on(&set.train.rates));
        assert_eq!((at(500.0).train.rates, at(500.0).judged[0].rates.clone()), (vec![250.0, 500.0, 2250.0], vec![1000.0]));
        assert_eq!(scaled(&set, RateFactor::Fixed(2.0).on(&set.train.rates)).judged[0].rates, [80.0]);
        let is_refused = |demand_qps: f64| check_requests(&pipeline(demand_qps), &at(demand_qps)).is_err();
        assert_eq!([400.0, 500.0, 1e9].map(is_refused), [true, false, true]);
    }
}
