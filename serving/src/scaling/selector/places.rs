//! On which workers is a variant loaded, and on which of them is one more query done first?
//!
//! Example: a variant is loaded on 1,000 workers, and 900 of them are idle. The least loaded idle worker is the first entry
//! of an ordered set, so a choice looks at one worker and not at all of them.

use super::state::VariantState;
use apportion_domain::{Moment, TimeSpan};
use std::collections::{BTreeMap, BTreeSet};

/// Most workers that one look moves from the busy ones to the idle ones. The rest follow with the next looks, so no single
/// choice takes long.
pub const SETTLED_MAX: usize = 16;
/// States in which a variant is loaded.
const LOADED_STATES: [VariantState; 3] = [VariantState::Active, VariantState::Interfered, VariantState::Overloaded];

/// A variant on a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariantPlace {
    /// The worker.
    pub worker: u32,
    /// Its state there.
    pub state: VariantState,
    /// Served over peak.
    pub load: f64,
    /// When the queries that were sent there will have been served, at peak throughput.
    pub free: Moment,
    /// The time of one query on all replicas together, at peak throughput.
    pub each: TimeSpan,
}

/// A load as a number that orders like it. Loads are at least 0.
type LoadRank = u64;

impl VariantPlace {
    fn load_rank(&self) -> LoadRank {
        self.load.max(0.0).to_bits()
    }
}

/// A worker, and in which set it is.
#[derive(Clone, Copy, Debug)]
struct Kept {
    placed: VariantPlace,
    /// Whether it is among the idle ones.
    is_idle: bool,
}

/// The earliest moments at which a variant can begin with one more query. A moment that has passed means: at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarliestStart {
    /// On a worker where it is active; `None` if there is none.
    pub active: Option<Moment>,
    /// On a worker where it is loaded, in any state; `None` if there is none.
    pub loaded: Option<Moment>,
}

/// The workers of one state.
#[derive(Clone, Debug, Default)]
struct OfState {
    /// With nothing to do at the last look, by load.
    idle: BTreeSet<(LoadRank, u32)>,
    /// The others, by the moment at which they are free.
    busy: BTreeSet<(Moment, LoadRank, u32)>,
}

impl OfState {
    /// When the first of them is free.
    fn earliest(&self) -> Option<Moment> {
        let busy = || self.busy.first().map(|(free, ..)| *free);
        self.idle.first().map(|_| Moment::ZERO).or_else(busy)
    }
}

/// Where one variant is loaded.
#[derive(Clone, Debug, Default)]
pub struct VariantPlaces {
    by_worker: BTreeMap<u32, Kept>,
    of_states: [OfState; LOADED_STATES.len()],
}

impl VariantPlaces {
    /// Whether it is loaded nowhere.
    pub fn is_empty(&self) -> bool {
        self.by_worker.is_empty()
    }

    /// All of them, in the order of the workers.
    pub fn iter(&self) -> impl Iterator<Item = &VariantPlace> {
        self.by_worker.values().map(|kept| &kept.placed)
    }

    /// The variant on this worker, if it is loaded there.
    pub fn get(&self, worker: u32) -> Option<&VariantPlace> {
        self.by_worker.get(&worker).map(|kept| &kept.placed)
    }

    /// Sets what is loaded on a worker, in the place of what was.
    pub fn put(&mut self, now: Moment, placed: VariantPlace) {
        self.remove(placed.worker);
        let Some(of_state) = of_state(&mut self.of_states, placed.state) else { return };
        let is_idle = placed.free <= now;
        if is_idle {
            of_state.idle.insert((placed.load_rank(), placed.worker));
        } else {
            of_state.busy.insert((placed.free, placed.load_rank(), placed.worker));
        }
        self.by_worker.insert(placed.worker, Kept { placed, is_idle });
    }

    /// Forgets what is loaded on a worker.
    pub fn remove(&mut self, worker: u32) {
        let Some(Kept { placed, is_idle }) = self.by_worker.remove(&worker) else { return };
        let Some(of_state) = of_state(&mut self.of_states, placed.state) else { return };
        if is_idle {
            of_state.idle.remove(&(placed.load_rank(), worker));
        } else {
            of_state.busy.remove(&(placed.free, placed.load_rank(), worker));
        }
    }

    /// Counts queries as sent to a worker.
    pub fn send(&mut self, now: Moment, worker: u32, queries: u32) {
        let Some(&placed) = self.get(worker) else { return };
        let takes = TimeSpan::from_nanos(placed.each.as_nanos().saturating_mul(u64::from(queries)));
        self.put(now, VariantPlace { free: placed.free.max(now) + takes, ..placed });
    }

    /// When one more query can begin. It changes only if a place does.
    pub fn earliest_start(&self) -> EarliestStart {
        let [active, ..] = &self.of_states;
        let loaded = self.of_states.iter().filter_map(OfState::earliest).min();
        EarliestStart { active: active.earliest(), loaded }
    }

