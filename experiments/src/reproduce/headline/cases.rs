//! What came of one pipeline on one judged stretch, and what do all cases come to?

use super::contest::{ContestPoint, RunOutcome};
use super::scalers::ContestScaler;
use crate::reproduce::lab::{Interval, interval, mean};
use apportion_domain::Dropping;

/// The scalers of one contender.
pub struct ContenderScalers {
    /// Without tuning.
    pub default: ContestScaler,
    /// The search space; empty for a contender that is not tuned.
    pub search: Vec<ContestScaler>,
}

/// A setting with its result on one load.
#[derive(Clone, Debug)]
pub struct SettingTrial {
    /// The scaler with its setting.
    pub scaler: ContestScaler,
    /// The result.
    pub outcome: RunOutcome,
}

/// The least cost that was found for a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The cost per hour.
    pub cost_per_hour: f64,
    /// No policy costs less than this per hour.
    pub floor_per_hour: f64,
    /// Who reached it.
    pub how: String,
}

/// The cheapest of these trials that reaches an attainment, by position.
pub fn cheapest_reaching(trials: &[SettingTrial], attainment: f64) -> Option<usize> {
    let cost = |at: usize| trials[at].outcome.point().filter(|p| p.attainment >= attainment).map(|p| p.cost_per_hour);
    let reaching = (0..trials.len()).filter_map(|at| Some((at, cost(at)?)));
    reaching.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

/// A chosen setting under another dropping policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyPoint {
    /// The contender's position in the protocol.
    pub contender: usize,
    /// The policy.
    pub dropping: Dropping,
    /// The result.
    pub outcome: RunOutcome,
}

/// The name of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseName {
    /// Its set of traces.
    pub set: String,
    /// Its pipeline.
    pub pipeline: String,
    /// Its stretch.
    pub stretch: String,
}

impl std::fmt::Display for CaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.pipeline, self.stretch)
    }
}

/// Which setting of a contender a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Without tuning.
    Default,
    /// Chosen on another stretch.
    Chosen,
    /// The cheapest that reaches the attainment on the judged stretch, by the first seed.
    Hindsight,
}

impl Row {
    /// All rows.
    pub const ALL: [Self; 3] = [Self::Default, Self::Chosen, Self::Hindsight];

    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Chosen => "set before",
            Self::Hindsight => "in hindsight",
        }
    }
}

/// The results of a contender in one case.
#[derive(Clone, Debug)]
pub struct ContenderCase {
    /// The setting that another stretch chose.
    pub chosen: Option<ContestScaler>,
    /// The default, by seed.
    pub default: Vec<RunOutcome>,
    /// The chosen setting, by seed.
    pub tuned: Option<Vec<RunOutcome>>,
    /// All settings, under the first seed.
    pub curve: Vec<SettingTrial>,
}

/// The results of all contenders in one case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: CaseName,
    /// The plan that all start from, in words; without one the case is lost for everybody.
    pub plan: Option<String>,
    /// By contender, in the order of the protocol.
    pub contenders: Vec<ContenderCase>,
    /// The least cost that was found.
    pub bound: Option<Bound>,
}

impl ContenderCase {
    /// A case without a plan.
    pub fn lost(contender: &ContenderScalers, seeds: usize) -> Self {
        let outcomes = vec![RunOutcome::NoPlan; seeds];
        let tuned = (!contender.search.is_empty()).then(|| outcomes.clone());
        Self { chosen: None, default: outcomes, tuned, curve: Vec::new() }
    }

    /// The cheapest setting in hindsight that reaches an attainment.
    pub fn hindsight(&self, attainment: f64) -> Option<&SettingTrial> {
        cheapest_reaching(&self.curve, attainment).map(|at| &self.curve[at])
    }

    /// The outcomes of a row, by seed. In hindsight there is one, if a setting reaches the attainment.
    pub fn outcomes(&self, row: Row, attainment: f64) -> Vec<RunOutcome> {
        match row {
            Row::Default => self.default.clone(),
            Row::Chosen => self.tuned.clone().unwrap_or_default(),
            Row::Hindsight => self.hindsight(attainment).map(|trial| trial.outcome).into_iter().collect(),
        }
    }

