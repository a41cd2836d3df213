//! What does one replica of each variant serve, cost and use? A scaling problem as numbers by index, for searches.
//!
//! After the actions a variant has `n = N + delta` replicas: `k = min(n, N)` kept and `a = max(n - N, 0)` added. The
//! objective of INFaaS section 4.2.1 is then `sum C k + C (1 + lambda T_load) a - sum C N`. So each variant has two linear
//! prices, the lower one first, and there is a constant.

use apportion_domain::{Application, SLACK, ScalingAction, ScalingPlan, ScalingProblem};

/// Most replicas of one variant that searches consider. Beyond it a float does not count load exactly.
pub(crate) const REPLICAS_MAX: u32 = 1_000_000_000;

/// One variant of one application.
#[derive(Clone, Debug)]
pub(crate) struct VariantNumbers {
    /// Saturation throughput `Q`.
    pub qps: f64,
    /// Price of a running replica.
    pub keep: f64,
    /// Price of an added replica; at least `keep`.
    pub add: f64,
    /// Use of each resource by one replica.
    pub uses: Vec<f64>,
    /// Replicas that run now.
    pub running: u32,
    /// Most replicas after the actions.
    pub most: u32,
}

/// One application: its load and its variants.
#[derive(Clone, Debug)]
pub(crate) struct ApplicationNumbers {
    /// `L + slack`, less the tolerance of comparisons.
    pub needed: f64,
    /// By variant.
    pub kinds: Vec<VariantNumbers>,
}

/// The whole problem: covers joined by resource rows.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Total of each resource, in the order of the names.
    pub totals: Vec<f64>,
    /// By application.
    pub covers: Vec<ApplicationNumbers>,
}

/// Replicas after the actions, by application and variant.
pub(crate) type ReplicaCounts = Vec<Vec<u32>>;

impl Program {
    /// The problem with its own objective.
    pub fn new(problem: &ScalingProblem) -> Self {
        Self {
            totals: problem.resources.values().copied().collect(),
            covers: problem.applications.iter().map(|a| application_numbers(problem, a)).collect(),
        }
    }

    /// The same with another goal: the least use of resource `t`, without a limit on it.
    pub fn least_use(&self, t: usize) -> Self {
        let mut program = self.clone();
        program.totals[t] = f64::INFINITY;
        for kind in program.covers.iter_mut().flat_map(|c| &mut c.kinds) {
            (kind.keep, kind.add) = (kind.uses[t], kind.uses[t]);
        }
        program
    }

    /// Price of all replicas, without the constant `- sum C N`.
    pub fn price(&self, counts: &ReplicaCounts) -> f64 {
        self.covers.iter().zip(counts).map(|(cover, n)| cover.price(n)).sum()
    }

    /// Use of resource `t`.
    pub fn used(&self, counts: &ReplicaCounts, t: usize) -> f64 {
        self.covers.iter().zip(counts).map(|(cover, n)| cover.used(n, t)).sum()
    }

    /// Whether counts obey every constraint.
    pub fn admits(&self, counts: &ReplicaCounts) -> bool {
        let covered = self.covers.iter().zip(counts).all(|(cover, n)| cover.admits(n));
        covered && self.totals.iter().enumerate().all(|(t, &total)| fits(self.used(counts, t), total))
    }

    /// The running replicas.
    pub fn running(&self) -> ReplicaCounts {
        self.covers.iter().map(|c| c.kinds.iter().map(|k| k.running).collect()).collect()
    }

    /// The running replicas, if they are as good as the new counts. So planning again after a plan changes nothing. After a
    /// plan was carried out, staying is optimal by the triangle inequality of load costs. But other plans may be as good.
    pub fn prefer_running(&self, counts: ReplicaCounts) -> ReplicaCounts {
        let running = self.running();
        let (stay, found) = (self.price(&running), self.price(&counts));
        let ties = stay <= found + 1e-9 * found.abs().max(1.0);
        if ties && self.admits(&running) { running } else { counts }
    }

