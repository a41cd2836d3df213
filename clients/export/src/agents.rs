//! What does every target with agents need? The agents' arguments, and the notes that hold for all of them.

use crate::groups::{ExportGroup, devices_of};
use crate::names::{NameRule, SafeNames};
use crate::request::{Export, ExportRequest};
use apportion_domain::{Dropping, Share};

/// The agents of one hardware type.
pub(crate) struct AgentPool {
    /// The hardware type.
    pub hardware: String,
    /// Its safe name.
    pub name: String,
    /// Agents with one device each.
    pub agents: u64,
    /// Whether the devices are GPUs.
    pub is_gpu: bool,
}

/// The agents that a plan needs, by hardware type.
pub(crate) fn pools(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Vec<AgentPool> {
    let devices = devices_of(groups);
    let raw = |hardware: &str| vec!["agent".to_owned(), hardware.to_owned()];
    let names = SafeNames::new(NameRule::Dns, devices.keys().map(|hardware| raw(hardware)));
    let pool = |(hardware, agents): (String, u64)| AgentPool {
        name: names.of(&raw(&hardware)).to_owned(),
        is_gpu: request.settings.is_gpu(&hardware),
        agents,
        hardware,
    };
    devices.into_iter().map(pool).collect()
}

/// The arguments of an agent with one device.
pub(crate) fn arguments(pool: &AgentPool, join: &str) -> Vec<String> {
    let provider = if pool.is_gpu { "cuda" } else { "cpu" };
    let words = ["--join", join, "--hardware", &pool.hardware, "--devices", "1", "--provider", provider];
    words.map(str::to_owned).to_vec()
}

/// What the user of agents must know.
pub(crate) fn note_agents(export: &mut Export, pools: &[AgentPool]) {
    export.note(
        "Agents carry out what the service deploys: register the pipeline and run `apportion deploy`. Routing, batches, \
         dropping and switching are then those of the plan; the files here only start the processes.",
    );
    for pool in pools {
        let kind = if pool.is_gpu { "GPUs" } else { "processors" };
        let text =
            format!("Hardware {:?}: {} agents on {kind}. The settings file can say otherwise.", pool.hardware, pool.agents);
        export.note(text);
    }
}

/// What is lost where other servers than agents run the variants.
pub(crate) fn note_lost(export: &mut Export, groups: &[ExportGroup<'_>]) {
    export
        .note("The edges of the pipeline are not in these files: the caller sends the outputs of a task to the next one.");
    for group in groups {
        let (name, assignment, serving) = (&group.pipeline.name, group.assignment, group.pipeline.serving);
        if serving.dropping != Dropping::Naive {
            export.note(format!("{name}: dropping `{}` is not carried out.", serving.dropping.name()));
        }
        export.note(format!("{name}: routing `{}` is not carried out.", serving.routing.name()));
        if assignment.traffic_share > 0.0 && assignment.traffic_share < 1.0 {
            let share = 100.0 * assignment.traffic_share;
            export.note(format!("{name}: {} shall get {share:.1} % of its task's queries.", assignment.group));
        }
        if !group.pipeline.ladder.is_empty() {
            export.note(format!("{name}: switching replicas with the load (the plan's ladder) is left to the autoscaler."));
        }
    }
}

/// A note for groups on a part of a device.
pub(crate) fn note_shares(export: &mut Export, groups: &[ExportGroup<'_>], how: &str) {
    for group in groups.iter().filter(|group| group.assignment.group.share != Share::WHOLE) {
        export.note(format!("{}: {how}", group.assignment.group));
    }
}
