//! INFaaS's selection of variants (ATC'21, section 4): which variant on which worker serves a query that names none.
//!
//! A query names an application with the accuracy and the latency that it needs, or a variant. The [`Selector`] keeps the
//! state of each variant on each worker (figure 4 of the paper), from the workers' last reports. It answers with a variant
//! that serves at once, a variant that must be loaded first, or, if none fits, the nearest one. It also says which variants
//! should move because others disturb them (section 4), which workers may run offline queries, and when more workers are
//! wanted (section 4.2.3).
//!
//! Between two reports the paper's policy sends all queries to the worker that was the least loaded in the last report.
//! Here the selector also counts the queries that it has sent since. Each loaded variant has a virtual queue, which empties
//! at peak throughput. A variant is only taken if its queue leaves enough time.

mod places;
mod query;
mod state;

use apportion_domain::{Moment, TimeSpan};
use places::{EarliestStart, VariantPlace, VariantPlaces};

pub use query::{LoadRule, Move, QueryNeeds, RegisteredVariant, VariantSelection, WorkerMeasurement};
pub use state::{DISTURBED, OFFLINE_UTILISATION_MAX, PEAK, VariantState, WorkerLoad, is_disturbed};

/// Another worker is wanted where all are used more (section 4.2.3, rule 1).
pub const UTILISATION_MAX: f64 = 0.8;
/// Another worker is wanted if more of them have overloaded variants (section 4.2.3, rule 3).
pub const OVERLOADED_MAX: f64 = 0.8;

#[derive(Clone, Debug)]
struct Worker {
    hardware: u32,
    eighths_free: u32,
    load: WorkerLoad,
    is_up: bool,
}

/// Where a query would be served.
#[derive(Clone, Copy, Debug)]
struct Placement {
    serve: VariantSelection,
    /// When it would be done.
    done: Moment,
    /// The variant's state there.
    state: VariantState,
}

impl Placement {
    fn of(candidate: &Candidate, now: Moment, place: &VariantPlace) -> Self {
        let (variant, worker, state) = (candidate.variant, place.worker, place.state);
        let serve = VariantSelection::Serve { variant, worker, state };
        Self { serve, done: place.free.max(now) + candidate.inference, state }
    }
}

#[derive(Clone, Debug)]
struct Variant {
    registered: RegisteredVariant,
    /// Where it is loaded.
    places: VariantPlaces,
}

/// What a choice looks at first of a variant. Those of an application stand side by side.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    variant: u32,
    accuracy: f64,
    inference: TimeSpan,
    /// Price of a query at peak throughput.
    price: f64,
    /// The hardware type of the variant, and the eighths of a device that a replica takes.
    hardware: u32,
    eighths: u32,
}

impl Candidate {
    fn of(variant: u32, r: &RegisteredVariant) -> Self {
        let RegisteredVariant { accuracy, inference, hardware, eighths, .. } = *r;
        Self { variant, accuracy, inference, price: r.query_price(), hardware, eighths }
    }

    fn fits(&self, needs: &Needs) -> bool {
        self.accuracy >= needs.accuracy && self.inference <= needs.latency && self.price <= needs.price
    }
}

/// The candidates that do what a query needs, in the order of the list.
fn fitting<'a>(
    list: &'a [Candidate],
    needs: &'a Needs,
    among: &'a impl Fn(u32) -> bool,
) -> impl Iterator<Item = &'a Candidate> {
    list.iter().filter(move |c| c.fits(needs) && among(c.variant))
}

/// The needs of a query that names no variant.
#[derive(Clone, Copy, Debug)]
struct Needs {
    application: usize,
    accuracy: f64,
    latency: TimeSpan,
    price: f64,
}

/// Variants and workers of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    variants: Vec<Variant>,
    /// By variant: [`VariantPlaces::earliest_start`]. A choice looks here before it looks at places.
    earliest: Vec<EarliestStart>,
    workers: Vec<Worker>,
    /// By hardware type: the most free eighths of any worker.
    room: Vec<u32>,
    /// By application, by price of a query.
    by_price: Vec<Vec<Candidate>>,
    /// By application, by loading and inference time.
    by_start: Vec<Vec<Candidate>>,
}

