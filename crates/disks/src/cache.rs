//! The images that guests' disks are over: each once, whole, and checked.
//!
//! ```text
//!   bytes ─► .new-<image>.part ─size, SHA-512─► qemu-img info ─► raw? ─rename─► <image>.raw
//!                                                     └─► qcow2 ─convert, unless kept─┘
//! ```
//!
//! A file that is used is touched. One that no guest's record names, and that was not touched for
//! long, is removed; whoever is about to use one holds on to it meanwhile.

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
use crate::{Config, Error, Format, Images, info};

type Line = Arc<RwLock<()>>;

/// An image on this host.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub path: PathBuf,
    pub format: Format,
    /// Bytes that a guest sees.
    pub size: u64,
}

impl Base {
    /// Its file's name.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Held while a file of the cache is to be used and no record names it yet.
pub(crate) type Held = OwnedRwLockReadGuard<()>;

pub(crate) struct Cache {
    config: Arc<Config>,
    layout: Arc<Layout>,
    images: Arc<dyn Images>,
    lines: Mutex<HashMap<ImageId, Line>>,
}

impl Cache {
    pub fn new(config: Arc<Config>, layout: Arc<Layout>, images: Arc<dyn Images>) -> Self {
        Self { config, layout, images, lines: Mutex::default() }
    }

    /// The image, fetched if it is not here. It stays until what is given with it is dropped, and
    /// then as long as a record names it. One of more bytes than `most`, as a guest sees it, is
    /// refused before it is unpacked.
    pub async fn base(&self, image: ImageId, most: Option<u64>) -> Result<(Base, Held), Error> {
        let held = self.line(image).read_owned().await;
        if let Some(base) = self.here(image).await? {
            return Ok((base, held));
        }
        drop(held);
        let alone = self.line(image).write_owned().await;
        if let Some(base) = self.here(image).await? {
            return Ok((base, alone.downgrade()));
        }
        let (part, told) = self.download(image).await?;
        let base = self.settle(image, &part, told.as_deref(), most).await;
        layout::remove_file(&part)?;
        Ok((base?, alone.downgrade()))
    }

    /// The image from another cache, where this file is called `name`: `copy` brings it. It is
    /// checked as any other.
    pub async fn adopt<T, F>(
        &self,
        image: ImageId,
        name: &str,
        copy: impl FnOnce(PathBuf) -> F,
    ) -> Result<(Base, Held), Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let alone = self.line(image).write_owned().await;
        if let Some(base) = self.here(image).await? {
            return Ok((base, alone.downgrade()));
        }
        let format = if name.ends_with(".qcow2") { Format::Qcow2 } else { Format::Raw };
        let path = self.layout.base(image, format);
        let part = layout::beside(&path)?;
        let brought = match copy(part.clone()).await {
            Ok(_) => info::checked(image, &part, format).await,
            Err(error) => Err(error),
        };
        if brought.is_ok() {
            layout::put(&part, &path)?;
        } else {
            layout::remove_file(&part)?;
        }
        let size = brought?.virtual_size;
        Ok((Base { path, format, size }, alone.downgrade()))
    }

    /// The image if it is here.
    async fn here(&self, image: ImageId) -> Result<Option<Base>, Error> {
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

    fn line(&self, image: ImageId) -> Line {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        Arc::clone(lines.entry(image).or_default())
    }

    /// Fetches the bytes, checks them, and says which format they are said to be of.
    async fn download(&self, image: ImageId) -> Result<(PathBuf, Option<String>), Error> {
        let part = layout::beside(&self.layout.base_folder().join(format!("{image}.part")))?;
        let result = self.fill(image, &part).await;
        if result.is_err() {
            layout::remove_file(&part)?;
        }
        Ok((part, result?))
    }

    async fn fill(&self, image: ImageId, part: &Path) -> Result<Option<String>, Error> {
        let wrong = |error| Error::file(part, error);
        let mut file = fs::File::create(part).map_err(wrong)?;
        let (mut hash, mut at) = (Sha512::new(), 0_u64);
        let mut first = None;
        loop {
            let read = self.images.read(image, at).await;
            let chunk = read.map_err(|why| Error::image(image, why))?;
            let told = first.get_or_insert((chunk.size, chunk.format, chunk.sha512));
            if chunk.bytes.is_empty() {
                break;
            }
            at += chunk.bytes.len() as u64;
            if at > told.0 {
                break;
            }
            let work = tokio::task::spawn_blocking(move || {
                hash.update(&chunk.bytes);
                file.write_all(&chunk.bytes).map(|()| (file, hash))
            });
            (file, hash) = match work.await {
                Ok(written) => written.map_err(wrong)?,
                Err(error) => {
                    return Err(Error::image(image, format!("the copy broke off: {error}")));
                }
            };
            if at == told.0 {
                break;
            }
        }
        let Some((size, format, sha512)) = first else { return Ok(None) };
        if at != size {
            return Err(Error::image(image, format!("{at} bytes came, and it has {size}")));
        }
        let is = hex(&hash.finalize());
        if sha512.as_ref().is_some_and(|sha512| !sha512.eq_ignore_ascii_case(&is)) {
            return Err(Error::image(
                image,
                "what came is not what the image service has recorded (SHA-512); look at its disk \
                 and at the network",
            ));
        }
        Ok(format)
    }

    /// Brings what was fetched into its place.
    async fn settle(
        &self,
        image: ImageId,
        part: &Path,
        told: Option<&str>,
        most: Option<u64>,
    ) -> Result<Base, Error> {
        let came = if told == Some("qcow2") { Format::Qcow2 } else { Format::Raw };
        let found = info::checked(image, part, came).await?;
        let size = found.virtual_size;
        if let Some(flavor) = most.filter(|most| size > *most) {
            return Err(Error::TooSmall { image, flavor, size });
        }
        let format = if self.config.force_raw_images { Format::Raw } else { came };
        let path = self.layout.base(image, format);
        if format == came {
            layout::put(part, &path)?;
        } else {
            let raw = layout::beside(&path)?;
            let convert = Run::bounded("qemu-img", self.config.copying, size)
                .args(["convert", "-f", came.as_str(), "-O", format.as_str(), "--"])
                .arg(part)
                .arg(&raw);
            if let Err(error) = convert.wait().await {
                layout::remove_file(&raw)?;
                return Err(Error::image(image, error.to_string()));
            }
            layout::put(&raw, &path)?;
        }
        tracing::info!(%image, bytes = found.virtual_size, "the image is on this host");
        Ok(Base { path, format, size: found.virtual_size })
    }

    /// Removes images that no guest uses and that nobody has asked for lately; says how many.
    pub fn clean(&self) -> Result<usize, Error> {
        let folder = self.layout.base_folder();
        let mut removed = 0;
        for path in old_files(&folder, self.config.remove_unused_original_minimum_age)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(image) = name.split('.').next().and_then(|id| id.parse().ok()) else {
                continue;
            };
            let Ok(_held) = self.line(image).try_write_owned() else { continue };
            // Looked at with the turn in hand: nobody has begun to use it since.
            if self.used()?.contains(&name) {
                continue;
            }
            tracing::info!(file = %path.display(), "no guest uses the image; it is removed");
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

/// Files that were not touched for that long.
fn old_files(folder: &Path, age: std::time::Duration) -> Result<Vec<PathBuf>, Error> {
    let wrong = |error| Error::file(folder, error);
    let mut old = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
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
