//! How is a plan served? The names of the policies. Their code is the crate `serving`.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident default $default:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every name, in the order of the documentation.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name in files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The one with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Default for $name {
            fn default() -> Self { Self::$default }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }
    };
}
pub(crate) use named;

named! {
    /// Where queries wait.
    Queueing default PerReplica {
        /// Each replica has its own queue and the sender's routing chooses it (Loki).
        PerReplica = "per_replica",
        /// One FIFO queue for each group (InferLine).
        Central = "central",
    }
}

named! {
    /// When a batch is closed.
    Batching default AtStart {
        /// A free replica starts at once with the queued queries, up to the batch size (InferLine, Loki's simulator).
        AtStart = "at_start",
        /// The next batch fills while the previous one runs (PARD 4.2).
        Forming = "forming",
        /// Waits for a full batch until a named delay, or the last moment at which the oldest query is still on time.
        WaitUntil = "wait_until",
    }
}

named! {
    /// How a sender chooses among the entries of its routing table.
    RoutingPolicy default Stride {
        /// In proportion to the weights, deterministically.
        Stride = "stride",
        /// The replica with the fewest outstanding queries, as far as the sender knows.
        Jsq = "jsq",
        /// Loki's Algorithm 1: the tables of MostAccurateFirst, in proportion.
        MostAccurateFirst = "most_accurate_first",
    }
}

named! {
    /// What happens to a query that will be late.
    Dropping default Naive {
        /// Nothing: it is served however late it is.
        Naive = "naive",
        /// Dropped at the last task if its deadline has passed (Loki 5.2).
        LastTask = "last_task",
        /// Dropped at any task whose budget it has overrun (Loki 5.2).
        PerTask = "per_task",
        /// Sent to a faster backup replica if there is one, else dropped (Loki 5.2).
        Reroute = "reroute",
        /// The same as `per_task`, and dropped before any task whose budget it is expected to overrun (Loki 6.3).
        PerTaskAhead = "per_task-ahead",
        /// The same as `reroute`, and dropped before any task whose budget it is expected to overrun (Loki 6.3).
        RerouteAhead = "reroute-ahead",
        /// Clipper's dropping as PARD compares it.
        ClipperPlusPlus = "clipper++",
        /// Nexus's dropping as PARD compares it, by the whole SLO.
        Nexus = "nexus",
        /// The same, by each task's part of the SLO (PARD 5.1).
        NexusSplit = "nexus-split",
        /// Proactive dropping with adaptive priority (PARD 4).
        Pard = "pard",
        /// PARD without estimates of the later modules.
        PardBack = "pard-back",
        /// PARD with a static split of the SLO.
        PardSf = "pard-sf",
        /// PARD with overload control only.
        PardOc = "pard-oc",
        /// PARD with split budgets.
        PardSplit = "pard-split",
        /// PARD with the worst case of batch wait.
        PardWcl = "pard-wcl",
        /// PARD with the lower bound of batch wait.
        PardLower = "pard-lower",
        /// PARD with the upper bound of batch wait.
        PardUpper = "pard-upper",
        /// PARD in order of arrival.
        PardFcfs = "pard-fcfs",
        /// PARD, always high budget first.
        PardHbf = "pard-hbf",
        /// PARD, always low budget first.
        PardLbf = "pard-lbf",
        /// PARD whose priority changes at once.
        PardInstant = "pard-instant",
    }
}

impl Dropping {
    /// The policy with this name, `none` being another name of `naive`.
    #[must_use]
    pub fn from_name_or_alias(name: &str) -> Option<Self> {
        if name == "none" { Some(Self::Naive) } else { Self::from_name(name) }
    }

    /// Whether a query that is behind when it leaves a task may go to a backup replica (Loki 5.2).
    #[must_use]
    pub fn reroutes(self) -> bool {
        matches!(self, Self::Reroute | Self::RerouteAhead)
    }

    /// Whether a query that leaves a task may be behind: further than that task's budget allows (Loki 5.2).
    #[must_use]
    pub fn looks_back(self) -> bool {
        self.reroutes() || matches!(self, Self::PerTask | Self::PerTaskAhead)
    }
}

/// The serving block of a plan. The estimate used these policies, and the agents follow them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServingPolicy {
    /// Where queries wait.
    pub queueing: Queueing,
    /// When a batch is closed.
    pub batching: Batching,
    /// How a sender chooses a replica.
    pub routing: RoutingPolicy,
    /// What happens to a query that will be late.
    pub dropping: Dropping,
}

/// A pipeline's wishes for its plan's serving block. A missing wish takes the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServingWishes {
    /// Where queries wait.
    pub queueing: Option<Queueing>,
    /// When a batch is closed.
    pub batching: Option<Batching>,
    /// How a sender chooses a replica.
    pub routing: Option<RoutingPolicy>,
    /// What happens to a query that will be late.
    pub dropping: Option<Dropping>,
}

impl ServingWishes {
    /// The serving block with these wishes and defaults elsewhere.
    #[must_use]
    pub fn resolve(self) -> ServingPolicy {
        ServingPolicy {
            queueing: self.queueing.unwrap_or_default(),
            batching: self.batching.unwrap_or_default(),
            routing: self.routing.unwrap_or_default(),
            dropping: self.dropping.unwrap_or_default(),
        }
    }
}
