//! A plan with other policies: stations, senders and module states of its pipeline follow them from now on.

use super::deployment::Deployment;
use crate::compile::{PipelineCompiler, is_tracked};
use crate::error::SimulateError;
use crate::state::RunState;
use apportion_domain::TaskIndex;
use apportion_serving::router::Within;

/// Serves a pipeline by the policies of this part. Running batches are left alone; waiting queries are judged again.
///
/// # Errors
/// If the pipeline has too many paths for PARD's states.
pub fn change_policies(
    run: &mut RunState,
    deployment: &mut Deployment<'_>,
    pipeline: usize,
    compiler: &PipelineCompiler<'_>,
) -> Result<(), SimulateError> {
    let state = &mut run.pipelines[pipeline];
    // Queries that are counted now must be counted off later, whatever plan comes.
    state.counts_outstanding |= compiler.within() == Within::LeastOutstanding;
    let is_tracked = is_tracked(compiler.pipeline, compiler.serving);
    if is_tracked && !state.is_tracked {
        state.untracked_until = Some(run.now);
    }
    state.is_tracked = is_tracked;
    for replicas in deployment.replicas.groups.iter_mut().filter(|c| c.pipeline as usize == pipeline) {
        let task = TaskIndex(replicas.task as usize);
        let group = &mut run.groups[replicas.group as usize];
        group.budget = compiler.budget(replicas.execution);
        let batcher = compiler.batcher(task, replicas.batch);
        replicas.prototype.reconfigure(batcher, group.service.clone());
        compiler.set_policy_of(task, &mut replicas.prototype);
        for &station in &replicas.stations {
            let machine = &mut run.serving.stations[station as usize];
            machine.reconfigure(batcher, group.service.clone());
            compiler.set_policy_of(task, machine);
            run.serving.take_outputs(run.now, station, |_, _, _| {});
        }
    }
    let root = compiler.pipeline.root().get() as u32;
    for task in 0..compiler.pipeline.tasks.len() as u32 {
        for router in run.routers_to(pipeline as u32, task, root) {
            run.serving.routers[router as usize].iter_mut().for_each(|r| r.choose_by(compiler.within()));
        }
    }
    let modules = compiler.module_states(pipeline as u32, run.pipelines[pipeline].stations.clone())?;
    if let Some(modules) = &modules {
        modules.send_views(run.now, &mut run.serving);
    }
    run.modules.replace(run.now, pipeline as u32, modules);
    Ok(())
}
