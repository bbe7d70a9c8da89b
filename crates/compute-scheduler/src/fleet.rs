//! The in-memory copy of the hosts, and the long polls that wait for documents.
//!
//! The database decides which hosts exist and which epoch is valid; losing this copy costs one
//! reload. It must never be the only place that knows something.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::aggregates::Aggregate;
use kilonova_compute_db::fleet::{About, HostRow};
use kilonova_ids::{HostId, HostName, ProviderId};
use tokio::sync::watch;

use crate::atomic::{AtomicSkew, AtomicTime};

/// The time after which a silent host counts as down (Nova's `service_down_time`, 60 s).
pub const DOWN_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// A smaller change of a clock skew is not stored.
const SAME_SKEW: SignedDuration = SignedDuration::from_millis(100);

/// The metadata of a host's aggregates.
#[derive(Debug, Clone, Default)]
pub struct Metadata(Arc<[Arc<BTreeMap<String, String>>]>);

impl Metadata {
    /// Every key and value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().flat_map(|metadata| metadata.iter());
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The values of a key.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.all().filter(move |(known, _)| *known == key).map(|(_, value)| value)
    }

    /// The values of keys with a prefix.
    pub fn values_by_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.all().filter(move |(key, _)| key.starts_with(prefix)).map(|(_, value)| value)
    }

    /// The minimum of a key's numbers.
    pub fn least(&self, key: &str) -> Option<i64> {
        self.values(key).filter_map(|value| value.trim().parse().ok()).min()
    }
}

/// The newest state of a host for its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// The epoch of the valid session.
    pub epoch: i64,
    /// The generation of its documents.
    pub generation: i64,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// Name.
    pub name: HostName,
    /// Its id; a host that was deleted and registered again has another one.
    pub id: HostId,
    /// Root of its provider tree.
    pub root: ProviderId,
    /// Its availability zone.
    pub availability_zone: RwLock<String>,
    about: RwLock<About>,
    aggregates: RwLock<Metadata>,
    build_failures: AtomicI64,
    enabled: AtomicBool,
    forced_down: AtomicBool,
    last_seen: AtomicTime,
    noted: AtomicTime,
    reported_at: AtomicTime,
    clock_skew: AtomicSkew,
    noted_skew: AtomicSkew,
    newest: watch::Sender<Newest>,
    answered: AtomicI64,
}

impl Host {
    /// True if the scheduler may use it at time `now`.
    pub fn takes_servers(&self, now: Timestamp) -> bool {
        self.enabled.load(Ordering::Relaxed) && self.is_up(now)
    }

    /// True if it was seen lately and is not forced down.
    pub fn is_up(&self, now: Timestamp) -> bool {
        !self.forced_down.load(Ordering::Relaxed)
            && now.duration_since(self.last_seen.get()) < DOWN_AFTER
    }

    /// True if it is forced down.
    pub fn is_declared_dead(&self) -> bool {
        self.forced_down.load(Ordering::Relaxed)
    }

    /// True if no operator has disabled it.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// True if it is in that zone.
    pub fn is_in(&self, zone: &str) -> bool {
        *self.availability_zone.read().unwrap_or_else(PoisonError::into_inner) == *zone
    }

