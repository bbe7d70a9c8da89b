//! Resolves the names of a [`CreateServer`] into a [`BootRequest`], in one read transaction.
//!
//! The order of the checks is visible to clients and must not change.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_accelerator::ledger;
use kilonova_compute_app::boot::{self, BootRequest, ProfileGroups, Profiles};
use kilonova_compute_app::images::SeenImages;
use kilonova_compute_app::ports::external::SeenNetworks;
use kilonova_compute_app::resolve::BootImage;
use kilonova_compute_app::volumes::request::without_volumes;
use kilonova_compute_app::volumes::resolve::{self, BootVolumes};
use kilonova_compute_app::{
    Compute, Error, ports, quotas, resolve as names, server_groups, unsupported,
};
use kilonova_compute_db::servers::{Creator, SchedulerHints, Spec};
use kilonova_ids::ImageId;
use kilonova_node_api::ImageNumbers;
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::random_text;
use super::request::CreateServer;

/// The result of [`resolve()`].
pub(super) enum Resolved {
    /// The resolved request.
    Boot(Box<BootRequest>),
    /// The image's properties, which name volumes. The caller must add the volumes to [`CreateServer::disks`] and
    /// resolve again.
    OfVolumes(BTreeMap<String, String>),
}

/// Looks up everything that the request names, as far as the caller may see it. `disks` are the volumes of
/// the request as Cinder describes them; if `is_merged`, they include the volumes of the image.
///
/// # Errors
/// 400, 403 and 409 with Nova's messages; store errors.
pub(super) fn resolve(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    (seen, seen_networks): (&SeenImages, &SeenNetworks),
    new: &CreateServer,
    (disks, is_merged): (&BootVolumes, bool),
) -> Result<Resolved, Error> {
    let image = new.disks.image;
    names::expect(tx, compute, &new.flavor, image)?;
    compute.networks.expect_resolve(tx, &context.project_id, &new.networks)?;
    let is_limited = !new.metadata.is_empty() || !new.files.is_empty();
    let limit = is_limited.then(|| quotas::ask_request_limits(tx, context)).transpose()?;
    let flavor = names::flavor(tx, context, &new.flavor)?;
    if let Some(limit) = limit {
        limit.check(tx, new.metadata.len(), &new.files)?;
    }
    let image_properties = match (image, &disks.root) {
        (Some(image), _) if is_merged => {
            without_volumes(names::image(tx, compute, context, seen, image, &flavor)?)
        }
        (Some(image), _) => match names::boot_image(tx, compute, context, seen, image, &flavor)? {
            BootImage::Copied(properties) => properties,
            BootImage::OfVolumes(properties) => return Ok(Resolved::OfVolumes(properties)),
        },
        (None, Some(root)) => resolve::root_properties(tx, compute, context, seen, root, &flavor)?,
        (None, None) => {
            let why = "Invalid imageRef provided: a server boots from an image or a volume.";
            return Err(Refusal::bad_request(why).into());
        }
    };
    boot::machine::check_new(&image_properties, &flavor, new.config_drive)?;
    unsupported::flavor(&flavor, &image_properties)?;
    let made_of = image.or_else(|| disks.root.as_ref().and_then(|root| root.image));
    if let Some(made_of) = made_of {
        unsupported::image(made_of, &image_properties)?;
    }
    let local_disks = new.disks.local_disks(&flavor, &image_properties)?;
    let key = match &new.key_name {
        Some(name) => Some(names::key_pair(tx, &context.user_id, name)?),
        None => None,
    };
    check_group(tx, context, &new.hints)?;
    let flavor_profile = match flavor.extra_specs.get("accel:device_profile") {
        Some(name) => Some(profile(tx, compute, name)?),
        None => None,
    };
    let (networks, groups) = (&new.networks, &new.security_groups);
    let by = ports::Requested { policy: &compute.policy, context };
    let ports = compute.networks.resolve(tx, by, networks, groups, new.max_count, seen_networks)?;
    let most = ports.most;
    let profiles =
        Profiles { flavor: flavor_profile, ports: ports.profiles(), resources: ports.resources() };
    for profile in &profiles.ports {
        check_bitstreams(tx, compute, profile)?;
    }
    check_images(
        tx,
        compute,
        context,
        seen,
        new.disks.of_images().filter(|id| Some(*id) != made_of),
    )?;
    Ok(Resolved::Boot(Box::new(BootRequest {
        project_id: context.project_id.clone(),
        user_id: context.user_id.clone(),
        request_id: context.request_id_text(),
        name: new.name.clone(),
        description: new.description.clone(),
        spec: Spec {
            flavor,
            local_disks,
            image,
            config_drive: new.config_drive || boot::machine::needs_config_drive(&image_properties),
            image_properties,
            key_name: new.key_name.clone(),
            key,
            hostname: new.hostname.clone(),
            user_data: new.user_data.clone(),
            availability_zone: new.destination.zone.clone(),
            wanted_host: new.destination.host.clone(),
            hints: new.hints.clone(),
            reservation_id: reservation_id(),
            launch_index: 0,
            access: new.access.clone(),
            disk_config: new.disk_config.clone(),
            networked: false,
            creator: Creator {
                roles: context.roles.clone(),
                user_name: context.user_name.clone(),
                project_name: context.project_name.clone(),
            },
            image_numbers: ImageNumbers::default(),
            dynamic_vendordata: compute.vendordata.is_some(),
            files: new.files.clone(),
        },
        metadata: new.metadata.clone(),
        tags: new.tags.clone(),
        profiles,
        ports,
        volumes: disks.clone(),
        ids: Vec::new(),
        forced: new.destination.forced,
        min_count: new.min_count,
        max_count: new.max_count.min(most),
    })))
}

