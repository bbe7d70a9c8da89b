//! What the image service does, apart from HTTP, SQL and files.

mod change;
mod data;
mod listing;
pub(crate) mod patch;
mod rules;
mod sharing;

use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use crate::db::{images, members};
use crate::{Error, ImageRecord, Images, Options, Visibility};

pub use data::Piece;
pub(crate) use listing::Filters;
pub(crate) use rules::apply;

impl Images {
    /// Runs work that waits for the disk, and for nothing else, on the threads for that.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        Ok(self.threads.run(work).await?)
    }
}

pub(crate) fn insert(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    images::insert(tx, image).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => {
            Error::Conflict(format!("Image ID {} already exists!", image.id))
        }
        other => Error::Store(other),
    })
}

/// Who asks, and what decides whether that is all right: travels into transactions.
#[derive(Clone)]
pub(crate) struct Who {
    pub context: Context,
    pub policy: Enforcer,
    pub options: Arc<Options>,
}

impl Who {
    /// Whether policy lets the caller do this to an image of `owner`.
    pub fn allows(&self, rule: &str, image: &ImageRecord, member: Option<&str>) -> bool {
        let mut target = vec![
            ("project_id", image.owner.as_str()),
            ("owner", image.owner.as_str()),
            ("visibility", image.visibility.as_str()),
        ];
        target.extend(member.map(|member| ("member_id", member)));
        self.policy.allows(&self.context, rule, &target)
    }
}

impl Images {
    pub(crate) fn who(&self, context: &Context) -> Who {
        Who {
            context: context.clone(),
            policy: self.policy.clone(),
            options: Arc::clone(&self.options),
        }
    }
}

/// An image that the caller may know of.
pub(crate) struct Seen {
    pub image: ImageRecord,
    /// The caller's project, if the image is shared with it.
    pub member: Option<String>,
}

/// The image if the caller may know of it, by its visibility alone.
pub(crate) fn visible(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ImageId,
) -> Result<Option<Seen>, Error> {
    let Some(image) = images::by_id(tx, id)? else { return Ok(None) };
    let project = &context.project_id;
    let asked = image.visibility == Visibility::Shared && !project.is_empty();
    let shared = asked && members::one(tx, id, project)?.is_some();
    let member = shared.then(|| project.clone());
    Ok((shared || image.open_to(context)).then_some(Seen { image, member }))
}

/// The image if the caller may know of it.
fn seen(tx: &mut Tx<'_>, who: &Who, id: ImageId) -> Result<Seen, Error> {
    visible(tx, &who.context, id)?
        .filter(|seen| who.allows("get_image", &seen.image, seen.member.as_deref()))
        .ok_or_else(|| Error::NotFound(id.to_string()))
}

/// The image if policy lets the caller do this to it.
fn allowed(tx: &mut Tx<'_>, who: &Who, id: ImageId, rule: &str) -> Result<ImageRecord, Error> {
    let Seen { image, member } = seen(tx, who, id)?;
    if who.allows(rule, &image, member.as_deref()) {
        return Ok(image);
    }
    Err(refused(rule))
}

fn refused(rule: &str) -> Error {
    Error::Forbidden(format!("You are not authorized to complete {rule} action."))
}

/// Refuses one more image for a project that has as many as it may.
pub(crate) fn room_for_one(tx: &mut Tx<'_>, owner: &str, most: Option<usize>) -> Result<(), Error> {
    images::counted(tx, owner)?;
    let Some(most) = most else { return Ok(()) };
    let has = images::number(tx, owner)?;
    if has < most as i64 {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "The project has {has} images, and may have {most}. Delete images it no longer needs."
    )))
}
