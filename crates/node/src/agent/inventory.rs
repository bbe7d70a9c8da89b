//! The host's inventory for registration: scanned periodically and registered again when it
//! changes.
//!
//! Only a fingerprint of the last registration is kept, as a process may run a thousand simulated
//! hosts.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kilonova_devices::{DeviceProblem, FoundCells, Watch, has_threads};
use kilonova_hypervisor::HypervisorInfo;
use kilonova_ids::HostName;
use kilonova_node_api::{
    Device, GUEST_DEVICE_CELLS, GUEST_NUMA, NumaCell, OVS_HYBRID_PLUG, Registration, Session,
};

use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::Instant;

use super::Parts;
use super::work::{Work, blocking};
use crate::Error;

/// Trait of a host whose cores have several threads.
const THREADS: &str = "HW_CPU_HYPERTHREADING";

/// Number of scan intervals after which an undivided host tries again to offer its CPUs and memory by NUMA cell.
const SCANS_UNTIL_DIVISION: u32 = 10;

/// The shortest interval of scans, so that an interval of zero leaves time for other work.
const SHORTEST_RESCAN: Duration = Duration::from_millis(1);

/// How often the kernel log is read.
const LOG_INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct Inventory {
    parts: Parts,
    work: Arc<Work>,
    watch: Arc<Watch>,
    /// When the kernel log is read next.
    next_log_read: Mutex<Instant>,
    /// When the host registers again even if nothing has changed, because it cannot yet offer its CPUs and memory by
    /// NUMA cell.
    again: Mutex<Option<Instant>>,
    /// True if the controller has requested a registration: a client of the Placement API has changed the host's
    /// providers.
    requested: AtomicBool,
    /// Fingerprint of devices, cells and hypervisor in the last registration; 0 before the first.
    last_fingerprint: AtomicU64,
    /// A periodic scan has found that the host must register again.
    news: Notify,
    /// Device problems that have been logged.
    logged: Mutex<Vec<DeviceProblem>>,
    /// The cells as last read, with their problems, which have been logged.
    found: Mutex<Option<FoundCells>>,
}

