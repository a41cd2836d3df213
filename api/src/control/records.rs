//! What agents say, on its way to the database: gathered in memory, and stored for all streams together by one part. So
//! no stream waits for the database, a stall of it loses nothing, and a large fleet costs a transaction and not one for
//! each agent.

use super::failures;
use super::sessions::ack_json;
use crate::app::{App, now};
use crate::parts::Part;
use crate::store::{self, arrivals::ArrivalsRow};
use apportion_protocol::v1::{self, replica_state::State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// Acknowledgements of one stream that wait because each names a replica that failed; beyond them the oldest go.
const ACKS_MAX: usize = 32;
/// Most seconds of pipelines that wait; beyond them the oldest go.
const ARRIVALS_MAX: usize = 100_000;
/// After a failure, and between signs of life.
const AGAIN: Duration = Duration::from_secs(1);

/// What is not stored yet.
#[derive(Debug, Default)]
pub struct Records {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default, PartialEq)]
struct Waiting {
    /// The newest acknowledgement of each stream, after older ones that name replicas that failed.
    acks: BTreeMap<Uuid, Vec<v1::Ack>>,
    /// What the devices of each stream's agent said last.
    devices: BTreeMap<Uuid, Value>,
    /// In the order of their keys, so that two processes never wait for each other in a circle.
    arrivals: BTreeMap<(i64, String), ArrivalsRow>,
    lost: u64,
}

/// Adds an acknowledgement to those of its stream; an older one only counts for the failures that it names.
fn follow(acks: &mut Vec<v1::Ack>, ack: v1::Ack) {
    let names_failures = |ack: &v1::Ack| ack.replicas.iter().any(|r| r.state() == State::Failed);
    if acks.last().is_some_and(|last| !names_failures(last) || last.replicas == ack.replicas) {
        acks.pop();
    }
    acks.push(ack);
    if acks.len() > ACKS_MAX {
        acks.remove(0);
    }
}

