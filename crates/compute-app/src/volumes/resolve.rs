//! The volumes of a new server with their data from Cinder, and their rows.
//!
//! ```text
//!   look_up   before the transaction, with the user's token: volumes, snapshots, types
//!   reserve   volumes that exist are reserved before the request is answered
//!   begin     in the transaction of the boot: the devices are assigned to the server
//!   release   after the boot or its failure: the worker connects the volumes, or undoes the reservations
//! ```

use std::collections::{BTreeMap, HashSet};

use kilonova_cinder::{Error as CallError, Volume, VolumeType};
use kilonova_compute_db::servers::FlavorOf;
use kilonova_compute_db::volumes::{
    self as rows, Answered, BlockDevice, Phase, RowId, Source, State, Taken,
};
use kilonova_ids::{BlockDeviceId, ImageId, ServerId, VolumeId};
use kilonova_node_api::{Bus, Medium};
use kilonova_store::Tx;
use kilonova_wire::{Context, IntoRefusal, Refusal, time};

use super::attach::check_unused;
use super::request::{Wanted, WantedDisks, WantedVolume, without_volumes};
use super::{Volumes, by, documents as composed, new_token, start, until};
use crate::aggregates::DEFAULT_ZONE;
use crate::boot::machine;
use crate::images::SeenImages;
use crate::resolve::fits_memory;
use crate::{Compute, Error};

const GIB: i64 = 1 << 30;
/// Keys of a volume's image metadata that are attributes of the image rather than properties.
const ATTRIBUTES: [&str; 8] = [
    "checksum",
    "container_format",
    "disk_format",
    "image_id",
    "image_name",
    "min_disk",
    "min_ram",
    "size",
];

/// A volume of a new server.
#[derive(Debug, Clone)]
pub struct NewDevice {
    wanted: WantedVolume,
    source: Source,
    volume: Option<VolumeId>,
    size_gb: i64,
    volume_type: Option<String>,
    is_shared: bool,
}

/// The origin of the root volume.
#[derive(Debug, Clone, Default)]
pub struct RootImage {
    /// The properties of its image.
    pub properties: BTreeMap<String, String>,
    /// The image from which a new root volume is created, or whose volume snapshots become the volumes.
    pub image: Option<ImageId>,
    min_ram: i64,
    min_disk: i64,
    size_gb: i64,
}

impl RootImage {
    /// A root volume of this size that is filled with the data of an image.
    pub fn of(image: ImageId, size_gb: i64) -> Self {
        Self { image: Some(image), size_gb, ..Self::default() }
    }
}

/// The volumes of a new server.
#[derive(Debug, Clone, Default)]
pub struct BootVolumes {
    /// The volumes in order.
    pub devices: Vec<NewDevice>,
    /// The origin of the root volume; `None` for a server with a local root disk.
    pub root: Option<RootImage>,
    /// The zone that the volumes require of a server without a requested zone.
    pub zone: Option<String>,
}

/// The parts of a request other than its disks.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The caller.
    pub context: &'a Context,
    /// Maximum number of servers.
    pub max_count: usize,
    /// The requested zone.
    pub zone: Option<&'a str>,
    /// True if the client's microversion supports multiattach volumes.
    pub knows_multiattach: bool,
}

fn bad(words: impl Into<String>) -> Error {
    Refusal::bad_request(words).into()
}

fn invalid(words: String) -> Error {
    bad(format!("Block Device Mapping is Invalid: {words}"))
}

