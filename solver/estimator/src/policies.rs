//! Another plan's policies: what a pipeline's stations, senders and module states do otherwise from now on.

use crate::SimulateError;
use crate::blueprint::Blueprint;
use crate::changes::Changes;
use crate::driver::Run;
use crate::fleet::is_tracked;
use crate::steering::Steered;
use apportion_domain::TaskIndex;
use apportion_serving::router::Within;

impl<'a> Run<'a> {
    /// The pipeline is served by the policies of this part from now on. What runs is left alone; what waits is judged anew.
    pub(crate) fn serve_by(
        &mut self,
        changes: &mut Changes<'a>,
        line: usize,
        b: &Blueprint<'a>,
    ) -> Result<(), SimulateError> {
        let of_line = &mut self.lines[line];
        // Queries that are counted now are to be counted off later, whatever comes.
        of_line.counts_outstanding |= b.within() == Within::LeastOutstanding;
        let is_tracked = is_tracked(b.pipeline, b.serving);
        if is_tracked && !of_line.is_tracked {
            of_line.untracked_until = Some(self.now);
        }
        of_line.is_tracked = is_tracked;
        for crew in changes.crews.crews.iter_mut().filter(|c| c.line as usize == line) {
            let task = TaskIndex(crew.task as usize);
            let group = &mut self.groups[crew.group_at as usize];
            group.budget = b.budget(crew.execution);
            let batcher = b.batcher(task, crew.batch);
            crew.prototype.reconfigure(batcher, group.service.clone());
            b.judge(task, &mut crew.prototype);
            for &station in &crew.stations {
                let machine = &mut self.floor.stations[station as usize];
                machine.reconfigure(batcher, group.service.clone());
                b.judge(task, machine);
                self.floor.settle(self.now, station, |_, _| {});
            }
        }
        let root = b.pipeline.root().get() as u32;
        for task in 0..b.pipeline.tasks.len() as u32 {
            for router in self.routers_to(line as u32, task, root) {
                self.floor.routers[router as usize].iter_mut().for_each(|r| r.choose_by(b.within()));
            }
        }
        let steered = Steered::of(b, line as u32, self.lines[line].stations.clone())?;
        if let Some(steered) = &steered {
            steered.tell_all(self.now, &mut self.floor);
        }
        self.steering.replace(self.now, line as u32, steered);
        Ok(())
    }
}
