//! Which senders' queries share no batch with other senders' queries?
//!
//! A sender is a suspect for a while after a request of it has made a batch fail. Its next bad request then costs no
//! other sender a batch.
//!
//! Only one thing makes a sender a suspect: a query of it failed alone after other members of its batch succeeded alone.
//! So a variant that fails on every input makes no suspects. A suspect gets its turn like every sender; it pays with
//! smaller batches.

use std::collections::BTreeMap;

/// For so long after a batch has failed because of it, a sender's queries are kept apart.
pub const APART_NS: u64 = 30_000_000_000;
/// Suspects that one gateway remembers; beyond, the one that would be forgotten first makes room.
pub const SUSPECTS_MAX: usize = 4_096;

/// The suspects of one gateway.
#[derive(Debug, Default)]
pub struct SuspectedAgents {
    until_ns: BTreeMap<u64, u64>,
}

impl SuspectedAgents {
    /// A batch has failed because of this sender (0: nobody knows which).
    pub fn note(&mut self, sender: u64, now_ns: u64) {
        if sender == 0 {
            return;
        }
        self.until_ns.insert(sender, now_ns.saturating_add(APART_NS));
        if self.until_ns.len() > SUSPECTS_MAX {
            self.until_ns.retain(|_, until| *until > now_ns);
        }
        while self.until_ns.len() > SUSPECTS_MAX
            && let Some(first) = self.until_ns.iter().min_by_key(|(_, until)| **until).map(|(sender, _)| *sender)
        {
            self.until_ns.remove(&first);
        }
    }

    /// The value of `apart` in a query of this sender: the sender's number while it is a suspect, else 0. Only queries with
    /// the same value share a batch.
    pub fn apart(&self, sender: u64, now_ns: u64) -> u64 {
        let is_suspect = self.until_ns.get(&sender).is_some_and(|until| *until > now_ns);
        if is_suspect { sender } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_kept_apart_for_a_while() {
        let mut suspects = SuspectedAgents::default();
        suspects.note(7, 5);
        suspects.note(0, 5);
        assert_eq!([suspects.apart(7, 6), suspects.apart(8, 6), suspects.apart(0, 6)], [7, 0, 0]);
        assert_eq!([suspects.apart(7, 4 + APART_NS), suspects.apart(7, 5 + APART_NS)], [7, 0]);
    }

    #[test]
    fn the_suspects_that_are_remembered_are_bounded() {
        let mut suspects = SuspectedAgents::default();
        (1..=SUSPECTS_MAX as u64 + 1).for_each(|sender| suspects.note(sender, sender));
        assert_eq!((suspects.until_ns.len(), suspects.apart(1, 1)), (SUSPECTS_MAX, 0));
        assert_eq!(suspects.apart(2, 2), 2);
    }
}