/// Looks up the volumes, snapshots and types of a request in Cinder.
///
/// # Errors
/// 400 and 409 with Nova's messages; 503 if Cinder does not answer.
pub async fn look_up(
    compute: &Compute,
    asked: Asked<'_>,
    disks: &WantedDisks,
) -> Result<BootVolumes, Error> {
    if disks.volumes.is_empty() {
        return Ok(BootVolumes::default());
    }
    let Some(volumes) = compute.volumes.as_deref() else {
        return Err(invalid(
            "this cloud has no volumes. Boot from an image to a local disk.".into(),
        ));
    };
    let locals = disks.locals() + usize::from(disks.image.is_some());
    let most = volumes.options.max_local_devices;
    if most >= 0 && locals as i64 > most {
        return Err(invalid("You specified more local devices than the limit allows".into()));
    }
    if asked.max_count > 1 && disks.existing().next().is_some() {
        return Err(bad("Cannot attach one or more volumes to multiple instances"));
    }
    let most = volumes.options.max_disk_devices;
    let total = (disks.volumes.len() + usize::from(disks.image.is_some())) as i64;
    if most >= 0 && total > most {
        return Err(Refusal::forbidden(format!(
            "The maximum allowed number of disk devices ({most}) to attach to a single instance has been \
             exceeded."
        ))
        .into());
    }
    let request_id = asked.context.request_id_text();
    let call = by(asked.context, &request_id);
    let kinds = if disks.volumes.iter().any(|volume| volume.volume_type.is_some()) {
        let kinds = volumes.bounded(volumes.client.types(call)).await;
        kinds.map_err(|error| Error::from(error.into_refusal()))?
    } else {
        Vec::new()
    };
    let mut found = BootVolumes::default();
    let mut zones = Vec::new();
    for wanted in &disks.volumes {
        let device = one(volumes, asked, call, wanted, &kinds, (&mut found, &mut zones)).await?;
        found.devices.push(device);
    }
    if !volumes.options.cross_az_attach {
        found.zone = required_zone(asked.zone, &zones)?;
    }
    Ok(found)
}

/// Looks up one volume, and adds the zone of a volume that exists to `zones`.
async fn one(
    volumes: &Volumes,
    asked: Asked<'_>,
    call: kilonova_cinder::Call<'_>,
    wanted: &WantedVolume,
    kinds: &[VolumeType],
    (found, zones): (&mut BootVolumes, &mut Vec<String>),
) -> Result<NewDevice, Error> {
    let volume_type = match &wanted.volume_type {
        None => None,
        Some(named) => {
            let known = kinds.iter().any(|kind| kind.id == *named || kind.name == *named);
            if !known {
                let named = named.escape_debug();
                return Err(bad(format!("Volume type {named} could not be found.")));
            }
            Some(named.clone())
        }
    };
    let is_root = wanted.boot_index == 0;
    let mut device = NewDevice {
        wanted: wanted.clone(),
        source: Source::Blank,
        volume: None,
        size_gb: wanted.size_gb.unwrap_or_default(),
        volume_type,
        is_shared: false,
    };
    match wanted.source {
        Wanted::Blank => {
            if is_root {
                found.root = Some(RootImage { size_gb: device.size_gb, ..RootImage::default() });
            }
        }
        Wanted::Image(image) => {
            device.source = Source::Image(image);
            if is_root {
                let size_gb = device.size_gb;
                found.root =
                    Some(RootImage { image: Some(image), size_gb, ..RootImage::default() });
            }
        }
        Wanted::Snapshot(id) => {
            let shown = volumes.bounded(volumes.client.snapshot(call, id)).await;
            let words = format!("failed to get snapshot {id}.");
            let snapshot = shown.map_err(|error| missing(error, words))?;
            device.source = Source::Snapshot(id);
            device.size_gb = wanted.size_gb.unwrap_or(snapshot.size);
            let of = volumes.bounded(volumes.client.volume(call, snapshot.volume_id)).await;
            if let Ok(of) = of {
                device.volume_type = device.volume_type.or(of.volume_type.clone());
                if is_root {
                    check_bootable(&of, &id.to_string())?;
                    found.root = Some(root_of(&of, device.size_gb));
                }
            } else if is_root {
                found.root = Some(RootImage { size_gb: device.size_gb, ..RootImage::default() });
            }
        }
        Wanted::Volume(id) => {
            let shown = volumes.bounded(volumes.client.volume(call, id)).await;
            let words = format!("failed to get volume {id}.");
            let shown = shown.map_err(|error| missing(error, words))?;
            if shown.encrypted {
                return Err(bad(format!(
                    "Invalid volume: volume {id} is encrypted, and encrypted volumes are not supported."
                )));
            }
            if shown.multiattach && !asked.knows_multiattach {
                return Err(bad(
                    "Multiattach volumes are only supported starting with compute API version 2.60.",
                ));
            }
            zones.push(shown.availability_zone.clone());
            if is_root {
                check_bootable(&shown, &id.to_string())?;
                found.root = Some(root_of(&shown, shown.size));
            }
            device.source = Source::Volume;
            device.volume = Some(id);
            device.size_gb = shown.size;
            device.is_shared = shown.multiattach;
        }
    }
    Ok(device)
}