/// Checks that the caller may see the images from which volumes are created (`_validate_bdm` in `nova/compute/api.py`).
fn check_images(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    seen: &SeenImages,
    images: impl Iterator<Item = ImageId>,
) -> Result<(), Error> {
    for id in images.collect::<BTreeSet<_>>() {
        if seen.visible(tx, compute, context, id)?.is_none() {
            let why = format!("Block Device Mapping is Invalid: failed to get image {id}.");
            return Err(Refusal::bad_request(why).into());
        }
    }
    Ok(())
}

/// Checks that the hint `group` names a server group that the caller may see.
fn check_group(tx: &mut Tx<'_>, context: &Context, hints: &SchedulerHints) -> Result<(), Error> {
    let Some(hint) = hints.as_sent().get("group") else { return Ok(()) };
    let id = hint.as_str().unwrap_or_default();
    match server_groups::find(tx, context, id) {
        Ok(_) => Ok(()),
        Err(Error::Refused(refusal)) => Err(Refusal::bad_request(refusal.message).into()),
        Err(error) => Err(error),
    }
}

/// The flavor's device profile.
fn profile(tx: &mut Tx<'_>, compute: &Compute, name: &str) -> Result<ProfileGroups, Error> {
    let Some(profile) = ledger::profile_by_name(tx, name)? else {
        return Err(Refusal::bad_request(format!(
            "Device profile name {name}: Expected 1 device profile but got nothing."
        ))
        .into());
    };
    let profile = ProfileGroups { id: profile.id, groups: profile.groups, port: None };
    check_bitstreams(tx, compute, &profile)?;
    Ok(profile)
}

/// Checks that the bitstreams that a profile requests exist.
fn check_bitstreams(
    tx: &mut Tx<'_>,
    compute: &Compute,
    profile: &ProfileGroups,
) -> Result<(), Error> {
    let bitstreams = compute.images.bitstreams();
    let bitstreams = bitstreams.as_ref().map(|own| own as _);
    Ok(ledger::orders::check(tx, bitstreams, &profile.groups)?)
}

/// `r-` and eight random characters, as in upstream.
fn reservation_id() -> String {
    format!("r-{}", random_text(b"0123456789abcdefghijklmnopqrstuvwxyz", 8))
}
