//! How does an agent carry out the decision of a host?
//!
//! Example: the host says that replica 8 of another agent serves the group `read` too. The layout in force gets the
//! replica, and the routes lead there when that agent announces it.

use super::state::SteeringState;
use crate::layout::Layout;
use crate::node::event::{Action, RefusedMessage};
use crate::node::swap::follow_layout;
use crate::node::traffic::TrafficState;
use crate::steering::{routes_alike, views_of, why_implausible};
use crate::wire::Message;
use apportion_domain::Fence;
use apportion_protocol::v1;
use std::cmp::Reverse;
use std::sync::Arc;

impl SteeringState {
    /// A host has decided; a decision that is older than the one in force, or of another target, is not for this agent.
    pub fn receive_steering(&mut self, told: v1::Steering, traffic: &mut TrafficState) {
        let is_of_plan = told.fence.map(Fence::from) == self.plan.fence;
        let (Some(of), true) = (self.plan.pipelines.get(&told.pipeline).cloned(), is_of_plan) else { return };
        let order = |s: &v1::Steering| (s.epoch, Reverse(s.host));
        let last = self.applied.get(&told.pipeline);
        let agent = traffic.site.agent();
        let is_stranger = told.host != agent && !traffic.fleet.layout().agents.contains_key(&told.host);
        let is_of_no_group = told.extras.iter().any(|extra| !of.groups.contains_key(&extra.group));
        let why = why_implausible(&told, last.map_or(0, |last| last.epoch))
            .or(is_stranger.then_some("its host is not in the target"))
            .or(is_of_no_group.then_some("it adds a replica of a group that the target does not have"));
        if let Some(why) = why {
            traffic.site.push(Action::CountRefused(RefusedMessage::Steering));
            return tracing::warn!(
                host = told.host,
                pipeline = told.pipeline,
                epoch = told.epoch,
                why,
                "a steering is refused"
            );
        }
        if let Some(last) = last.filter(|last| order(last) >= order(&told)) {
            // A host that begins anew hears how far others are, and takes a term above.
            if order(last) > order(&told) && told.host != agent {
                traffic.site.send(told.host, Message::Steering(last.clone()));
            }
            return;
        }
        if self.hosted.get(&told.pipeline).is_some_and(|hosted| hosted.last.epoch < told.epoch) {
            self.hosted.remove(&told.pipeline);
        }
        let is_rerouted = last.map_or(told != v1::Steering::default(), |last| !routes_alike(last, &told));
        let name = told.pipeline.clone();
        if is_rerouted {
            let mut layout = Layout::clone(traffic.fleet.layout());
            layout.pipelines.insert(name.clone(), Arc::new(of.steered(&told)));
            traffic.fleet.set_steered_layout(layout);
            traffic.gateway.forget_chooser(&name);
            follow_layout(traffic, Some(&name));
        }
        apply_views(&told, traffic);
        self.applied.insert(name, told);
    }
}

/// Tells the stations of a pipeline the module states that a host has decided.
fn apply_views(told: &v1::Steering, traffic: &mut TrafficState) {
    let (views, now) = (views_of(told), traffic.site.now());
    for replica in traffic.replicas.iter_mut().filter(|r| r.pipeline == told.pipeline) {
        if let Some(view) = views.get(replica.group.task) {
            replica.view = Some(*view);
            if !replica.is_stale {
                replica.apply_view(now, *view);
            }
        }
    }
    // Central queues take the view of a replica here.
    traffic.queues.mark_stale();
}
