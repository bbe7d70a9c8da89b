//! The in-memory copy of the hosts, and the long polls that wait for documents.
//!
//! The database decides which hosts exist and which epoch is valid; losing this copy costs one
//! reload. It must never hold the only record of a fact.
//!
//! The copy only moves forward. Commit hooks and reads complete in any order: on PostgreSQL the hooks
//! of two transactions may run in either order, and on both databases a read may begin before a commit
//! and end after its hook. Rows therefore have a [`Version`], the aggregates have a revision, and older
//! ones are ignored, with one exception: an older row replaces memory if memory has not changed since
//! the read began. The database must then have lost commits, by a restore or the takeover of a standby.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::aggregates::Grouping;
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_ids::{HostId, HostName, ProviderId};
use tokio::sync::watch;

use crate::atomic::{AtomicSkew, AtomicTime};

/// The time without a heartbeat after which a host is down (Nova's `service_down_time`, 60 s).
pub const DOWN_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Smaller changes in a clock skew are not stored.
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

    /// The smallest integer among the values of a key.
    pub fn least(&self, key: &str) -> Option<i64> {
        self.values(key).filter_map(|value| value.trim().parse().ok()).min()
    }
}

/// The valid epoch of a host and the newest generation of its documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// The epoch of the agent's valid session.
    pub epoch: i64,
    /// The newest generation of the host's documents.
    pub generation: i64,
}

/// The columns of a host's row that its version covers.
#[derive(Debug)]
struct Facts {
    version: Version,
    enabled: bool,
    forced_down: bool,
    availability_zone: String,
    about: About,
}

impl Facts {
    fn of(row: &HostRow) -> Self {
        Self {
            version: row.version,
            enabled: row.enabled,
            forced_down: row.forced_down,
            availability_zone: row.availability_zone.clone(),
            about: row.about.clone(),
        }
    }
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
    facts: RwLock<Facts>,
    aggregates: RwLock<Metadata>,
    build_failures: AtomicI64,
    last_seen: AtomicTime,
    stored_last_seen: AtomicTime,
    reported_at: AtomicTime,
    clock_skew: AtomicSkew,
    stored_skew: AtomicSkew,
    newest: watch::Sender<Newest>,
    acknowledged: AtomicI64,
    clear_up_to: AtomicI64,
}

impl Host {
    /// True if the scheduler may use it at time `now`.
    pub fn takes_servers(&self, now: Timestamp) -> bool {
        let facts = self.facts();
        facts.enabled && !facts.forced_down && self.is_recent(now)
    }

    /// True if its agent has contacted a controller within [`DOWN_AFTER`] and it is not forced down.
    pub fn is_up(&self, now: Timestamp) -> bool {
        !self.is_forced_down() && self.is_recent(now)
    }

    fn is_recent(&self, now: Timestamp) -> bool {
        self.last_seen.is_within(DOWN_AFTER, now)
    }

    /// True if it is forced down.
    pub fn is_forced_down(&self) -> bool {
        self.facts().forced_down
    }

    /// True if no operator has disabled it.
    pub fn is_enabled(&self) -> bool {
        self.facts().enabled
    }

    /// True if it is in that zone.
    pub fn is_in(&self, zone: &str) -> bool {
        self.facts().availability_zone == *zone
    }

    /// Its zone.
    pub fn zone(&self) -> String {
        self.facts().availability_zone.clone()
    }

    /// The value of a property that `capabilities:…` or an image can name: `hypervisor_type`,
    /// `hypervisor_version`, `host`, and so on.
    pub fn capability(&self, key: &str) -> Option<String> {
        let facts = self.facts();
        let about = &facts.about;
        match key {
            "hypervisor_type" => Some(about.hypervisor_type.clone()),
            "hypervisor_version" => Some(about.hypervisor_version.to_string()),
            "host" | "hypervisor_hostname" | "nodename" => Some(self.name.to_string()),
            "vcpus_total" => Some(about.vcpus.to_string()),
            "total_usable_ram_mb" => Some(about.memory_mb.to_string()),
            _ => None,
        }
    }

    /// The version of its row in memory. Each change to the row's content changes the version.
    pub fn version(&self) -> Version {
        self.facts().version
    }

