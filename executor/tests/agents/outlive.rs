//! An agent that has a target outlives its control plane: what refuses it, what is on its port instead, and what it knows
//! nothing of.

use crate::support::agents::{Agent, output};
use crate::support::control::{Control, Mood};
use crate::support::{Group, target, until};
use apportion_executor::agent::AgentCommand;
use apportion_protocol::v1::{self, refused::Reason};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const WORDS: [&str; 2] = ["split", "sum"];

fn plan(generation: u64, agent: (u64, &Agent)) -> v1::Target {
    let numbers = [agent.0];
    let groups = ["split", "sum"].iter().zip(0..).map(|(variant, task)| Group {
        id: u64::from(task) + 1,
        task,
        variant,
        agents: &numbers,
    });
    target(generation, &[(agent.0, agent.1.data.clone())], &groups.collect::<Vec<_>>())
}

/// A control plane and an agent that serves.
async fn serving(folder: &tempfile::TempDir) -> (Control, Agent) {
    let control = Control::start(&WORDS).await;
    let agent = Agent::start("a1", &control.url, folder.path());
    until("it registers", || (control.heard("a1").number == 1).then_some(())).await;
    control.send(plan(1, (1, &agent)));
    control.applied("a1", 1).await;
    agent.ready("toy").await;
    (control, agent)
}

async fn serves(agent: &Agent) {
    let (status, body) = agent.infer(&[[1.0, 7.0]]).await;
    assert_eq!((status, output(&body, "s").1), (200, &json!([7.0])), "{body}");
}

