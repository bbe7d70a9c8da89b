//! Cleans up after controllers that died: images that stay in `saving`, and objects that no image names. Several
//! controllers may run every step concurrently.
//!
//! An upload is dead if its store proves that no process is writing it, or if its row has had no heartbeat for
//! [`SILENCE`]. This process measures silence between its own reads and by its own clock, and counts the time between
//! two reads as at most two check intervals, however long the process or the database paused. Clock differences and
//! outages therefore never end an upload.
//!
//! An object may be deleted if no row names it, because a row names an object before the store has it, and the rows are
//! read after the store was listed. The object must also be old enough (`leftover_age`), because a database that was
//! restored from a backup does not name the newest objects.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kilonova_ids::ImageId;
use kilonova_image_store::{ImageStore, ObjectName, Stored};
use kilonova_store::Store;
use tokio::time::Instant;

use crate::db::uploads::{self, InProgress};
use crate::{Error, Images, StoreName};

/// An upload is dead after this time without a heartbeat.
const SILENCE: Duration = Duration::from_secs(120);
/// An upload by a controller of an earlier version, which writes no heartbeats, is dead after this time.
const SILENCE_OF_EARLIER: Duration = Duration::from_secs(24 * 3600);
/// The time between two checks of the uploads in progress.
const CHECK_EVERY: Duration = Duration::from_secs(15);
/// The time between two sweeps of the stores.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// The sweep of a store ends after this many failed deletions in a row, because each may have taken as
/// long as the store's time limit.
const MAX_FAILURES: usize = 10;
/// Maximum number of failed deletions of a sweep that are logged one by one.
const LOGGED: usize = 20;

/// The uploads in progress, as this process last saw them.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<HashMap<ImageId, Seen>>);

#[derive(Debug)]
struct Seen {
    name: ObjectName,
    heartbeat: Option<i64>,
    at: Instant,
    silent: Duration,
}

impl Watch {
    /// The uploads that have had no heartbeat for too long. The time since the previous check counts as at most
    /// `longest`.
    fn silent(&self, now: Instant, longest: Duration, uploads: Vec<InProgress>) -> Vec<InProgress> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|image, seen| {
            uploads.iter().any(|upload| upload.image == *image && upload.location.name == seen.name)
        });
        let mut dead = Vec::new();
        for upload in uploads {
            let new = || Seen {
                name: upload.location.name.clone(),
                heartbeat: upload.heartbeat,
                at: now,
                silent: Duration::ZERO,
            };
            let seen = seen.entry(upload.image).or_insert_with(new);
            if seen.heartbeat != upload.heartbeat {
                *seen = new();
            }
            seen.silent += now.duration_since(seen.at).min(longest);
            seen.at = now;
            let limit = if upload.heartbeat.is_some() { SILENCE } else { SILENCE_OF_EARLIER };
            if seen.silent >= limit {
                dead.push(upload);
            }
        }
        dead
    }
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects and unfinished uploads that were deleted.
    pub deleted: usize,
    /// Objects and unfinished uploads that no image names, but that are too young to be deleted.
    pub young: usize,
    /// Objects and unfinished uploads that could not be deleted.
    pub failed: usize,
}

