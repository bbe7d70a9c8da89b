//! Creates, recreates and grows a guest's disks, and creates its rescue disk.

use std::path::Path;

use kilonova_hypervisor::{Definition, FoundDisks};
use kilonova_ids::{ImageId, ServerId};

use crate::cache::{Base, CacheGuard};
use crate::layout::{self, Record};
use crate::run::Run;
use crate::{Disks, Error, Format, blank, drive, info};

const GIB: u64 = 1 << 30;
/// All files that a rebuild replaces. The console log stays.
const DISKS: [&str; 9] = [
    layout::ROOT,
    layout::EPHEMERAL,
    layout::SWAP,
    layout::CONFIG,
    layout::KERNEL,
    layout::RAMDISK,
    layout::RESCUE,
    layout::RESCUE_KERNEL,
    layout::RESCUE_RAMDISK,
];

impl Disks {
    /// Creates the disks of a stopped guest. Replaces disks of an earlier rebuild and incomplete
    /// ones, and grows those that are too small.
    ///
    /// # Errors
    /// All of [`Error`]; the next attempt recreates incomplete files.
    pub async fn prepare(&self, definition: &Definition) -> Result<(), Error> {
        self.layout.is_ours(definition.server)?;
        let folder = self.layout.make(definition.server)?;
        let (record, _held) = match self.kept_record(definition) {
            Some(record) => (record, None),
            None => {
                layout::invalidate_record(&folder)?;
                for name in DISKS {
                    layout::remove_file(&folder.join(name))?;
                }
                self.root(definition, &folder).await?
            }
        };
        self.complete(definition, &folder, record).await
    }

    /// The guest's disks on this host, and whether [`Self::prepare`] keeps them.
    pub fn find(&self, definition: &Definition) -> FoundDisks {
        match self.complete_record(definition) {
            None => FoundDisks::None,
            Some(record) if record.rebuilt == rebuilt(definition) => FoundDisks::Kept,
            Some(record) => {
                FoundDisks::OfRebuild(record.rebuilt.and_then(|operation| operation.parse().ok()))
            }
        }
    }

    /// The record of the disks, if they are complete and of the definition's rebuild.
    fn kept_record(&self, definition: &Definition) -> Option<Record> {
        let record = self.complete_record(definition);
        record.filter(|record| record.rebuilt == rebuilt(definition))
    }

    /// The record of the disks, if they are complete.
    fn complete_record(&self, definition: &Definition) -> Option<Record> {
        let root = self.layout.folder(definition.server).join(layout::ROOT);
        let record = self.layout.record(definition.server);
        record.filter(|_| definition.config.is_volume_backed() || root.is_file())
    }

    /// Creates the root disk, unless it is a volume.
    async fn root(
        &self,
        definition: &Definition,
        folder: &Path,
    ) -> Result<(Record, Option<CacheGuard>), Error> {
        let mut record = Record {
            rebuilt: rebuilt(definition),
            image: definition.config.boot.image,
            ..Record::default()
        };
        if definition.config.is_volume_backed() {
            return Ok((record, None));
        }
        let flavor = gib(definition.config.boot.root_gb);
        let Some(image) = definition.config.boot.image else {
            self.root_over(None, flavor.max(GIB), folder).await?;
            return Ok((record, None));
        };
        let most = Some(flavor).filter(|flavor| *flavor > 0);
        let (base, guard) = self.cache.base(image, most).await?;
        if flavor > 0 && base.size > flavor {
            return Err(Error::TooSmall { image, flavor, size: base.size });
        }
        self.root_over(Some(&base), flavor.max(base.size), folder).await?;
        record.bases.push(base.name());
        Ok((record, Some(guard)))
    }

    /// Creates a root disk as an overlay of the base image, or empty.
    pub(crate) async fn root_over(
        &self,
        base: Option<&Base>,
        size: u64,
        folder: &Path,
    ) -> Result<(), Error> {
        let path = folder.join(layout::ROOT);
        match base {
            Some(base) => overlay(&path, base, size).await,
            None => blank::empty(&path, size).await,
        }
    }