fn missing(error: CallError, words: String) -> Error {
    if error.is_not_found() { invalid(words) } else { error.into_refusal().into() }
}

fn check_bootable(volume: &Volume, id: &str) -> Result<(), Error> {
    if volume.bootable {
        return Ok(());
    }
    Err(bad(format!("Block Device {id} is not bootable.")))
}

fn root_of(volume: &Volume, size_gb: i64) -> RootImage {
    let number = |key: &str| {
        volume.image_metadata.get(key).and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let properties = volume.image_metadata.iter();
    let properties = properties.filter(|(key, _)| !ATTRIBUTES.contains(&key.as_str()));
    RootImage {
        properties: properties.map(|(key, value)| (key.clone(), value.clone())).collect(),
        image: None,
        min_ram: number("min_ram"),
        min_disk: number("min_disk"),
        size_gb,
    }
}

/// The zone to which the volumes of these zones bind a new server that requests `zone`. Called only without
/// `cross_az_attach`.
///
/// A server without a requested zone is not bound to the default zone, because it could then never leave that zone
/// (`_validate_vol_az_for_create` in `nova/compute/api.py`).
fn required_zone(zone: Option<&str>, zones: &[String]) -> Result<Option<String>, Error> {
    let Some(first) = zones.first() else { return Ok(None) };
    if zones.iter().any(|other| other != first) {
        let all = zones.join(",");
        return Err(mismatch(format!("Volumes are in different availability zones: {all}")));
    }
    match zone {
        None => Ok(Some(first.clone()).filter(|first| first != DEFAULT_ZONE)),
        Some(zone) if zone == first => Ok(None),
        Some(zone) => Err(mismatch(format!(
            "Server and volumes are not in the same availability zone. Server is in: {zone}. Volumes are in: \
             {first}"
        ))),
    }
}

fn mismatch(reason: String) -> Error {
    bad(format!(
        "The availability zone between the server and its attached volumes do not match: {reason}."
    ))
}

/// The image properties of a volume-backed server.
///
/// # Errors
/// 400 if the image is not visible, has no data, or needs a larger volume or flavor.
pub fn root_properties(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    root: &RootImage,
    flavor: &FlavorOf,
) -> Result<BTreeMap<String, String>, Error> {
    let (mut min_ram, mut min_disk) = (root.min_ram, root.min_disk);
    let mut properties = root.properties.clone();
    if let Some(id) = root.image {
        let image = seen.visible(tx, compute, context, id)?;
        let image = image.ok_or_else(|| invalid(format!("failed to get image {id}.")))?;
        if image.status != kilonova_image::Status::Active {
            return Err(bad(format!("Image {id} is not active.")));
        }
        (min_ram, min_disk) = (image.min_ram, image.min_disk);
        properties = without_volumes(image.properties);
    }
    fits_memory(min_ram, flavor.ram)?;
    if root.size_gb < min_disk {
        return Err(bad(format!(
            "Volume is smaller than the minimum size specified in image metadata. Volume size is {} bytes, \
             minimum size is {} bytes.",
            root.size_gb.saturating_mul(GIB),
            min_disk.saturating_mul(GIB)
        )));
    }
    machine::check(&properties, flavor)?;
    Ok(properties)
}

/// Keeps the user's token for the calls that follow the boot of these servers.
pub fn keep_token(compute: &Compute, context: &Context, servers: &[ServerId]) {
    let Some(volumes) = &compute.volumes else { return };
    for server in servers {
        volumes.tokens.keep(*server, context.token.as_ref());
    }
}

/// Reserves the existing volumes of a server that does not exist yet. The caller must [`release`]
/// the result.
///
/// # Errors
/// 400 with Cinder's message; 409 if Cinder was too slow; 503 if it does not answer. Reservations
/// are then undone.
pub async fn reserve(
    compute: &Compute,
    context: &Context,
    server: ServerId,
    found: &BootVolumes,
    properties: &BTreeMap<String, String>,
    flavor: &FlavorOf,
) -> Result<Option<Taken>, Error> {
    let Some(volumes) = compute.volumes.as_deref() else { return Ok(None) };
    if found.devices.iter().all(|device| device.volume.is_none()) {
        return Ok(None);
    }
    let devices = described(server, found, properties, flavor);
    let existing: Vec<(BlockDevice, VolumeId, RowId)> = devices
        .into_iter()
        .filter_map(|device| {
            let volume = device.volume?;
            Some((BlockDevice { phase: Phase::Requested, ..device }, volume, RowId::new_v4()))
        })
        .collect();
    let (token, project, list) = (new_token(compute), context.project_id.clone(), existing.clone());
    let mut taken = compute
        .store
        .write(move |tx| {
            let now = time::now();
            rows::take_or_add(tx, server, &project, now, until(now), &token)?;
            let unshared = list.iter().filter(|(device, ..)| !device.is_shared);
            let unshared: Vec<VolumeId> = unshared.map(|(_, volume, _)| *volume).collect();
            check_unused(tx, &unshared, server)?;
            for (device, volume, row) in &list {
                rows::add(tx, device)?;
                rows::add_attachment(tx, *row, device, *volume, None)?;
            }
            Ok::<_, Error>(Taken {
                server,
                project_id: project.clone(),
                is_gone: false,
                attempts: 0,
                due_at: now,
                token: token.clone(),
            })
        })
        .await?;
    let request_id = context.request_id_text();
    for (_, volume, row) in existing {
        let call = volumes.client.create_attachment(by(context, &request_id), volume, server);
        match volumes.bounded(call).await {
            Ok(made) => {
                let before = taken.clone();
                let recorded = compute.store.write(move |tx| {
                    let renewed = rows::renew(tx, &before, until(time::now()))?;
                    let Some(renewed) = renewed else { return Ok(None) };
                    let to =
                        Answered { attachment: Some(made.id), host: None, state: State::Reserved };
                    let is_known = rows::set_attachment(tx, row, State::Reserving, &to)?;
                    Ok::<_, Error>(is_known.then_some(renewed))
                });
                match recorded.await? {
                    Some(renewed) => taken = renewed,
                    None => {
                        let call = by(context, &request_id);
                        return Err(volumes.withdraw(call, server, made.id).await);
                    }
                }
            }
            Err(error) => {
                if !error.may_have_effect() {
                    let forget =
                        move |tx: &mut Tx<'_>| Ok::<_, Error>(rows::forget_attachment(tx, row)?);
                    compute.store.write(forget).await?;
                }
                release(compute, taken).await?;
                return Err(unreserved(error, volume));
            }
        }
    }
    Ok(Some(taken))
}

/// The answer to a boot whose volume Cinder does not reserve: Cinder's words for a 400, and Nova's for its other
/// refusals (`_validate_bdm` in `nova/compute/api.py`).
fn unreserved(error: CallError, volume: VolumeId) -> Error {
    match error.status().map(|status| status.as_u16()) {
        Some(400) => {
            let mut refusal = error.into_refusal();
            refusal.message = format!("Invalid volume: {}", refusal.message);
            refusal.into()
        }
        Some(401..=499) => {
            let words = format!("Block Device Mapping is Invalid: failed to get volume {volume}.");
            Refusal::bad_request(words).with_internal(error).into()
        }
        _ => error.into_refusal().into(),
    }
}

/// Releases a server to the worker, which connects the volumes, or undoes the reservations for a
/// server that does not exist.
///
/// # Errors
/// Store errors only.
pub async fn release(compute: &Compute, taken: Taken) -> Result<(), Error> {
    let server = taken.server;
    let give = move |tx: &mut Tx<'_>| Ok::<_, Error>(rows::give_back(tx, &taken, 0, time::now())?);
    compute.store.write(give).await?;
    start(compute, server);
    Ok(())
}

/// A new server that has a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    /// Its id.
    pub id: ServerId,
    /// Its project.
    pub project: &'a str,
    /// The zone of its host.
    pub zone: &'a str,
}