    /// The active place where a query is done first; of idle ones, the least loaded.
    pub fn first_active(&mut self, now: Moment) -> Option<VariantPlace> {
        self.first_of(now, VariantState::Active)
    }

    /// The place of any state where a query is done first; of equal ones the better state, then the lower load.
    pub fn first(&mut self, now: Moment) -> Option<VariantPlace> {
        let found = LOADED_STATES.into_iter().filter_map(|state| self.first_of(now, state));
        found.min_by_key(|p| (p.free.max(now), p.state, p.load_rank(), p.worker))
    }

    fn first_of(&mut self, now: Moment, state: VariantState) -> Option<VariantPlace> {
        let of_state = of_state(&mut self.of_states, state)?;
        for _ in 0..SETTLED_MAX {
            let Some(&(free, load, worker)) = of_state.busy.first().filter(|(free, ..)| *free <= now) else { break };
            of_state.busy.remove(&(free, load, worker));
            of_state.idle.insert((load, worker));
            if let Some(kept) = self.by_worker.get_mut(&worker) {
                kept.is_idle = true;
            }
        }
        let idle = of_state.idle.first().map(|(_, worker)| *worker);
        let worker = idle.or_else(|| of_state.busy.first().map(|(.., worker)| *worker))?;
        self.get(worker).copied()
    }
}

/// The workers of a state in which a variant is loaded.
fn of_state(of_states: &mut [OfState; LOADED_STATES.len()], state: VariantState) -> Option<&mut OfState> {
    let at = LOADED_STATES.iter().position(|loaded| *loaded == state)?;
    of_states.get_mut(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::SplitMix;

    fn placed(worker: u32, state: VariantState, load: f64, free_ns: u64) -> VariantPlace {
        let (free, each) = (Moment::from_nanos(free_ns), TimeSpan::from_nanos(10));
        VariantPlace { worker, state, load, free, each }
    }

    /// The same choice by looking at every place.
    fn obvious(all: &VariantPlaces, now: Moment, accepts: impl Fn(&VariantPlace) -> bool) -> Option<u32> {
        let order = |a: &&VariantPlace, b: &&VariantPlace| {
            let key = |p: &VariantPlace| (p.free.max(now), p.state);
            key(a).cmp(&key(b)).then(a.load.total_cmp(&b.load))
        };
        all.iter().filter(|p| accepts(p)).min_by(order).map(|p| p.worker)
    }

    #[test]
    fn the_sets_agree_with_a_look_at_every_place() {
        let mut draw = SplitMix(11);
        let mut places = VariantPlaces::default();
        let mut now_ns = 0;
        for _ in 0..4_000 {
            now_ns += (draw.unit() * 8.0) as u64;
            let (now, worker) = (Moment::from_nanos(now_ns), (draw.unit() * 12.0) as u32);
            let state = LOADED_STATES[(draw.unit() * 3.0) as usize];
            let free_ns = now_ns + (draw.unit() * 60.0) as u64;
            match (draw.unit() * 4.0) as u32 {
                0 => places.put(now, placed(worker, state, draw.unit(), free_ns)),
                1 if draw.unit() < 0.3 => places.remove(worker),
                _ => places.send(now, worker, 1),
            }
            let active = places.first_active(now).map(|p| p.worker);
            assert_eq!(active, obvious(&places, now, |p| p.state == VariantState::Active), "at {now_ns}");
            assert_eq!(places.first(now).map(|p| p.worker), obvious(&places, now, |_| true), "at {now_ns}");
            let start = |is: &dyn Fn(&VariantPlace) -> bool| places.iter().filter(|p| is(p)).map(|p| p.free.max(now)).min();
            let EarliestStart { active, loaded } = places.earliest_start();
            let active = active.map(|free| free.max(now));
            assert_eq!(active, start(&|p| p.state == VariantState::Active), "at {now_ns}");
            assert_eq!(loaded.map(|free| free.max(now)), start(&|_| true), "at {now_ns}");
        }
    }

    #[test]
    fn one_look_settles_a_bounded_number_of_places() {
        let mut places = VariantPlaces::default();
        let many = 3 * SETTLED_MAX as u32;
        (0..many).for_each(|w| places.put(Moment::ZERO, placed(w, VariantState::Active, 1.0 - f64::from(w) / 1e3, 5)));
        let later = Moment::from_nanos(9);
        assert_eq!(places.of_states[0].busy.len(), many as usize);
        assert!(places.first_active(later).is_some());
        assert_eq!(places.of_states[0].busy.len(), many as usize - SETTLED_MAX);
        (0..2).for_each(|_| assert!(places.first_active(later).is_some()));
        assert_eq!(places.first_active(later).map(|p| p.worker), Some(many - 1), "all are known to be idle by now");
    }
}
