//! What the host has, for registration: read again now and then, told again when it changed.

use std::sync::Arc;
use std::time::Duration;

use kilonova_node_api::{Device, Registration};

use super::Parts;
use super::work::Work;
use crate::Error;

pub(super) struct Inventory {
    parts: Parts,
    work: Arc<Work>,
    told: Vec<Device>,
}

impl Inventory {
    pub(super) fn new(mut parts: Parts, work: Arc<Work>) -> Self {
        let about = parts.hypervisor.about();
        parts.registration.hypervisor_type = about.hypervisor_type;
        parts.registration.hypervisor_version = about.version;
        Self { parts, work, told: Vec::new() }
    }

    pub(super) fn rescan(&self) -> Duration {
        self.parts.settings.rescan
    }

    /// The registration, whatever was told before.
    pub(super) async fn first(&mut self) -> Result<Registration, Error> {
        self.told = self.scan().await?;
        Ok(self.registration())
    }

    /// The registration, if the devices are not as they were last told.
    pub(super) async fn changed(&mut self) -> Result<Option<Registration>, Error> {
        let devices = self.scan().await?;
        if devices == self.told {
            return Ok(None);
        }
        self.told = devices;
        Ok(Some(self.registration()))
    }

    fn registration(&self) -> Registration {
        Registration { devices: self.told.clone(), ..self.parts.registration.clone() }
    }

    async fn scan(&self) -> Result<Vec<Device>, Error> {
        self.work
            .scan(self.parts.discovery.clone())
            .await
            .map_err(|source| Error::Devices { host: self.parts.registration.host.clone(), source })
    }
}