/// Assigns the devices to a server, within the transaction that creates it. Returns the volumes of
/// its document, which waits until they are connected.
///
/// Without `cross_az_attach` the new volumes are created in the zone of the server's host
/// (`_get_volume_create_az_value` in `nova/virt/block_device.py`).
///
/// # Errors
/// Store errors only.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    compute: &Compute,
    Placed { id: server, project, zone }: Placed<'_>,
    found: &BootVolumes,
    properties: &BTreeMap<String, String>,
    flavor: &FlavorOf,
) -> Result<Vec<kilonova_node_api::Volume>, Error> {
    if found.devices.is_empty() {
        return Ok(Vec::new());
    }
    let now = time::now();
    let reserved = rows::of_server(tx, server)?;
    let is_bound = compute.volumes.as_ref().is_some_and(|volumes| !volumes.options.cross_az_attach);
    let mut devices = described(server, found, properties, flavor);
    for device in &mut devices {
        device.zone = Some(zone.to_owned()).filter(|zone| is_bound && !zone.is_empty());
        match reserved.iter().find(|one| one.ordinal == device.ordinal) {
            Some(one) => {
                device.id = one.id;
                rows::set_phase(tx, one.id, Phase::Requested, Phase::Attaching, None)?;
            }
            None => rows::add(tx, device)?,
        }
    }
    if reserved.is_empty() {
        rows::add_server(tx, server, project, now)?;
        let compute = compute.clone();
        tx.on_commit(move || start(&compute, server));
    }
    Ok(composed::list(&devices))
}

