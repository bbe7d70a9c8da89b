//! Completes the remaining work in Glance: deletes unwanted images and rotates backups. The rows
//! survive every crash, and each call may be made twice.

use jiff::SignedDuration;
use kilonova_compute_db::glance_images::{self, GlanceImage, GlanceState};
use kilonova_glance::Error as CallError;
use kilonova_ids::ImageId;
use kilonova_keystone::Caller;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::CloudGlance;
use crate::{Compute, Error};

/// Maximum pause between two attempts.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// Maximum number of backups of one server and type that a rotation reads.
const MOST: usize = 1000;

impl CloudGlance {
    /// Processes everything that is due, once.
    pub(crate) async fn sweep(&self, compute: &Compute) -> Result<(), Error> {
        let due = |tx: &mut Tx<'_>| Ok::<_, Error>(glance_images::due(tx, time::now())?);
        for image in compute.store.read(due).await? {
            let id = image.id;
            match self.settle(&image).await {
                Ok(true) => {
                    let forget = move |tx: &mut Tx<'_>| {
                        // Another state means that the row was written again meanwhile.
                        match glance_images::find(tx, id)? {
                            Some(now) if now.state == image.state => {
                                Ok::<_, Error>(glance_images::forget(tx, id)?)
                            }
                            Some(_) | None => Ok(()),
                        }
                    };
                    compute.store.write(forget).await?;
                }
                Ok(false) => {
                    let discard = move |tx: &mut Tx<'_>| {
                        let found = glance_images::find(tx, id)?;
                        if found.is_some_and(|found| found.state == GlanceState::Creating) {
                            glance_images::discard(tx, id, time::now())?;
                        }
                        Ok::<_, Error>(())
                    };
                    compute.store.write(discard).await?;
                    self.work.notify_one();
                }
                Err(error) => {
                    tracing::warn!(image = %id, server = %image.server, %error, "cannot clean up \
                        in the image service; retrying");
                    let pause = pause(image.attempts);
                    let postpone = move |tx: &mut Tx<'_>| {
                        let due = time::after(time::now(), pause);
                        Ok::<_, Error>(glance_images::postpone(tx, id, due)?)
                    };
                    compute.store.write(postpone).await?;
                }
            }
        }
        Ok(())
    }

    /// Processes an image that is due. Returns true if its row is no longer needed. Otherwise
    /// returns false: an image that is being created must become unwanted first, so that no
    /// operation adopts it meanwhile.
    async fn settle(&self, image: &GlanceImage) -> Result<bool, CallError> {
        match &image.state {
            GlanceState::Creating => Ok(false),
            GlanceState::Unwanted => {
                self.delete(image.id).await?;
                Ok(true)
            }
            GlanceState::Rotating { backup_type, rotation } => {
                self.rotate(image, backup_type, *rotation).await?;
                Ok(true)
            }
            // An operation or a server owns it.
            GlanceState::Expected | GlanceState::Complete => Ok(false),
        }
    }

    /// Deletes an image. A missing image, or one that must not be deleted, counts as done.
    async fn delete(&self, image: ImageId) -> Result<(), CallError> {
        let token = self.tokens.of(image);
        let delete = |caller| self.client.delete((caller, None), image);
        match Self::for_user(token.as_ref(), delete).await {
            Ok(_) | Err(CallError::NotFound(_)) => Ok(()),
            Err(error @ (CallError::NotAuthorized(_) | CallError::Refused { .. })) => {
                tracing::warn!(%image, %error, "the image service refuses to delete an image; it \
                    is kept");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a server's oldest backups, beyond the number that the rotation keeps.
    async fn rotate(
        &self,
        image: &GlanceImage,
        backup_type: &str,
        rotation: i64,
    ) -> Result<(), CallError> {
        let server = image.server.to_string();
        let query = [
            ("image_type", "backup"),
            ("backup_type", backup_type),
            ("instance_uuid", server.as_str()),
            ("owner", image.project_id.as_str()),
            ("sort_key", "created_at"),
            ("sort_dir", "desc"),
            ("limit", "100"),
        ];
        let token = self.tokens.of(image.id);
        let list = |caller| self.client.list((caller, None), &query, MOST);
        let (mut backups, _) = Self::for_user(token.as_ref(), list).await?;
        // The newest backup may have been created in the same second as another.
        backups.sort_by_key(|one| (one.id != image.id, std::cmp::Reverse(one.created_at)));
        let kept = usize::try_from(rotation).unwrap_or_default();
        for old in backups.iter().skip(kept).filter(|old| !old.protected) {
            if let Some(token) = &token {
                match self.client.delete((Caller::Vouched(token), None), old.id).await {
                    Ok(_) => continue,
                    Err(CallError::NotFound(_) | CallError::NotAuthorized(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            self.delete(old.id).await?;
        }
        Ok(())
    }
}

/// The pause before the next attempt: one second, doubled after each attempt up to
/// [`LONGEST_PAUSE`].
fn pause(attempts: i64) -> SignedDuration {
    let seconds = 1_i64 << attempts.clamp(0, 10);
    SignedDuration::from_secs(seconds).min(LONGEST_PAUSE)
}
