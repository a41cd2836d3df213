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

use apportion_domain::{Moment, TimeSpan};

/// Part of a peak throughput at which a variant is overloaded: the paper's state begins at the peak itself.
pub const PEAK: f64 = 1.0;
/// A variant is disturbed if its batches take longer than profiled by this factor. The paper gives none; profiles repeat to
/// within a few per cent.
pub const DISTURBED: f64 = 1.2;
/// Offline queries run on workers used less (section 5).
pub const OFFLINE_UTILISATION_MAX: f64 = 0.4;
/// Another worker is wanted where all are used more (section 4.2.3, rule 1).
pub const UTILISATION_MAX: f64 = 0.8;
/// Another worker is wanted if more of them have overloaded variants (section 4.2.3, rule 3).
pub const OVERLOADED_MAX: f64 = 0.8;

/// A variant on a hardware type, as it was registered and profiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegisteredVariant {
    /// Its application.
    pub application: u32,
    /// Accuracy, 0 to 1.
    pub accuracy: f64,
    /// Time of its batch.
    pub inference: TimeSpan,
    /// Time to load it.
    pub load: TimeSpan,
    /// Peak throughput of one replica, in queries per second.
    pub peak_qps: f64,
    /// Its hardware type, by number.
    pub hardware: u32,
    /// Eighths of a device that a replica takes.
    pub eighths: u32,
    /// Price of one replica per hour.
    pub price: f64,
}

/// A variant's state on one worker (figure 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VariantState {
    /// Its load is below its peak throughput.
    Active,
    /// It is not overloaded, but slower than profiled.
    Interfered,
    /// Its load is at its peak throughput.
    Overloaded,
    /// It is not loaded.
    #[default]
    Inactive,
}

/// A worker's measurements of one variant in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerMeasurement {
    /// The variant.
    pub variant: u32,
    /// Replicas there, at least one.
    pub replicas: u32,
    /// Queries served per second.
    pub served_qps: f64,
    /// Mean time of a batch of the profiled size; zero if none ran.
    pub inference: TimeSpan,
    /// Queries that wait there.
    pub queued: u64,
}

/// The needs of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryNeeds {
    /// Any variant of an application that is accurate and fast enough.
    Needs {
        /// The application.
        application: u32,
        /// Least accuracy.
        accuracy: f64,
        /// Longest time.
        latency: TimeSpan,
    },
    /// This variant.
    Variant(u32),
}

/// The variant that serves a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantSelection {
    /// A variant that is loaded. It is other than active, or has too long a queue, only if nothing that fits is better or
    /// can be loaded.
    Serve {
        /// The variant.
        variant: u32,
        /// The worker.
        worker: u32,
        /// Its state there.
        state: VariantState,
    },
    /// A variant that is to be loaded first.
    Load {
        /// The variant.
        variant: u32,
        /// The least used worker that has room for it.
        worker: u32,
    },
    /// No variant meets the needs; this one is nearest. It may be loaded or not, and only serves queries that name it.
    Nearest {
        /// The variant.
        variant: u32,
    },
    /// It fits, but no worker has it or has room for it.
    NoRoom {
        /// The variant.
        variant: u32,
    },
    /// The application has no variant, or the variant is not registered.
    Unknown,
}

/// A replica that should go elsewhere, because others disturb it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The variant.
    pub variant: u32,
    /// Where it is.
    pub from: u32,
    /// Where it should be: the same worker if that has room, else the least used one.
    pub to: u32,
}

#[derive(Clone, Debug)]
struct Worker {
    hardware: u32,
    eighths_free: u32,
    load: WorkerLoad,
    is_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    worker: u32,
    replicas: u32,
    state: VariantState,
    /// Served over peak.
    load: f64,
    /// When the queries that were sent there will have been served, at peak throughput.
    free: Moment,
    /// The time of one query on all replicas together, at peak throughput.
    each: TimeSpan,
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

#[derive(Clone, Debug)]
struct Variant {
    registered: RegisteredVariant,
    /// Where it is loaded.
    placed: Vec<Placed>,
}

/// The load of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerLoad {
    /// Busy device time over all device time, 0 to 1.
    pub utilisation: f64,
    /// Whether no variant there is slower than profiled.
    pub is_calm: bool,
}

impl WorkerLoad {
    /// Whether the worker may run offline queries now (sections 4 and 5): it is little used, and nothing there is slower
    /// than profiled.
    #[must_use]
    pub fn allows_offline(self) -> bool {
        self.is_calm && self.utilisation < OFFLINE_UTILISATION_MAX
    }
}

/// Whether others disturb a variant (figure 4): it is slower than profiled though it is not overloaded. `load` is its
/// throughput over its peak throughput. `slowness` is the time of its batches over the profiled time.
#[must_use]
pub fn is_disturbed(load: f64, slowness: f64) -> bool {
    load < PEAK && slowness > DISTURBED
}