    /// The metadata of its aggregates.
    pub fn aggregates(&self) -> Metadata {
        self.aggregates.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of builds that failed here since the last success.
    pub fn build_failures(&self) -> i64 {
        self.build_failures.load(Ordering::Relaxed)
    }

    /// Records the number of failed builds since the last success, as this or another controller counted them.
    pub fn record_build_failures(&self, failures: i64) {
        if failures == 0 {
            self.build_failures.store(0, Ordering::Relaxed);
        } else {
            self.build_failures.fetch_max(failures, Ordering::Relaxed);
        }
    }

    /// The epoch of the valid session, as far as this process knows. The host's row is authoritative.
    pub fn epoch(&self) -> i64 {
        self.newest.borrow().epoch
    }

    /// Records a contact by its agent.
    pub fn record_seen(&self, now: Timestamp) {
        self.last_seen.advance(now);
    }

    /// The time of the last contact.
    pub fn last_seen(&self) -> Timestamp {
        self.last_seen.get()
    }

    /// The time of the last contact that is recorded in the database.
    pub fn stored_last_seen(&self) -> Timestamp {
        self.stored_last_seen.get()
    }

    /// Records in memory that the database contains this contact.
    pub fn set_stored_last_seen(&self, seen: Timestamp) {
        self.stored_last_seen.advance(seen);
    }

    /// When it last registered. It does so when it starts and whenever its hardware changes.
    pub fn reported_at(&self) -> Timestamp {
        self.reported_at.get()
    }

    /// The clock skew, if the database must be updated. Differences below a tenth of a second are
    /// ignored.
    pub fn unstored_skew(&self) -> Option<SignedDuration> {
        let stored = self.stored_skew.get();
        let differs = |skew: &SignedDuration| {
            stored.is_none_or(|stored| skew.saturating_sub(stored).abs() >= SAME_SKEW)
        };
        self.clock_skew().filter(differs)
    }

    /// Records in memory that the database contains this skew.
    pub fn set_stored_skew(&self, skew: SignedDuration) {
        self.stored_skew.set(skew);
    }

    /// Makes [`Self::unstored_skew`] return the skew again, because the database may have lost it.
    pub fn clear_stored_skew(&self) {
        self.stored_skew.clear();
    }

    /// How far its clock is ahead of ours, as far as this process knows.
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        self.clock_skew.get()
    }

    /// Records the skew of its clock, given the time in its message. Ignores the short transmission time.
    pub fn record_clock(&self, clock: Timestamp, now: Timestamp) {
        self.clock_skew.set(clock.duration_since(now));
    }

    /// A receiver for its epoch and the newest generation of its documents.
    pub fn newest(&self) -> watch::Receiver<Newest> {
        self.newest.subscribe()
    }

    /// Adopts a row that is older than memory was before the read: the database was restored, or
    /// lost commits when a standby took over.
    pub fn correct(&self, known: Newest, row: Newest) {
        self.newest.send_if_modified(|newest| {
            let (epoch, generation) = (newest.epoch, newest.generation);
            if row.epoch < known.epoch && epoch == known.epoch {
                newest.epoch = row.epoch;
            }
            if row.generation < known.generation && generation == known.generation {
                newest.generation = row.generation;
                self.acknowledged.fetch_min(row.generation, Ordering::Relaxed);
                self.clear_up_to.fetch_min(row.generation, Ordering::Relaxed);
            }
            (epoch, generation) != (newest.epoch, newest.generation)
        });
    }

    /// The generation that its agent has acknowledged to this process, and whose waiting handles
    /// were freed.
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Records that its agent has acknowledged a generation, and that the waiting handles were
    /// freed.
    pub fn record_acknowledged(&self, generation: i64) {
        self.acknowledged.fetch_max(generation, Ordering::Relaxed);
    }

    /// The generation up to which no handle waits for the agent's acknowledgement. None ever will,
    /// because a later release waits for a later generation.
    pub fn clear_up_to(&self) -> i64 {
        self.clear_up_to.load(Ordering::Relaxed)
    }

    /// Records that, in one database snapshot, the host had this generation and no handle waited.
    pub fn record_clear_up_to(&self, generation: i64) {
        self.clear_up_to.fetch_max(generation, Ordering::Relaxed);
    }

    /// Records a generation of its documents. If it is newer, wakes the long polls that wait for a change.
    pub fn publish(&self, generation: i64) {
        self.newest.send_if_modified(|newest| {
            let grew = generation > newest.generation;
            newest.generation = generation.max(newest.generation);
            grew
        });
    }

    fn facts(&self) -> RwLockReadGuard<'_, Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the row belongs to this host, under the same root.
    fn is_of(&self, row: &HostRow) -> bool {
        self.root == row.root && self.id == row.id
    }

