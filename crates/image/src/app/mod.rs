//! The image service's operations. This module contains no HTTP, SQL or file access.

mod change;
mod download;
mod listing;
pub(crate) mod patch;
mod rules;
mod sharing;
mod sort;
mod sweep;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kilonova_access::Enforcer;
use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use crate::db::{images, members};
use crate::{Error, ImageOptions, ImageRecord, Images, Location, Visibility};

pub use download::DataRange;
pub(crate) use listing::HASH_ALGORITHM;
pub use listing::{Amount, ImageFilters, Moment, TimeFilter};
pub(crate) use rules::apply;
pub(crate) use sort::{Direction, Sort, SortKey};
pub use sweep::Swept;
pub(crate) use sweep::Watch;

/// Maximum time that a request waits for the deletion of data that no image names any more.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10);

impl Images {
    /// Deletes the data of a deleted image. If that fails, the sweep deletes the rest.
    pub(crate) async fn remove(&self, location: &Location) {
        let deleted =
            async { Ok::<_, Error>(self.stores.of(location)?.delete(&location.name).await?) };
        let error = match tokio::time::timeout(DELETION_TIMEOUT, deleted).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", DELETION_TIMEOUT.as_secs()),
        };
        tracing::warn!(
            store = location.store.as_str(), object = %location.name, error,
            "cannot delete the data of a deleted image; the sweep tries again"
        );
    }

    /// Starts [`Images::remove`] without waiting for it.
    pub(crate) fn start_remove(&self, location: Location) {
        let images = self.clone();
        self.runtime.spawn(async move { images.remove(&location).await });
    }
}

/// Validates an image that the service creates without a user's request: its properties and limits.
pub(crate) fn check_new(image: &ImageRecord, options: &ImageOptions) -> Result<(), Error> {
    for (key, value) in &image.properties {
        rules::check_property(key, value)?;
    }
    rules::check_limits(None, image, options)
}

/// Adds an image with an unused id. The id of a deleted image is refused, because hosts identify the copies in their
/// caches by the id alone. Glance, which keeps the rows of deleted images, refuses it too.
pub(crate) fn insert(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    let used = || Error::Conflict(format!("Image ID {} already exists!", image.id));
    images::insert(tx, image).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => used(),
        other => Error::Store(other),
    })?;
    if images::claim(tx, image.id)? { Ok(()) } else { Err(used()) }
}

/// The caller, the policy and the options, for use inside transactions.
#[derive(Clone)]
pub(crate) struct Requester {
    pub context: Context,
    pub policy: Enforcer,
    pub options: Arc<ImageOptions>,
}

impl Requester {
    /// True if policy allows the operation on the image.
    pub fn allows(&self, rule: &str, image: &ImageRecord, member: Option<&str>) -> bool {
        allows(&self.policy, &self.context, rule, image, member)
    }

    /// True if policy allows the caller to create the image. The rule sees its owner and visibility only, as in
    /// `ImageAPIPolicy` of `glance/api/v2/policy.py`.
    pub fn allows_new(&self, rule: &str, image: &ImageRecord) -> bool {
        self.policy.allows(&self.context, rule, &essentials(image))
    }
}

/// The attributes by which the default rules decide.
fn essentials(image: &ImageRecord) -> [(&str, &str); 3] {
    [
        ("project_id", image.owner.as_str()),
        ("owner", image.owner.as_str()),
        ("visibility", image.visibility.as_str()),
    ]
}

