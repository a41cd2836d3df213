//! How do the parts of a request become its one answer?

use super::pending::RequestAttempt;
use super::requests::{ATTEMPTS_MAX, CompletedRequest};
use super::state::GatewayState;
use crate::node::cancelled::CancelledRequests;
use crate::node::fleet::FleetState;
use crate::node::request::{Piece, RequestAnswer};
use crate::node::site::Site;
use crate::node::tallies::Tallies;
use crate::wire::{CreditReturn, Message, PartEnd};

impl GatewayState {
    /// A part of a request of this gateway has come back.
    pub fn receive_return(
        &mut self,
        part: CreditReturn,
        site: &mut Site,
        fleet: &FleetState,
        tallies: &mut Tallies,
        cancelled: &mut CancelledRequests,
    ) {
        let request = part.request;
        if let Some(result) = self.add_part(part, site.now_ns(), fleet) {
            self.finish(request, result, site, fleet, tallies, cancelled);
        }
    }

    /// Adds a part to its run. Returns the result of the request if it has one now.
    fn add_part(
        &mut self,
        part: CreditReturn,
        now_ns: u64,
        fleet: &FleetState,
    ) -> Option<Result<CompletedRequest, RequestAnswer>> {
        let pending = self.requests.get_mut(part.request)?;
        let is_partial = fleet.pipeline(&pending.pipeline).is_some_and(|p| p.partial);
        let attempt = pending.attempts.get_mut(usize::from(part.attempt))?;
        if attempt.is_spoiled {
            return None;
        }
        if attempt.covered.cuts(part.credit) {
            attempt.is_spoiled = true;
            if pending.attempts.len() >= ATTEMPTS_MAX {
                // Another run that is under way may still be whole.
                let is_last = pending.attempts.iter().all(|attempt| attempt.is_spoiled);
                let reason = "it was run several times, in parts that do not fit together";
                return is_last.then(|| Err(RequestAnswer::Failed(reason.into())));
            }
            pending.again_ns = Some(now_ns);
            self.requests.make_due(now_ns);
            return None;
        }
        if !attempt.covered.add(part.credit) {
            return None;
        }
        match part.end {
            PartEnd::Leaf { task, outputs } => {
                attempt.leaves += 1;
                if !task.is_empty() {
                    attempt.pieces.push(Piece { row: part.row, order: part.credit.start, task, outputs });
                }
            }
            PartEnd::Dropped(reason) if is_partial => {
                attempt.dropped.parts += 1;
                attempt.dropped.first_reason.get_or_insert(reason);
            }
            PartEnd::Dropped(reason) => return Some(Err(RequestAnswer::Dropped(reason))),
            PartEnd::Failed(reason) => return Some(Err(RequestAnswer::Failed(reason))),
            PartEnd::NotReady(reason) => return Some(Err(RequestAnswer::NotReady(reason))),
            PartEnd::Harmful(reason) => {
                self.suspects.note(pending.terms.sender, now_ns);
                return Some(Err(RequestAnswer::Failed(reason)));
            }
        }
        attempt.covered.is_whole().then(|| result_of(attempt))
    }

    /// Answers the requests that were not answered in time.
    pub fn expire_requests(
        &mut self,
        site: &mut Site,
        fleet: &FleetState,
        tallies: &mut Tallies,
        cancelled: &mut CancelledRequests,
    ) {
        for request in self.requests.expired(site.now_ns()) {
            let is_timed = self.requests.get(request).is_some_and(|pending| pending.is_timed);
            let answer = if is_timed { RequestAnswer::TimedOut } else { RequestAnswer::GivenUp };
            self.finish(request, Err(answer), site, fleet, tallies, cancelled);
        }
    }

    /// Ends the request of a client that has gone, whether it runs or waits for variants.
    pub fn abandon(
        &mut self,
        caller: u64,
        site: &mut Site,
        fleet: &FleetState,
        tallies: &mut Tallies,
        cancelled: &mut CancelledRequests,
    ) {
        if let Some(request) = self.requests.of_caller(caller) {
            self.finish(request, Err(RequestAnswer::ClientGone), site, fleet, tallies, cancelled);
        } else if self.waiting.forget(caller) {
            site.answer(caller, RequestAnswer::ClientGone);
        }
    }

