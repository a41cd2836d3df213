//! How does the service know the state of many workloads without asking again and again?
//!
//! Each kind in each namespace is listed once and watched from then on. It is listed again only when the API says that the
//! watch is too old. An API server that was away is watched again from the last change that was seen.

use crate::cluster::KubernetesClient;
use crate::failure::{Asked, KubernetesError};
use crate::workload::{WorkloadKind, WorkloadName, WorkloadState};
use futures::StreamExt;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// Most namespaces that one service watches.
pub const NAMESPACES_MAX: usize = 64;

/// What is watched in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Workloads(WorkloadKind),
    Autoscalers,
}

impl Topic {
    fn api(self) -> ApiResource {
        match self {
            Self::Workloads(kind) => kind.api(),
            Self::Autoscalers => {
                let kind = GroupVersionKind::gvk("autoscaling", "v1", "HorizontalPodAutoscaler");
                ApiResource::from_gvk_with_plural(&kind, "horizontalpodautoscalers")
            }
        }
    }
}

/// What one watch has seen, by name.
#[derive(Debug, Default)]
struct Seen {
    workloads: BTreeMap<String, WorkloadState>,
    /// The targets of autoscalers.
    targets: BTreeMap<String, (String, String)>,
    is_listed: bool,
    lists: u64,
    failure: Option<KubernetesError>,
}

/// One watch. Dropping it ends it.
struct OneWatch {
    seen: Arc<Mutex<Seen>>,
    work: JoinHandle<()>,
}

impl Drop for OneWatch {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// The workloads at one moment.
#[derive(Clone, Debug, Default)]
pub struct WorkloadObservation {
    /// The state of each that exists.
    pub workloads: BTreeMap<WorkloadName, WorkloadState>,
}

/// The watches of a service.
pub struct Watches {
    cluster: KubernetesClient,
    watches: BTreeMap<(String, Topic), OneWatch>,
}

impl Watches {
    /// No watch yet.
    #[must_use]
    pub fn new(cluster: KubernetesClient) -> Self {
        Self { cluster, watches: BTreeMap::new() }
    }

    /// Watches the kinds and namespaces of these workloads, and no others.
    ///
    /// # Errors
    /// If they are in more than [`NAMESPACES_MAX`] namespaces. Then the watches stay as they are.
    pub fn follow<'a>(&mut self, workloads: impl Iterator<Item = &'a WorkloadName>) -> Result<(), KubernetesError> {
        let mut wanted = BTreeSet::new();
        let mut namespaces = BTreeSet::new();
        for workload in workloads {
            namespaces.insert(workload.namespace.clone());
            if namespaces.len() > NAMESPACES_MAX {
                let namespace = workload.namespace.clone();
                return Err(KubernetesError::TooManyNamespaces { namespace, max: NAMESPACES_MAX });
            }
            wanted.insert((workload.namespace.clone(), Topic::Workloads(workload.kind)));
            wanted.insert((workload.namespace.clone(), Topic::Autoscalers));
        }
        self.watches.retain(|key, _| wanted.contains(key));
        for key in wanted {
            let cluster = &self.cluster;
            self.watches.entry(key).or_insert_with_key(|(namespace, topic)| begin(cluster, namespace, *topic));
        }
        Ok(())
    }

    /// The state of these workloads; one that does not exist is absent.
    ///
    /// # Errors
    /// If one of their watches has no list yet or is not allowed.
    pub fn observe<'a>(
        &self,
        workloads: impl Iterator<Item = &'a WorkloadName>,
    ) -> Result<WorkloadObservation, KubernetesError> {
        let mut observation = WorkloadObservation::default();
        for workload in workloads {
            let seen = self.seen(&workload.namespace, Topic::Workloads(workload.kind))?;
            let state = seen.workloads.get(&workload.name).cloned();
            drop(seen);
            let autoscalers = self.seen(&workload.namespace, Topic::Autoscalers)?;
            let Some(mut state) = state else { continue };
            let is_target = |target: &(String, String)| target.0 == workload.kind.name() && target.1 == workload.name;
            let found = autoscalers.targets.iter().find(|(_, target)| is_target(target));
            state.autoscaler = found.map(|(name, _)| name.clone());
            observation.workloads.insert(workload.clone(), state);
        }
        Ok(observation)
    }

    /// How often anything was listed since the watches began. The first list of each watch counts.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.watches.values().map(|watch| lock(&watch.seen).lists).sum()
    }

    /// The state of one watch, if it is whole.
    fn seen(&self, namespace: &str, topic: Topic) -> Result<MutexGuard<'_, Seen>, KubernetesError> {
        let not_listed = || {
            let api = topic.api();
            let resource = format!("{}.{}", api.plural, api.group);
            KubernetesError::NotListed { resource, namespace: namespace.to_owned() }
        };
        let watch = self.watches.get(&(namespace.to_owned(), topic)).ok_or_else(not_listed)?;
        let seen = lock(&watch.seen);
        match &seen.failure {
            Some(failure) => Err(failure.clone()),
            None if seen.is_listed => Ok(seen),
            None => Err(not_listed()),
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(cluster: &KubernetesClient, namespace: &str, topic: Topic) -> OneWatch {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, &topic.api());
    let (shared, namespace) = (Arc::clone(&seen), namespace.to_owned());
    let work = tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut fresh = Seen::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => lock(&shared).note(topic, event, &mut fresh),
                Err(error) => note_failure(&shared, &namespace, topic, error),
            }
        }
    });
    OneWatch { seen, work }
}

impl Seen {
    /// Notes an event. The parts of a new list gather in `fresh` until the list is whole.
    fn note(&mut self, topic: Topic, event: Event<DynamicObject>, fresh: &mut Self) {
        self.failure = None;
        match event {
            Event::Apply(object) => self.put(topic, &object),
            Event::InitApply(object) => fresh.put(topic, &object),
            Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.workloads.remove(&name);
                self.targets.remove(&name);
            }
            Event::Init => {
                *fresh = Self::default();
                self.lists += 1;
            }
            Event::InitDone => {
                self.workloads = std::mem::take(&mut fresh.workloads);
                self.targets = std::mem::take(&mut fresh.targets);
                self.is_listed = true;
            }
        }
    }

    fn put(&mut self, topic: Topic, object: &DynamicObject) {
        let name = object.metadata.name.clone().unwrap_or_default();
        match topic {
            Topic::Workloads(_) => drop(self.workloads.insert(name, WorkloadState::read(object))),
            Topic::Autoscalers => {
                let target = &object.data["spec"]["scaleTargetRef"];
                let text = |key: &str| target[key].as_str().unwrap_or_default().to_owned();
                self.targets.insert(name, (text("kind"), text("name")));
            }
        }
    }
}

/// Notes that a right is missing. Other failures are over when the API answers again, so they are only logged.
fn note_failure(seen: &Mutex<Seen>, namespace: &str, topic: Topic, error: watcher::Error) {
    let api = topic.api();
    tracing::warn!(resource = api.plural, namespace, %error, "the watch is interrupted");
    let asked = |verb| Asked { verb, resource: format!("{}.{}", api.plural, api.group), namespace: namespace.to_owned() };
    let failure = match error {
        watcher::Error::InitialListFailed(error) => asked("list").failed(error),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => asked("watch").failed(error),
        watcher::Error::WatchError(status) => asked("watch").refused(&status),
        watcher::Error::NoResourceVersion => return,
    };
    let mut seen = lock(seen);
    if matches!(failure, KubernetesError::Forbidden { .. }) || !seen.is_listed {
        seen.failure = Some(failure);
    }
}