    /// Its zone.
    pub fn zone(&self) -> String {
        self.availability_zone.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The properties that `capabilities:…` and images can name: `hypervisor_type`,
    /// `hypervisor_version`, `host`, and so on.
    pub fn capability(&self, key: &str) -> Option<String> {
        let about = self.about.read().unwrap_or_else(PoisonError::into_inner);
        match key {
            "hypervisor_type" => Some(about.hypervisor_type.clone()),
            "hypervisor_version" => Some(about.hypervisor_version.to_string()),
            "host" | "hypervisor_hostname" | "nodename" => Some(self.name.to_string()),
            "vcpus_total" => Some(about.vcpus.to_string()),
            "total_usable_ram_mb" => Some(about.memory_mb.to_string()),
            _ => None,
        }
    }

    /// The metadata of its aggregates.
    pub fn aggregates(&self) -> Metadata {
        self.aggregates.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Builds that failed here since the last success.
    pub fn build_failures(&self) -> i64 {
        self.build_failures.load(Ordering::Relaxed)
    }

    /// Records the number of failures since a success, at this or another controller.
    pub fn record_build_failures(&self, failures: i64) {
        if failures == 0 {
            self.build_failures.store(0, Ordering::Relaxed);
        } else {
            self.build_failures.fetch_max(failures, Ordering::Relaxed);
        }
    }

    /// The epoch of the valid session, as far as this process knows. The row decides.
    pub fn epoch(&self) -> i64 {
        self.newest.borrow().epoch
    }

    /// Records a sign of life.
    pub fn seen(&self, now: Timestamp) {
        self.last_seen.advance(now);
    }

    /// The time of the last sign of life.
    pub fn last_seen(&self) -> Timestamp {
        self.last_seen.get()
    }

    /// The last sign of life stored in the database.
    pub fn noted(&self) -> Timestamp {
        self.noted.get()
    }

    /// When it last sent a registration: at its start, and whenever its hardware changed.
    pub fn reported_at(&self) -> Timestamp {
        self.reported_at.get()
    }

    /// The clock skew, if the database must be updated. Differences below a tenth of a second are
    /// ignored.
    pub fn new_skew(&self) -> Option<SignedDuration> {
        let noted = self.noted_skew.get();
        let differs = |skew: &SignedDuration| {
            noted.is_none_or(|noted| skew.saturating_sub(noted).abs() >= SAME_SKEW)
        };
        self.clock_skew().filter(differs)
    }

    /// Records that the database has this skew.
    pub fn skew_is_noted(&self, skew: SignedDuration) {
        self.noted_skew.set(skew);
    }

    /// How far its clock is ahead of ours, as far as this process knows.
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        self.clock_skew.get()
    }

    /// Records its clock; ignores the short time that the message took.
    pub fn record_clock(&self, clock: Timestamp, now: Timestamp) {
        self.clock_skew.set(clock.duration_since(now));
    }

    /// A receiver for its epoch and the newest generation of its documents.
    pub fn newest(&self) -> watch::Receiver<Newest> {
        self.newest.subscribe()
    }

    /// Takes over a row that is older than what was known before it was read: the database was
    /// restored, or lost commits when a standby took over.
    pub fn correct(&self, known: Newest, row: Newest) {
        self.newest.send_if_modified(|newest| {
            let (epoch, generation) = (newest.epoch, newest.generation);
            if row.epoch < known.epoch && epoch == known.epoch {
                newest.epoch = row.epoch;
            }
            if row.generation < known.generation && generation == known.generation {
                newest.generation = row.generation;
            }
            (epoch, generation) != (newest.epoch, newest.generation)
        });
    }

    /// The generation that its agent has acknowledged to this process, and whose waiting handles
    /// were freed.
    pub fn answered(&self) -> i64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Records that its agent has acknowledged a generation, and that the waiting handles were
    /// freed.
    pub fn has_answered(&self, generation: i64) {
        self.answered.fetch_max(generation, Ordering::Relaxed);
    }

    /// Wakes the long polls that wait for documents older than `generation`.
    pub fn publish(&self, generation: i64) {
        self.newest.send_if_modified(|newest| {
            let grew = generation > newest.generation;
            newest.generation = generation.max(newest.generation);
            grew
        });
    }

    /// Records a registration, and wakes the long polls of earlier sessions.
    fn registered(&self, epoch: i64) {
        self.newest.send_if_modified(|newest| {
            let grew = epoch > newest.epoch;
            newest.epoch = epoch.max(newest.epoch);
            grew
        });
    }
}

/// All hosts.
#[derive(Debug, Clone, Default)]
pub struct Fleet(Arc<RwLock<Maps>>);

#[derive(Debug, Default)]
struct Maps {
    by_name: HashMap<HostName, Arc<Host>>,
    by_root: HashMap<ProviderId, Arc<Host>>,
}

impl Fleet {
    /// A host by name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Host>> {
        self.read().by_name.get(name).cloned()
    }

    /// A host by the root of its provider tree.
    pub fn by_root(&self, root: ProviderId) -> Option<Arc<Host>> {
        self.read().by_root.get(&root).cloned()
    }

    /// Every host.
    pub fn all(&self) -> Vec<Arc<Host>> {
        self.read().by_name.values().cloned().collect()
    }