impl Selector {
    /// Of all registered variants; nothing is loaded and no worker is there.
    #[must_use]
    pub fn new(registered: Vec<RegisteredVariant>) -> Self {
        let applications = registered.iter().map(|r| r.application as usize + 1).max().unwrap_or(0);
        let mut by_price: Vec<Vec<Candidate>> = vec![Vec::new(); applications];
        for (variant, r) in (0..).zip(&registered) {
            by_price[r.application as usize].push(Candidate::of(variant, r));
        }
        let mut by_start = by_price.clone();
        let start = |c: &Candidate| registered[c.variant as usize].load + c.inference;
        by_price.iter_mut().for_each(|list| list.sort_by(|a, b| a.price.total_cmp(&b.price)));
        by_start.iter_mut().for_each(|list| list.sort_by_key(&start));
        let variant = |registered| Variant { registered, places: VariantPlaces::default() };
        let earliest = vec![EarliestStart::default(); registered.len()];
        let variants = registered.into_iter().map(variant).collect();
        Self { variants, earliest, workers: Vec::new(), room: Vec::new(), by_price, by_start }
    }

    /// Adds a worker with these free eighths of devices. Returns its number.
    pub fn add_worker(&mut self, hardware: u32, eighths: u32) -> u32 {
        let load = WorkerLoad { utilisation: 0.0, is_calm: true };
        self.workers.push(Worker { hardware, eighths_free: eighths, load, is_up: true });
        self.update_room(hardware);
        self.workers.len() as u32 - 1
    }

    fn update_room(&mut self, hardware: u32) {
        let of_type = self.workers.iter().filter(|w| w.hardware == hardware && w.is_up);
        let most = of_type.map(|w| w.eighths_free).max().unwrap_or(0);
        let at = hardware as usize;
        self.room.resize(self.room.len().max(at + 1), 0);
        self.room[at] = most;
    }

    fn update_earliest(&mut self) {
        let of_variants = self.earliest.iter_mut().zip(&self.variants);
        of_variants.for_each(|(earliest, of)| *earliest = of.places.earliest_start());
    }

    /// Removes a worker with all its variants.
    pub fn remove_worker(&mut self, worker: u32) {
        self.workers[worker as usize].is_up = false;
        self.variants.iter_mut().for_each(|v| v.places.remove(worker));
        self.update_earliest();
        self.update_room(self.workers[worker as usize].hardware);
    }

    /// A worker's report: its utilisation (0 to 1), its free eighths, and all variants that are loaded there.
    pub fn report(&mut self, now: Moment, worker: u32, utilisation: f64, eighths_free: u32, seen: &[WorkerMeasurement]) {
        let mut is_calm = true;
        let is_there = |variant: u32| seen.iter().any(|s| s.variant == variant && s.replicas > 0);
        for (_, of) in (0..).zip(&mut self.variants).filter(|(variant, _)| !is_there(*variant)) {
            of.places.remove(worker);
        }
        for seen in seen.iter().filter(|s| s.replicas > 0) {
            let Some(variant) = self.variants.get_mut(seen.variant as usize) else { continue };
            let r = &variant.registered;
            let peak_qps = (r.peak_qps * f64::from(seen.replicas)).max(1e-9);
            let load = seen.served_qps / peak_qps;
            let slowness = seen.inference.as_nanos() as f64 / (r.inference.as_nanos() as f64).max(1.0);
            let is_slow = slowness > DISTURBED;
            let state = match load >= PEAK {
                true => VariantState::Overloaded,
                false if is_disturbed(load, slowness) => VariantState::Interfered,
                false => VariantState::Active,
            };
            is_calm &= !is_slow;
            let each = TimeSpan::from_millis(1e3 / peak_qps);
            let queue = TimeSpan::from_nanos(each.as_nanos().saturating_mul(seen.queued));
            // Queries that were sent after the report left are not in it.
            let free = variant.places.get(worker).map_or(now, |known| known.free).max(now + queue);
            variant.places.put(now, VariantPlace { worker, state, load, free, each });
        }
        self.update_earliest();
        let of = &mut self.workers[worker as usize];
        (of.load, of.eighths_free) = (WorkerLoad { utilisation, is_calm }, eighths_free);
        let hardware = of.hardware;
        self.update_room(hardware);
    }

