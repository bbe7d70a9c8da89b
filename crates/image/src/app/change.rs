//! Making, changing and removing images.

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;
use kilonova_wire::time::now_micros;

use super::patch::Step;
use super::{insert, owned, rules, seen};
use crate::db::images;
use crate::{Error, ImageRecord, Images};

impl Images {
    /// Keeps a new image.
    pub(crate) async fn create(&self, image: ImageRecord) -> Result<ImageRecord, Error> {
        self.store
            .write(move |tx| {
                insert(tx, &image)?;
                Ok(image.clone())
            })
            .await
    }

    /// The image, as far as the caller may know of it.
    pub(crate) async fn show(&self, context: &Context, id: ImageId) -> Result<ImageRecord, Error> {
        let context = context.clone();
        self.store.read(move |tx| seen(tx, &context, id)).await
    }

    pub(crate) async fn patch(
        &self,
        context: &Context,
        id: ImageId,
        steps: Vec<Step>,
    ) -> Result<ImageRecord, Error> {
        let who = context.clone();
        self.edit(context, id, move |image| steps.iter().try_for_each(|step| step.run(image, &who)))
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
            rules::room_for_tags(&image.tags)
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
        let context = context.clone();
        self.store
            .write(move |tx: &mut Tx<'_>| {
                let mut image = owned(tx, &context, id)?;
                change(&mut image)?;
                image.updated_at = now_micros();
                images::update(tx, &image)?;
                Ok(image)
            })
            .await
    }

    /// The row goes first: what fails after it leaves a file that the next start removes.
    pub(crate) async fn delete(&self, context: &Context, id: ImageId) -> Result<(), Error> {
        let context = context.clone();
        let data = self
            .store
            .write(move |tx| {
                let image = owned(tx, &context, id)?;
                if image.protected {
                    return Err(Error::Forbidden(format!(
                        "Image {id} is protected and cannot be deleted."
                    )));
                }
                images::delete(tx, id)?;
                Ok(image.data)
            })
            .await?;
        if let Some(data) = data {
            let directory = self.directory.clone();
            self.blocking(move || directory.remove(&data)).await?;
        }
        Ok(())
    }
}
