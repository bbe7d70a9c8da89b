//! The image cache: each base image once, complete and verified.
//!
//! ```text
//!   bytes ─► .new-<image>.part ─size, SHA-512─► qemu-img info ─► raw? ─rename─► <image>.raw
//!                                                     └─► qcow2 ─convert, unless kept─┘
//! ```
//!
//! Using a file updates its modification time. An old file that no guest's record names is removed;
//! a read lock protects a file until a record names it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use kilonova_ids::ImageId;
use sha2::{Digest as _, Sha512};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::layout::{self, Layout};
use crate::run::Run;
use crate::{DisksConfig, Error, Format, Images, info};

type ImageLock = Arc<RwLock<()>>;

/// A base image on this host.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub path: PathBuf,
    pub format: Format,
    /// Virtual size in bytes.
    pub size: u64,
}

impl Base {
    /// The name of its file.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Protects a cached file from removal until a record names it.
pub(crate) type CacheGuard = OwnedRwLockReadGuard<()>;

pub(crate) struct Cache {
    config: Arc<DisksConfig>,
    layout: Arc<Layout>,
    images: Arc<dyn Images>,
    locks: Mutex<HashMap<ImageId, ImageLock>>,
}

impl Cache {
    pub fn new(config: Arc<DisksConfig>, layout: Arc<Layout>, images: Arc<dyn Images>) -> Self {
        Self { config, layout, images, locks: Mutex::default() }
    }

    /// The controller.
    pub fn source(&self) -> &dyn Images {
        &*self.images
    }

    /// Returns a base image, and downloads it if necessary. The lock that is returned with it
    /// protects the file until a record names it. An image with a virtual size above `most` is
    /// refused before it is converted.
    pub async fn base(
        &self,
        image: ImageId,
        most: Option<u64>,
    ) -> Result<(Base, CacheGuard), Error> {
        let guard = self.lock(image).read_owned().await;
        if let Some(base) = self.cached(image).await? {
            return Ok((base, guard));
        }
        drop(guard);
        let exclusive = self.lock(image).write_owned().await;
        if let Some(base) = self.cached(image).await? {
            return Ok((base, exclusive.downgrade()));
        }
        let (temporary, declared) = self.download(image).await?;
        let base = self.install(image, &temporary, declared.as_deref(), most).await;
        layout::remove_file(&temporary)?;
        Ok((base?, exclusive.downgrade()))
    }

    /// Copies an image from another cache, where its file is called `name`, by calling `rsync`. The
    /// image is verified like any other.
    pub async fn adopt_from_peer<T, F>(
        &self,
        image: ImageId,
        name: &str,
        rsync: impl FnOnce(PathBuf) -> F,
    ) -> Result<(Base, CacheGuard), Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let exclusive = self.lock(image).write_owned().await;
        if let Some(base) = self.cached(image).await? {
            return Ok((base, exclusive.downgrade()));
        }
        let format = if name.ends_with(".qcow2") { Format::Qcow2 } else { Format::Raw };
        let path = self.layout.base(image, format);
        let temporary = layout::temporary_path(&path)?;
        let brought = match rsync(temporary.clone()).await {
            Ok(_) => info::checked(image, &temporary, format).await,
            Err(error) => Err(error),
        };
        if brought.is_ok() {
            layout::install_file(&temporary, &path)?;
        } else {
            layout::remove_file(&temporary)?;
        }
        let size = brought?.virtual_size;
        Ok((Base { path, format, size }, exclusive.downgrade()))
    }

    /// The image, if it is cached.
    async fn cached(&self, image: ImageId) -> Result<Option<Base>, Error> {
        for format in [Format::Raw, Format::Qcow2] {
            let path = self.layout.base(image, format);
            if path.is_file() {
                touch(&path)?;
                let size = info::size(&path, format).await?;
                return Ok(Some(Base { path, format, size }));
            }
        }
        Ok(None)
    }

