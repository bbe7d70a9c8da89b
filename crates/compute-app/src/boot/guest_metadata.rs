//! The metadata of a guest, derived from its server.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::{FlavorOf, Server, Spec};
use kilonova_ids::HostName;
use kilonova_node_api::{GuestMetadata, InjectedFile};
use kilonova_store::Tx;

use crate::{Compute, Error, numa, ports, user_data};

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

    /// The guest's metadata, without the names of its security groups.
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
            dedicated_cpus: dedicated_cpus(spec, &spec.flavor),
            security_groups: Vec::new(),
            dynamic_vendordata: spec.dynamic_vendordata,
            files: spec.files.iter().map(plain).collect(),
        }
    }
}

/// The file for a host, which reads base64 without line breaks.
fn plain(file: &InjectedFile) -> InjectedFile {
    InjectedFile { path: file.path.clone(), contents: user_data::plain(&file.contents) }
}

/// The dedicated vCPUs of a server with this flavor (`_get_instance_dedicated_cpus` in
/// `nova/api/metadata/base.py`).
pub fn dedicated_cpus(spec: &Spec, flavor: &FlavorOf) -> Vec<u32> {
    let topology = numa::requested(flavor, &spec.image_properties).topology;
    let cells = topology.into_iter().flat_map(|topology| topology.cells);
    let mut all: Vec<u32> = cells.flat_map(|cell| cell.dedicated).collect();
    all.sort_unstable();
    all
}

/// The metadata of a server's guest on this host, with [`group_names`].
///
/// # Errors
/// Store errors only.
pub fn guest_metadata(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    host: Option<&HostName>,
) -> Result<GuestMetadata, Error> {
    let groups = group_names(tx, compute, server)?;
    Ok(guest_metadata_with(compute, server, host, groups))
}

/// [`guest_metadata`] with these names of security groups.
pub(crate) fn guest_metadata_with(
    compute: &Compute,
    server: &Server,
    host: Option<&HostName>,
    security_groups: Vec<String>,
) -> GuestMetadata {
    let guest = GuestSource::of(server, &compute.zone_of(host)).guest_metadata();
    GuestMetadata { security_groups, ..guest }
}

/// The names of a guest's security groups, for its metadata. Empty if our own service manages the ports: the host then
/// adds the names from its packet filters.
///
/// # Errors
/// Store errors only.
pub(crate) fn group_names(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
) -> Result<Vec<String>, Error> {
    if server.spec.networked && compute.networks.is_external() {
        return ports::security_groups(tx, &*compute.networks, server.id);
    }
    Ok(Vec::new())
}