/// The other attributes of an image in Python's notation, for rules (`ImageTarget` of `glance/api/policy.py`). Tags are
/// omitted: Glance's set of them has no order.
fn attributes(image: &ImageRecord) -> [(&'static str, String); 17] {
    let text = |value: Option<&str>| value.unwrap_or("None").to_owned();
    let number = |value: Option<i64>| value.map_or_else(|| "None".to_owned(), |n| n.to_string());
    let flag = |value: bool| if value { "True" } else { "False" }.to_owned();
    let moment = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%S").to_string();
    [
        ("id", image.id.to_string()),
        ("image_id", image.id.to_string()),
        ("name", text(image.name.as_deref())),
        ("status", image.status.as_str().to_owned()),
        ("disk_format", text(image.disk_format.as_deref())),
        ("container_format", text(image.container_format.as_deref())),
        ("min_ram", image.min_ram.to_string()),
        ("min_disk", image.min_disk.to_string()),
        ("protected", flag(image.protected)),
        ("os_hidden", flag(image.hidden)),
        ("size", number(image.size)),
        ("virtual_size", number(image.virtual_size)),
        ("checksum", text(image.checksum.as_deref())),
        ("os_hash_algo", text(image.hash.as_ref().map(|_| HASH_ALGORITHM))),
        ("os_hash_value", text(image.hash.as_deref())),
        ("created_at", moment(image.created_at)),
        ("updated_at", moment(image.updated_at)),
    ]
}

fn allows(
    policy: &Enforcer,
    context: &Context,
    rule: &str,
    image: &ImageRecord,
    member: Option<&str>,
) -> bool {
    let mut target = essentials(image).to_vec();
    let member = member.unwrap_or("None");
    target.extend([("member_id", member), ("member", member)]);
    let has = |target: &[(&str, &str)], name: &str| target.iter().any(|(known, _)| *known == name);
    if policy.needs(rule).iter().all(|name| has(&target, name)) {
        // The default rules need no more, and lists have many images.
        return policy.allows(context, rule, &target);
    }
    // Attributes precede properties, so that no property can shadow an attribute.
    let attributes = attributes(image);
    target.extend(attributes.iter().map(|(name, value)| (*name, value.as_str())));
    let properties = image.properties.iter();
    target.extend(properties.map(|(name, value)| (name.as_str(), value.as_str())));
    policy.allows(context, rule, &target)
}

impl Images {
    pub(crate) fn requester(&self, context: &Context) -> Requester {
        Requester {
            context: context.clone(),
            policy: self.policy.clone(),
            options: Arc::clone(&self.options),
        }
    }
}

/// An image that the caller may see.
pub(crate) struct VisibleImage {
    pub image: ImageRecord,
    /// The caller's project, if the image is shared with it.
    pub member: Option<String>,
}

/// One image, if its visibility admits the caller; policy is not enforced.
pub(crate) fn visible(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ImageId,
) -> Result<Option<VisibleImage>, Error> {
    let Some(image) = images::by_id(tx, id)? else { return Ok(None) };
    let project = &context.project_id;
    let may_be_shared = image.visibility == Visibility::Shared && !project.is_empty();
    let shared = may_be_shared && members::one(tx, id, project)?.is_some();
    let member = shared.then(|| project.clone());
    Ok((shared || image.open_to(context)).then_some(VisibleImage { image, member }))
}

/// One image, if visibility and policy allow the caller to read it; else `None`.
pub(crate) fn find_readable(
    tx: &mut Tx<'_>,
    policy: &Enforcer,
    context: &Context,
    id: ImageId,
) -> Result<Option<VisibleImage>, Error> {
    let may = |seen: &VisibleImage| {
        allows(policy, context, "get_image", &seen.image, seen.member.as_deref())
    };
    Ok(visible(tx, context, id)?.filter(may))
}

/// One image, if visibility and policy allow the caller to read it.
fn readable(tx: &mut Tx<'_>, caller: &Requester, id: ImageId) -> Result<VisibleImage, Error> {
    find_readable(tx, &caller.policy, &caller.context, id)?
        .ok_or_else(|| Error::NotFound(id.to_string()))
}

/// One image, if policy allows the operation.
fn allowed(
    tx: &mut Tx<'_>,
    caller: &Requester,
    id: ImageId,
    rule: &str,
) -> Result<ImageRecord, Error> {
    let VisibleImage { image, member } = readable(tx, caller, id)?;
    if caller.allows(rule, &image, member.as_deref()) {
        return Ok(image);
    }
    Err(refused(rule))
}

/// One image, if policy allows the operation and the caller may change the image.
///
/// Only the image's project and administrators may, whatever the policy says: `check_is_image_mutable` of
/// `glance/api/v2/policy.py`, and `_check_mutate_authorization` of `glance/db/sqlalchemy/api.py`.
fn mutable(
    tx: &mut Tx<'_>,
    caller: &Requester,
    id: ImageId,
    rule: &str,
) -> Result<ImageRecord, Error> {
    let image = allowed(tx, caller, id, rule)?;
    if caller.context.may_see(&image.owner) {
        return Ok(image);
    }
    Err(Error::Forbidden("You do not own this image".into()))
}

fn refused(rule: &str) -> Error {
    Error::Forbidden(format!("You are not authorized to complete {rule} action."))
}

/// Refuses another image if the project has reached its quota.
pub(crate) fn check_image_quota(
    tx: &mut Tx<'_>,
    owner: &str,
    most: Option<usize>,
) -> Result<(), Error> {
    images::lock_owner(tx, owner)?;
    let Some(most) = most else { return Ok(()) };
    let has = images::number(tx, owner)?;
    if has < most as i64 {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "The project has {has} of {most} allowed images. Delete images that it no longer needs."
    )))
}
