//! One agent with four pipelines for the tests of the ingress: `toy`, `slow`, `pick` and `echo`.
//!
//! `slow` is `toy` with batches that take long. Requests of `pick` may choose between `sum` and the less accurate
//! `double`. `echo` takes one input of each datatype and gives it back.

use super::agents::Agent;
use super::control::{Control, TOKEN};
use super::{Group, target, toy};
use apportion_executor::backend::{Backend, BackendError, BackendLoader, Signature};
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
use apportion_protocol::v1;
use std::path::Path;

/// How long the batches of `slow` take.
pub const SLOW: &str = "sum 400";

struct Echo(Signature);

impl Backend for Echo {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Ok(inputs.to_vec())
    }
}

fn load(file: &Path) -> Result<Box<dyn Backend>, BackendError> {
    let word = std::fs::read_to_string(file).unwrap_or_default();
    if word != "echo" {
        return toy::load(file);
    }
    let spec = |d: Datatype| TensorSignature { name: d.name().into(), datatype: d, shape: vec![-1, 2] };
    let specs: Vec<TensorSignature> = Datatype::ALL.into_iter().map(spec).collect();
    Ok(Box::new(Echo(Signature { inputs: specs.clone(), outputs: specs })))
}

fn echo() -> v1::PipelineTarget {
    let spec = |d: Datatype| v1::TensorSpec { name: d.name().into(), datatype: d.name().into(), shape: vec![-1, 2] };
    let specs: Vec<v1::TensorSpec> = Datatype::ALL.into_iter().map(spec).collect();
    let group = v1::GroupTarget {
        group: 9,
        variant: "echo".into(),
        hardware: "cpu".into(),
        batch: 4,
        file_digest: toy::digest("echo"),
        service: vec![v1::ServicePoint { batch: 4, latency_ns: 1_000_000, ..Default::default() }],
        ..Default::default()
    };
    let entries = vec![v1::TableEntry { group: 9, fraction: 1.0 }];
    v1::PipelineTarget {
        name: "echo".into(),
        slo_ns: 30_000_000_000,
        tasks: vec![v1::TaskTarget { name: "echo".into(), inputs: specs.clone(), outputs: specs, ..Default::default() }],
        groups: vec![group],
        replicas: vec![v1::ReplicaTarget { replica: 901, group: 9, agent: 1, device: 0 }],
        tables: vec![v1::Table { from: None, to_task: 0, entries }],
        ..Default::default()
    }
}

/// Starts it; the control plane goes with it.
pub async fn start(folder: &Path) -> (Control, Agent) {
    let control = Control::start(&["split", "sum", "double", SLOW, "echo"]).await;
    let agent = Agent::start_with("a1", &control.url, TOKEN, folder, BackendLoader::files(load));
    let of = |id, task, variant| Group { id, task, variant, agents: &[1] };
    let addresses = [(1, agent.data.clone())];
    let mut all = target(1, &addresses, &[of(1, 0, "split"), of(2, 1, "sum")]);
    let mut slow = target(1, &addresses, &[of(3, 0, "split"), of(4, 1, SLOW)]).pipelines.remove(0);
    slow.name = "slow".into();
    all.pipelines[0].slo_ns = 30_000_000_000;
    let mut pick = target(1, &addresses, &[of(5, 0, "split"), of(6, 1, "sum"), of(7, 1, "double")]).pipelines.remove(0);
    pick.name = "pick".into();
    let choice = |sum: u64, accuracy| v1::Choice { groups: vec![5, sum], accuracy };
    pick.choices = vec![choice(6, 0.9), choice(7, 0.5)];
    // Batches of `double` take longer in the plan, so that only `sum` is quick.
    pick.groups[2].service[0].latency_ns = 50_000_000;
    pick.groups[1].price_per_hour = 9.0;
    all.pipelines.extend([slow, pick, echo()]);
    control.send(all);
    for pipeline in ["toy", "slow", "pick", "echo"] {
        agent.ready(pipeline).await;
    }
    (control, agent)
}
