//! The part of Glance v2 that clients need: images with properties, and their data in a store.
//!
//! ```text
//!   api/        one file per resource: routes, request, view
//!   app/        visibility, updates, uploads, sweeps
//!   db/         its SQL
//!   transfer/   image data in transfer: limits, hashes, formats
//! ```
//!
//! An image's row is authoritative and names the object with the data. The object is complete and
//! durable before the row makes it readable, and every upload has its own object, so no crash and
//! no concurrent upload can expose an incomplete image. Controllers that share a store serve each
//! other's images. The service must never serve the image of another project, nor accept an image
//! that refers to files of the host (a backing file).

mod api;
mod app;
mod db;
mod error;
mod options;
mod record;
mod stores;
mod transfer;

use std::path::Path;
use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_ids::ImageId;
use kilonova_store::{Store, Tx};
use kilonova_threads::Pool;
use kilonova_wire::{Context, Dialect};
use tokio::runtime::Handle;

pub use api::{RULES, operations, reached_by_minor_version, routes, service};
pub use app::{Amount, DataRange, ImageFilters, Moment, Swept, TimeFilter};
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use kilonova_image_store::{LEAST_PART, S3Options, Secret};
pub use options::ImageOptions;
pub use record::{
    Acceptance, DISK_FORMATS, ImageRecord, Location, Member, Status, StoreName, Visibility,
};
pub use stores::{StoreOptions, check_bucket, cloud_id, known_cloud_id};
pub use transfer::{ImageData, Rate, TransferLimit};

use app::Watch;
use stores::Stores;
use transfer::Gate;

/// The image service; cheap to clone.
#[derive(Clone)]
pub struct Images {
    store: Store,
    stores: Arc<Stores>,
    policy: Enforcer,
    /// Threads for files and hashes.
    threads: Pool,
    /// Runs the work that no caller waits for.
    runtime: Handle,
    /// The id of this machine's boot, which identifies the machine in the rows of its uploads.
    machine: Arc<str>,
    watch: Arc<Watch>,
    options: Arc<ImageOptions>,
    uploads: Arc<Gate>,
    /// The slots for snapshots from hosts, separate from those for uploads of users.
    snapshots: Arc<Gate>,
    downloads: Arc<Gate>,
}

/// Number of threads for image files.
const THREADS: usize = 8;
/// Maximum number of calls that may wait for a thread.
const WAITING: usize = 4096;

impl Images {
    /// Opens the service. `directory` is the default directory of the file store. Images become
    /// `queued` again if an earlier process of this machine ended during their upload.
    ///
    /// # Errors
    /// [`Error::Data`], with a message for the operator.
    pub async fn open(store: Store, directory: &Path) -> Result<Self, Error> {
        Self::open_with(store, directory, ImageOptions::default()).await
    }

    /// [`Images::open`] with these options.
    ///
    /// # Errors
    /// As [`Images::open`].
    pub async fn open_with(
        store: Store,
        directory: &Path,
        options: ImageOptions,
    ) -> Result<Self, Error> {
        let threads = Pool::with_waiting("image-files", THREADS, WAITING)?;
        let stores = Stores::open(&store, directory, &options.stores, options.size_cap, &threads);
        let stores = stores.await?;
        let images = Self {
            store,
            stores: Arc::new(stores),
            policy: Enforcer::of(RULES, Dialect::Image),
            threads,
            runtime: Handle::current(),
            machine: machine().into(),
            watch: Arc::default(),
            uploads: Gate::new("uploads", options.uploads),
            snapshots: Gate::new("snapshots", options.snapshots),
            downloads: Gate::new("downloads", options.downloads),
            options: Arc::new(options),
        };
        images.end_dead_uploads().await?;
        Ok(images)
    }

    /// Replaces upstream's default policy with the operator's.
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

/// The id of this machine's boot. A lock on a file is evidence only about processes of the same
/// boot.
fn machine() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(|_| uuid::Uuid::new_v4().to_string(), |id| id.trim().to_owned())
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

/// Announces the read of one image, so that it is sent together with another statement.
///
/// # Errors
/// Database errors.
pub fn expect(tx: &mut Tx<'_>, id: ImageId) -> Result<(), Error> {
    Ok(db::images::expect(tx, id)?)
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

/// Deletes a failed or obsolete snapshot: the image in the caller's transaction, and its data after the commit. Without
/// `images`, the image service's next sweep deletes the data.
///
/// # Errors
/// Database errors.
pub fn discard(tx: &mut Tx<'_>, images: Option<&Images>, id: ImageId) -> Result<(), Error> {
    let Some(image) = db::images::by_id(tx, id)? else { return Ok(()) };
    db::images::delete(tx, id)?;
    if let (Some(location), Some(images)) = (image.location, images) {
        let images = images.clone();
        tx.on_commit(move || images.start_remove(location));
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

/// Adds an active image with empty data in the caller's transaction: its properties describe it completely. The
/// store has no object for the image.
///
/// # Errors
/// [`Error::Conflict`] when the id is taken; [`Error::Invalid`] and [`Error::TooLarge`] for properties that no
/// image may have.
pub fn add_empty(tx: &mut Tx<'_>, images: &Images, image: &ImageRecord) -> Result<(), Error> {
    app::check_new(image, &images.options)?;
    reserve(tx, image)?;
    Ok(db::uploads::complete_empty(tx, image.id)?)
}

impl Images {
    /// Refuses another image if the project has reached its quota. Call this before [`reserve`], in the same
    /// transaction.
    ///
    /// # Errors
    /// [`Error::TooLarge`], with a message for the user.
    pub fn check_image_quota(&self, tx: &mut Tx<'_>, owner: &str) -> Result<(), Error> {
        app::check_image_quota(tx, owner, self.options.images)
    }
}
