//! Scripts of the ingress: each request has one answer, whatever happens to its queries.

use apportion_domain::{Moment, Partial, RequestId};
use apportion_serving::frontend::{FailureCause, Frontend, FrontendInput, FrontendOutput};
use apportion_serving::{CREDIT_ROOT, DropReason, RequestOutcome, split};
use proptest::prelude::*;

const HALF: u64 = CREDIT_ROOT / 2;

/// `at event -> answers`; credits are written as `all` and `half`.
fn check(mut frontend: Frontend, script: &str) {
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (event, expected) = line.split_once("->").expect("an arrow in each line");
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let credit = || match words[3] {
            "all" => CREDIT_ROOT,
            "half" => HALF,
            other => other.parse().expect("a credit"),
        };
        let request = || RequestId(number(2));
        let input = match words[1] {
            "request" => {
                let (deadline, give_up) = (Moment::from_nanos(number(4)), Moment::from_nanos(number(6)));
                FrontendInput::Request { request: request(), deadline, give_up }
            }
            "sent" => FrontendInput::Sent { request: request(), peer: number(4) },
            "leaf" => FrontendInput::Leaf { request: request(), credit: credit() },
            "dropped" => FrontendInput::Dropped { request: request(), credit: credit(), reason: DropReason::QueueFull },
            "failed" => FrontendInput::Failed { request: request() },
            "lost" => FrontendInput::PeerLost { peer: number(2) },
            "tick" => FrontendInput::Tick,
            other => panic!("no event {other:?}"),
        };
        frontend.handle(Moment::from_nanos(number(0)), input);
        let mut seen = Vec::new();
        while let Some(output) = frontend.poll_output() {
            seen.push(match output {
                FrontendOutput::Refuse { request } => format!("refuse {}", request.0),
                FrontendOutput::Answer { request, outcome, cause } => {
                    let cause = match cause {
                        None => String::new(),
                        Some(FailureCause::Dropped(reason)) => format!(" {}", reason.name()),
                        Some(cause) => format!(" {cause:?}"),
                    };
                    format!("{} {}{cause}", request.0, outcome.name())
                }
            });
        }
        if let Some((at, _)) = frontend.poll_timeout() {
            seen.push(format!("wake {}", at.as_nanos()));
        }
        assert_eq!(seen.join(", "), expected.trim(), "{line}");
    }
}

#[test]
fn a_request_is_answered_when_all_its_credit_is_back() {
    check(
        Frontend::new(10, Partial::Deny),
        "
         0 request 1 by 50 until 90 -> wake 90
         1 request 2 by 51 until 80 -> wake 80
        10 leaf 1 half              -> wake 80
        50 leaf 1 half              -> 1 ok, wake 80
        52 leaf 2 all               -> 2 late
        53 leaf 2 all               ->
        ",
    );
}

#[test]
fn a_dropped_part_drops_its_request_at_once() {
    check(
        Frontend::new(10, Partial::Deny),
        "
         0 request 1 by 50 until 90 -> wake 90
         5 dropped 1 half           -> 1 dropped queue_full
         6 leaf 1 half              ->
        ",
    );
}

#[test]
fn with_partial_answers_a_dropped_part_is_left_out() {
    check(
        Frontend::new(10, Partial::Allow),
        "
         0 request 1 by 50 until 90 -> wake 90
         5 dropped 1 half           -> wake 90
         6 leaf 1 half              -> 1 ok
         7 request 2 by 50 until 90 -> wake 90
         8 dropped 2 all            -> 2 dropped queue_full
        ",
    );
}

#[test]
fn lost_queries_fail_their_request_at_its_give_up_time() {
    check(
        Frontend::new(10, Partial::Deny),
        "
         0 request 1 by 50 until 90 -> wake 90
         0 request 2 by 50 until 70 -> wake 70
        70 tick                     -> 2 failed TimedOut, wake 90
        89 leaf 1 half              -> wake 90
        95 tick                     -> 1 failed TimedOut
        96 leaf 1 half              ->
        ",
    );
}

#[test]
fn failures_only_fail_their_own_requests() {
    check(
        Frontend::new(10, Partial::Deny),
        "
         0 request 1 by 50 until 90 -> wake 90
         0 request 2 by 50 until 90 -> wake 90
         0 request 3 by 50 until 90 -> wake 90
         1 sent 1 to 7              -> wake 90
         1 sent 2 to 8              -> wake 90
         1 sent 2 to 8              -> wake 90
         2 lost 8                   -> 2 failed PeerLost, wake 90
         3 failed 3                 -> 3 failed Failed, wake 90
         4 failed 3                 -> wake 90
         5 leaf 1 all               -> 1 ok
        ",
    );
}

#[test]
fn forged_credit_fails_only_its_request() {
    check(
        Frontend::new(1, Partial::Deny),
        "
         0 request 1 by 50 until 90 -> wake 90
         1 request 2 by 50 until 90 -> refuse 2, wake 90
         2 leaf 1 half              -> wake 90
         3 leaf 1 all               -> 1 failed Failed
         4 request 3 by 50 until 90 -> wake 90
        ",
    );
}

#[test]
fn a_split_gives_away_all_credit_or_fails() {
    assert_eq!(split(10, 3).expect("enough").collect::<Vec<_>>(), [4, 3, 3]);
    assert_eq!(split(2, 2).expect("enough").collect::<Vec<_>>(), [1, 1]);
    assert!(split(1, 2).is_none());
    assert_eq!(Frontend::credits(5).expect("enough").sum::<u64>(), CREDIT_ROOT);
    assert!(Frontend::credits(0).is_none());
}

/// Splits a request at random down a tree and returns the credits of its leaves.
fn leaves(fanouts: &[u64]) -> Vec<u64> {
    let mut leaves = vec![CREDIT_ROOT];
    for (at, &fanout) in fanouts.iter().enumerate() {
        let chosen = at * 7 % leaves.len();
        let parts = split(leaves[chosen], fanout).expect("enough credit for these trees");
        leaves.splice(chosen..=chosen, parts);
    }
    leaves
}

proptest! {
    /// The leaves of a random tree report in a random order. The answer comes with the last one and only then.
    #[test]
    fn a_request_ends_with_its_last_leaf_in_any_order(
        fanouts in prop::collection::vec(1_u64..30, 0..12),
        order in any::<prop::sample::Index>(),
    ) {
        let mut credits = leaves(&fanouts);
        let turn = order.index(credits.len());
        credits.rotate_left(turn);
        let mut frontend = Frontend::new(1, Partial::Deny);
        let request = RequestId(1);
        frontend.handle(Moment::ZERO, FrontendInput::Request { request, deadline: Moment::NEVER, give_up: Moment::NEVER });
        let last = credits.len() - 1;
        for (at, &credit) in credits.iter().enumerate() {
            frontend.handle(Moment::from_nanos(at as u64), FrontendInput::Leaf { request, credit });
            let answer = FrontendOutput::Answer { request, outcome: RequestOutcome::Ok, cause: None };
            prop_assert_eq!(frontend.poll_output(), (at == last).then_some(answer));
        }
        prop_assert_eq!(frontend.open(), 0);
    }
}
