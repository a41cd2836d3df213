//! Three service processes are killed, paused and parted from the database in turn, always the one that leads. No plan is
//! lost or made twice to effect, another process leads soon, targets only go forward, and no request of a client is lost.
//!
//! `APPORTION_TRIAL_S` sets its length; 600 is ten minutes.

mod clients;
mod plane;
mod watch;

use crate::pauses::nothing_is_lost;
use crate::{chain, inputs, profile, seconds};
use apportion_tests::load::{Ingresses, Load, Traffic};
use clients::PlanClient;
use plane::{Fault, PATIENCE, PROCESSES, Plane};
use serde_json::json;
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use uuid::Uuid;
use watch::{DatabaseWatch, LEADER_WITHIN};

/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(8);
/// After a repair: as long as a new leader is patient with agents.
const AFTER: Duration = Duration::from_secs(8);
const FAULTS: [Fault; PROCESSES] = [Fault::Killed, Fault::Paused, Fault::Parted];

/// Makes the newest plan the target, once all agents are live, and waits until they serve it.
async fn apply_newest(plane: &Plane, watch: &mut DatabaseWatch) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "no plan comes into force:\n{}", plane.log("service-0"));
        watch.look_for(Duration::from_millis(200)).await;
        let newest = "select id from plans where state = 'succeeded' order by id desc limit 1";
        let newest: Option<Uuid> = sqlx::query_scalar(newest).fetch_optional(watch.db()).await.expect("plans");
        let generation: i64 =
            sqlx::query_scalar("select generation from target").fetch_one(watch.db()).await.expect("the target");
        if let (Some(plan), true) = (newest, plane.all_agents_live().await)
            && plane.put_target(plan, generation).await
        {
            break;
        }
    }
    plane.until_served("chain").await;
}

/// One fault of the leader, until everything works again.
async fn endure(plane: &mut Plane, watch: &mut DatabaseWatch, fault: Fault) {
    let before = watch.leader().await;
    let at = plane.place_of(before.holder);
    plane.fault(at, fault);
    let begun = Instant::now();
    let (next, change) = watch.next_leader(before).await;
    eprintln!("process {at} {fault:?}: epoch {} after {:.2} s", next.epoch, change.after.as_secs_f64());
    assert_ne!(next.holder, before.holder, "the process {at} is {fault:?}");
    assert!(change.after <= LEADER_WITHIN + change.stalled, "{change:?}: expected {LEADER_WITHIN:?} by the lease");
    watch.look_for(FAULT.saturating_sub(begun.elapsed())).await;
    plane.repair(at, fault).await;
    plane.until_ready(at).await;
    watch.look_for(AFTER).await;
}

/// Each accepted plan has ended well, and once.
async fn check_plans(db: &mut PgConnection, accepted: &BTreeMap<String, Uuid>) {
    let begun = Instant::now();
    while sqlx::query_scalar::<_, i64>("select count(*) from jobs").fetch_one(&mut *db).await.expect("a number") > 0 {
        assert!(begun.elapsed() < PATIENCE, "jobs are left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ids: BTreeSet<Uuid> = accepted.values().copied().collect();
    assert_eq!(ids.len(), accepted.len(), "each key has a plan of its own");
    let stored: Vec<(Uuid, bool, i64)> = sqlx::query_as(
        "select id, state = 'succeeded' and plan is not null,
         (select count(*) from events e where e.kind = 'plan' and e.detail ->> 'id' = p.id::text) from plans p",
    )
    .fetch_all(db)
    .await
    .expect("the plans");
    for (id, is_made, ends) in &stored {
        assert!(*is_made && *ends == 1, "plan {id}: made {is_made}, ended {ends} times");
    }
    assert_eq!(stored.into_iter().map(|plan| plan.0).collect::<BTreeSet<_>>(), ids, "one plan for each key");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_endure_faults_in_turn() {
    let mut plane = Plane::start().await;
    plane.put("/v1/pipelines/chain", &chain(&["v"], json!({}))).await;
    plane.put_profile("chain", profile(&["v"])).await;
    let mut watch = DatabaseWatch::start(&plane.database_url()).await;
    let plans = PlanClient::start((0..PROCESSES).map(|at| plane.base(at)).collect());
    apply_newest(&plane, &mut watch).await;
    let rates = vec![(Duration::ZERO, 20.0)];
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates, length: Duration::from_secs(5), seed: 11 };
    let traffic = Traffic::start(load, Ingresses::new(plane.ingresses()));
    let (begun, length) = (Instant::now(), seconds(60));
    for round in 0.. {
        if round >= FAULTS.len() && begun.elapsed() >= length {
            break;
        }
        endure(&mut plane, &mut watch, FAULTS[round % FAULTS.len()]).await;
        apply_newest(&plane, &mut watch).await;
    }
    let accepted = plans.stop().await;
    nothing_is_lost("three processes with faults in turn", &traffic.stop().await);
    eprintln!("{} plans were asked for", accepted.len());
    assert!(accepted.len() > FAULTS.len(), "{accepted:?}");
    check_plans(watch.db(), &accepted).await;
}
