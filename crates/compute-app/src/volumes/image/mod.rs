//! `createImage` of a server whose root disk is a volume: Cinder creates a snapshot of each volume,
//! and an image without data lists the snapshots.
//!
//! ```text
//!   rows making ─► POST snapshot, each recorded ─► image ─► one transaction: the image and its snapshots
//!        │                                                  are the user's, and no row is left
//!        └── any failure: rows unwanted ─► the sweep deletes the snapshots
//! ```
//!
//! The request makes all calls, as in Nova, so its answer names a complete image. The sweep discards an interrupted
//! request after its deadline, and deletes everything that it created, because no client has received its answer. The
//! file systems of the guest are not frozen meanwhile: each snapshot is crash-consistent, and the snapshots are created
//! one after the other.

mod mapping;
mod sweep;

use std::collections::BTreeMap;

use kilonova_cinder::{NewSnapshot, Volume};
use kilonova_compute_db::servers::{self, Server};
use kilonova_compute_db::volume_snapshots::{self as rows, RowId};
use kilonova_compute_db::volumes::{self as devices, BlockDevice, Phase};
use kilonova_ids::{ImageId, SnapshotId, VolumeId};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, IntoRefusal, Refusal, time};

pub(crate) use mapping::{BDM_V2, MAPPING, MAPPINGS, ROOT_DEVICE_NAME};
pub use sweep::run as sweep;

use super::{Volumes, by, until};
use crate::actions::ServerAction;
use crate::flows::operation::Action;
use crate::images::{self, PreparedImage, Snapshot, VolumesImage};
use crate::volumes::attach::{bad, refused};
use crate::{Compute, Error, flows, states};

/// The key in a snapshot's metadata that identifies the row for which it was created.
const MADE_FOR: &str = "kilonova_snapshot";

/// A volume whose snapshot becomes part of the image.
#[derive(Debug, Clone)]
struct Part {
    row: RowId,
    device: BlockDevice,
    volume: VolumeId,
}

/// Creates an image of the volumes of a server, and returns its id once it is complete.
///
/// # Errors
/// 400, 403, 404 and 409 with Nova's messages; 503 if Cinder or the image service does not answer. After an error, the
/// sweep deletes everything that was created.
pub async fn create_image(
    compute: &Compute,
    context: &Context,
    server: &Server,
    request: &Snapshot,
) -> Result<ImageId, Error> {
    let Some(volumes) = compute.volumes.as_deref() else {
        return Err(bad("Images of volumes are not supported: this cloud has no volumes."));
    };
    let id = server.id;
    let read = move |tx: &mut Tx<'_>| Ok::<_, Error>(devices::of_server(tx, id)?);
    let parts = parts(compute.store.read(read).await?);
    let image = ImageId::new_v4();
    let root_device = parts.iter().find(|part| part.device.is_root());
    let Some(root) = root_device.map(|part| part.device.clone()) else {
        return Err(states::not_ready(server));
    };
    let nothing = parts.iter().map(|part| (&part.device, SnapshotId::nil()));
    if mapping::write(nothing).len() > mapping::LONGEST {
        return Err(bad("The server has too many volumes for one image. Detach some first."));
    }
    let shown = look_up(volumes, context, &parts).await?;
    let (list, by_whom) = (parts.clone(), context.clone());
    let begin = move |tx: &mut Tx<'_>, compute: &Compute| {
        let server = servers::find(tx, id)?.ok_or_else(|| {
            Error::from(Refusal::not_found(format!("Instance {id} could not be found.")))
        })?;
        states::allow(&by_whom, &server, ServerAction::CreateImage)?;
        images::expect_of_volumes(tx, compute, &by_whom, &server)?;
        for part in &list {
            rows::add(tx, part.row, image, id, part.volume, until(time::now()))?;
        }
        Ok::<_, Error>(())
    };
    let inner = compute.clone();
    compute.store.write(move |tx| begin(tx, &inner)).await?;
    let made = async {
        let made = make(compute, volumes, context, request, image, &parts, &shown).await?;
        let image = describe(compute, server, request, image, &root, &made);
        finish(compute, context, server, image, parts.len()).await
    };
    match made.await {
        Ok(()) => Ok(image),
        Err((error, delay)) => {
            let (by_whom, why, of) = (context.clone(), error.to_string(), server.clone());
            let discard = move |tx: &mut Tx<'_>| {
                let now = time::now();
                rows::discard(tx, image, time::after(now, delay))?;
                if servers::find(tx, id)?.is_some() {
                    flows::record_failure(tx, &by_whom, &of, Action::CreateImage, &why, now)?;
                }
                Ok::<_, Error>(())
            };
            if let Err(error) = compute.store.write(discard).await {
                tracing::warn!(server = %id, %image, %error, "cannot record that snapshots of volumes are unwanted; the sweep deletes them later");
            }
            volumes.unwanted.notify_one();
            Err(error)
        }
    }
}

/// A failure, and how long the sweep waits because a call may still arrive.
type Failed = (Error, jiff::SignedDuration);

/// The sweep may begin immediately.
const AT_ONCE: jiff::SignedDuration = jiff::SignedDuration::ZERO;
/// A request without an answer may still arrive within this time.
const LATE: jiff::SignedDuration = jiff::SignedDuration::from_mins(2);

fn at_once(error: impl Into<Error>) -> Failed {
    (error.into(), AT_ONCE)
}

