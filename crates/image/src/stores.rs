//! The stores of this process, and the one that receives new images.

use std::path::{Path, PathBuf};

use kilonova_image_store::{Error as DataError, Files, ImageStore, S3, S3Options};
use kilonova_store::Store;
use kilonova_threads::Pool;

use crate::db::uploads;
use crate::{Error, Location, StoreName};

/// The stores that the operator configured.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// True if the file store is enabled.
    pub files: bool,
    /// The directory of the file store, if it is not the default one (`filesystem_store_datadir`).
    pub directory: Option<PathBuf>,
    /// The bucket of the object store, if that store is enabled.
    pub s3: Option<S3Options>,
    /// The store for new images.
    pub default: StoreName,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { files: true, directory: None, s3: None, default: StoreName::File }
    }
}

/// The stores of this process.
#[derive(Debug)]
pub(crate) struct Stores {
    files: Option<Files>,
    s3: Option<S3>,
    default: StoreName,
}

impl Stores {
    /// Opens the stores for images of at most `largest` bytes. `directory` is the default directory
    /// of the file store. This function sends no request to the object store, so this process may
    /// start before the object store does.
    pub(crate) async fn open(
        store: &Store,
        directory: &Path,
        options: &StoreOptions,
        largest: u64,
        pool: &Pool,
    ) -> Result<Self, Error> {
        let cloud = cloud_id(store).await?;
        let files = if options.files {
            let directory = options.directory.as_deref().unwrap_or(directory);
            Some(Files::open(directory, &cloud, pool.clone()).await?)
        } else {
            None
        };
        let s3 = options.s3.as_ref().map(|bucket| S3::open(bucket, &cloud, largest)).transpose()?;
        Ok(Self { files, s3, default: options.default })
    }

    /// The name of the store for new images.
    pub(crate) fn default_name(&self) -> StoreName {
        self.default
    }

    /// A store.
    pub(crate) fn get(&self, name: StoreName) -> Result<&dyn ImageStore, Error> {
        let found = match name {
            StoreName::File => self.files.as_ref().map(|files| files as &dyn ImageStore),
            StoreName::S3 => self.s3.as_ref().map(|s3| s3 as &dyn ImageStore),
        };
        found.ok_or_else(|| {
            let word = name.as_str();
            Error::Data(DataError::Refused(format!(
                "the data is in the store {word}, which is not configured; add {word} to [glance_store] stores"
            )))
        })
    }

    /// The store of an image's data.
    pub(crate) fn of(&self, location: &Location) -> Result<&dyn ImageStore, Error> {
        self.get(location.store)
    }

    /// All stores.
    pub(crate) fn all(&self) -> Vec<(StoreName, &dyn ImageStore)> {
        let named = [StoreName::File, StoreName::S3].map(|name| (name, self.get(name)));
        named.into_iter().filter_map(|(name, store)| Some((name, store.ok()?))).collect()
    }
}

/// Checks the configured bucket by listing at most one object. Creates nothing, not even the cloud's
/// name. Returns false if the bucket does not exist yet; the first image then creates it. Images have
/// at most `largest` bytes.
///
/// # Errors
/// A text for the operator.
pub async fn check_bucket(store: &Store, options: &S3Options, largest: u64) -> Result<bool, Error> {
    let cloud = store.read(|tx| Ok::<_, Error>(uploads::cloud(tx)?)).await?;
    let cloud = cloud.as_deref().unwrap_or("kilonova-doctor");
    Ok(S3::open(options, cloud, largest)?.check().await?)
}

/// The cloud's id, also its name in stores that several clouds may share. A new cloud gets one.
///
/// # Errors
/// Store errors.
pub async fn cloud_id(store: &Store) -> Result<String, Error> {
    if let Some(cloud) = known_cloud_id(store).await? {
        return Ok(cloud);
    }
    let proposed = uuid::Uuid::new_v4().to_string();
    store.write(move |tx| Ok(uploads::name_cloud(tx, &proposed)?)).await
}

/// The id of the cloud, if it has one. Writes nothing.
///
/// # Errors
/// A store error, also if the database has no schema, or an early one without the id.
pub async fn known_cloud_id(store: &Store) -> Result<Option<String>, Error> {
    store.read(|tx| Ok(uploads::cloud(tx)?)).await
}
