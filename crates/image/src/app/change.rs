//! Creating, updating and deleting images.

use std::collections::BTreeMap;

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::{Context, time};

use super::patch::Step;
use super::{check_image_quota, insert, mutable, readable, rules};
use crate::db::images;
use crate::{Error, ImageRecord, Images, Status};

impl Images {
    /// Adds a new image.
    pub(crate) async fn create(
        &self,
        context: &Context,
        image: ImageRecord,
    ) -> Result<ImageRecord, Error> {
        let caller = self.requester(context);
        // Glance leaves foreign owners to the policy only if it enforces the new defaults
        // (`check_admin_or_same_owner` of `glance/api/v2/policy.py`). Here no policy lets a project create images for
        // another one.
        let owns = caller.context.may_see(&image.owner);
        if !owns || !caller.allows_new("add_image", &image) {
            return Err(match image.owner == caller.context.project_id {
                true => super::refused("add_image"),
                false => Error::Forbidden(format!(
                    "You are not permitted to create images owned by '{}'",
                    image.owner.escape_debug()
                )),
            });
        }
        rules::check_visibility(&image, |rule| caller.allows_new(rule, &image))?;
        rules::check_limits(None, &image, &caller.options)?;
        self.store
            .write(move |tx| {
                check_image_quota(tx, &image.owner, caller.options.images)?;
                insert(tx, &image)?;
                Ok(image.clone())
            })
            .await
    }

    /// An image, if visible to the caller.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not.
    pub async fn show(&self, context: &Context, id: ImageId) -> Result<ImageRecord, Error> {
        let caller = self.requester(context);
        self.store.read(move |tx| Ok(readable(tx, &caller, id)?.image)).await
    }

    pub(crate) async fn patch(
        &self,
        context: &Context,
        id: ImageId,
        steps: Vec<Step>,
    ) -> Result<ImageRecord, Error> {
        let caller = self.requester(context);
        self.edit(context, id, move |image| {
            steps.iter().try_for_each(|step| step.run(image, &caller))
        })
        .await
    }

    pub(crate) async fn add_tag(
        &self,
        context: &Context,
        id: ImageId,
        tag: &str,
    ) -> Result<(), Error> {
        let tag = rules::check_tag(Some(tag))?;
        self.edit(context, id, move |image| {
            if let Err(at) = image.tags.binary_search(&tag) {
                image.tags.insert(at, tag.clone());
            }
            Ok(())
        })
        .await
        .map(|_| ())
    }

    pub(crate) async fn remove_tag(
        &self,
        context: &Context,
        id: ImageId,
        tag: &str,
    ) -> Result<(), Error> {
        let tag = tag.to_owned();
        self.edit(context, id, move |image| match image.tags.iter().position(|t| *t == tag) {
            Some(at) => {
                image.tags.remove(at);
                Ok(())
            }
            None => Err(Error::NotFound(format!("{id} and tag {}", tag.escape_debug()))),
        })
        .await
        .map(|_| ())
    }

    async fn edit<F>(&self, context: &Context, id: ImageId, change: F) -> Result<ImageRecord, Error>
    where
        F: Fn(&mut ImageRecord) -> Result<(), Error> + Send + 'static,
    {
        let caller = self.requester(context);
        self.store
            .write(move |tx: &mut Tx<'_>| {
                let before = mutable(tx, &caller, id, "modify_image")?;
                let mut image = before.clone();
                change(&mut image)?;
                rules::check_limits(Some(&before), &image, &caller.options)?;
                if image.owner != before.owner {
                    check_image_quota(tx, &image.owner, caller.options.images)?;
                }
                image.updated_at = time::now();
                images::update(tx, &image)?;
                Ok(image)
            })
            .await
    }

    /// Updates the properties of an image, and no other attribute.
    ///
    /// # Errors
    /// The error of `change`; [`Error::Forbidden`] when policy refuses the change, or for a name that no
    /// property may have; [`Error::TooLarge`] when the image grows beyond its quota.
    pub async fn change_properties<F>(
        &self,
        context: &Context,
        id: ImageId,
        change: F,
    ) -> Result<ImageRecord, Error>
    where
        F: Fn(&mut BTreeMap<String, String>) -> Result<(), Error> + Send + 'static,
    {
        self.edit(context, id, move |image| {
            let before = image.properties.clone();
            change(&mut image.properties)?;
            let changed =
                image.properties.iter().filter(|(key, value)| before.get(*key) != Some(*value));
            changed.into_iter().try_for_each(|(key, value)| rules::check_property(key, value))
        })
        .await
    }

    /// Deletes an image, first its row, then its data. If deleting the data fails, the sweep deletes it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not visible to the caller, [`Error::Forbidden`] if policy or its
    /// protection forbids it.
    pub async fn delete(&self, context: &Context, id: ImageId) -> Result<(), Error> {
        let caller = self.requester(context);
        let location = self
            .store
            .write(move |tx| {
                let image = mutable(tx, &caller, id, "delete_image")?;
                if image.protected {
                    return Err(Error::Forbidden(format!(
                        "Image {id} is protected and cannot be deleted."
                    )));
                }
                images::delete(tx, id)?;
                Ok(image.location)
            })
            .await?;
        if let Some(location) = location {
            self.remove(&location).await;
        }
        Ok(())
    }

    /// Deactivates or reactivates an image. Only administrators can read a deactivated image's data.
    pub(crate) async fn set_status(
        &self,
        context: &Context,
        id: ImageId,
        rule: &'static str,
        to: Status,
    ) -> Result<(), Error> {
        let from = if to == Status::Active { Status::Deactivated } else { Status::Active };
        let caller = self.requester(context);
        self.store
            .write(move |tx| {
                let image = mutable(tx, &caller, id, rule)?;
                if image.status == to || images::set_status(tx, id, from, to, time::now())? {
                    return Ok(());
                }
                Err(Error::Forbidden(format!(
                    "Not allowed to {rule} image in status '{}'",
                    image.status.as_str()
                )))
            })
            .await
    }
}