    fn lock(&self, image: ImageId) -> ImageLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(image).or_default())
    }

    /// Downloads and verifies the bytes. Returns the file and the image's declared format.
    async fn download(&self, image: ImageId) -> Result<(PathBuf, Option<String>), Error> {
        let temporary =
            layout::temporary_path(&self.layout.base_folder().join(format!("{image}.part")))?;
        let result = self.fill(image, &temporary).await;
        if result.is_err() {
            layout::remove_file(&temporary)?;
        }
        Ok((temporary, result?))
    }

    async fn fill(&self, image: ImageId, temporary: &Path) -> Result<Option<String>, Error> {
        let file_error = |error| Error::file(temporary, error);
        let mut file = fs::File::create(temporary).map_err(file_error)?;
        let (mut hash, mut at) = (Sha512::new(), 0_u64);
        let mut first = None;
        loop {
            let read = self.images.read(image, at).await;
            let chunk = read.map_err(|why| Error::image(image, why))?;
            let declared = first.get_or_insert((chunk.size, chunk.format, chunk.sha512));
            if chunk.bytes.is_empty() {
                break;
            }
            at += chunk.bytes.len() as u64;
            if at > declared.0 {
                break;
            }
            let work = tokio::task::spawn_blocking(move || {
                hash.update(&chunk.bytes);
                file.write_all(&chunk.bytes).map(|()| (file, hash))
            });
            (file, hash) = match work.await {
                Ok(written) => written.map_err(file_error)?,
                Err(error) => {
                    return Err(Error::image(
                        image,
                        format!("the download was interrupted: {error}"),
                    ));
                }
            };
            if at == declared.0 {
                break;
            }
        }
        let Some((size, format, sha512)) = first else { return Ok(None) };
        if at != size {
            return Err(Error::image(image, format!("received {at} bytes instead of {size}")));
        }
        let is = hex(&hash.finalize());
        if sha512.as_ref().is_some_and(|sha512| !sha512.eq_ignore_ascii_case(&is)) {
            return Err(Error::image(
                image,
                "the SHA-512 digest does not match the image service's; check the image service's disk \
                 and the network",
            ));
        }
        Ok(format)
    }

    /// Moves a downloaded image to its place, converted if necessary.
    async fn install(
        &self,
        image: ImageId,
        temporary: &Path,
        declared: Option<&str>,
        most: Option<u64>,
    ) -> Result<Base, Error> {
        let received = if declared == Some("qcow2") { Format::Qcow2 } else { Format::Raw };
        let found = info::checked(image, temporary, received).await?;
        let size = found.virtual_size;
        if let Some(flavor) = most.filter(|most| size > *most) {
            return Err(Error::TooSmall { image, flavor, size });
        }
        let format = if self.config.force_raw_images { Format::Raw } else { received };
        let path = self.layout.base(image, format);
        if format == received {
            layout::install_file(temporary, &path)?;
        } else {
            let raw = layout::temporary_path(&path)?;
            let convert = Run::untrusted_convert("qemu-img", self.config.copying, size)
                .args(["convert", "-f", received.as_str(), "-O", format.as_str(), "--"])
                .arg(temporary)
                .arg(&raw);
            if let Err(error) = convert.wait().await {
                layout::remove_file(&raw)?;
                return Err(Error::image(image, error.to_string()));
            }
            layout::install_file(&raw, &path)?;
        }
        tracing::info!(%image, bytes = found.virtual_size, "cached an image");
        Ok(Base { path, format, size: found.virtual_size })
    }

    /// Removes images that are unused and old enough. Returns their number.
    pub fn clean(&self) -> Result<usize, Error> {
        let folder = self.layout.base_folder();
        let mut removed = 0;
        for path in old_files(&folder, self.config.remove_unused_original_minimum_age)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(image) = name.split('.').next().and_then(|id| id.parse().ok()) else {
                continue;
            };
            let Ok(_held) = self.lock(image).try_write_owned() else { continue };
            // While the lock is held, no guest can start to use it.
            if self.used()?.contains(&name) {
                continue;
            }
            tracing::info!(file = %path.display(), "removing an unused base image");
            layout::remove_file(&path)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The files that records name.
    fn used(&self) -> Result<HashSet<String>, Error> {
        let servers = self.layout.servers()?;
        Ok(servers
            .into_iter()
            .filter_map(|server| self.layout.record(server))
            .flat_map(|record| record.bases.into_iter().chain(record.rescue))
            .collect())
    }
}

/// Files that have not been modified for `age`.
fn old_files(folder: &Path, age: std::time::Duration) -> Result<Vec<PathBuf>, Error> {
    let file_error = |error| Error::file(folder, error);
    let mut old = Vec::new();
    for entry in fs::read_dir(folder).map_err(file_error)? {
        let entry = entry.map_err(file_error)?;
        let Ok(about) = entry.metadata() else { continue };
        let touched = about.modified().unwrap_or(SystemTime::now());
        let is_old = SystemTime::now().duration_since(touched).is_ok_and(|since| since >= age);
        if about.is_file() && is_old {
            old.push(entry.path());
        }
    }
    Ok(old)
}

fn touch(path: &Path) -> Result<(), Error> {
    let touched = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    touched.map_err(|error| Error::file(path, error))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