    /// The mean cost of a row over its seeds; `None` where a run has no plan.
    pub fn cost(&self, row: Row, attainment: f64) -> Option<f64> {
        let points: Option<Vec<ContestPoint>> = self.outcomes(row, attainment).into_iter().map(RunOutcome::point).collect();
        let costs: Vec<f64> = points?.iter().map(|p| p.cost_per_hour).collect();
        (!costs.is_empty()).then(|| mean(&costs))
    }
}

/// Runs of one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseRuns {
    /// How many held.
    pub held: usize,
    /// Of how many.
    pub of: usize,
}

/// How often something held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldShare {
    /// How often it held.
    pub held: usize,
    /// Of how many.
    pub of: usize,
    /// As many independent runs would tell as much: from the number of cases to that of all runs.
    pub independent: f64,
}

impl HeldShare {
    /// Over cases. Runs of a case are alike, because only their arrivals differ. So they count by the design effect of
    /// cluster samples (Kish 1965): the variance of the share between cases over that of independent runs. Where all runs
    /// hold, or none does, each case counts once.
    ///
    /// Example: of two cases one holds in five of five runs, the other in none. That is as much as two runs tell.
    pub fn over_cases(cases: &[CaseRuns]) -> Self {
        let (held, of) = cases.iter().fold((0, 0), |(held, of), case| (held + case.held, of + case.of));
        let (clusters, runs) = (cases.iter().filter(|case| case.of > 0).count() as f64, of as f64);
        let share = held as f64 / runs.max(1.0);
        let spread: f64 = cases.iter().map(|case| (case.held as f64 - share * case.of as f64).powi(2)).sum();
        let between = clusters / (clusters - 1.0) * spread / (runs * runs);
        let effect = between * runs / (share * (1.0 - share));
        let most = runs / clusters;
        // one case, or shares of 0 and 1, tell nothing of the spread
        let effect = if effect.is_finite() { effect.clamp(1.0, most) } else { most };
        Self { held, of, independent: if of == 0 { 0.0 } else { runs / effect } }
    }

    /// The 95 % interval of the share (Wilson 1927).
    pub fn interval(self) -> [f64; 2] {
        const Z: f64 = 1.96;
        if self.of == 0 {
            return [0.0, 1.0];
        }
        let (n, p) = (self.independent, self.held as f64 / self.of as f64);
        let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        [(middle - half).max(0.0), (middle + half).min(1.0)]
    }

    /// The share, in words.
    pub fn in_words(self) -> String {
        let [low, high] = self.interval().map(|share| (100.0 * share).round());
        format!("{} of {} ({low} to {high} %)", self.held, self.of)
    }
}

/// What a row of a contender comes to over cases.
#[derive(Clone, Debug)]
pub struct RowSummary {
    /// Runs (cases times seeds) that reached the attainment. Runs without a plan count as missed.
    pub held: HeldShare,
    /// Mean lack of attainment over the runs that missed, in points; runs without a plan lack everything.
    pub shortfall: Option<f64>,
    /// Logarithm of the cost over that of ours in the same row, by case; and its interval over cases.
    pub to_ours: LogRatios,
    /// The same over the bound.
    pub to_bound: LogRatios,
    /// Cases in which no setting reaches the attainment; 0 but in hindsight.
    pub unreached: usize,
    /// Cases without a plan.
    pub lost: usize,
}

/// Logarithms of ratios.
#[derive(Clone, Debug, Default)]
pub struct LogRatios(pub Vec<f64>);

impl LogRatios {
    /// Of pairs of costs.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        Self(pairs.filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (a / b).ln()).collect())
    }

    /// The geometric mean.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| mean(&self.0).exp())
    }

    /// The geometric mean with its 95 % interval over cases.
    pub fn in_words(&self) -> String {
        let Some(mean) = self.mean() else { return "-".into() };
        let Interval { half, .. } = interval(&self.0);
        match half.is_finite() {
            true => format!("{mean:.2} ({:.2} to {:.2})", mean * (-half).exp(), mean * half.exp()),
            false => format!("{mean:.2}"),
        }
    }
}

/// Cases with the attainment that counts, and the position of ours.
pub struct CaseSet<'c> {
    /// The cases.
    pub cases: Vec<&'c Case>,
    /// The attainment that all must reach.
    pub attainment: f64,
    /// The position of ours among the contenders.
    pub ours: usize,
}

