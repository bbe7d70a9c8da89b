//! Rebuilds a volume-backed server: Cinder replaces the data of its root volume with those of an image, while the
//! volume is reserved for the server and not attached to a guest.
//!
//! ```text
//!   rebuild: the device is `reimaging` ─► document: shut off, without the root volume ─(host reports)─►
//!   reserve another, end the old ─► os-reimage, and wait ─► the device is `attached` ─► document: as before
//! ```
//!
//! A failed rebuild sets the device to `attached`, so that the volume is attached again once Cinder allows it.
//! The server goes to `ERROR`, as in Nova.

use kilonova_compute_db::servers::Server;
use kilonova_compute_db::volumes::{self as rows, Phase};
use kilonova_ids::{BlockDeviceId, ImageId, ServerId};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Refusal};

use super::attach::{bad, refused};
use super::{by, token_of};
use crate::{Compute, Error, states};

/// The root volume of a server that is rebuilt.
#[derive(Debug, Clone, Copy)]
pub struct RootVolume {
    /// The device.
    pub device: BlockDeviceId,
    /// Its size.
    pub size_gb: i64,
    /// True if the image replaces its data.
    pub is_replaced: bool,
}

/// The root volume of a volume-backed server that is rebuilt from an image. If `knows_reimage` is false, the client's
/// microversion does not support re-imaging, and the image must be the one that the volume was created from.
///
/// # Errors
/// 400 with Nova's message; 503 if Cinder does not answer.
pub async fn root_to_rebuild(
    compute: &Compute,
    context: &Context,
    server: &Server,
    image: ImageId,
    knows_reimage: bool,
) -> Result<RootVolume, Error> {
    let words = "Unable to rebuild with a different image for a volume-backed server.";
    let unacceptable = || bad(format!("Image {image} is unacceptable: {words}"));
    let Some(volumes) = compute.volumes.as_deref() else { return Err(unacceptable()) };
    let id = server.id;
    let read = move |tx: &mut Tx<'_>| Ok::<_, Error>(rows::of_server(tx, id)?);
    let devices = compute.store.read(read).await?;
    let root = devices.iter().find(|device| device.is_root());
    let Some((root, volume)) = root.and_then(|root| Some((root, root.volume?))) else {
        return Err(states::not_ready(server));
    };
    let request_id = context.request_id_text();
    let shown = volumes.bounded(volumes.client.volume(by(context, &request_id), volume)).await;
    let shown = shown.map_err(|error| refused(error, volume))?;
    let made_of = shown.image_metadata.get("image_id");
    if !knows_reimage && made_of.is_none_or(|made_of| *made_of != image.to_string()) {
        return Err(unacceptable());
    }
    volumes.tokens.keep(id, token_of(context, &server.project_id));
    Ok(RootVolume { device: root.id, size_gb: shown.size, is_replaced: knows_reimage })
}

/// Marks a root volume for re-imaging. Call this in the transaction that begins the rebuild, before it writes a
/// document.
///
/// # Errors
/// 409 if the volume is changing.
pub fn begin_reimage(tx: &mut Tx<'_>, root: RootVolume, image: ImageId) -> Result<(), Error> {
    if rows::reimage(tx, root.device, image)? {
        return Ok(());
    }
    Err(Refusal::conflict("The root volume is being attached or detached. Try again.").into())
}

/// Ends the re-imaging of a server's root volume; `why` is the reason if it failed. False if the volume was not being
/// re-imaged.
///
/// # Errors
/// Store errors only.
pub(crate) fn end_reimage(
    tx: &mut Tx<'_>,
    server: ServerId,
    why: Option<&str>,
) -> Result<bool, Error> {
    Ok(rows::end_reimage(tx, server, why)?)
}

/// Refuses a rescue or a rebuild of a server if one of its volumes is not in use: the guest would start without that volume.
///
/// # Errors
/// A refusal of the kind `refused` with Nova's message.
pub fn check_in_use(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    refused: Kind,
) -> Result<(), Error> {
    if compute.volumes.is_none() {
        return Ok(());
    }
    for device in rows::of_server(tx, server.id)? {
        let status = match device.phase {
            Phase::Attached => continue,
            Phase::Requested | Phase::Attaching => "attaching",
            Phase::BeginDetaching | Phase::Detaching | Phase::RollDetaching => "detaching",
            Phase::Reimaging => "downloading",
            Phase::Failed => "error",
        };
        let volume = device.volume.map_or_else(String::new, |volume| volume.to_string());
        let why = format!(
            "Invalid volume: volume '{volume}' status must be 'in-use'. Currently in '{status}' status"
        );
        return Err(Refusal::new(refused, why).into());
    }
    Ok(())
}
