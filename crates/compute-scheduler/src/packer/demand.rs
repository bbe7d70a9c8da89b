//! A kind of request in the learned demand: the resources that one server requests, by names that
//! every controller knows.

use kilonova_engine::{Group, Query};
use kilonova_ids::{ResourceClass, nearness};
use serde::{Deserialize, Serialize};

use super::kinds::is_device;

/// The requested devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Devices {
    /// The resource class.
    pub class: ResourceClass,
    /// Units of each device.
    pub amount: i64,
    /// Number of request groups for such a device.
    pub count: u8,
    /// Required traits of the device; each inner list is an "any of".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<Vec<String>>,
    /// Traits that the device must not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<String>,
}

/// The resources that a server requests. The JSON form is a key in the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    /// Processors, shared and dedicated.
    pub vcpus: i64,
    /// MiB; not part of the learned demand.
    #[serde(skip)]
    pub memory_mb: i64,
    /// The requested devices of the kind with the most request groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
}

impl Request {
    /// The request of a query for one server.
    pub(super) fn of(query: &Query) -> Self {
        let mut request = Self::default();
        let mut kinds: Vec<Devices> = Vec::new();
        for group in &query.groups {
            for (class, amount) in &group.resources {
                match class.as_str() {
                    "VCPU" | "PCPU" => request.vcpus += amount,
                    "MEMORY_MB" => request.memory_mb += amount,
                    _ if is_device(class) => {
                        let devices = Devices::of(group, class, *amount);
                        match kinds.iter_mut().find(|kind| kind.is_like(&devices)) {
                            Some(kind) => kind.count = kind.count.saturating_add(1),
                            None => kinds.push(devices),
                        }
                    }
                    _ => {}
                }
            }
        }
        request.devices = kinds.into_iter().rev().max_by_key(|kind| (kind.count, kind.amount));
        request
    }
}

impl Devices {
    fn of(group: &Group, class: &ResourceClass, amount: i64) -> Self {
        let mut devices = Self {
            class: class.clone(),
            amount,
            count: 1,
            required: Vec::new(),
            forbidden: Vec::new(),
        };
        // The traits of the unsuffixed group may be those of another provider.
        if !group.suffix.is_empty() {
            // A kind does not include a place.
            let has_place =
                |clause: &&Vec<String>| clause.iter().any(|name| nearness::is_place(name));
            let required = group.required.iter().filter(|clause| !has_place(clause));
            devices.required = required.cloned().collect();
            let forbidden = group.forbidden.iter().filter(|name| !nearness::is_place(name));
            devices.forbidden = forbidden.cloned().collect();
        }
        devices
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.class, self.amount, &self.required, &self.forbidden)
            == (&other.class, other.amount, &other.required, &other.forbidden)
    }
}