/// Variants and workers of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    variants: Vec<Variant>,
    workers: Vec<Worker>,
    /// By hardware type: the most free eighths of any worker.
    room: Vec<u32>,
    /// By application, by price of a query.
    by_price: Vec<Vec<u32>>,
    /// By application, by loading and inference time.
    by_start: Vec<Vec<u32>>,
}

impl Selector {
    /// Of all registered variants; nothing is loaded and no worker is there.
    #[must_use]
    pub fn new(registered: Vec<RegisteredVariant>) -> Self {
        let applications = registered.iter().map(|r| r.application as usize + 1).max().unwrap_or(0);
        let mut by_price: Vec<Vec<u32>> = vec![Vec::new(); applications];
        for (at, r) in (0..).zip(&registered) {
            by_price[r.application as usize].push(at);
        }
        let mut by_start = by_price.clone();
        let of = |at: u32| &registered[at as usize];
        let price = |at: u32| of(at).price / of(at).peak_qps.max(1e-9);
        by_price.iter_mut().for_each(|list| list.sort_by(|&a, &b| price(a).total_cmp(&price(b))));
        by_start.iter_mut().for_each(|list| list.sort_by_key(|&at| of(at).load + of(at).inference));
        let variants = registered.into_iter().map(|registered| Variant { registered, placed: Vec::new() }).collect();
        Self { variants, workers: Vec::new(), room: Vec::new(), by_price, by_start }
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

    /// Removes a worker with all its variants.
    pub fn remove_worker(&mut self, worker: u32) {
        self.workers[worker as usize].is_up = false;
        self.variants.iter_mut().for_each(|v| v.placed.retain(|p| p.worker != worker));
        self.update_room(self.workers[worker as usize].hardware);
    }

    /// A worker's report: its utilisation (0 to 1), its free eighths, and all variants that are loaded there.
    pub fn report(&mut self, now: Moment, worker: u32, utilisation: f64, eighths_free: u32, seen: &[WorkerMeasurement]) {
        let mut is_calm = true;
        let is_there = |variant: u32| seen.iter().any(|s| s.variant == variant && s.replicas > 0);
        for (variant, of) in (0..).zip(&mut self.variants) {
            of.placed.retain(|p| p.worker != worker || is_there(variant));
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
            let known = variant.placed.iter().position(|p| p.worker == worker);
            // Queries that were sent after the report left are not in it.
            let free = known.map_or(now, |at| variant.placed[at].free).max(now + queue);
            let placed = Placed { worker, replicas: seen.replicas, state, load, free, each };
            match known {
                Some(at) => variant.placed[at] = placed,
                None => variant.placed.push(placed),
            }
        }
        let of = &mut self.workers[worker as usize];
        (of.load, of.eighths_free) = (WorkerLoad { utilisation, is_calm }, eighths_free);
        let hardware = of.hardware;
        self.update_room(hardware);
    }

    /// The state of a variant on a worker.
    #[must_use]
    pub fn state(&self, variant: u32, worker: u32) -> VariantState {
        let placed = &self.variants[variant as usize].placed;
        placed.iter().find(|p| p.worker == worker).map_or(VariantState::Inactive, |p| p.state)
    }

    /// The variant that serves a query (section 4.1). The query counts as sent to it.
    pub fn select(&mut self, now: Moment, asked: QueryNeeds) -> VariantSelection {
        self.select_many(now, asked, 1)
    }

    /// The variant that serves this many queries together.
    pub fn select_many(&mut self, now: Moment, asked: QueryNeeds, queries: u32) -> VariantSelection {
        let selected = match asked {
            QueryNeeds::Variant(variant) if variant as usize >= self.variants.len() => VariantSelection::Unknown,
            QueryNeeds::Variant(variant) => {
                let active = self.best_placement(now, variant, |p| p.state == VariantState::Active);
                let other =
                    || self.place_to_load(variant).or_else(|| self.best_placement(now, variant, |_| true).map(|p| p.serve));
                active.map(|p| p.serve).or_else(other).unwrap_or(VariantSelection::NoRoom { variant })
            }
            QueryNeeds::Needs { application, accuracy, latency } => self.select_for(now, application, accuracy, latency),
        };
        if let VariantSelection::Serve { variant, worker, .. } = selected {
            let placed = self.variants[variant as usize].placed.iter_mut();
            let sent = |p: &Placed| TimeSpan::from_nanos(p.each.as_nanos().saturating_mul(u64::from(queries)));
            placed.filter(|p| p.worker == worker).for_each(|p| p.free = p.free.max(now) + sent(p));
        }
        selected
    }

    fn select_for(&self, now: Moment, application: u32, accuracy: f64, latency: TimeSpan) -> VariantSelection {
        let at = application as usize;
        let fits = |v: &&u32| {
            let r = &self.variants[**v as usize].registered;
            r.accuracy >= accuracy && r.inference <= latency
        };
        let Some(by_price) = self.by_price.get(at).filter(|list| !list.is_empty()) else {
            return VariantSelection::Unknown;
        };
        let in_time = |variant: u32| {
            let wait =
                TimeSpan::from_nanos(latency.as_nanos() - self.variants[variant as usize].registered.inference.as_nanos());
            self.best_placement(now, variant, |p| p.state == VariantState::Active && p.free <= now + wait)
        };
        if let Some(placement) = by_price.iter().filter(fits).find_map(|&v| in_time(v)) {
            return placement.serve;
        }
        // Overloaded and disturbed variants are not taken while another variant can be loaded.
        if let Some(load) = self.by_start[at].iter().filter(fits).find_map(|&v| self.place_to_load(v)) {
            return load;
        }
        let loaded = by_price.iter().filter(fits).filter_map(|&v| self.best_placement(now, v, |_| true));
        if let Some(placement) = loaded.min_by_key(|p| (p.done, p.state)) {
            return placement.serve;
        }
        match by_price.iter().find(fits) {
            Some(&variant) => VariantSelection::NoRoom { variant },
            None => VariantSelection::Nearest { variant: self.nearest(by_price, accuracy, latency) },
        }
    }

    /// The accepted place of a variant where a query is done first; among equals by state, then by the load that was
    /// reported.
    fn best_placement(&self, now: Moment, variant: u32, accepts: impl Fn(&Placed) -> bool) -> Option<Placement> {
        let of = &self.variants[variant as usize];
        let order = |a: &&Placed, b: &&Placed| {
            let key = |p: &Placed| (p.free.max(now), p.state);
            key(a).cmp(&key(b)).then(a.load.total_cmp(&b.load))
        };
        let best = of.placed.iter().filter(|p| accepts(p)).min_by(order)?;
        let serve = VariantSelection::Serve { variant, worker: best.worker, state: best.state };
        Some(Placement { serve, done: best.free.max(now) + of.registered.inference, state: best.state })
    }

    /// The variant that misses the needs by the smallest part: accuracy below, time above, each relative to the need.
    fn nearest(&self, among: &[u32], accuracy: f64, latency: TimeSpan) -> u32 {
        let asked = (latency.as_nanos() as f64).max(1.0);
        let miss = |v: u32| {
            let r = &self.variants[v as usize].registered;
            let less = (accuracy - r.accuracy).max(0.0) / accuracy.max(1e-9);
            let more = (r.inference.as_nanos() as f64 - asked).max(0.0) / asked;
            less + more
        };
        among.iter().copied().min_by(|&a, &b| miss(a).total_cmp(&miss(b))).expect("an application with variants")
    }

    fn place_to_load(&self, variant: u32) -> Option<VariantSelection> {
        let r = &self.variants[variant as usize].registered;
        if self.room.get(r.hardware as usize).is_none_or(|&room| room < r.eighths) {
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
            for placed in of.placed.iter().filter(|p| p.state == VariantState::Interfered) {
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
            self.variants.iter().flat_map(|v| &v.placed).any(|p| p.worker == worker && p.state == state)
        };
        let overloaded: Vec<u32> = up().filter(|&(at, _)| has(at, VariantState::Overloaded)).map(|(at, _)| at).collect();
        let is_overloaded = overloaded.len() as f64 > OVERLOADED_MAX * up().count() as f64;
        let wants = |&hardware: &u32| {
            let of_type = || up().filter(move |(_, w)| w.hardware == hardware);
            let is_used = of_type().all(|(_, w)| w.load.utilisation > UTILISATION_MAX);
            let is_disturbed = |v: &Variant| v.placed.iter().all(|p| p.state == VariantState::Interfered);
            let mut loaded = self.variants.iter().filter(|v| v.registered.hardware == hardware && !v.placed.is_empty());
            let is_any = self.variants.iter().any(|v| v.registered.hardware == hardware && !v.placed.is_empty());
            let more = is_overloaded && of_type().any(|(at, _)| overloaded.contains(&at));
            is_used || (is_any && loaded.all(is_disturbed)) || more
        };
        types.into_iter().filter(wants).collect()
    }

    /// Workers without loaded variants: they can leave.
    #[must_use]
    pub fn idle_workers(&self) -> Vec<u32> {
        let is_used = |at: u32| self.variants.iter().flat_map(|v| &v.placed).any(|p| p.worker == at && p.replicas > 0);
        (0..).zip(&self.workers).filter(|&(at, w)| w.is_up && !is_used(at)).map(|(at, _)| at).collect()
    }
}
