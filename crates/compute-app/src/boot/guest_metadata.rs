//! The metadata of a guest, derived from its server.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::{Server, Spec};
use kilonova_ids::HostName;
use kilonova_node_api::GuestMetadata;

use crate::{Compute, user_data};

/// The properties of a server from which its document and its guest's metadata are derived.
#[derive(Debug, Clone, Copy)]
pub struct GuestSource<'a> {
    /// The server's number.
    pub seq: i64,
    /// The display name.
    pub name: &'a str,
    /// The project.
    pub project: &'a str,
    /// Its requested properties.
    pub spec: &'a Spec,
    /// The user's metadata.
    pub metadata: &'a BTreeMap<String, String>,
    /// The availability zone of the host.
    pub zone: &'a str,
}

impl<'a> GuestSource<'a> {
    /// An existing server on a host of this zone.
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

    /// The guest's metadata.
    pub fn guest_metadata(&self) -> GuestMetadata {
        let spec = self.spec;
        GuestMetadata {
            hostname: spec.hostname.clone(),
            project: self.project.to_owned(),
            keys: spec.key.iter().cloned().collect(),
            user_data: spec.user_data.as_deref().map(user_data::plain),
            metadata: self.metadata.clone(),
            availability_zone: self.zone.to_owned(),
            launch_index: spec.launch_index,
            reservation: spec.reservation_id.clone(),
            flavor: spec.flavor.name.clone(),
            images: spec.image_numbers,
            dynamic_vendordata: spec.dynamic_vendordata,
        }
    }
}

/// The metadata of a server's guest on this host.
pub fn guest_metadata(
    compute: &Compute,
    server: &Server,
    host: Option<&HostName>,
) -> GuestMetadata {
    GuestSource::of(server, &compute.zone_of(host)).guest_metadata()
}
