//! Which variants serve a request that says its needs?
//!
//! The choice uses the loads that the agents last announced of their replicas.

use crate::chooser::{AskedChoice, Chooser, ChosenVariants, GroupLoad, UnmetNeeds};
use crate::node::fleet::FleetState;
use crate::node::replicas::LocalReplicas;
use crate::spare::SpareShares;
use crate::wire::ReplicaLoad;
use apportion_domain::Moment;
use std::collections::BTreeMap;

/// The choosers of the pipelines whose requests have said their needs.
#[derive(Default)]
pub struct Choosers {
    by_pipeline: BTreeMap<String, Chooser>,
}

/// A request that says its needs.
pub struct RequestWithNeeds<'a> {
    /// Its pipeline.
    pub pipeline: &'a str,
    /// Its needs, and the variants that it names.
    pub asked: AskedChoice<'a>,
    /// Its rows.
    pub rows: u32,
}

impl Choosers {
    /// Forgets all choosers: a new target is in force.
    pub fn clear(&mut self) {
        self.by_pipeline.clear();
    }

    /// Forgets the chooser of a pipeline, whose replicas or tables are others now.
    pub fn forget(&mut self, pipeline: &str) {
        self.by_pipeline.remove(pipeline);
    }

    /// The variants for a request.
    ///
    /// # Errors
    /// Why there are none.
    pub fn choose(
        &mut self,
        now: Moment,
        asking: &RequestWithNeeds<'_>,
        fleet: &FleetState,
        replicas: &LocalReplicas,
    ) -> Result<ChosenVariants, UnmetNeeds> {
        let name = asking.pipeline;
        let Some(of) = fleet.pipeline(name) else {
            return Err(UnmetNeeds::NotNow(format!("pipeline {name} is not in the target")));
        };
        if !self.by_pipeline.contains_key(name) {
            self.by_pipeline.insert(name.to_owned(), Chooser::new(of, &SpareShares::of(fleet.layout())));
            self.report(now, fleet, replicas);
        }
        let chooser = self.by_pipeline.get_mut(name).expect("it was made");
        chooser.choose(now, of, &asking.asked, asking.rows)
    }

    /// Tells the choosers how the replicas are used, by the last announcements.
    pub fn report(&mut self, now: Moment, fleet: &FleetState, replicas: &LocalReplicas) {
        if self.by_pipeline.is_empty() {
            return;
        }
        let mut used: BTreeMap<u64, GroupLoad> = BTreeMap::new();
        let mut add = |group: u64, load: &ReplicaLoad| {
            let of_group = used.entry(group).or_default();
            of_group.replicas += 1;
            of_group.queued += u64::from(load.queued);
            of_group.served_qps += f64::from(load.served_mqps) / 1e3;
            of_group.slowness = of_group.slowness.max(f64::from(load.slowness_ppm) / 1e6);
        };
        for replica in replicas.ready() {
            // Its own queue is known as it is now.
            add(replica.group_id, &ReplicaLoad { queued: replica.announced_len() as u32, ..replica.load() });
        }
        for (_, announced) in fleet.peers().connected() {
            for ready in &announced.ready {
                add(ready.group, announced.loads.get(&ready.replica).unwrap_or(&ReplicaLoad::default()));
            }
        }
        for (name, chooser) in &mut self.by_pipeline {
            if let Some(of) = fleet.pipeline(name) {
                chooser.report(now, of, |group| used.get(&group).copied().unwrap_or_default());
            }
        }
    }
}
