//! Which setting does the stretch that chooses give each contender, and what do settings come to on another stretch?

use super::cases::{Case, CaseName, ContenderCase, ContenderScalers, PolicyPoint, SettingTrial, cheapest_reaching};
use super::contest::{Contest, ContestLoad, RunOutcome, RunWish, with_late_step};
use super::protocol::HeadlineProtocol;
use super::scalers::ContestScaler;
use super::traces::Stretch;
use crate::reproduce::lab::{Lab, in_parallel};
use apportion_domain::Dropping;
use apportion_support::exit::Failure;

/// The other dropping policies that chosen settings are played under.
pub const OTHER_POLICIES: [Dropping; 2] = [Dropping::Naive, Dropping::LastTask];

/// The scalers of all contenders, in the order of the protocol. A run with tiny settings has one setting of each.
///
/// # Errors
/// If the protocol names an unknown policy.
pub fn scalers(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<ContenderScalers>, Failure> {
    let of = |entry: &super::protocol::ContenderEntry| {
        let service = entry.service()?;
        let scaler = |setting| ContestScaler { kind: entry.scaler, setting, service };
        let mut search: Vec<ContestScaler> = entry.settings().into_iter().map(scaler).collect();
        search.truncate(lab.full_or_quick(search.len(), 1));
        Ok(ContenderScalers { default: scaler(entry.default.clone()), search })
    };
    protocol.contenders.iter().map(of).collect()
}

/// The setting that a stretch chooses: the cheapest that reaches the attainment, or else the one that attains most.
fn choose(trials: &[SettingTrial], attainment: f64) -> Option<ContestScaler> {
    let best = || {
        let by_attainment = |&a: &usize, &b: &usize| {
            trials[a].outcome.attainment().total_cmp(&trials[b].outcome.attainment()).then(b.cmp(&a))
        };
        (0..trials.len()).max_by(by_attainment)
    };
    cheapest_reaching(trials, attainment).or_else(best).map(|at| trials[at].scaler.clone())
}

/// A search for the cheapest setting that holds.
struct SettingSearch<'s, 'c> {
    contest: &'s Contest<'c>,
    load: &'s ContestLoad,
    /// A run is given up once this share of the expected requests has missed.
    missed_share_max: f64,
}

impl SettingSearch<'_, '_> {
    /// Plays every setting of every contender. `known` has runs on this load by contender.
    fn try_all(
        &self,
        contenders: &[ContenderScalers],
        known: &[Vec<SettingTrial>],
    ) -> Result<Vec<Vec<SettingTrial>>, Failure> {
        let all: Vec<(&ContenderScalers, &[SettingTrial])> =
            contenders.iter().enumerate().map(|(at, c)| (c, known.get(at).map_or(&[][..], Vec::as_slice))).collect();
        in_parallel(&all, |(contender, known)| self.try_settings(&contender.search, known))
    }

    /// Plays the settings of one contender. Once one holds, only a cheaper one that holds can change the result. So the
    /// others are given up once they cost more, or miss too much.
    fn try_settings(&self, search: &[ContestScaler], known: &[SettingTrial]) -> Result<Vec<SettingTrial>, Failure> {
        let constants = &self.contest.protocol.constants;
        let holding = |outcome: RunOutcome| {
            outcome.point().filter(|p| p.attainment >= self.contest.protocol.attainment).map(|p| p.cost_per_hour)
        };
        let mut best = known.iter().filter_map(|trial| holding(trial.outcome)).min_by(f64::total_cmp);
        let mut trials = Vec::new();
        for scaler in search {
            let outcome = match known.iter().find(|trial| trial.scaler == *scaler) {
                Some(trial) => trial.outcome,
                None => {
                    let missed_share_max = match best {
                        Some(_) => constants.hindsight_missed_share_max.min(self.missed_share_max),
                        None => self.missed_share_max,
                    };
                    let wish =
                        RunWish { missed_share_max: Some(missed_share_max), cost_per_hour_max: best, dropping: None };
                    self.contest.run(self.load, scaler, wish)?
                }
            };
            best = best.into_iter().chain(holding(outcome)).min_by(f64::total_cmp);
            trials.push(SettingTrial { scaler: scaler.clone(), outcome });
        }
        Ok(trials)
    }
}

/// The settings that the stretch of these rates chooses, by contender; `None` for contenders that are not tuned.
pub fn choose_settings(
    contest: &Contest<'_>,
    contenders: &[ContenderScalers],
    rates: &[f64],
) -> Result<Vec<Option<ContestScaler>>, Failure> {
    let load = ContestLoad::new(rates, contest.protocol.constants.first_s, contest.protocol.seeds.train);
    let missed_share_max = contest.protocol.constants.missed_share_max;
    let trials = SettingSearch { contest, load: &load, missed_share_max }.try_all(contenders, &[])?;
    Ok(trials.iter().map(|of_contender| choose(of_contender, contest.protocol.attainment)).collect())
}

/// One run of a case.
struct Job<'j> {
    scaler: &'j ContestScaler,
    seed: usize,
}

