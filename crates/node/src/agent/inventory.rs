//! What the host has, for registration: read again now and then, told again when it changed.
//!
//! Of what was told only a fingerprint is kept: a process may hold a thousand simulated hosts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kilonova_devices::{Trouble, Watch};
use kilonova_hypervisor::About;
use kilonova_node_api::{Device, Registration};

use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::Parts;
use super::work::{Work, blocking};
use crate::Error;

/// How often the kernel log is looked at.
const LISTEN: Duration = Duration::from_secs(2);

pub(super) struct Inventory {
    parts: Parts,
    work: Arc<Work>,
    watch: Arc<Watch>,
    /// When the kernel log is looked at next.
    listen: Mutex<Instant>,
    /// Fingerprint of devices and hypervisor as they were last told.
    told: AtomicU64,
    /// What is wrong with devices and has been said.
    said: Mutex<Vec<Trouble>>,
}

impl Inventory {
    pub(super) fn new(parts: Parts, work: Arc<Work>, watch: Arc<Watch>) -> Self {
        let listen = Mutex::new(Instant::now() + LISTEN);
        Self { parts, work, watch, listen, told: AtomicU64::new(0), said: Mutex::default() }
    }

    pub(super) fn rescan(&self) -> Duration {
        self.parts.settings.rescan
    }

    pub(super) fn power_sync(&self) -> Option<Duration> {
        self.parts.settings.power_sync
    }

    /// Waits until it is this node's turn to start.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.parts.settings.starts.acquire().await.ok()
    }

    /// The registration, whatever was told before.
    pub(super) async fn first(&self) -> Result<Registration, Error> {
        let devices = self.scan().await?;
        let about = self.parts.hypervisor.about();
        self.told.store(fingerprint(&devices, &about), Ordering::Relaxed);
        Ok(self.registration(devices, about))
    }

    /// The registration, if devices or hypervisor are not as they were last told.
    pub(super) async fn changed(&self) -> Result<Option<Registration>, Error> {
        let devices = self.scan().await?;
        let about = self.parts.hypervisor.about();
        let seen = fingerprint(&devices, &about);
        let told = self.told.swap(seen, Ordering::Relaxed);
        Ok((seen != told).then(|| self.registration(devices, about)))
    }

    /// Waits until the kernel log says something of a device's health that has not been told. It may
    /// be dropped at any await.
    pub(super) async fn news(&self) {
        while !self.watch.has_news() {
            let next = *self.listen.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::time::sleep_until(next).await;
            *self.listen.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + LISTEN;
            if !self.watch.is_quiet() {
                Box::pin(self.listen()).await;
            }
        }
    }

    async fn listen(&self) {
        let watch = Arc::clone(&self.watch);
        let heard = tokio::task::spawn_blocking(move || watch.listen()).await;
        if let Err(error) = heard.unwrap_or_else(|error| Err(error.into())) {
            let host = &self.parts.registration.host;
            tracing::warn!(%host, %error, "the kernel log cannot be read");
        }
    }

    fn registration(&self, devices: Vec<Device>, about: About) -> Registration {
        let mut registration = Registration {
            devices,
            hypervisor_type: about.hypervisor_type,
            hypervisor_version: about.version,
            ..self.parts.registration.clone()
        };
        for name in about.traits {
            if !registration.traits.contains(&name) {
                registration.traits.push(name);
            }
        }
        registration
    }

    /// What of the options has no effect on this host.
    pub(super) async fn doubts(&self) -> Result<Vec<String>, Error> {
        let (discovery, sysfs) = (Arc::clone(&self.parts.discovery), Arc::clone(&self.parts.sysfs));
        blocking(move || discovery.doubts(&*sysfs)).await.map_err(|source| self.wrong(source))
    }

    async fn scan(&self) -> Result<Vec<Device>, Error> {
        self.listen().await;
        self.watch.news();
        let (discovery, watch) = (Arc::clone(&self.parts.discovery), Arc::clone(&self.watch));
        let found = self.work.scan(discovery, watch).await.map_err(|source| self.wrong(source))?;
        self.say(found.troubles);
        Ok(found.devices)
    }

    /// Says of each device what is wrong with it, once.
    fn say(&self, troubles: Vec<Trouble>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let host = &self.parts.registration.host;
        for Trouble { address, reason, .. } in troubles.iter().filter(|one| !said.contains(one)) {
            tracing::warn!(%host, %address, %reason, "a device is not as it should be");
        }
        for Trouble { address, .. } in said.iter().filter(|one| !troubles.contains(one)) {
            tracing::info!(%host, %address, "what was wrong with a device has changed");
        }
        *said = troubles;
    }

    fn wrong(&self, source: kilonova_devices::Error) -> Error {
        Error::Devices { host: self.parts.registration.host.clone(), source }
    }
}

fn fingerprint(devices: &[Device], about: &About) -> u64 {
    let mut hasher = DefaultHasher::new();
    (devices, about).hash(&mut hasher);
    hasher.finish()
}