    /// Whether some load needs more replicas of a variant than searches consider. Then "infeasible" proves nothing.
    pub fn is_out_of_range(&self) -> bool {
        let far = |c: &ApplicationNumbers| {
            c.kinds.iter().any(|k| k.most == REPLICAS_MAX && c.needed / k.qps > f64::from(REPLICAS_MAX))
        };
        self.covers.iter().any(far)
    }
}

impl ApplicationNumbers {
    /// Price of its replicas.
    pub fn price(&self, n: &[u32]) -> f64 {
        let of = |(kind, &n): (&VariantNumbers, &u32)| {
            let kept = n.min(kind.running);
            kind.keep * f64::from(kept) + kind.add * f64::from(n - kept)
        };
        self.kinds.iter().zip(n).map(of).sum()
    }

    /// Use of resource `t` by its replicas.
    pub fn used(&self, n: &[u32], t: usize) -> f64 {
        self.kinds.iter().zip(n).map(|(kind, &n)| kind.uses[t] * f64::from(n)).sum()
    }

    /// Load that these replicas can serve.
    pub fn capacity(&self, n: &[u32]) -> f64 {
        self.kinds.iter().zip(n).map(|(kind, &n)| kind.qps * f64::from(n)).sum()
    }

    /// Whether replicas cover the load and none grows that may not.
    pub fn admits(&self, n: &[u32]) -> bool {
        self.capacity(n) >= self.needed && self.kinds.iter().zip(n).all(|(kind, &n)| n <= kind.most)
    }

    /// The largest load that its variants can serve without resource limits; infinite if one of them may grow.
    pub fn capacity_max(&self) -> f64 {
        let grows = self.kinds.iter().any(|k| k.most > k.running);
        let kept: f64 = self.kinds.iter().map(|k| k.qps * f64::from(k.running)).sum();
        if grows { f64::INFINITY } else { kept }
    }
}

/// Whether a sum is within a limit, with the slack of comparisons.
pub(crate) fn fits(used: f64, total: f64) -> bool {
    used <= total + SLACK * total.abs().max(1.0)
}

/// The numbers of one application.
fn application_numbers(problem: &ScalingProblem, application: &Application) -> ApplicationNumbers {
    let needed = application.needed_qps();
    let kind = |v: &apportion_domain::ScalingVariant| VariantNumbers {
        qps: v.saturation_qps,
        keep: v.cost_per_s,
        add: v.cost_per_s * (1.0 + problem.lambda * v.load_s),
        uses: problem.resources.keys().map(|name| v.uses(name)).collect(),
        running: v.running,
        most: if application.may_grow(v) { REPLICAS_MAX.max(v.running) } else { v.running },
    };
    // the slack of comparisons is relative to the capacity, which is at least the load
    ApplicationNumbers { needed: needed - SLACK * needed.max(1.0), kinds: application.variants.iter().map(kind).collect() }
}

/// The plan of counts, with its value by the problem's own objective.
pub(crate) fn plan_of(problem: &ScalingProblem, counts: &ReplicaCounts) -> ScalingPlan {
    let mut actions = Vec::new();
    let mut deltas = Vec::with_capacity(counts.len());
    for (a, counts) in problem.applications.iter().zip(counts) {
        let delta = |(v, &n): (&apportion_domain::ScalingVariant, &u32)| i64::from(n) - i64::from(v.running);
        let changes: Vec<i64> = a.variants.iter().zip(counts).map(delta).collect();
        for ((v, &running), &delta) in a.variants.iter().zip(counts).zip(&changes) {
            actions.push(ScalingAction { application: a.name.clone(), variant: v.name.clone(), running, delta });
        }
        deltas.push(changes);
    }
    // a sum of zeros may be minus zero, and a file would show the sign
    ScalingPlan { actions, value: problem.cost(&deltas) + 0.0 }
}