/// Judges default and chosen settings on a stretch under all seeds, and looks for the best in hindsight. No bound is
/// sought.
pub fn judge(
    contest: &Contest<'_>,
    contenders: &[ContenderScalers],
    chosen: &[Option<ContestScaler>],
    set: &str,
    stretch: &Stretch,
) -> Result<Case, Failure> {
    let protocol = contest.protocol;
    let first_s = protocol.constants.first_s;
    let loads: Vec<ContestLoad> =
        protocol.seeds.judge.iter().map(|&seed| ContestLoad::new(&stretch.rates, first_s, seed)).collect();
    let scalers = distinct_scalers(contenders, chosen);
    let jobs: Vec<Job<'_>> =
        scalers.iter().flat_map(|&scaler| (0..loads.len()).map(move |seed| Job { scaler, seed })).collect();
    let outcomes = in_parallel(&jobs, |job| contest.run(&loads[job.seed], job.scaler, RunWish::default()))?;
    let by_scaler: Vec<(&ContestScaler, &[RunOutcome])> = scalers.into_iter().zip(outcomes.chunks(loads.len())).collect();
    let runs_of = |scaler: &ContestScaler| {
        let runs = by_scaler.iter().find(|(played, _)| *played == scaler);
        runs.map_or_else(Vec::new, |(_, outcomes)| outcomes.to_vec())
    };
    let result = |(contender, chosen): (&ContenderScalers, &Option<ContestScaler>)| {
        let (default, tuned) = (runs_of(&contender.default), chosen.as_ref().map(runs_of));
        ContenderCase { chosen: chosen.clone(), default, tuned, curve: Vec::new() }
    };
    let mut results: Vec<ContenderCase> = contenders.iter().zip(chosen).map(result).collect();
    let known: Vec<Vec<SettingTrial>> = contenders.iter().map(|contender| first_runs(contender, &by_scaler)).collect();
    let missed_share_max = protocol.constants.hindsight_missed_share_max;
    let curves = SettingSearch { contest, load: &loads[0], missed_share_max }.try_all(contenders, &known)?;
    results.iter_mut().zip(curves).for_each(|(case, curve)| case.curve = curve);
    let name = CaseName { set: set.to_owned(), pipeline: contest.name.clone(), stretch: stretch.name.clone() };
    Ok(Case { name, plan: Some(contest.plan_in_words()), contenders: results, bound: None })
}

/// The defaults and the chosen settings of all contenders. A setting that several have is played once.
fn distinct_scalers<'s>(contenders: &'s [ContenderScalers], chosen: &'s [Option<ContestScaler>]) -> Vec<&'s ContestScaler> {
    let all = contenders.iter().zip(chosen).flat_map(|(c, chosen)| [Some(&c.default), chosen.as_ref()]);
    let mut distinct: Vec<&ContestScaler> = Vec::new();
    for scaler in all.flatten() {
        if !distinct.contains(&scaler) {
            distinct.push(scaler);
        }
    }
    distinct
}

/// The runs under the first seed of the settings that a contender's search has.
fn first_runs(contender: &ContenderScalers, by_scaler: &[(&ContestScaler, &[RunOutcome])]) -> Vec<SettingTrial> {
    let first = |&(scaler, outcomes): &(&ContestScaler, &[RunOutcome])| {
        let outcome = outcomes.first().copied().filter(|_| contender.search.contains(scaler))?;
        Some(SettingTrial { scaler: scaler.clone(), outcome })
    };
    by_scaler.iter().filter_map(first).collect()
}