impl Waiting {
    fn add(&mut self, row: ArrivalsRow) {
        let key = (row.second, row.pipeline.clone());
        let sum = self.arrivals.entry(key).or_insert_with(|| ArrivalsRow {
            pipeline: row.pipeline.clone(),
            second: row.second,
            ..ArrivalsRow::default()
        });
        sum.offered += row.offered;
        sum.ok += row.ok;
        sum.late += row.late;
        sum.dropped += row.dropped;
        sum.failed += row.failed;
        while self.arrivals.len() > ARRIVALS_MAX {
            self.arrivals.pop_first();
            self.lost += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.devices.is_empty() && self.arrivals.is_empty()
    }

    /// Puts back what could not be stored; what has come since is newer.
    fn put_back(&mut self, earlier: Self) {
        for (session, mut acks) in earlier.acks {
            let later = self.acks.remove(&session).unwrap_or_default();
            later.into_iter().for_each(|ack| follow(&mut acks, ack));
            self.acks.insert(session, acks);
        }
        for (session, devices) in earlier.devices {
            self.devices.entry(session).or_insert(devices);
        }
        earlier.arrivals.into_values().for_each(|row| self.add(row));
    }
}

impl Records {
    fn with<T>(&self, of: impl FnOnce(&mut Waiting) -> T) -> T {
        of(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stream's agent has acknowledged a target.
    pub fn ack(&self, session: Uuid, ack: v1::Ack) {
        self.with(|waiting| follow(waiting.acks.entry(session).or_default(), ack));
        self.added.notify_one();
    }

    /// A stream's agent has reported.
    pub fn report(&self, session: Uuid, devices: Option<Value>, arrivals: Vec<ArrivalsRow>) {
        if devices.is_none() && arrivals.is_empty() {
            return;
        }
        self.with(|waiting| {
            devices.into_iter().for_each(|devices| {
                waiting.devices.insert(session, devices);
            });
            arrivals.into_iter().for_each(|row| waiting.add(row));
        });
        self.added.notify_one();
    }
}

/// Stores what has come, until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        tokio::select! {
            () = app.stopped() => return,
            () = app.records.added.notified() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
        let waiting = app.records.with(std::mem::take);
        if waiting.lost > 0 {
            tracing::warn!(rows = waiting.lost, "arrivals were lost: the database took none for too long");
        }
        match store_all(&app, &waiting).await {
            Ok(()) => app.parts.sign(Part::Records),
            // It is what somebody said: the others' words must not wait for it.
            Err(store::Error::Database(error)) => {
                tracing::warn!(%error, "what agents said is stored one by one");
                store_each(&app, waiting).await;
            }
            Err(error) => {
                tracing::warn!(%error, "what agents said could not be stored; it is tried again");
                app.records.with(|now| now.put_back(waiting));
                tokio::select! {
                    () = app.stopped() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
}

async fn store_all(app: &App, waiting: &Waiting) -> store::Result<()> {
    if waiting.is_empty() {
        return Ok(());
    }
    let mut tx = app.pool.begin().await?;
    for row in waiting.arrivals.values() {
        store::arrivals::add(&mut tx, row).await?;
    }
    for (session, acks) in &waiting.acks {
        for ack in acks {
            failures::note(&mut tx, *session, ack, now()).await?;
        }
    }
    let newest = waiting.acks.iter().filter_map(|(session, acks)| Some((*session, ack_json(acks.last()?))));
    let acks = newest.collect();
    store::agents::acknowledge(&mut tx, &acks).await?;
    store::agents::devices(&mut tx, &waiting.devices).await?;
    tx.commit().await
}

/// Stores each record by itself; one that the database refuses is dropped.
async fn store_each(app: &App, waiting: Waiting) {
    let Waiting { acks, devices, arrivals, .. } = waiting;
    let acks = acks.into_iter().map(|ack| Waiting { acks: [ack].into(), ..Waiting::default() });
    let devices = devices.into_iter().map(|one| Waiting { devices: [one].into(), ..Waiting::default() });
    let arrivals = arrivals.into_iter().map(|row| Waiting { arrivals: [row].into(), ..Waiting::default() });
    for one in acks.chain(devices).chain(arrivals) {
        match store_all(app, &one).await {
            Ok(()) => {}
            Err(store::Error::Database(error)) => tracing::error!(%error, ?one, "the database refuses what an agent said"),
            Err(_) => app.records.with(|now| now.put_back(one)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(second: i64, offered: i64) -> ArrivalsRow {
        ArrivalsRow { pipeline: "p".into(), second, offered, ..ArrivalsRow::default() }
    }

    #[test]
    fn what_could_not_be_stored_is_stored_later_and_the_newest_word_counts() {
        let (records, session) = (Records::default(), Uuid::from_u128(1));
        let ack = |error: &str| v1::Ack { error: error.into(), ..v1::Ack::default() };
        records.ack(session, ack("old"));
        records.report(session, None, vec![row(1, 5), row(1, 2), row(2, 1)]);
        let failed = records.with(std::mem::take);
        records.ack(session, ack("new"));
        records.report(session, Some(json!([])), vec![row(2, 3)]);
        records.with(|waiting| waiting.put_back(failed));
        let all = records.with(std::mem::take);
        let errors: Vec<_> = all.acks[&session].iter().map(|ack| ack.error.as_str()).collect();
        assert_eq!(errors, ["new"]);
        let sums: Vec<_> = all.arrivals.values().map(|row| (row.second, row.offered)).collect();
        assert_eq!(sums, [(1, 7), (2, 4)]);
    }

    #[test]
    fn an_acknowledgement_that_names_a_failure_outlives_the_next_one() {
        let (records, session) = (Records::default(), Uuid::from_u128(1));
        let ack = |replica, state: State| {
            let replicas = vec![v1::ReplicaState { replica, state: state.into(), ..Default::default() }];
            v1::Ack { replicas, ..Default::default() }
        };
        let said = [(1, State::Ready), (1, State::Failed), (1, State::Failed), (2, State::Loading), (2, State::Ready)];
        said.into_iter().for_each(|(replica, state)| records.ack(session, ack(replica, state)));
        let all = records.with(std::mem::take);
        let kept: Vec<_> =
            all.acks[&session].iter().map(|ack| (ack.replicas[0].replica, ack.replicas[0].state())).collect();
        assert_eq!(kept, [(1, State::Failed), (2, State::Ready)]);
        (0..100).for_each(|replica| records.ack(session, ack(replica, State::Failed)));
        assert_eq!(records.with(|waiting| waiting.acks[&session].len()), ACKS_MAX);
    }

    #[test]
    fn a_long_stall_loses_the_oldest_seconds_and_counts_them() {
        let mut waiting = Waiting::default();
        (0..ARRIVALS_MAX as i64 + 3).for_each(|second| waiting.add(row(second, 1)));
        assert_eq!((waiting.arrivals.len(), waiting.lost), (ARRIVALS_MAX, 3));
        assert_eq!(waiting.arrivals.first_key_value().map(|(key, _)| key.0), Some(3));
    }
}