    /// The state of a variant on a worker.
    #[must_use]
    pub fn state(&self, variant: u32, worker: u32) -> VariantState {
        self.variants[variant as usize].places.get(worker).map_or(VariantState::Inactive, |p| p.state)
    }

    /// The variant that serves a query (section 4.1). The query counts as sent to it.
    pub fn select(&mut self, now: Moment, asked: QueryNeeds) -> VariantSelection {
        self.select_many(now, asked, 1)
    }

    /// The variant that serves this many queries together.
    pub fn select_many(&mut self, now: Moment, asked: QueryNeeds, queries: u32) -> VariantSelection {
        self.select_among(now, asked, queries, LoadRule::WhenBusy, |_| true)
    }

    /// The same among some variants only, by a rule that says when one is loaded.
    pub fn select_among(
        &mut self,
        now: Moment,
        asked: QueryNeeds,
        queries: u32,
        rule: LoadRule,
        among: impl Fn(u32) -> bool,
    ) -> VariantSelection {
        let selected = match asked {
            QueryNeeds::Variant(variant) if variant as usize >= self.variants.len() => VariantSelection::Unknown,
            QueryNeeds::Variant(variant) => self.select_variant(now, variant, rule),
            QueryNeeds::Needs { application, accuracy, latency, price } => {
                let needs = Needs { application: application as usize, accuracy, latency, price };
                self.select_for(now, &needs, rule, &among)
            }
        };
        if let VariantSelection::Serve { variant, worker, .. } = selected {
            let places = &mut self.variants[variant as usize].places;
            places.send(now, worker, queries);
            self.earliest[variant as usize] = places.earliest_start();
        }
        selected
    }

    fn select_variant(&mut self, now: Moment, variant: u32, rule: LoadRule) -> VariantSelection {
        let of = &mut self.variants[variant as usize];
        let serve = |p: VariantPlace| VariantSelection::Serve { variant, worker: p.worker, state: p.state };
        let (active, any) = (of.places.first_active(now).map(serve), of.places.first(now).map(serve));
        let loadable = self.place_to_load(variant);
        let others = match rule {
            LoadRule::WhenBusy => loadable.or(any),
            LoadRule::WhenMissing => any.or(loadable),
        };
        active.or(others).unwrap_or(VariantSelection::NoRoom { variant })
    }

    fn select_for(&mut self, now: Moment, needs: &Needs, rule: LoadRule, among: &impl Fn(u32) -> bool) -> VariantSelection {
        if self.by_price.get(needs.application).is_none_or(Vec::is_empty) {
            return VariantSelection::Unknown;
        }
        if let Some(serve) = self.active_in_time(now, needs, among) {
            return serve;
        }
        let found = match rule {
            // Overloaded and disturbed variants are not taken while another variant can be loaded.
            LoadRule::WhenBusy => {
                let load = self.first_to_load(needs, among);
                load.or_else(|| self.best_loaded(now, needs, among))
            }
            LoadRule::WhenMissing => {
                let loaded = self.best_loaded(now, needs, among);
                loaded.or_else(|| self.first_to_load(needs, among))
            }
        };
        let cheapest = || fitting(&self.by_price[needs.application], needs, among).next().map(|c| c.variant);
        let no_room = || cheapest().map(|variant| VariantSelection::NoRoom { variant });
        found.or_else(no_room).unwrap_or_else(|| self.nearest(needs, among))
    }