    /// Answers a request, and cancels the parts of it that are still under way. A request without a client has no outcome,
    /// unless it was late before: the service did not fail it.
    fn finish(
        &mut self,
        request: u64,
        result: Result<CompletedRequest, RequestAnswer>,
        site: &mut Site,
        fleet: &FleetState,
        tallies: &mut Tallies,
        cancelled: &mut CancelledRequests,
    ) {
        let pending = self.requests.remove(request).expect("it is pending");
        let late = site.now_ns() > pending.deadline_ns;
        let counts = tallies.requests_of(pending.pipeline);
        let count = match &result {
            Ok(_) if late => Some(&mut counts.late),
            Ok(_) => Some(&mut counts.ok),
            Err(RequestAnswer::ClientGone) if !late => None,
            Err(RequestAnswer::TimedOut | RequestAnswer::ClientGone) => Some(&mut counts.late),
            Err(RequestAnswer::Dropped(_)) => Some(&mut counts.dropped),
            Err(_) => Some(&mut counts.failed),
        };
        count.into_iter().for_each(|count| *count += 1);
        if pending.attempts.iter().any(|a| !a.covered.is_whole()) {
            cancel_everywhere(request, site, fleet, cancelled);
        }
        let answer = result.map_or_else(
            |failure| failure,
            |CompletedRequest { mut pieces, dropped }| {
                pieces.sort_by_key(|p| (p.row, p.order));
                let (latency_ns, chosen) = (site.now_ns() - pending.arrived_ns, pending.chosen);
                RequestAnswer::Done { pieces, late, latency_ns, dropped, chosen }
            },
        );
        site.answer(pending.caller, answer);
    }
}

/// A request of this gateway is answered although parts of it are still under way: all agents forget them.
fn cancel_everywhere(request: u64, site: &mut Site, fleet: &FleetState, cancelled: &mut CancelledRequests) {
    let origin = site.agent();
    for (agent, _) in fleet.peers().connected() {
        site.send(agent, Message::Cancel { origin, request });
    }
    cancelled.insert(origin, request);
}

/// The result of a run that has come back as a whole: dropped parts are left out, unless nothing else is left.
fn result_of(attempt: &mut RequestAttempt) -> Result<CompletedRequest, RequestAnswer> {
    let dropped = attempt.dropped.parts;
    match &mut attempt.dropped.first_reason {
        Some(reason) if attempt.leaves == 0 => Err(RequestAnswer::Dropped(std::mem::take(reason))),
        _ => Ok(CompletedRequest { pieces: std::mem::take(&mut attempt.pieces), dropped }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::gateway::pending::Pending;
    use crate::node::request::RequestTerms;
    use crate::wire::Credit;

    /// A gateway whose request 1 has as many runs as it may have.
    fn gateway() -> GatewayState {
        let mut gateway = GatewayState::after(0);
        gateway.requests.insert(Pending {
            pipeline: "p".into(),
            inputs: Vec::new(),
            terms: RequestTerms::default(),
            chosen: None,
            arrived_ns: 0,
            deadline_ns: 10,
            give_up_ns: 10,
            is_timed: false,
            caller: 1,
            attempts: (0..ATTEMPTS_MAX).map(|_| RequestAttempt::default()).collect(),
            again_ns: None,
        });
        gateway
    }

    #[test]
    fn a_spoiled_run_leaves_the_others_their_chance() {
        let fleet = FleetState::new(1);
        let add = |gateway: &mut GatewayState, attempt: u8, credit: Credit| {
            let end = PartEnd::Leaf { task: String::new(), outputs: Vec::new() };
            gateway.add_part(CreditReturn { request: 1, row: 0, attempt, credit, end }, 5, &fleet)
        };
        let part = |i, n| Credit::WHOLE.part(i, n).expect("enough");
        let spoil = |gateway: &mut GatewayState, attempt: u8| {
            assert!(add(gateway, attempt, part(0, 2)).is_none());
            add(gateway, attempt, part(1, 3))
        };
        let mut one = gateway();
        assert!(spoil(&mut one, 0).is_none());
        assert!(matches!(add(&mut one, 3, Credit::WHOLE), Some(Ok(_))));
        let mut all = gateway();
        let ends = [0, 1, 2, 3].map(|attempt| spoil(&mut all, attempt).is_some());
        assert_eq!(ends, [false, false, false, true], "the last one ends the request");
    }
}
