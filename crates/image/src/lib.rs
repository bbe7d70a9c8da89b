//! Glance v2, the part that clients need: images with properties; their data in files.
//!
//! ```text
//!   api/     one file per resource: routes, request, view
//!   app/     visibility, updates, uploads
//!   db/      its SQL
//!   files/   image data: locks, formats, clean-up
//! ```
//!
//! The row is authoritative and names the data file. A file is complete and durable before a row
//! names it, and every upload has its own file, so no crash and no concurrent upload can expose half
//! an image. The service must never serve the image of another project, nor accept an image that
//! refers to files of the host (a backing file).

mod api;
mod app;
mod db;
mod error;
mod files;
mod options;
mod record;

use std::path::Path;
use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_ids::ImageId;
use kilonova_store::{Store, Tx};
use kilonova_threads::Pool;
use kilonova_wire::{Context, Dialect};

pub use api::{RULES, operations, routes, service};
pub use app::{DataRange, ImageFilters};
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use files::{ImageData, Rate, TransferLimit};
pub use options::ImageOptions;
pub use record::{Acceptance, DISK_FORMATS, ImageRecord, Member, Status, Visibility};

use files::{Directory, Gate};

/// The image service; cheap to clone.
#[derive(Clone)]
pub struct Images {
    store: Store,
    directory: Arc<Directory>,
    policy: Enforcer,
    /// Threads for all file access.
    threads: Pool,
    options: Arc<ImageOptions>,
    uploads: Arc<Gate>,
    /// Snapshots from hosts. Users cannot use up their slots.
    snapshots: Arc<Gate>,
    downloads: Arc<Gate>,
}

/// Threads for image files.
const THREADS: usize = 8;
/// The most calls that may wait for a thread.
const WAITING: usize = 4096;

impl Images {
    /// Opens the service over a directory and removes what a crash left of uploads.
    ///
    /// # Errors
    /// [`Error::Directory`], with a message for the operator.
    pub async fn open(store: Store, directory: &Path) -> Result<Self, Error> {
        Self::open_with(store, directory, ImageOptions::default()).await
    }

    /// [`Images::open`] with chosen options.
    ///
    /// # Errors
    /// As [`Images::open`].
    pub async fn open_with(
        store: Store,
        directory: &Path,
        options: ImageOptions,
    ) -> Result<Self, Error> {
        let path = directory.to_owned();
        let threads = Pool::with_waiting("image-files", THREADS, WAITING)?;
        let directory = threads.run(move || Directory::open(&path)).await??;
        let images = Self {
            store,
            directory: Arc::new(directory),
            policy: Enforcer::of(RULES, Dialect::Image),
            threads,
            uploads: Gate::new("uploads", options.uploads),
            snapshots: Gate::new("snapshots", options.snapshots),
            downloads: Gate::new("downloads", options.downloads),
            options: Arc::new(options),
        };
        images.recover().await?;
        Ok(images)
    }

    /// Replaces upstream's default policy by the operator's.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// The policy for requests.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }
}

/// One image, if its visibility and the rule `get_image` of the image service's `policy` let the
/// caller read it.
///
/// # Errors
/// Database errors.
pub fn visible(
    tx: &mut Tx<'_>,
    policy: &Enforcer,
    context: &Context,
    id: ImageId,
) -> Result<Option<ImageRecord>, Error> {
    Ok(app::find_readable(tx, policy, context, id)?.map(|seen| seen.image))
}

/// One image of any project, for actions of the service itself.
///
/// # Errors
/// Database errors.
pub fn find(tx: &mut Tx<'_>, id: ImageId) -> Result<Option<ImageRecord>, Error> {
    Ok(db::images::by_id(tx, id)?)
}

/// The newest images of a project, at most `limit`.
///
/// # Errors
/// Database errors.
pub fn of_owner(tx: &mut Tx<'_>, owner: &str, limit: i64) -> Result<Vec<ImageRecord>, Error> {
    let query = db::images::ImageQuery {
        viewer: None,
        shared: None,
        name: None,
        owner: Some(owner.to_owned()),
        after: None,
        limit,
    };
    Ok(db::images::list(tx, &query, i64::MAX)?.0)
}

/// Deletes an image in the caller's transaction and its data after commit: a failed or obsolete
/// snapshot. Without `images`, the next start of the image service deletes the data.
///
/// # Errors
/// Database errors.
pub fn discard(tx: &mut Tx<'_>, images: Option<&Images>, id: ImageId) -> Result<(), Error> {
    let Some(image) = db::images::by_id(tx, id)? else { return Ok(()) };
    db::images::delete(tx, id)?;
    if let (Some(data), Some(images)) = (image.data, images) {
        let images = images.clone();
        tx.on_commit(move || {
            let directory = Arc::clone(&images.directory);
            images.threads.start(move || directory.remove(&data));
        });
    }
    Ok(())
}

/// The public images with this property value. Only administrators can make images public.
///
/// # Errors
/// Database errors.
pub fn public_with(
    tx: &mut Tx<'_>,
    property: &str,
    value: &str,
) -> Result<Vec<ImageRecord>, Error> {
    let mut images = db::images::public(tx)?;
    images.retain(|image| image.properties.get(property).is_some_and(|has| has == value));
    Ok(images)
}

/// Adds an image without data in the caller's transaction: a snapshot whose data a host sends later
/// through [`Images::receive_snapshot`].
///
/// # Errors
/// [`Error::Conflict`] when the id is taken.
pub fn reserve(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    db::images::lock_owner(tx, &image.owner)?;
    app::insert(tx, image)
}

impl Images {
    /// Refuses an image beyond the project's quota. Called in the transaction of [`reserve`], before
    /// it.
    ///
    /// # Errors
    /// [`Error::TooLarge`], with a message for the user.
    pub fn room_for_one(&self, tx: &mut Tx<'_>, owner: &str) -> Result<(), Error> {
        app::room_for_one(tx, owner, self.options.images)
    }
}