    /// The cheapest fitting variant that is active somewhere and has time for the query.
    fn active_in_time(&mut self, now: Moment, needs: &Needs, among: &impl Fn(u32) -> bool) -> Option<VariantSelection> {
        for c in fitting(&self.by_price[needs.application], needs, among) {
            let latest = now + TimeSpan::from_nanos(needs.latency.as_nanos() - c.inference.as_nanos());
            if self.earliest[c.variant as usize].active.is_none_or(|start| start > latest) {
                continue;
            }
            let active = self.variants[c.variant as usize].places.first_active(now);
            if let Some(place) = active.filter(|place| place.free <= latest) {
                return Some(Placement::of(c, now, &place).serve);
            }
        }
        None
    }

    /// The fitting variant that would be loaded and done first, if there is room for one.
    fn first_to_load(&self, needs: &Needs, among: &impl Fn(u32) -> bool) -> Option<VariantSelection> {
        fitting(&self.by_start[needs.application], needs, among)
            .filter(|c| self.has_room(c.hardware, c.eighths))
            .find_map(|c| self.place_to_load(c.variant))
    }

    /// The fitting place, in whatever state, where the query is done first.
    fn best_loaded(&mut self, now: Moment, needs: &Needs, among: &impl Fn(u32) -> bool) -> Option<VariantSelection> {
        let mut best: Option<Placement> = None;
        for c in fitting(&self.by_price[needs.application], needs, among) {
            let Some(start) = self.earliest[c.variant as usize].loaded else { continue };
            if best.is_some_and(|best| start.max(now) + c.inference > best.done) {
                continue;
            }
            let Some(place) = self.variants[c.variant as usize].places.first(now) else { continue };
            let found = Placement::of(c, now, &place);
            if best.is_none_or(|best| (found.done, found.state) < (best.done, best.state)) {
                best = Some(found);
            }
        }
        best.map(|placement| placement.serve)
    }

    /// The price of a query on a variant beyond that on the cheapest registered variant which does what the query needs:
    /// what it costs that the cheapest one is busy, disturbed or not loaded.
    #[must_use]
    pub fn regret(&self, asked: QueryNeeds, chosen: u32, among: impl Fn(u32) -> bool) -> f64 {
        let QueryNeeds::Needs { application, accuracy, latency, price } = asked else { return 0.0 };
        let needs = Needs { application: application as usize, accuracy, latency, price };
        let list = self.by_price.get(needs.application);
        let best = list.and_then(|list| list.iter().find(|c| c.fits(&needs) && among(c.variant)));
        let paid = self.variants.get(chosen as usize).map(|v| v.registered.query_price());
        best.zip(paid).map_or(0.0, |(best, paid)| (paid - best.price).max(0.0))
    }

    /// The variant that misses the needs by the smallest part: accuracy below, time and price above, each relative to the
    /// need.
    fn nearest(&self, needs: &Needs, among: &impl Fn(u32) -> bool) -> VariantSelection {
        let asked = (needs.latency.as_nanos() as f64).max(1.0);
        let miss = |c: &Candidate| {
            let less = (needs.accuracy - c.accuracy).max(0.0) / needs.accuracy.max(1e-9);
            let more = (c.inference.as_nanos() as f64 - asked).max(0.0) / asked;
            let dearer = if c.price <= needs.price { 0.0 } else { (c.price - needs.price) / needs.price.max(1e-12) };
            less + more + dearer
        };
        let allowed = self.by_price[needs.application].iter().filter(|c| among(c.variant));
        let nearest = allowed.min_by(|a, b| miss(a).total_cmp(&miss(b)));
        nearest.map_or(VariantSelection::Unknown, |c| VariantSelection::Nearest { variant: c.variant })
    }

    /// Whether some worker of a hardware type has this many eighths of a device free.
    fn has_room(&self, hardware: u32, eighths: u32) -> bool {
        self.room.get(hardware as usize).is_some_and(|&room| room >= eighths)
    }