impl CaseSet<'_> {
    /// What a row of a contender comes to. Ratios compare with ours as set before, or by default if no stretch sets it; in
    /// hindsight with ours in hindsight.
    pub fn summary(&self, contender: usize, row: Row) -> RowSummary {
        let of = |case: &&Case| case.contenders[contender].outcomes(row, self.attainment);
        let by_case: Vec<Vec<RunOutcome>> = self.cases.iter().map(of).collect();
        let unreached = match row {
            Row::Hindsight => by_case.iter().filter(|outcomes| outcomes.is_empty()).count(),
            Row::Default | Row::Chosen => 0,
        };
        let missed: Vec<f64> =
            by_case.iter().flatten().map(|o| self.attainment - o.attainment()).filter(|lack| *lack > 0.0).collect();
        let runs = |outcomes: &Vec<RunOutcome>| CaseRuns {
            held: outcomes.iter().filter(|o| o.attainment() >= self.attainment).count(),
            // in hindsight a case without a run has no setting that holds
            of: outcomes.len().max(usize::from(row == Row::Hindsight)),
        };
        let held = HeldShare::over_cases(&by_case.iter().map(runs).collect::<Vec<_>>());
        let is_tuned = self.cases.iter().any(|case| case.contenders[self.ours].tuned.is_some());
        let row_of_ours = match row {
            Row::Hindsight => row,
            Row::Default | Row::Chosen if is_tuned => Row::Chosen,
            Row::Default | Row::Chosen => Row::Default,
        };
        let cost = |case: &Case, of: usize, row| case.contenders[of].cost(row, self.attainment);
        let with = |other: &dyn Fn(&Case) -> Option<f64>| {
            LogRatios::of(self.cases.iter().filter_map(|case| Some((cost(case, contender, row)?, other(case)?))))
        };
        let is_lost = |case: &&&Case| case.contenders[contender].default.contains(&RunOutcome::NoPlan);
        RowSummary {
            held,
            shortfall: (!missed.is_empty()).then(|| 100.0 * mean(&missed)),
            to_ours: with(&|case| cost(case, self.ours, row_of_ours)),
            to_bound: with(&|case| case.bound.as_ref().map(|b| b.cost_per_hour)),
            unreached,
            lost: self.cases.iter().filter(is_lost).count(),
        }
    }

    /// What a contender saves of all that can be saved: of the cost of the cheapest HPA in hindsight above the bound. Costs
    /// count in units of their case's bound.
    pub fn saved_share(&self, contender: usize, row: Row, rivals: &[usize]) -> Option<f64> {
        let (mut saved, mut can_be_saved) = (0.0, 0.0);
        for case in &self.cases {
            let Some(bound) = case.bound.as_ref().map(|b| b.cost_per_hour) else { continue };
            let cost = |of: usize, row| case.contenders[of].cost(row, self.attainment);
            let rival = rivals.iter().filter_map(|&of| cost(of, Row::Hindsight)).min_by(f64::total_cmp);
            let (Some(rival), Some(own)) = (rival, cost(contender, row)) else { continue };
            saved += (rival - own) / bound;
            can_be_saved += rival / bound - 1.0;
        }
        (can_be_saved > 1e-9).then(|| saved / can_be_saved)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{ScalerKind, USUAL_SERVICE};
    use super::*;

    fn scaler(kind: ScalerKind) -> ContestScaler {
        ContestScaler { kind, setting: [].into(), service: USUAL_SERVICE }
    }

    fn done(attainment: f64, cost_per_hour: f64) -> RunOutcome {
        RunOutcome::Done(ContestPoint { attainment, cost_per_hour, utilisation: 0.5 })
    }

    fn contender(tuned: &[RunOutcome]) -> ContenderCase {
        ContenderCase { chosen: None, default: tuned.to_vec(), tuned: Some(tuned.to_vec()), curve: Vec::new() }
    }

    fn case(contenders: Vec<ContenderCase>, bound: Option<f64>) -> Case {
        let name = CaseName { set: "s".into(), pipeline: "p".into(), stretch: "t".into() };
        let bound = bound.map(|cost_per_hour| Bound { cost_per_hour, floor_per_hour: 0.0, how: String::new() });
        Case { name, plan: None, contenders, bound }
    }

    #[test]
    fn a_case_without_a_plan_is_lost() {
        let fixed = scaler(ScalerKind::Fixed);
        let lost = ContenderCase::lost(&ContenderScalers { default: fixed.clone(), search: vec![fixed] }, 2);
        let cases = [
            case(
                vec![contender(&[done(0.995, 1.0), done(0.97, 1.0)]), contender(&[done(1.0, 2.0), done(1.0, 4.0)])],
                Some(0.5),
            ),
            case(vec![lost, contender(&[done(1.0, 2.0), done(1.0, 2.0)])], None),
        ];
        let set = CaseSet { cases: cases.iter().collect(), attainment: 0.99, ours: 0 };
        let ours = set.summary(0, Row::Chosen);
        assert_eq!((ours.held.held, ours.held.of, ours.lost), (1, 4, 1));
        // Lacks of 2, 99 and 99 points.
        assert!((ours.shortfall.expect("misses") - 200.0 / 3.0).abs() < 1e-9);
        assert!((ours.to_bound.mean().expect("one") - 2.0).abs() < 1e-9);
        let other = set.summary(1, Row::Chosen);
        assert_eq!((other.held.held, other.held.of, other.lost, other.to_ours.0.len()), (4, 4, 0, 1));
        assert!((other.to_ours.mean().expect("one") - 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_never_reached_counts_in_hindsight() {
        let mut all = contender(&[done(1.0, 1.0)]);
        let scaler = scaler(ScalerKind::Fixed);
        all.curve = vec![SettingTrial { scaler, outcome: done(0.98, 1.0) }];
        let cases = [case(vec![all.clone()], None)];
        let set = |cases: &'static [Case]| CaseSet { cases: cases.iter().collect(), attainment: 0.99, ours: 0 };
        let summary = set(Box::leak(Box::new(cases))).summary(0, Row::Hindsight);
        assert_eq!((summary.held.held, summary.held.of, summary.unreached), (0, 1, 1));
        all.curve[0].outcome = done(0.99, 1.0);
        let summary = set(Box::leak(Box::new([case(vec![all], None)]))).summary(0, Row::Hindsight);
        assert_eq!((summary.held.held, summary.held.of, summary.unreached), (1, 1, 0));
    }

    #[test]
    fn a_wilson_interval_is_the_textbooks() {
        // 8 of 10: 0.490 to 0.943.
        let [low, high] = HeldShare { held: 8, of: 10, independent: 10.0 }.interval();
        assert!((low - 0.490).abs() < 1e-3 && (high - 0.943).abs() < 1e-3, "{low} {high}");
        assert_eq!(HeldShare::over_cases(&[]).interval(), [0.0, 1.0]);
    }

    #[test]
    fn runs_of_a_case_count_by_what_they_tell() {
        let of = |cases: &[(usize, usize)]| {
            let runs: Vec<CaseRuns> = cases.iter().map(|&(held, of)| CaseRuns { held, of }).collect();
            HeldShare::over_cases(&runs)
        };
        // cases decide: two of them, whatever their runs
        assert_eq!(of(&[(5, 5), (0, 5)]), HeldShare { held: 5, of: 10, independent: 2.0 });
        // runs decide: cases do not differ more than chance
        assert_eq!(of(&[(2, 4), (2, 4), (2, 4)]).independent, 12.0);
        // between: cases of 4, 4 and 1 of 5; spread 6, by hand 3/2 * 6 / 225 over 0.6 * 0.4 / 15 is 2.5
        assert!((of(&[(4, 5), (4, 5), (1, 5)]).independent - 6.0).abs() < 1e-9);
        // nothing differs: each case counts once
        assert_eq!(
            [of(&[(5, 5); 18]).independent, of(&[(0, 5); 6]).independent, of(&[(3, 5)]).independent],
            [18.0, 6.0, 1.0]
        );
        let [low, high] = of(&[(5, 5); 18]).interval();
        assert!((low - 0.824).abs() < 1e-3 && (high - 1.0).abs() < 1e-9, "{low} {high}");
    }

    #[test]
    fn saved_shares_are_of_what_can_be_saved() {
        // HPA costs 4 at its best and the bound is 2; ours costs 3: half of what can be saved.
        let mut hpa = contender(&[done(1.0, 9.0)]);
        let scaler = scaler(ScalerKind::HpaRate);
        hpa.curve = vec![SettingTrial { scaler, outcome: done(0.99, 4.0) }];
        let cases = [case(vec![contender(&[done(1.0, 3.0)]), hpa], Some(2.0))];
        let set = CaseSet { cases: cases.iter().collect(), attainment: 0.99, ours: 0 };
        assert_eq!(set.saved_share(0, Row::Chosen, &[1]), Some(0.5));
    }
}