impl Images {
    /// Starts the loops that clean up after dead processes. They use `store` for the database, and end with the
    /// runtime.
    pub fn start_sweeps(&self, store: Store) {
        let sweeper = Self { store, ..self.clone() };
        let images = sweeper.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                if let Err(error) = images.end_dead_uploads().await {
                    tracing::error!(%error, "cannot check for interrupted image uploads; the next check is in a few seconds");
                }
            }
        });
        let images = sweeper;
        tokio::spawn(async move {
            loop {
                match images.sweep().await {
                    Ok(Swept { deleted: 0, failed: 0, .. }) => {}
                    Ok(Swept { deleted, failed, .. }) => {
                        tracing::info!(deleted, failed, "deleted image data that no image names");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot sweep the image stores; the next sweep, in about an hour, tries again");
                    }
                }
                // Controllers that start together do not sweep together.
                let spread = Duration::from_secs(u64::from(uuid::Uuid::new_v4().as_bytes()[0]));
                tokio::time::sleep(SWEEP_EVERY + spread).await;
            }
        });
    }

    /// Resets the images of dead uploads to `queued`, and returns their number. Call this regularly, because
    /// silence is measured between the calls.
    ///
    /// # Errors
    /// Database errors.
    pub async fn end_dead_uploads(&self) -> Result<usize, Error> {
        self.end_dead_uploads_at(Instant::now()).await
    }

    /// [`Images::end_dead_uploads`] as of the time `now`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn end_dead_uploads_at(&self, now: Instant) -> Result<usize, Error> {
        let uploads = self.store.read(|tx| Ok::<_, Error>(uploads::in_progress(tx)?)).await?;
        let mut dead = Vec::new();
        let mut others = Vec::new();
        for upload in uploads {
            if self.is_abandoned(&upload).await { dead.push(upload) } else { others.push(upload) }
        }
        dead.extend(self.watch.silent(now, 2 * CHECK_EVERY, others));
        let mut ended = 0;
        for upload in dead {
            let (image, location) = (upload.image, upload.location.clone());
            let reset: Result<bool, Error> =
                self.store.write(move |tx| Ok(uploads::reset_silent(tx, &upload)?)).await;
            if !reset? {
                continue;
            }
            ended += 1;
            tracing::warn!(%image, "an upload of this image was interrupted; the image is queued \
                again, and its data can be uploaded again");
            self.remove(&location).await;
        }
        Ok(ended)
    }

    /// True if the store proves that no process is writing the upload's object any more. The proof covers the processes
    /// of this machine only.
    async fn is_abandoned(&self, upload: &InProgress) -> bool {
        let own = upload.uploader.as_deref().is_none_or(|uploader| uploader == &*self.machine);
        let Ok(store) = self.stores.of(&upload.location) else { return false };
        own && store.is_abandoned(&upload.location.name).await.unwrap_or_default()
    }

    /// Deletes the objects and unfinished uploads that no image names, if they are old enough. The
    /// sweep continues after an object that cannot be deleted, and after a store that fails.
    ///
    /// # Errors
    /// The last error of a store or of the database.
    pub async fn sweep(&self) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let mut failed = None;
        for (name, store) in self.stores.all() {
            failed = self.sweep_one(name, store, &mut swept).await.err().or(failed);
        }
        failed.map_or(Ok(swept), Err)
    }

    async fn sweep_one(
        &self,
        store_name: StoreName,
        store: &dyn ImageStore,
        swept: &mut Swept,
    ) -> Result<(), Error> {
        let (mut after, mut in_a_row) = (None, 0);
        loop {
            let page = store.list(after.as_ref()).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.name.clone());
            for found in self.unnamed(page).await? {
                if found.age < self.options.leftover_age {
                    swept.young += 1;
                    continue;
                }
                let (store_name, image) = (store_name.as_str(), found.name.image());
                let Err(error) = store.discard(&found).await else {
                    (swept.deleted, in_a_row) = (swept.deleted + 1, 0);
                    tracing::debug!(store = store_name, image, object = %found.name, "deleted image data that no image names");
                    continue;
                };
                (swept.failed, in_a_row) = (swept.failed + 1, in_a_row + 1);
                if swept.failed <= LOGGED {
                    tracing::warn!(
                        store = store_name, image, object = %found.name, %error,
                        "cannot delete image data that is no longer needed; the next sweep tries again. If this \
                         repeats, check the permissions of the store, or delete the object yourself"
                    );
                }
                if in_a_row == MAX_FAILURES {
                    return Err(error.into());
                }
            }
        }
    }

    /// The entries of a page that no row names.
    async fn unnamed(&self, mut page: Vec<Stored>) -> Result<Vec<Stored>, Error> {
        let names: Vec<ObjectName> = page.iter().map(|found| found.name.clone()).collect();
        let named = self.store.read(move |tx| Ok::<_, Error>(uploads::named(tx, &names)?)).await?;
        page.retain(|found| !named.contains(found.name.as_str()));
        Ok(page)
    }
}