    /// Creates missing disks other than the root disk, grows those that are too small, and writes
    /// the record.
    pub(crate) async fn complete(
        &self,
        definition: &Definition,
        folder: &Path,
        record: Record,
    ) -> Result<(), Error> {
        let (boot, machine) = (&definition.config.boot, &definition.config.machine);
        let root_size = if definition.config.is_volume_backed() {
            0
        } else {
            grow(&folder.join(layout::ROOT), gib(boot.root_gb)).await?
        };
        let ephemeral = folder.join(layout::EPHEMERAL);
        if ephemeral.is_file() {
            grow(&ephemeral, gib(boot.ephemeral_gb)).await?;
        } else if boot.ephemeral_gb > 0 {
            let windows = machine.os_type.as_deref() == Some("windows");
            let kind = if windows { "ntfs" } else { &self.config.default_ephemeral_format };
            blank::formatted(&ephemeral, gib(boot.ephemeral_gb), kind, &self.config).await?;
        }
        let swap = folder.join(layout::SWAP);
        if record.swap_mb != boot.swap_mb || boot.swap_mb <= 0 {
            layout::remove_file(&swap)?;
        }
        if boot.swap_mb > 0 && !swap.is_file() {
            let size = u64::try_from(boot.swap_mb).unwrap_or_default() << 20;
            blank::formatted(&swap, size, blank::SWAP, &self.config).await?;
        }
        for (image, name) in [(machine.kernel, layout::KERNEL), (machine.ramdisk, layout::RAMDISK)]
        {
            self.temporary(image, &folder.join(name)).await?;
        }
        let config = folder.join(layout::CONFIG);
        if (machine.config_drive || self.config.force_config_drive) && !config.is_file() {
            drive::make(&self.config, self.cache.source(), definition, &config).await?;
        }
        layout::write_record(
            folder,
            &Record { machine: self.layout.machine(), swap_mb: boot.swap_mb, root_size, ..record },
        )
    }

    /// Copies an image that the hypervisor reads directly: a kernel or an initial RAM disk.
    async fn temporary(&self, image: Option<ImageId>, path: &Path) -> Result<(), Error> {
        let Some(image) = image.filter(|_| !path.is_file()) else { return Ok(()) };
        let (base, _held) = self.cache.base(image, None).await?;
        let new = layout::temporary_path(path)?;
        let (from, to) = (base.path, new.clone());
        let copied = tokio::task::spawn_blocking(move || std::fs::copy(from, to)).await;
        match copied {
            Ok(Ok(_)) => layout::install_file(&new, path),
            Ok(Err(error)) => Err(Error::file(&new, error)),
            Err(error) => Err(Error::file(&new, std::io::Error::other(error))),
        }
    }

    /// Recreates the rescue disk, if the definition has a rescue configuration.
    ///
    /// # Errors
    /// All of [`Error`].
    pub async fn prepare_rescue_disk(&self, definition: &Definition) -> Result<(), Error> {
        let Some(rescue) = &definition.config.rescue else { return Ok(()) };
        self.layout.is_ours(definition.server)?;
        let record =
            self.layout.record(definition.server).ok_or(Error::Absent(definition.server))?;
        let folder = self.layout.folder(definition.server);
        self.end_rescue(definition.server)?;
        for (image, name) in [
            (rescue.machine.kernel, layout::RESCUE_KERNEL),
            (rescue.machine.ramdisk, layout::RESCUE_RAMDISK),
        ] {
            self.temporary(image, &folder.join(name)).await?;
        }
        let path = folder.join(layout::RESCUE);
        let Some(image) = rescue.image else { return blank::empty(&path, GIB).await };
        let (base, _held) = self.cache.base(image, None).await?;
        overlay(&path, &base, base.size).await?;
        layout::write_record(&folder, &Record { rescue: Some(base.name()), ..record })
    }

    /// Removes the rescue disk with its kernel and RAM disk.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn end_rescue(&self, server: ServerId) -> Result<(), Error> {
        let folder = self.layout.folder(server);
        for name in [layout::RESCUE, layout::RESCUE_KERNEL, layout::RESCUE_RAMDISK] {
            layout::remove_file(&folder.join(name))?;
        }
        match self.layout.record(server) {
            Some(record) if record.rescue.is_some() => {
                layout::write_record(&folder, &Record { rescue: None, ..record })
            }
            _ => Ok(()),
        }
    }

    /// Removes all files of a server.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self, server: ServerId) -> Result<(), Error> {
        self.layout.remove(server)
    }
}

pub(crate) fn rebuilt(definition: &Definition) -> Option<String> {
    definition.config.boot.rebuilt.map(|operation| operation.to_string())
}

/// Creates an overlay of a base image.
async fn overlay(path: &Path, base: &Base, size: u64) -> Result<(), Error> {
    let new = layout::temporary_path(path)?;
    let create = Run::new("qemu-img").args(["create", "-q", "-f", "qcow2", "-F"]);
    let create = create.arg(base.format.as_str()).arg("-b").arg(&base.path);
    create.arg("--").arg(&new).arg(size.to_string()).wait().await?;
    layout::install_file(&new, path)
}

/// Grows a disk that is smaller than `size`. Returns its size.
async fn grow(path: &Path, size: u64) -> Result<u64, Error> {
    let has = info::size(path, Format::Qcow2).await?;
    if has >= size {
        return Ok(has);
    }
    let resize = Run::new("qemu-img").args(["resize", "-q", "-f", "qcow2", "--"]);
    resize.arg(path).arg(size.to_string()).wait().await.map(|_| size)
}

fn gib(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default().saturating_mul(GIB)
}