/// The outcome of each contender's chosen setting where the load then steps up, under the first seed.
pub fn surprise(
    contest: &Contest<'_>,
    chosen: &[Option<ContestScaler>],
    stretch: &Stretch,
) -> Result<Vec<Option<RunOutcome>>, Failure> {
    let constants = &contest.protocol.constants;
    let rates = with_late_step(&stretch.rates, constants.late_step);
    let load = ContestLoad::new(&rates, constants.first_s, contest.protocol.seeds.judge[0]);
    in_parallel(chosen, |scaler| {
        let run = |scaler: &ContestScaler| contest.run(&load, scaler, RunWish::default());
        scaler.as_ref().map(run).transpose()
    })
}

/// The outcomes of each contender's chosen setting under other dropping policies, under the first seed.
pub fn other_policies(
    contest: &Contest<'_>,
    chosen: &[Option<ContestScaler>],
    stretch: &Stretch,
) -> Result<Vec<PolicyPoint>, Failure> {
    let load = ContestLoad::new(&stretch.rates, contest.protocol.constants.first_s, contest.protocol.seeds.judge[0]);
    let scalers = chosen.iter().enumerate().filter_map(|(at, scaler)| Some((at, scaler.as_ref()?)));
    let jobs: Vec<_> = scalers.flat_map(|(at, scaler)| OTHER_POLICIES.map(|policy| (at, scaler, policy))).collect();
    in_parallel(&jobs, |&(contender, scaler, dropping)| {
        let wish = RunWish { dropping: Some(dropping), ..RunWish::default() };
        Ok(PolicyPoint { contender, dropping, outcome: contest.run(&load, scaler, wish)? })
    })
}

#[cfg(test)]
mod tests {
    use super::super::contest::ContestPoint;
    use super::super::protocol::{ScalerKind, USUAL_SERVICE};
    use super::*;

    fn trial(headroom: f64, outcome: RunOutcome) -> SettingTrial {
        let setting = [("headroom".to_owned(), headroom)].into();
        SettingTrial { scaler: ContestScaler { kind: ScalerKind::System, setting, service: USUAL_SERVICE }, outcome }
    }

    fn done(attainment: f64, cost_per_hour: f64) -> RunOutcome {
        RunOutcome::Done(ContestPoint { attainment, cost_per_hour, utilisation: 0.5 })
    }

    fn chosen(outcomes: &[RunOutcome]) -> Option<f64> {
        let trials: Vec<SettingTrial> = outcomes.iter().enumerate().map(|(at, o)| trial(at as f64, *o)).collect();
        choose(&trials, 0.99)?.get("headroom")
    }

    #[test]
    fn a_setting_that_two_have_is_played_once() {
        let scaler = |headroom: f64| trial(headroom, RunOutcome::NoPlan).scaler;
        let of = |default: f64, search: &[f64]| ContenderScalers {
            default: scaler(default),
            search: search.iter().map(|headroom| scaler(*headroom)).collect(),
        };
        // the first has chosen its default, and its search has the second's default
        let contenders = [of(1.0, &[1.0, 1.5, 2.0]), of(1.5, &[])];
        let chosen = [Some(scaler(1.0)), None];
        let played = distinct_scalers(&contenders, &chosen);
        assert_eq!(played, [&scaler(1.0), &scaler(1.5)]);
        let outcomes = [[done(0.98, 1.0), done(0.97, 1.0)], [done(1.0, 2.0), done(1.0, 3.0)]];
        let by_scaler: Vec<(&ContestScaler, &[RunOutcome])> =
            played.iter().copied().zip(outcomes.iter().map(|runs| &runs[..])).collect();
        let known = |at: usize| -> Vec<RunOutcome> {
            first_runs(&contenders[at], &by_scaler).into_iter().map(|trial| trial.outcome).collect()
        };
        assert_eq!((known(0), known(1)), (vec![done(0.98, 1.0), done(1.0, 2.0)], vec![]));
    }

    #[test]
    fn the_cheapest_setting_that_holds_is_chosen() {
        assert_eq!(chosen(&[done(0.98, 1.0), done(0.995, 3.0), done(0.99, 2.0), done(1.0, 4.0)]), Some(2.0));
    }

    #[test]
    fn without_one_that_holds_the_best_is_chosen() {
        assert_eq!(chosen(&[RunOutcome::GivenUp, done(0.97, 1.0), done(0.98, 9.0), done(0.98, 2.0)]), Some(2.0));
        assert_eq!(chosen(&[RunOutcome::NoPlan, RunOutcome::NoPlan]), Some(0.0));
        assert_eq!(chosen(&[]), None);
    }
}