    /// Applies a version of its row, and wakes the long polls that are affected.
    fn apply(&self, row: &HostRow, known: Option<&Known>) {
        let known = known.and_then(|known| known.of(self));
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let is_unchanged = known.is_some_and(|known| known.version == facts.version);
        if is_unchanged || row.version >= facts.version {
            *facts = Facts::of(row);
        }
        drop(facts);
        self.record_seen(row.last_seen);
        self.stored_last_seen.advance(row.last_seen);
        self.reported_at.advance(row.reported_at);
        let of_row = Newest { epoch: row.version.epoch, generation: row.generation };
        if let Some(known) = known {
            self.correct(known.newest, of_row);
        }
        self.newest.send_if_modified(|newest| {
            let before = *newest;
            newest.epoch = of_row.epoch.max(newest.epoch);
            newest.generation = of_row.generation.max(newest.generation);
            *newest != before
        });
    }

    fn group(&self, metadata: Metadata) {
        *self.aggregates.write().unwrap_or_else(PoisonError::into_inner) = metadata;
    }
}

/// The state of a host in memory before its row is read.
#[derive(Debug, Clone)]
struct KnownHost {
    host: Arc<Host>,
    version: Version,
    newest: Newest,
}

/// The state of a host in memory before its row is read; [`Fleet::apply_read`] compares it with
/// memory after the read.
#[derive(Debug, Clone, Default)]
pub struct Known {
    host: Option<KnownHost>,
    deleted: Option<i64>,
}

impl Known {
    /// The host, if it is in memory.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.host.as_ref().map(|known| &known.host)
    }

    /// The known state of `host`, if memory had this object and not an earlier one of the same name.
    fn of(&self, host: &Host) -> Option<&KnownHost> {
        self.host.as_ref().filter(|known| std::ptr::eq(Arc::as_ptr(&known.host), host))
    }
}

/// All hosts.
#[derive(Debug, Clone, Default)]
pub struct Fleet(Arc<RwLock<Maps>>);

#[derive(Debug, Default)]
struct Maps {
    by_name: HashMap<HostName, Arc<Host>>,
    by_root: HashMap<ProviderId, Arc<Host>>,
    /// For each name whose host was deleted, the number of its last row, so that an older row does
    /// not restore the host.
    deleted: HashMap<HostName, i64>,
    /// The revision of the aggregates.
    grouped: i64,
    /// The aggregates' metadata by host; including hosts that are not in memory yet.
    metadata: HashMap<HostName, Metadata>,
}

impl Maps {
    fn known(&self, name: &HostName) -> Known {
        let host = self.by_name.get(name).map(|host| KnownHost {
            host: Arc::clone(host),
            version: host.facts().version,
            newest: *host.newest.borrow(),
        });
        Known { host, deleted: self.deleted.get(name).copied() }
    }

    fn apply(&mut self, row: &HostRow, known: Option<&Known>) {
        let is_outdated = match self.by_name.get(&row.host) {
            Some(host) if host.is_of(row) => return host.apply(row, known),
            Some(other) => {
                let version = other.facts().version;
                let known = known.and_then(|known| known.of(other));
                row.version < version && known.is_none_or(|known| known.version != version)
            }
            None => {
                let deleted = self.deleted.get(&row.host);
                let is_unchanged = known.is_some_and(|known| known.deleted.as_ref() == deleted);
                !is_unchanged && deleted.is_some_and(|number| *number >= row.version.number)
            }
        };
        if !is_outdated {
            self.add(row);
        }
    }

    fn add(&mut self, row: &HostRow) {
        let metadata = self.metadata.get(&row.host).cloned().unwrap_or_default();
        let newest = Newest { epoch: row.version.epoch, generation: row.generation };
        let host = Arc::new(Host {
            name: row.host.clone(),
            id: row.id,
            root: row.root,
            facts: RwLock::new(Facts::of(row)),
            aggregates: RwLock::new(metadata),
            build_failures: AtomicI64::new(0),
            last_seen: AtomicTime::new(row.last_seen),
            stored_last_seen: AtomicTime::new(row.last_seen),
            reported_at: AtomicTime::new(row.reported_at),
            clock_skew: AtomicSkew::unknown(),
            stored_skew: AtomicSkew::unknown(),
            newest: watch::Sender::new(newest),
            acknowledged: AtomicI64::new(0),
            clear_up_to: AtomicI64::new(0),
        });
        self.deleted.remove(&host.name);
        if let Some(before) = self.by_name.insert(host.name.clone(), Arc::clone(&host)) {
            self.by_root.remove(&before.root);
        }
        self.by_root.insert(host.root, host);
    }

    fn delete(&mut self, name: &HostName, number: i64) {
        if let Some(host) = self.by_name.remove(name) {
            self.by_root.remove(&host.root);
        }
        self.deleted.insert(name.clone(), number);
    }