/// Keeps the existing volumes reserved for a server that has no host.
///
/// # Errors
/// Store errors only.
pub(crate) fn keep_reserved(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    for device in rows::of_server(tx, server)? {
        rows::set_phase(tx, device.id, Phase::Requested, Phase::Attaching, None)?;
    }
    Ok(())
}

/// The rows of the devices, with the names of their disks and without a zone.
fn described(
    server: ServerId,
    found: &BootVolumes,
    properties: &BTreeMap<String, String>,
    flavor: &FlavorOf,
) -> Vec<BlockDevice> {
    let usual = properties.get("hw_disk_bus");
    let usual = usual.and_then(|name| Bus::parse(&name.to_ascii_lowercase()));
    let usual = usual.unwrap_or(Bus::Virtio);
    let now = time::now();
    let mut taken: HashSet<String> = HashSet::new();
    let mut devices: Vec<BlockDevice> = Vec::new();
    let mut order: Vec<usize> = (0..found.devices.len()).collect();
    // The root disk gets the first name, and local disks get the next ones.
    order.sort_by_key(|at| found.devices[*at].wanted.boot_index != 0);
    let locals = usize::from(found.root.is_none())
        + usize::from(flavor.ephemeral > 0)
        + usize::from(flavor.swap > 0);
    for at in order {
        let new = &found.devices[at];
        let bus = new.wanted.bus.unwrap_or(usual);
        let is_root = new.wanted.boot_index == 0;
        // On a bus other than virtio, one name is left for a config drive.
        let skipped = if is_root { 0 } else { usize::from(bus != Bus::Virtio) }
            + if bus == usual && !is_root { locals } else { 0 };
        let first = bus.disk_names().next().unwrap_or_default();
        let fits = |name: &&String| {
            !taken.contains(*name)
                && !is_root
                && name.len() == first.len()
                && name.get(..2) == first.get(..2)
                && bus.disk_names().take(skipped + 1).all(|local| local != **name)
        };
        let wish = new.wanted.device.as_ref().filter(fits).cloned();
        let name =
            wish.or_else(|| bus.disk_names().filter(|name| !taken.contains(name)).nth(skipped));
        let name = name.unwrap_or(first);
        taken.insert(name.clone());
        devices.push(BlockDevice {
            id: BlockDeviceId::new_v4(),
            server,
            ordinal: at as i64,
            phase: Phase::Attaching,
            volume: new.volume,
            source: new.source,
            size_gb: new.size_gb,
            volume_type: new.volume_type.clone(),
            zone: None,
            device: name,
            bus,
            medium: new.wanted.medium.filter(|medium| *medium != Medium::Disk),
            boot_index: Some(new.wanted.boot_index).filter(|index| *index >= 0),
            tag: new.wanted.tag.clone(),
            is_shared: new.is_shared,
            delete_on_termination: new.wanted.delete_on_termination,
            error: None,
            created_at: now,
            reimage: None,
            operation: None,
        });
    }
    devices.sort_by_key(|device| device.ordinal);
    devices
}