impl Inventory {
    pub(super) fn new(parts: Parts, work: Arc<Work>, watch: Arc<Watch>) -> Self {
        let next_log_read = Mutex::new(Instant::now() + LOG_INTERVAL);
        Self {
            parts,
            work,
            watch,
            next_log_read,
            again: Mutex::default(),
            requested: AtomicBool::new(false),
            last_fingerprint: AtomicU64::new(0),
            news: Notify::new(),
            logged: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// Scans the host at its interval. Hosts that start together scan at different times, so that a process with many
    /// simulated hosts, and the controller, have an even load.
    pub(super) async fn scan_periodically(&self) -> Infallible {
        let rescan = self.parts.settings.rescan.max(SHORTEST_RESCAN);
        let mut next = Instant::now() + first_rescan(&self.parts.registration.host, rescan);
        loop {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + rescan;
            if Box::pin(self.has_news()).await {
                self.news.notify_one();
            }
        }
    }

    /// True if [`Self::changed`] may have a registration, or an error.
    async fn has_news(&self) -> bool {
        let last_fingerprint = self.last_fingerprint.load(Ordering::Relaxed);
        if last_fingerprint == 0 {
            return false;
        }
        if self.requested.load(Ordering::Relaxed) {
            return true;
        }
        let (Ok(devices), Ok(cells)) = (self.scan().await, self.cells().await) else {
            return true;
        };
        self.fingerprint(&devices, &cells, &self.parts.hypervisor.info()) != last_fingerprint
    }

    pub(super) fn power_sync(&self) -> Option<Duration> {
        self.parts.settings.power_sync
    }

    /// Waits for a permit to start.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.parts.settings.starts.acquire().await.ok()
    }

    /// The registration, regardless of earlier ones.
    pub(super) async fn first(&self) -> Result<Registration, Error> {
        let (devices, cells) = (self.scan().await?, self.cells().await?);
        let info = self.parts.hypervisor.info();
        let seen = self.fingerprint(&devices, &cells, &info);
        self.last_fingerprint.store(seen, Ordering::Relaxed);
        Ok(self.registration(devices, cells, info))
    }

    /// Processes the answer to a registration. A host may be undivided because of a guest, an allocation that a
    /// Placement client wrote, or another provider's name. The agent gets no event when such an obstacle disappears, so
    /// it retries later.
    pub(super) fn registered(&self, session: Session) {
        let pause = self.parts.settings.rescan.saturating_mul(SCANS_UNTIL_DIVISION);
        let again = session.undivided.then(|| Instant::now() + pause);
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = again;
    }

    /// Waits until a periodic scan has found that the host must register again, or until it is time for an undivided
    /// host to do so. Cancel-safe. Other hosts set no timer.
    pub(super) async fn time_to_register_again(&self) {
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.news.notified();
        match again {
            Some(again) => {
                tokio::select! {
                    () = tokio::time::sleep_until(again) => {}
                    () = news => {}
                }
            }
            None => news.await,
        }
    }

    /// Requests a registration at the next scan, even if nothing changes on the host. An immediate registration would
    /// compete for the providers' generations with a client that makes several changes. Nova's
    /// hosts compare their providers once a minute (`update_available_resource` of `nova/compute/manager.py`).
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// The registration, if devices, cells or hypervisor have changed since the last one, if the controller has
    /// requested it, or if an undivided host must retry.
    pub(super) async fn changed(&self) -> Result<Option<Registration>, Error> {
        let (devices, cells) = (self.scan().await?, self.cells().await?);
        let info = self.parts.hypervisor.info();
        let seen = self.fingerprint(&devices, &cells, &info);
        let last_fingerprint = self.last_fingerprint.swap(seen, Ordering::Relaxed);
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = again.is_some_and(|again| again <= Instant::now());
        let is_requested = self.requested.swap(false, Ordering::Relaxed);
        Ok((is_due || is_requested || seen != last_fingerprint)
            .then(|| self.registration(devices, cells, info)))
    }

    /// Waits until the kernel log contains an unreported event about a device's health. Cancel-safe. An
    /// agent without a log sets no timer: a process may run ten thousand simulated hosts.
    pub(super) async fn wait_for_events(&self) {
        if !self.watch.has_log() {
            return std::future::pending().await;
        }
        while !self.watch.has_unreported_events() {
            let next = *self.next_log_read.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::time::sleep_until(next).await;
            *self.next_log_read.lock().unwrap_or_else(PoisonError::into_inner) =
                Instant::now() + LOG_INTERVAL;
            if !self.watch.is_quiet() {
                Box::pin(self.read_kernel_log()).await;
            }
        }
    }

    async fn read_kernel_log(&self) {
        let watch = Arc::clone(&self.watch);
        let listened = tokio::task::spawn_blocking(move || watch.listen()).await;
        if let Err(error) = listened.unwrap_or_else(|error| Err(error.into())) {
            let host = &self.parts.registration.host;
            tracing::warn!(%host, %error, "could not read the kernel log");
        }
    }

    fn registration(
        &self,
        devices: Vec<Device>,
        cells: Option<Vec<NumaCell>>,
        info: HypervisorInfo,
    ) -> Registration {
        let threads = cells.as_deref().is_some_and(has_threads).then(|| THREADS.to_owned());
        let guest_numa: &[&str] = match &cells {
            Some(_) => &[GUEST_NUMA, GUEST_DEVICE_CELLS],
            None => &[],
        };
        let guest_numa = guest_numa.iter().map(|name| (*name).to_owned());
        let mut registration = Registration {
            devices,
            hypervisor_type: info.hypervisor_type,
            hypervisor_version: info.version,
            connector: self.parts.volumes.connector().map(Box::new),
            cells,
            ..self.parts.registration.clone()
        };
        let own = [OVS_HYBRID_PLUG.to_owned()];
        for name in info.traits.into_iter().chain(threads).chain(guest_numa).chain(own) {
            if !registration.traits.contains(&name) {
                registration.traits.push(name);
            }
        }
        registration
    }

    /// The options that have no effect on this host, according to its last scan.
    pub(super) async fn ineffective_options(&self) -> Result<Vec<String>, Error> {
        let (discovery, sysfs) = (Arc::clone(&self.parts.discovery), Arc::clone(&self.parts.sysfs));
        let cards = self.work.mig_cards();
        blocking(move || {
            let mut all = discovery.ineffective_options(&*sysfs, &cards)?;
            all.extend(discovery.absent_links(&*sysfs));
            Ok(all)
        })
        .await
        .map_err(|source| self.device_error(source))
    }

    async fn scan(&self) -> Result<Vec<Device>, Error> {
        self.read_kernel_log().await;
        self.watch.take_unreported_events();
        let (discovery, watch) = (Arc::clone(&self.parts.discovery), Arc::clone(&self.watch));
        let found =
            self.work.scan(discovery, watch).await.map_err(|source| self.device_error(source))?;
        self.log_problems(found.problems);
        Ok(found.devices)
    }

    /// The NUMA cells. A host whose cells can no longer be read keeps the last known ones, because its guests must
    /// stay managed.
    async fn cells(&self) -> Result<Option<Vec<NumaCell>>, Error> {
        let Some(options) = self.parts.settings.cells.clone() else {
            return Ok(self.parts.registration.cells.clone());
        };
        let sysfs = Arc::clone(&self.parts.sysfs);
        let read = blocking(move || options.read(&*sysfs)).await;
        let host = &self.parts.registration.host;
        let mut last = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, &*last) {
            (Ok(found), _) => {
                let logged = last.as_ref().map_or(&[][..], |last| &last.problems);
                for problem in found.problems.iter().filter(|one| !logged.contains(one)) {
                    tracing::warn!(%host, "{problem}");
                }
                let cells = found.cells.clone();
                *last = Some(found);
                Ok(cells)
            }
            (Err(error), Some(last)) => {
                tracing::warn!(%host, %error, "could not read the NUMA cells; the host keeps the last ones");
                Ok(last.cells.clone())
            }
            (Err(error), None) => Err(self.device_error(error)),
        }
    }

