//! The agent's own program, told to stop while it works.

use crate::support::control::{Control, TOKEN};
use crate::support::{Group, target, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// How long a batch takes: long enough that the signal comes before its end.
const BATCH_NS: u64 = 700_000_000;

struct Program {
    child: Child,
    log: mpsc::Receiver<String>,
}

impl Program {
    fn start(join: &str, folder: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_apportion-agent"))
            .args(["--join", join, "--name", "a1", "--backend", "emulated", "--log-format", "json"])
            .arg("--state-dir")
            .arg(folder)
            .env("APPORTION_TOKEN", TOKEN)
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (told, log) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(told.send(line))));
        Self { child, log }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_begun_is_finished_and_nothing_new_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&[]).await;
    let mut program = Program::start(&control.url, folder.path());
    let register = || control.heard("a1").registers.last().cloned();
    let register = until("the agent registers", register).await;
    let mut target = target(1, &[(1, register.data_address)], &[Group { id: 1, task: 1, variant: "sum", agents: &[1] }]);
    let pipeline = &mut target.pipelines[0];
    pipeline.tasks.remove(0);
    pipeline.edges.clear();
    pipeline.tables.truncate(1);
    pipeline.groups[0].task = 0;
    pipeline.tables[0].entries = vec![apportion_protocol::v1::TableEntry { group: 1, fraction: 1.0 }];
    pipeline.groups[0].service[0].latency_ns = BATCH_NS;
    control.send(target);
    control.applied("a1", 1).await;
    let url = format!("http://{}/v2/models/toy", register.ingress_http);
    let client = reqwest::Client::new();
    let ready = || {
        let asked = client.get(format!("{url}/ready")).send();
        async move { asked.await.is_ok_and(|answer| answer.status().is_success()) }
    };
    while !ready().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let body = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]});
    let post = || client.post(format!("{url}/infer")).json(&body).send();
    let begun = tokio::spawn(post());
    let metrics = format!("http://{}/metrics", register.ingress_http);
    loop {
        let text = client.get(&metrics).send().await.expect("an answer").text().await.expect("a text");
        if text.lines().any(|l| l.starts_with("apportion_replica_queries") && l.ends_with(" 1")) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    program.signal("-TERM");
    until("the control plane hears it", || control.heard("a1").left.then_some(())).await;
    if let Ok(refused) = post().await {
        assert_eq!(refused.status(), 503, "what comes after the signal is refused");
        assert!(refused.headers().contains_key("Retry-After"));
    }
    let answer = begun.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 200, "what came before it is served: {:?}", answer.text().await);
    drop(client);
    let ended = until("it ends", || program.child.try_wait().expect("it can be waited for")).await;
    assert!(ended.success(), "{ended}");
    let log: Vec<Value> = program.log.iter().map(|line| serde_json::from_str(&line).expect(&line)).collect();
    for said in ["backend emulated: profiles are played back", "stopping: what has begun is finished"] {
        let is_said = |l: &Value| l["fields"]["message"].as_str().is_some_and(|m| m.contains(said));
        assert!(log.iter().any(is_said), "{said}: {log:?}");
    }
}
