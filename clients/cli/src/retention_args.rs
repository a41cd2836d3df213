//! For how long does the service keep rows, by the arguments of `apportion serve`?

use apportion_api::{RetentionPolicy, RowKind};
use apportion_support::exit::Failure;
use clap::Args;
use humantime::parse_duration as parsed;
use std::time::Duration;

/// The arguments about old rows.
#[derive(Args, Debug)]
pub struct RetentionArgs {
    /// How long it keeps requests of each pipeline and second, in steps of six hours: 2h to 31days.
    #[arg(long, env = "APPORTION_KEEP_ARRIVALS", value_name = "TIME", default_value = "1day", value_parser = parsed)]
    keep_arrivals: Duration,
    /// How long it keeps batches and queries that drifts of profiles are measured by: 5min to 1day.
    #[arg(long, env = "APPORTION_KEEP_SUMS", value_name = "TIME", default_value = "10min", value_parser = parsed)]
    keep_sums: Duration,
    /// How long it keeps decisions of replanning.
    #[arg(long, env = "APPORTION_KEEP_DECISIONS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_decisions: Duration,
    /// How long it keeps events. A webhook that is away for longer loses some.
    #[arg(long, env = "APPORTION_KEEP_EVENTS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_events: Duration,
    /// How long it keeps the audit: who asked for which change.
    #[arg(long, env = "APPORTION_KEEP_AUDIT", value_name = "TIME", default_value = "400days", value_parser = parsed)]
    keep_audit: Duration,
    /// How long it keeps former targets. The newest 100 are kept whatever their age.
    #[arg(long, env = "APPORTION_KEEP_TARGETS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_targets: Duration,
    /// How long it keeps plans that have ended, with their idempotency keys. A plan in force stays, and one that a
    /// kept target, a kept decision or an advice refers to.
    #[arg(long, env = "APPORTION_KEEP_PLANS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_plans: Duration,
    /// How long it keeps simulations, frontiers, comparisons and profile jobs that have ended.
    #[arg(long, env = "APPORTION_KEEP_ANALYSES", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_analyses: Duration,
    /// How long it keeps firings of schedules. The last one of each schedule is kept whatever its age.
    #[arg(long, env = "APPORTION_KEEP_FIRINGS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_firings: Duration,
    /// How long it keeps machines that have ended.
    #[arg(long, env = "APPORTION_KEEP_MACHINES", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_machines: Duration,
    /// How long it keeps agents that are lost or have left, with the times that they measured.
    #[arg(long, env = "APPORTION_KEEP_AGENTS", value_name = "TIME", default_value = "30days", value_parser = parsed)]
    keep_agents: Duration,
    /// How long it keeps tokens that were revoked or have expired.
    #[arg(long, env = "APPORTION_KEEP_TOKENS", value_name = "TIME", default_value = "400days", value_parser = parsed)]
    keep_tokens: Duration,
}

impl RetentionArgs {
    /// The policy.
    ///
    /// # Errors
    /// If a time is too short or too long.
    pub fn read(self) -> Result<RetentionPolicy, Failure> {
        let times = [
            (RowKind::Arrivals, self.keep_arrivals),
            (RowKind::Sums, self.keep_sums),
            (RowKind::Decisions, self.keep_decisions),
            (RowKind::Events, self.keep_events),
            (RowKind::Audit, self.keep_audit),
            (RowKind::Targets, self.keep_targets),
            (RowKind::Plans, self.keep_plans),
            (RowKind::Analyses, self.keep_analyses),
            (RowKind::Firings, self.keep_firings),
            (RowKind::Machines, self.keep_machines),
            (RowKind::Agents, self.keep_agents),
            (RowKind::Tokens, self.keep_tokens),
        ];
        let policy = times.into_iter().try_fold(RetentionPolicy::default(), |policy, (kind, kept)| policy.with(kind, kept));
        policy.map_err(|error| Failure::BadInput(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn read(words: &[&str]) -> Result<RetentionPolicy, Failure> {
        let command = RetentionArgs::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(words).expect("the words are read");
        RetentionArgs::from_arg_matches(&matches).expect("all arguments are there").read()
    }

    #[test]
    fn arguments_without_a_value_are_the_usual_policy() {
        assert_eq!(read(&[]).ok(), Some(RetentionPolicy::default()));
    }

    #[test]
    fn each_kind_has_a_setting_of_its_own() {
        for kind in RowKind::ALL {
            let (least, most) = kind.permitted().into_inner();
            let flag = format!("--keep-{}", kind.name());
            let policy = read(&[flag.as_str(), format!("{}s", least.as_secs()).as_str()]).expect("the least is permitted");
            let expected = RetentionPolicy::default().with(kind, least).expect("the least is permitted");
            assert_eq!(policy, expected, "{flag}");
            let refused = read(&[flag.as_str(), format!("{}s", most.as_secs() + 1).as_str()]).expect_err("it is too long");
            assert!(refused.to_string().starts_with(&flag), "{refused}");
        }
    }
}
