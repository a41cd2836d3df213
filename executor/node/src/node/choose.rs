//! Which variants serve a request that says its needs?
//!
//! The choice uses the loads that the agents last announced of their replicas.

use super::Node;
use super::request::Answer;
use crate::chooser::{Chooser, Chosen, Needs, Unmet, Used};
use crate::wire::Load;
use apportion_domain::Moment;
use std::collections::BTreeMap;

impl Node {
    /// The variants for a request.
    ///
    /// # Errors
    /// Its answer, if there are none.
    pub(super) fn choose(&mut self, name: &str, needs: &Needs, rows: u32) -> Result<Chosen, Answer> {
        let Some(of) = self.layout.pipelines.get(name).cloned() else {
            return Err(Answer::NotReady(format!("pipeline {name} is not in the target")));
        };
        if !self.choosers.contains_key(name) {
            self.choosers.insert(name.to_owned(), Chooser::new(&of));
            self.report_to_choosers();
        }
        let now = Moment::from_nanos(self.now_ns);
        let chooser = self.choosers.get_mut(name).expect("it was made");
        chooser.choose(now, &of, needs, rows).map_err(|unmet| match unmet {
            Unmet::Never(why) => Answer::Unmet(why),
            Unmet::NotNow(why) => Answer::NotReady(why),
        })
    }

    /// Tells the choosers how the replicas are used, by what was last said of them.
    pub(super) fn report_to_choosers(&mut self) {
        if self.choosers.is_empty() {
            return;
        }
        let mut used: BTreeMap<u64, Used> = BTreeMap::new();
        let mut add = |group: u64, load: &Load| {
            let of_group = used.entry(group).or_default();
            of_group.replicas += 1;
            of_group.queued += u64::from(load.queued);
            of_group.served_qps += f64::from(load.served_mqps) / 1e3;
            of_group.slowness = of_group.slowness.max(f64::from(load.slowness_ppm) / 1e6);
        };
        for replica in self.replicas.values().filter(|r| r.takes()) {
            // Its own queue is known as it is now.
            add(replica.group_id, &Load { queued: replica.online_len() as u32, ..replica.load });
        }
        for (_, announced) in self.peers.connected() {
            for ready in &announced.ready {
                add(ready.group, announced.loads.get(&ready.replica).unwrap_or(&Load::default()));
            }
        }
        let now = Moment::from_nanos(self.now_ns);
        for (name, chooser) in &mut self.choosers {
            if let Some(of) = self.layout.pipelines.get(name) {
                chooser.report(now, of, |group| used.get(&group).copied().unwrap_or_default());
            }
        }
    }
}