    fn place_to_load(&self, variant: u32) -> Option<VariantSelection> {
        let r = &self.variants[variant as usize].registered;
        if !self.has_room(r.hardware, r.eighths) {
            return None;
        }
        let worker = self.least_used_with_room(r, None)?;
        Some(VariantSelection::Load { variant, worker })
    }

    /// The least used worker with room for one more replica, other than `not`.
    fn least_used_with_room(&self, r: &RegisteredVariant, not: Option<u32>) -> Option<u32> {
        let has_room = |(at, w): &(u32, &Worker)| {
            w.is_up && w.hardware == r.hardware && w.eighths_free >= r.eighths && Some(*at) != not
        };
        let least = (0..).zip(&self.workers).filter(has_room);
        least.min_by(|(_, a), (_, b)| a.load.utilisation.total_cmp(&b.load.utilisation)).map(|(at, _)| at)
    }

    /// Disturbed replicas and where they should go (section 4, "mitigating performance degradation"). Each worker is the
    /// source or the goal of at most one move, so that its report is still true when a replica moves.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let mut is_touched = vec![false; self.workers.len()];
        let mut moves = Vec::new();
        for (variant, of) in (0..).zip(&self.variants) {
            for placed in of.places.iter().filter(|p| p.state == VariantState::Interfered) {
                let from = placed.worker;
                let home = &self.workers[from as usize];
                let stays = home.eighths_free >= of.registered.eighths;
                let to = if stays { Some(from) } else { self.least_used_with_room(&of.registered, Some(from)) };
                let Some(to) = to.filter(|&to| !is_touched[from as usize] && !is_touched[to as usize]) else { continue };
                is_touched[from as usize] = true;
                is_touched[to as usize] = true;
                moves.push(Move { variant, from, to });
            }
        }
        moves
    }

    /// Whether a worker may run offline queries now, by [`WorkerLoad::allows_offline`].
    #[must_use]
    pub fn runs_offline(&self, worker: u32) -> bool {
        let w = &self.workers[worker as usize];
        w.is_up && w.load.allows_offline()
    }

    /// Hardware types of which another worker is wanted (section 4.2.3).
    #[must_use]
    pub fn wanted_workers(&self) -> Vec<u32> {
        let up = || (0..).zip(&self.workers).filter(|(_, w): &(u32, &Worker)| w.is_up);
        let mut types: Vec<u32> = up().map(|(_, w)| w.hardware).collect();
        types.sort_unstable();
        types.dedup();
        let has = |worker: u32, state: VariantState| {
            self.variants.iter().flat_map(|v| v.places.iter()).any(|p| p.worker == worker && p.state == state)
        };
        let overloaded: Vec<u32> = up().filter(|&(at, _)| has(at, VariantState::Overloaded)).map(|(at, _)| at).collect();
        let is_overloaded = overloaded.len() as f64 > OVERLOADED_MAX * up().count() as f64;
        let wants = |&hardware: &u32| {
            let of_type = || up().filter(move |(_, w)| w.hardware == hardware);
            let is_used = of_type().all(|(_, w)| w.load.utilisation > UTILISATION_MAX);
            let is_disturbed = |v: &Variant| v.places.iter().all(|p| p.state == VariantState::Interfered);
            let mut loaded = self.variants.iter().filter(|v| v.registered.hardware == hardware && !v.places.is_empty());
            let is_any = self.variants.iter().any(|v| v.registered.hardware == hardware && !v.places.is_empty());
            let more = is_overloaded && of_type().any(|(at, _)| overloaded.contains(&at));
            is_used || (is_any && loaded.all(is_disturbed)) || more
        };
        types.into_iter().filter(wants).collect()
    }

    /// Workers without loaded variants: they can leave.
    #[must_use]
    pub fn idle_workers(&self) -> Vec<u32> {
        let is_used = |at: u32| self.variants.iter().any(|v| v.places.get(at).is_some());
        (0..).zip(&self.workers).filter(|&(at, w)| w.is_up && !is_used(at)).map(|(at, _)| at).collect()
    }
}