    fn regroup(&mut self, revision: i64, metadata: HashMap<HostName, Metadata>) {
        for host in self.by_name.values() {
            host.group(metadata.get(&host.name).cloned().unwrap_or_default());
        }
        (self.grouped, self.metadata) = (revision, metadata);
    }
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

    /// The names of the hosts that fulfil a condition. Clones only these names, so a loop that examines ten thousand
    /// hosts and finds few is cheap.
    pub fn names_of(&self, fulfils: impl Fn(&Host) -> bool) -> Vec<HostName> {
        let maps = self.read();
        let found = maps.by_name.values().filter(|host| fulfils(host));
        found.map(|host| host.name.clone()).collect()
    }

    /// True if servers may request a zone: some host in it is enabled, whether up or down.
    pub fn has_zone(&self, zone: &str) -> bool {
        self.read().by_name.values().any(|host| host.is_enabled() && host.is_in(zone))
    }

    /// Applies a row that this process has committed, unless memory has a later version of it.
    pub fn refresh(&self, row: &HostRow) {
        self.apply(row, None);
    }

    /// The state of a host in memory; call this before reading its row.
    pub fn known(&self, name: &HostName) -> Known {
        self.read().known(name)
    }

    /// The state in memory of every host that exists or was deleted; call this before reading all
    /// rows.
    pub fn all_known(&self) -> HashMap<HostName, Known> {
        let maps = self.read();
        let names = maps.by_name.keys().chain(maps.deleted.keys());
        names.map(|name| (name.clone(), maps.known(name))).collect()
    }

    /// Applies a host's row, or its absence, as read from the database. `known` is the state of
    /// memory before the read began. A row older than memory counts only if memory has not changed
    /// since then.
    pub fn apply_read(&self, name: &HostName, known: &Known, row: Option<&HostRow>) {
        if let Some(row) = row {
            self.apply(row, Some(known));
        } else if let Some(before) = &known.host {
            let mut maps = self.write();
            let is_same = |host: &Arc<Host>| host.id == before.host.id;
            if maps.by_name.get(name).is_some_and(is_same) {
                maps.delete(name, before.version.number);
            }
        }
    }

    /// Applies the rows of all hosts that were read from the database, like [`Fleet::apply_read`].
    pub fn apply_all_read(&self, mut known: HashMap<HostName, Known>, rows: &[HostRow]) {
        for row in rows {
            let known = known.remove(&row.host).unwrap_or_default();
            self.apply_read(&row.host, &known, Some(row));
        }
        for (name, known) in known {
            self.apply_read(&name, &known, None);
        }
    }

    fn apply(&self, row: &HostRow, known: Option<&Known>) {
        match self.by_name(&row.host) {
            Some(host) if host.is_of(row) => host.apply(row, known),
            Some(_) | None => self.write().apply(row, known),
        }
    }

    /// True if any host's aggregates satisfy a condition.
    pub fn any_aggregates(&self, are: impl Fn(&Metadata) -> bool) -> bool {
        self.read().by_name.values().any(|host| are(&host.aggregates()))
    }

    /// The revision of the aggregates; call this before reading them.
    pub fn grouped(&self) -> i64 {
        self.read().grouped
    }

    /// Applies all aggregates as this process has committed them, unless memory has a later revision.
    pub fn regroup(&self, grouping: &Grouping) {
        self.apply_grouping(None, grouping);
    }

    /// Applies all aggregates as read from the database. `known` is the revision of memory before
    /// the read began. An older revision counts only if memory has not changed since then.
    pub fn apply_grouping_read(&self, known: i64, grouping: &Grouping) {
        self.apply_grouping(Some(known), grouping);
    }

    fn apply_grouping(&self, known: Option<i64>, grouping: &Grouping) {
        let mut of: HashMap<HostName, Vec<Arc<BTreeMap<String, String>>>> = HashMap::new();
        for aggregate in &grouping.aggregates {
            let metadata = Arc::new(aggregate.metadata.clone());
            for host in &aggregate.hosts {
                of.entry(host.clone()).or_default().push(Arc::clone(&metadata));
            }
        }
        let metadata = of.into_iter().map(|(host, of)| (host, Metadata(of.into()))).collect();
        let mut maps = self.write();
        if known == Some(maps.grouped) || grouping.revision >= maps.grouped {
            maps.regroup(grouping.revision, metadata);
        }
    }

    /// Removes a host whose row this process has deleted. `number` is the number of that row.
    pub fn deleted(&self, name: &HostName, number: i64) {
        let mut maps = self.write();
        let is_later = |host: &Arc<Host>| host.facts().version.number > number;
        if !maps.by_name.get(name).is_some_and(is_later) {
            maps.delete(name, number);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
