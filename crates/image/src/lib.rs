//! Glance v2, the part that clients need: images with properties, their bytes in files.
//!
//! ```text
//!   api/     one file per resource: routes, request, view
//!   app/     what it does: visibility, changes, uploads
//!   db/      its SQL
//!   files/   the bytes: locks, formats, cleaning up
//! ```
//!
//! The row is the truth and names the file that holds the bytes. A file is complete and on the disk
//! before a row names it, and every upload has a file of its own, so that no crash and no second
//! upload can show half an image. It must never hand out the image of another project, nor accept
//! one that points at files of the host (a backing file).

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
pub use app::Piece;
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use files::{Most, Rate};
pub use options::Options;
pub use record::{Acceptance, DISK_FORMATS, ImageRecord, Member, Status, Visibility};

use files::{Directory, Gate};

/// The image service; cheap to clone.
#[derive(Clone)]
pub struct Images {
    store: Store,
    directory: Arc<Directory>,
    policy: Enforcer,
    /// Threads for all that waits for the disk.
    threads: Pool,
    options: Arc<Options>,
    uploads: Arc<Gate>,
    /// Those that hosts send. Users cannot take their places.
    snapshots: Arc<Gate>,
    downloads: Arc<Gate>,
}

/// Threads that read and write image files.
const THREADS: usize = 8;
/// Work that may wait for one of them.
const WAITING: usize = 4096;

impl Images {
    /// Opens the service over a directory; clears away what a crash left of uploads.
    ///
    /// # Errors
    /// [`Error::Directory`] with a sentence for the operator.
    pub async fn open(store: Store, directory: &Path) -> Result<Self, Error> {
        Self::open_with(store, directory, Options::default()).await
    }

    /// [`Images::open`] with chosen options.
    ///
    /// # Errors
    /// As [`Images::open`].
    pub async fn open_with(
        store: Store,
        directory: &Path,
        options: Options,
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

    /// With the policy that the operator configured, in place of upstream's defaults.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// Who may do what.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }
}

/// One image, if the caller may know of it.
///
/// # Errors
/// When the database fails.
pub fn visible(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ImageId,
) -> Result<Option<ImageRecord>, Error> {
    Ok(app::visible(tx, context, id)?.map(|seen| seen.image))
}

/// One image, whoever it belongs to: for what the system does by itself.
///
/// # Errors
/// When the database fails.
pub fn find(tx: &mut Tx<'_>, id: ImageId) -> Result<Option<ImageRecord>, Error> {
    Ok(db::images::by_id(tx, id)?)
}

/// The newest images of a project, at most `limit`.
///
/// # Errors
/// When the database fails.
pub fn of_owner(tx: &mut Tx<'_>, owner: &str, limit: i64) -> Result<Vec<ImageRecord>, Error> {
    let wanted = db::images::Wanted {
        viewer: None,
        shared: None,
        name: None,
        owner: Some(owner.to_owned()),
        after: None,
        limit,
    };
    Ok(db::images::list(tx, &wanted)?)
}

/// Removes an image in the caller's transaction, its bytes after it: a snapshot that failed or is
/// no longer of use. Without `images` the next start of the image service removes the bytes.
///
/// # Errors
/// When the database fails.
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

/// The public images with a property of this value. Only administrators make images public.
///
/// # Errors
/// When the database fails.
pub fn public_with(
    tx: &mut Tx<'_>,
    property: &str,
    value: &str,
) -> Result<Vec<ImageRecord>, Error> {
    let mut images = db::images::public(tx)?;
    images.retain(|image| image.properties.get(property).is_some_and(|has| has == value));
    Ok(images)
}

/// A new image without bytes, in the caller's transaction: a snapshot that a node will fill by
/// [`Images::keep`].
///
/// # Errors
/// [`Error::Conflict`] when the id is taken.
pub fn reserve(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    db::images::counted(tx, &image.owner)?;
    app::insert(tx, image)
}

impl Images {
    /// Refuses one more image for a project that has as many as it may; to be asked before
    /// [`reserve`], in its transaction.
    ///
    /// # Errors
    /// [`Error::TooLarge`] with a sentence for the user.
    pub fn room_for_one(&self, tx: &mut Tx<'_>, owner: &str) -> Result<(), Error> {
        app::room_for_one(tx, owner, self.options.images)
    }
}
