//! What a guest is told of itself, from what its server is when it is made.

use std::collections::BTreeMap;

use kilonova_node_api::Guest;

use crate::Compute;
use crate::db::servers::{Server, Spec};

/// A server, as far as its document is made of it.
#[derive(Debug, Clone, Copy)]
pub struct Whole<'a> {
    /// Its number.
    pub seq: i64,
    /// What the user calls it.
    pub name: &'a str,
    /// Its project.
    pub project: &'a str,
    /// What it was asked to be.
    pub spec: &'a Spec,
    /// Its metadata.
    pub metadata: &'a BTreeMap<String, String>,
    /// The zone of its host.
    pub zone: &'a str,
}

impl<'a> Whole<'a> {
    /// A server that there is, on a host of this zone.
    pub fn of(server: &'a Server, zone: &'a str) -> Self {
        Self {
            seq: server.seq,
            name: &server.name,
            project: &server.project_id,
            spec: &server.spec,
            metadata: &server.metadata,
            zone,
        }
    }

    /// What its guest is told.
    pub fn told(&self) -> Guest {
        let spec = self.spec;
        Guest {
            hostname: spec.hostname.clone(),
            project: self.project.to_owned(),
            keys: spec.key.iter().cloned().collect(),
            user_data: spec.user_data.clone(),
            metadata: self.metadata.clone(),
            availability_zone: self.zone.to_owned(),
            launch_index: spec.launch_index,
            reservation: spec.reservation_id.clone(),
            flavor: spec.flavor.name.clone(),
        }
    }
}

/// What the guest of a server is told that is, or is to be, on this host.
pub(crate) fn told(compute: &Compute, server: &Server, host: &str) -> Guest {
    Whole::of(server, &compute.zone_of(Some(host))).told()
}