    /// True if servers may request a zone: some host in it is enabled, up or down.
    pub fn has_zone(&self, zone: &str) -> bool {
        let enabled = |host: &Arc<Host>| host.enabled.load(Ordering::Relaxed);
        self.read().by_name.values().any(|host| enabled(host) && host.is_in(zone))
    }

    /// Applies a host's row; returns whether the host was unknown.
    pub fn refresh(&self, row: &HostRow) -> bool {
        let is_same = |host: &Arc<Host>| host.root == row.root && host.id == row.id;
        let known = self.by_name(&row.host).filter(is_same);
        let new = known.is_none();
        let host = known.unwrap_or_else(|| self.add(row));
        host.registered(row.epoch);
        host.enabled.store(row.enabled, Ordering::Relaxed);
        host.forced_down.store(row.forced_down, Ordering::Relaxed);
        host.seen(row.last_seen);
        host.noted.advance(row.last_seen);
        host.reported_at.advance(row.reported_at);
        *host.availability_zone.write().unwrap_or_else(PoisonError::into_inner) =
            row.availability_zone.clone();
        *host.about.write().unwrap_or_else(PoisonError::into_inner) = row.about.clone();
        host.publish(row.generation);
        new
    }

    /// True if any host's aggregates satisfy a condition.
    pub fn any_aggregates(&self, are: impl Fn(&Metadata) -> bool) -> bool {
        self.read().by_name.values().any(|host| are(&host.aggregates()))
    }

    /// Applies all aggregates and their members.
    pub fn regroup(&self, aggregates: &[Aggregate]) {
        let mut of: HashMap<&HostName, Vec<Arc<BTreeMap<String, String>>>> = HashMap::new();
        for aggregate in aggregates {
            let metadata = Arc::new(aggregate.metadata.clone());
            for host in &aggregate.hosts {
                of.entry(host).or_default().push(Arc::clone(&metadata));
            }
        }
        for host in self.all() {
            let metadata = Metadata(of.remove(&host.name).unwrap_or_default().into());
            *host.aggregates.write().unwrap_or_else(PoisonError::into_inner) = metadata;
        }
    }

    /// Applies the aggregates of one host, so that a host that joins a large fleet does not cause a
    /// scan of the others.
    pub fn group(&self, host: &HostName, aggregates: &[Aggregate]) {
        let Some(host) = self.by_name(host) else { return };
        let metadata = aggregates.iter().map(|aggregate| Arc::new(aggregate.metadata.clone()));
        let metadata = Metadata(metadata.collect());
        *host.aggregates.write().unwrap_or_else(PoisonError::into_inner) = metadata;
    }

    fn add(&self, row: &HostRow) -> Arc<Host> {
        let host = Arc::new(Host {
            name: row.host.clone(),
            id: row.id,
            root: row.root,
            availability_zone: RwLock::new(row.availability_zone.clone()),
            about: RwLock::new(row.about.clone()),
            aggregates: RwLock::default(),
            build_failures: AtomicI64::new(0),
            enabled: AtomicBool::new(row.enabled),
            forced_down: AtomicBool::new(row.forced_down),
            last_seen: AtomicTime::new(row.last_seen),
            noted: AtomicTime::new(row.last_seen),
            reported_at: AtomicTime::new(row.reported_at),
            clock_skew: AtomicSkew::unknown(),
            noted_skew: AtomicSkew::unknown(),
            newest: watch::Sender::new(Newest { epoch: row.epoch, generation: row.generation }),
            answered: AtomicI64::new(0),
        });
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = maps.by_name.insert(host.name.clone(), Arc::clone(&host)) {
            maps.by_root.remove(&before.root);
        }
        maps.by_root.insert(host.root, Arc::clone(&host));
        host
    }

    /// Removes a deleted host.
    pub fn remove(&self, name: &HostName) {
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = maps.by_name.remove(name) {
            maps.by_root.remove(&host.root);
        }
    }

    /// Removes a host that was deleted, unless another one has its name by now.
    pub fn forget(&self, host: &Arc<Host>) {
        let mut maps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if maps.by_name.get(&host.name).is_some_and(|known| Arc::ptr_eq(known, host)) {
            maps.by_name.remove(&host.name);
            maps.by_root.remove(&host.root);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Maps> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