    /// Logs each device problem once.
    fn log_problems(&self, problems: Vec<DeviceProblem>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let host = &self.parts.registration.host;
        for DeviceProblem { address, reason, .. } in
            problems.iter().filter(|one| !logged.contains(one))
        {
            tracing::warn!(%host, %address, %reason, "a device has a problem");
        }
        for DeviceProblem { address, .. } in logged.iter().filter(|one| !problems.contains(one)) {
            tracing::info!(%host, %address, "a device's problem is resolved or has changed");
        }
        *logged = problems;
    }

    fn fingerprint(
        &self,
        devices: &[Device],
        cells: &Option<Vec<NumaCell>>,
        info: &HypervisorInfo,
    ) -> u64 {
        let mut hasher = DefaultHasher::new();
        (devices, cells, info, self.parts.volumes.connector()).hash(&mut hasher);
        hasher.finish()
    }

    fn device_error(&self, source: kilonova_devices::Error) -> Error {
        Error::Devices { host: self.parts.registration.host.clone(), source }
    }
}

/// The time until the first periodic scan of a host, which depends on its name: less than the interval, and evenly
/// distributed over it.
fn first_rescan(host: &HostName, rescan: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    // The upper half of the hash is a fraction.
    let share = u32::try_from(hasher.finish() >> 32).unwrap_or_default();
    rescan.mul_f64(f64::from(share) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_start_together_scan_at_different_times() {
        let rescan = Duration::from_secs(60);
        let mut scans = [0; 12];
        for number in 0..1200 {
            let host = HostName::verbatim(format!("gpu-{number}"));
            let first = first_rescan(&host, rescan);
            assert_eq!(first, first_rescan(&host, rescan), "the time depends on the name only");
            scans[usize::try_from(first.as_secs() / 5).expect("the number is small")] += 1;
        }
        assert!(scans.iter().all(|scans| (60..140).contains(scans)), "{scans:?}");
    }
}
