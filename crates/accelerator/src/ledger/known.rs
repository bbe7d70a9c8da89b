//! The stored rows of a host's hardware, indexed, so that the time to apply a report is linear in the
//! number of functions.
//!
//! This module must never write.

use std::collections::HashMap;

use kilonova_ids::{HostName, ProviderId};
use kilonova_store::Tx;

use crate::Error;
use crate::db::attributes::{self, AttributeRow};
use crate::db::deployables::{self, DeployableRow};
use crate::db::devices::{self, DeviceRow};
use crate::db::handles::{self, HandleRow};

/// The rows of a host.
pub(super) struct Known {
    pub devices: Vec<DeviceRow>,
    pub deployables: Vec<DeployableRow>,
    device_at: HashMap<String, usize>,
    device: HashMap<i64, usize>,
    deployable: HashMap<ProviderId, usize>,
    attributes: HashMap<i64, Vec<AttributeRow>>,
    handles: HashMap<i64, Vec<HandleRow>>,
}

impl Known {
    /// Reads the rows of a host.
    pub fn read(tx: &mut Tx<'_>, host: &HostName) -> Result<Self, Error> {
        devices::expect_of_host(tx, host)?;
        deployables::expect_of_host(tx, host)?;
        attributes::expect_of_host(tx, host)?;
        handles::expect_of_host(tx, host)?;
        let (devices, deployables) = (devices::of_host(tx, host)?, deployables::of_host(tx, host)?);
        let mut attributes: HashMap<i64, Vec<AttributeRow>> = HashMap::new();
        for row in attributes::of_host(tx, host)? {
            attributes.entry(row.deployable_id).or_default().push(row);
        }
        let mut handles: HashMap<i64, Vec<HandleRow>> = HashMap::new();
        for row in handles::of_host(tx, host)? {
            handles.entry(row.deployable_id).or_default().push(row);
        }
        let of_devices = || devices.iter().enumerate();
        Ok(Self {
            device_at: of_devices().map(|(at, row)| (row.address.clone(), at)).collect(),
            device: of_devices().map(|(at, row)| (row.id, at)).collect(),
            deployable: deployables
                .iter()
                .enumerate()
                .map(|(at, row)| (row.provider, at))
                .collect(),
            attributes,
            handles,
            devices,
            deployables,
        })
    }

    /// The device at an address.
    pub fn device_at(&self, address: &str) -> Option<&DeviceRow> {
        self.device_at.get(address).and_then(|at| self.devices.get(*at))
    }

    /// The device with this row id.
    pub fn device(&self, id: i64) -> Option<&DeviceRow> {
        self.device.get(&id).and_then(|at| self.devices.get(*at))
    }

    /// The deployable with this resource provider.
    pub fn deployable(&self, provider: ProviderId) -> Option<&DeployableRow> {
        self.deployable.get(&provider).and_then(|at| self.deployables.get(*at))
    }

    /// The attributes of a deployable.
    pub fn attributes_of(&self, deployable: i64) -> &[AttributeRow] {
        self.attributes.get(&deployable).map_or(&[], Vec::as_slice)
    }

    /// The handles of a deployable.
    pub fn handles_of(&self, deployable: i64) -> &[HandleRow] {
        self.handles.get(&deployable).map_or(&[], Vec::as_slice)
    }

    /// All handles.
    pub fn handles(&self) -> impl Iterator<Item = &HandleRow> {
        self.handles.values().flatten()
    }
}
