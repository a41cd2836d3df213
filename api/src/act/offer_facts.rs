//! What must a target know to offer groups to requests: settings, prices and memory?

use crate::decide::offers::{OfferedPipeline, Offering, groups_on_offer};
use crate::decide::on_demand::KnownMemory;
use crate::decide::placement::{Device, GroupKey};
use crate::decide::target::PipelineFacts;
use crate::store::{self, PgConnection};
use apportion_wire::PipelineSpec;
use std::collections::{BTreeMap, BTreeSet};

/// The groups that requests of these pipelines may have loaded on these devices.
pub(super) fn offers(
    specs: &BTreeMap<String, PipelineSpec>,
    facts: &BTreeMap<String, PipelineFacts>,
    devices: &[Device],
) -> Vec<GroupKey> {
    let hardware: BTreeSet<&str> = devices.iter().map(|device| device.hardware.as_str()).collect();
    let mut all = Vec::new();
    for (name, spec) in specs {
        let Some(of) = facts.get(name).filter(|_| Offering::of(spec.replan.as_ref()) != Offering::None) else { continue };
        let of = OfferedPipeline { pipeline: &of.pipeline, hardware: &of.hardware, digests: &of.digests };
        all.extend(groups_on_offer(&of, &hardware));
    }
    all
}

/// Gives specs in force the replan settings that are registered now: they are no part of a plan. The spec of a pipeline
/// that is not registered any more stays as it is.
///
/// # Errors
/// The database's.
pub(super) async fn add_registered_settings(
    db: &mut PgConnection,
    specs: &mut BTreeMap<String, PipelineSpec>,
) -> store::Result<()> {
    if specs.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = specs.keys().cloned().collect();
    for row in store::pipelines::replan_settings(db, &names).await? {
        if let Some(spec) = specs.get_mut(&row.name)
            && let Ok(settings) = row.settings()
        {
            spec.replan = settings;
        }
    }
    Ok(())
}

/// Gives the hardware types of all pipelines their registered prices. Returns the memory of devices and variants.
///
/// # Errors
/// The database's.
pub(super) async fn add_registered_hardware(
    db: &mut PgConnection,
    facts: &mut BTreeMap<String, PipelineFacts>,
) -> store::Result<KnownMemory> {
    let rows = store::hardware::list(db).await?;
    let mut memory = KnownMemory::default();
    memory.devices.extend(rows.iter().filter_map(|row| Some((row.name.clone(), row.memory_mib?))));
    for (name, of) in facts {
        for hardware in &mut of.hardware {
            if let Some(row) = rows.iter().find(|row| row.name == hardware.name) {
                hardware.price_per_hour = row.price_per_hour;
            }
        }
        for task in &of.pipeline.tasks {
            let known = task.variants.iter().filter_map(|variant| Some((variant.name.clone(), variant.memory_mib?)));
            memory.variants.extend(known.map(|(variant, mib)| ((name.clone(), task.name.clone(), variant), mib)));
        }
    }
    Ok(memory)
}