async fn metric(agent: &Agent, line: &str) -> bool {
    let response = reqwest::get(format!("http://{}/metrics", agent.http)).await.expect("an answer");
    response.text().await.expect("text").lines().any(|l| l == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_to_the_next_process_of_its_control_plane() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, other) = (Control::start(&WORDS).await, Control::start(&WORDS).await);
    // nobody is at the first address
    let agent = Agent::start("a1", &format!("http://127.0.0.1:1,{},{}", one.url, other.url), folder.path());
    until("it finds the second", || (one.heard("a1").number == 1).then_some(())).await;
    one.send(plan(1, (1, &agent)));
    one.applied("a1", 1).await;
    agent.ready("toy").await;
    assert!(other.heard("a1").registers.is_empty(), "it stays where its stream is");
    one.set(Mood { refuses: Some(Reason::NameTaken), ..Mood::default() });
    until("it goes to the third", || (!other.heard("a1").registers.is_empty()).then_some(())).await;
    serves(&agent).await;
    let next = plan(2, (1, &agent));
    other.send(next);
    other.applied("a1", 2).await;
    serves(&agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_ends_an_agent_that_has_a_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, mut agent) = serving(&folder).await;
    let reasons = [
        Reason::Token,
        Reason::Version,
        Reason::Invalid,
        Reason::Stale,
        Reason::NameTaken,
        Reason::Certificate,
        Reason::Unspecified,
    ];
    for reason in reasons {
        control.set(Mood { refuses: Some(reason), ..Mood::default() });
        let said = || agent.handle.status.control();
        until(&format!("{reason:?} is heard"), || {
            let name = format!("{reason:?}").chars().map(|c| c.to_ascii_lowercase()).collect::<String>();
            said().refusals.keys().any(|k| k.replace('_', "") == name).then_some(())
        })
        .await;
        serves(&agent).await;
        assert!(agent.attending.as_ref().is_some_and(|a| !a.is_finished()), "{reason:?}");
    }
    assert!(metric(&agent, "apportion_control_attended 0").await);
    let seen = agent.handle.status.control();
    assert!(seen.refusals["token"] >= 1 && seen.reason.is_some_and(|r| r.contains("not one of us")));
    control.set(Mood::default());
    until("it is welcome again", || agent.handle.status.control().is_attended.then_some(())).await;
    assert!(metric(&agent, "apportion_control_attended 1").await);
    control.send(plan(2, (1, &agent)));
    control.applied("a1", 2).await;
    serves(&agent).await;
    assert!(!agent.attending.take().expect("it attends").is_finished());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impostor_on_the_port_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, first) = serving(&folder).await;
    drop(first);
    // Three programs that are no service, one after the other on one port: one is silent, one speaks HTTP, one hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let join = format!("http://{}", listener.local_addr().expect("its address"));
    let agent = Agent::start("a1", &join, folder.path());
    agent.ready("toy").await;
    for kind in 0..3 {
        let (mut stream, _) = listener.accept().await.expect("it dials");
        let mut read = vec![0; 64];
        let _some = stream.read(&mut read).await;
        if kind == 1 {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("it is there");
        }
        if kind == 2 {
            drop(stream);
            serves(&agent).await;
            continue;
        }
        let losses = agent.handle.status.control().losses;
        serves(&agent).await;
        until("it tries again", || (agent.handle.status.control().losses > losses).then_some(())).await;
    }
    serves(&agent).await;
    assert!(agent.attending.as_ref().is_some_and(|a| !a.is_finished()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_with_an_empty_database_renumbers_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agent) = serving(&folder).await;
    control.forget_target();
    control.set(Mood { numbers_above: 10, ..Mood::default() });
    until("it registers again", || (control.heard("a1").registers.len() == 2).then_some(())).await;
    until("it is welcome", || agent.handle.status.control().is_attended.then_some(())).await;
    let again = control.heard("a1").registers[1].clone();
    assert_eq!((again.number, again.fence.map(|f| f.generation)), (1, Some(1)), "it says who it was");
    for _ in 0..20 {
        serves(&agent).await;
    }
    assert_eq!(agent.handle.view.borrow().agent, 1);
    // The empty database gets a target: it is a later incarnation, in which the agent has another number.
    let mut next = plan(1, (11, &agent));
    next.fence = Some(v1::Fence { incarnation: 2, generation: 1 });
    next.pipelines[0].replicas.iter_mut().for_each(|r| r.replica = r.group);
    control.send(next);
    until("it obeys", || (agent.handle.view.borrow().agent == 11).then_some(())).await;
    for _ in 0..20 {
        serves(&agent).await;
    }
    let queues: Vec<u64> = agent.handle.view.borrow().queues.iter().map(|(id, _)| *id).collect();
    assert_eq!(queues, [1, 2], "the same two under other numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_of_an_earlier_incarnation_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agent) = serving(&folder).await;
    let mut older = plan(9, (1, &agent));
    older.fence = Some(v1::Fence { incarnation: 0, generation: 9 });
    control.send(older);
    let refused = |a: &v1::Ack| a.fence.is_some_and(|f| f.incarnation == 0) && a.error.contains("1.1");
    until("it is refused", || control.heard("a1").acks.into_iter().find(refused)).await;
    serves(&agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_over_the_address_by_which_agents_join() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start_calling(&WORDS).await;
    // A proxy: the agent knows no other address.
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let join = format!("http://{}", proxy.local_addr().expect("its address"));
    let behind = control.url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                let Ok(mut server) = tokio::net::TcpStream::connect(behind).await else { return };
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let agent = Agent::start("a1", &join, folder.path());
    until("it registers", || (control.heard("a1").number == 1).then_some(())).await;
    control.send(plan(1, (1, &agent)));
    control.applied("a1", 1).await;
    agent.ready("toy").await;
    serves(&agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_loop_has_ended_is_not_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = serving(&folder).await;
    let ready = || reqwest::get(format!("http://{}/v2/health/ready", agent.http));
    assert_eq!(ready().await.expect("an answer").status(), 200);
    // Its commands are all that a loop without events looks at; a part that ends says so.
    let status = agent.handle.status.clone();
    let part = tokio::spawn(async move { status.run("a part", std::future::pending::<()>()).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(ready().await.expect("an answer").status(), 200);
    part.abort();
    let trouble = || agent.handle.status.trouble();
    until("it is noticed", || trouble().filter(|t| t.contains("a part"))).await;
    let answer = ready().await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.expect("text").contains("its part a part has ended"));
    drop(agent.handle.commands.send(AgentCommand::Leave).await);
}