/// The volumes that the server keeps.
fn parts(all: Vec<BlockDevice>) -> Vec<Part> {
    let part = |device: BlockDevice| {
        let is_kept = match device.phase {
            Phase::Attaching
            | Phase::Attached
            | Phase::BeginDetaching
            | Phase::RollDetaching
            | Phase::Reimaging => true,
            Phase::Requested | Phase::Detaching | Phase::Failed => false,
        };
        let volume = device.volume.filter(|_| is_kept)?;
        Some(Part { row: RowId::new_v4(), volume, device })
    };
    all.into_iter().filter_map(part).collect()
}

/// Cinder's data on the volumes, after a check that the project may have that many more snapshots.
async fn look_up(
    volumes: &Volumes,
    context: &Context,
    parts: &[Part],
) -> Result<Vec<Volume>, Error> {
    let request_id = context.request_id_text();
    let call = by(context, &request_id);
    let limit = volumes.bounded(volumes.client.snapshot_limit(call)).await;
    let limit = limit.map_err(IntoRefusal::into_refusal)?;
    if !limit.allows(parts.len() as i64) {
        return Err(Refusal::forbidden("Quota exceeded for resources: snapshots").into());
    }
    let mut shown = Vec::new();
    for part in parts {
        let volume = volumes.bounded(volumes.client.volume(call, part.volume)).await;
        shown.push(volume.map_err(|error| refused(error, part.volume))?);
    }
    Ok(shown)
}

/// Creates the snapshots in Cinder, one after the other.
async fn make<'a>(
    compute: &Compute,
    volumes: &Volumes,
    context: &Context,
    request: &Snapshot,
    image: ImageId,
    parts: &'a [Part],
    shown: &[Volume],
) -> Result<Vec<(&'a BlockDevice, SnapshotId)>, Failed> {
    let request_id = context.request_id_text();
    let mut made = Vec::new();
    for (part, shown) in parts.iter().zip(shown) {
        let new = NewSnapshot {
            volume: part.volume,
            name: format!("snapshot for {}", request.name),
            description: shown.description.clone(),
            metadata: BTreeMap::from([(MADE_FOR.to_owned(), part.row.to_string())]),
        };
        let call = volumes.client.create_snapshot(by(context, &request_id), &new);
        let snapshot = match volumes.bounded(call).await {
            Ok(snapshot) => snapshot.id,
            Err(error) => {
                let delay = if error.may_have_effect() { LATE } else { AT_ONCE };
                return Err((refused(error, part.volume), delay));
            }
        };
        let row = part.row;
        let record = move |tx: &mut Tx<'_>| {
            let is_known = rows::made(tx, row, snapshot)?;
            Ok::<_, Error>((is_known, rows::renew(tx, image, until(time::now()))?))
        };
        let (is_known, goes_on) = compute.store.write(record).await.map_err(at_once)?;
        if !is_known {
            let call = volumes.client.delete_snapshot(by(context, &request_id), snapshot);
            if let Err(error) = volumes.bounded(call).await {
                tracing::error!(%snapshot, volume = %part.volume, %error, "cannot delete a snapshot that was created too late; delete it in Cinder");
            }
        }
        if !goes_on {
            return Err(at_once(too_slow()));
        }
        made.push((&part.device, snapshot));
    }
    Ok(made)
}

fn too_slow() -> Refusal {
    let why = "The snapshots of the volumes were not made in time. Try again.";
    Refusal::new(Kind::Unavailable, why).with_retry_after(1)
}

/// The image with Nova's properties.
fn describe(
    compute: &Compute,
    server: &Server,
    request: &Snapshot,
    id: ImageId,
    root: &BlockDevice,
    made: &[(&BlockDevice, SnapshotId)],
) -> VolumesImage {
    let mut properties = compute.images.inherited(server);
    properties.extend(request.metadata.clone());
    let mapping = mapping::write(made.iter().copied());
    properties.insert(MAPPING.to_owned(), mapping);
    properties.insert(BDM_V2.to_owned(), "True".to_owned());
    properties.insert(ROOT_DEVICE_NAME.to_owned(), format!("/dev/{}", root.device));
    VolumesImage { id, name: request.name.clone(), min_disk: root.size_gb, properties }
}

/// Creates the image. It and the snapshots then belong to the user.
async fn finish(
    compute: &Compute,
    context: &Context,
    server: &Server,
    image: VolumesImage,
    count: usize,
) -> Result<(), Failed> {
    let made = compute.images.make_of_volumes(&compute.store, context, server, &image).await;
    made.map_err(at_once)?;
    let (inner, by_whom, of, id) = (compute.clone(), context.clone(), server.clone(), image.id);
    let adopt = move |tx: &mut Tx<'_>| {
        let now = time::now();
        if usize::try_from(rows::keep(tx, image.id)?).unwrap_or_default() != count {
            return Err(too_slow().into());
        }
        images::adopt_of_volumes(tx, &inner, &by_whom, &of, &image, now)?;
        if let Some(server) = servers::find(tx, of.id)? {
            flows::record_action(tx, &by_whom, &server, Action::CreateImage, now)?;
        }
        Ok::<_, Error>(())
    };
    let adopted = compute.store.write(adopt).await;
    if adopted.is_err() {
        compute.images.withdraw(&compute.store, PreparedImage::Created(id)).await;
    }
    adopted.map_err(at_once)
}
