//! Who leads, and which targets are in force, as the database says several times in a second?

use super::plane::PATIENCE;
use apportion_api::decide::lease::{ANSWER_MAX, LEASE_TIME, TAKE_EVERY};
use sqlx::{Connection, PgConnection};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The rule of the lease. After a fault of the leader, its lease lasts for [`LEASE_TIME`] at most. Another process tries
/// to take it each [`TAKE_EVERY`], and gives a hanging attempt up after [`ANSWER_MAX`].
pub const LEADER_WITHIN: Duration =
    Duration::from_millis((LEASE_TIME.as_millis() + TAKE_EVERY.as_millis() + ANSWER_MAX.as_millis()) as u64);

/// The lease of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct LeaderLease {
    /// The process.
    pub holder: Uuid,
    /// Its epoch.
    pub epoch: i64,
    /// Whether the lease holds.
    pub is_valid: bool,
}

/// Looks at the database, and checks that nothing goes back.
pub struct DatabaseWatch {
    db: PgConnection,
    generation: i64,
    acknowledged: BTreeMap<String, i64>,
    epoch: i64,
}

impl DatabaseWatch {
    /// Watches the database at this URL.
    pub async fn start(url: &str) -> Self {
        let db = PgConnection::connect(url).await.expect("our own database");
        Self { db, generation: 0, acknowledged: BTreeMap::new(), epoch: 0 }
    }

    /// The connection, for further questions.
    pub fn db(&mut self) -> &mut PgConnection {
        &mut self.db
    }

    /// The lease of the leader; `None` before the first. Epochs, generations and what agents have acknowledged only grow.
    pub async fn look(&mut self) -> Option<LeaderLease> {
        let lease: Option<LeaderLease> = sqlx::query_as(
            "select holder, epoch, expires_at > clock_timestamp() as is_valid from leases where name = 'leader'",
        )
        .fetch_optional(&mut self.db)
        .await
        .expect("the lease");
        let epoch = lease.map_or(0, |lease| lease.epoch);
        assert!(epoch >= self.epoch, "epoch {epoch} after {}", self.epoch);
        self.epoch = epoch;
        let generation: i64 =
            sqlx::query_scalar("select generation from target").fetch_one(&mut self.db).await.expect("the target");
        assert!(generation >= self.generation, "target {generation} after {}", self.generation);
        self.generation = generation;
        let acks: Vec<(String, Option<i64>)> =
            sqlx::query_as("select name, (ack ->> 'generation')::bigint from agents order by name")
                .fetch_all(&mut self.db)
                .await
                .expect("the agents");
        for (name, generation) in acks.into_iter().filter_map(|(name, generation)| Some((name, generation?))) {
            let last = self.acknowledged.entry(name.clone()).or_default();
            assert!(generation >= *last, "agent {name} went back from target {last} to {generation}");
            *last = generation;
        }
        lease
    }

    /// Looks for a while.
    pub async fn look_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.look().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a lease holds; its holder and epoch.
    pub async fn leader(&mut self) -> LeaderLease {
        let begun = Instant::now();
        loop {
            if let Some(lease) = self.look().await.filter(|lease| lease.is_valid) {
                return lease;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody leads");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until another process than that of `before` leads; the time until then, and the longest time in which this
    /// watch itself did not get to look.
    pub async fn next_leader(&mut self, before: LeaderLease) -> (LeaderLease, LeaderChange) {
        let begun = Instant::now();
        let mut change = LeaderChange { after: Duration::ZERO, stalled: Duration::ZERO };
        loop {
            let looked = Instant::now();
            let lease = self.look().await.filter(|lease| lease.is_valid && lease.epoch > before.epoch);
            if let Some(lease) = lease {
                change.after = begun.elapsed();
                return (lease, change);
            }
            assert!(begun.elapsed() < PATIENCE, "epoch {} goes on", before.epoch);
            tokio::time::sleep(LOOK_EVERY).await;
            change.stalled += looked.elapsed().saturating_sub(2 * LOOK_EVERY);
        }
    }
}

/// How another process came to lead.
#[derive(Clone, Copy, Debug)]
pub struct LeaderChange {
    /// The time since the fault.
    pub after: Duration,
    /// How much later than they should have been all looks together were: the machine had other work.
    pub stalled: Duration,
}
