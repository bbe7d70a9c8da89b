//! Bringing a guest's disks into place, making them anew, letting them grow, and mending from another.

use std::path::Path;

use kilonova_hypervisor::Definition;
use kilonova_ids::{ImageId, ServerId};

use crate::cache::{Base, Held};
use crate::layout::{self, Record};
use crate::run::Run;
use crate::{Disks, Error, Format, blank, drive, info};

const GIB: u64 = 1 << 30;
/// All that is of a rebuild. What the guest has said stays.
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
    /// Brings the disks of a shut off guest into place. Those of another rebuild, and those that were
    /// left half made, are thrown away; those that are too small grow.
    ///
    /// # Errors
    /// All of [`Error`]; what was half made is made anew the next time.
    pub async fn prepare(&self, want: &Definition) -> Result<(), Error> {
        self.layout.is_ours(want.server)?;
        let folder = self.layout.make(want.server)?;
        let record = self.layout.record(want.server).filter(|record| {
            record.rebuilt == rebuilt(want) && folder.join(layout::ROOT).is_file()
        });
        let (record, _held) = match record {
            Some(record) => (record, None),
            None => {
                layout::forget(&folder)?;
                for name in DISKS {
                    layout::remove_file(&folder.join(name))?;
                }
                self.root(want, &folder).await?
            }
        };
        self.complete(want, &folder, record).await
    }

    /// Makes the root disk.
    async fn root(
        &self,
        want: &Definition,
        folder: &Path,
    ) -> Result<(Record, Option<Held>), Error> {
        let mut record =
            Record { rebuilt: rebuilt(want), image: want.boot.image, ..Record::default() };
        let flavor = gib(want.boot.root_gb);
        let Some(image) = want.boot.image else {
            self.root_over(None, flavor.max(GIB), folder).await?;
            return Ok((record, None));
        };
        let most = Some(flavor).filter(|flavor| *flavor > 0);
        let (base, held) = self.cache.base(image, most).await?;
        if flavor > 0 && base.size > flavor {
            return Err(Error::TooSmall { image, flavor, size: base.size });
        }
        self.root_over(Some(&base), flavor.max(base.size), folder).await?;
        record.bases.push(base.name());
        Ok((record, Some(held)))
    }

    /// A root disk that is the image until the guest writes to it, or empty.
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

    /// Makes what is missing beside the root disk, lets grow what is too small, and writes down that
    /// all is there.
    pub(crate) async fn complete(
        &self,
        want: &Definition,
        folder: &Path,
        record: Record,
    ) -> Result<(), Error> {
        let (boot, machine) = (&want.boot, &want.machine);
        let root_size = grow(&folder.join(layout::ROOT), gib(boot.root_gb)).await?;
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
            self.part(image, &folder.join(name)).await?;
        }
        let config = folder.join(layout::CONFIG);
        if (machine.config_drive || self.config.force_config_drive) && !config.is_file() {
            drive::make(&self.config, want, &config).await?;
        }
        layout::write_record(
            folder,
            &Record { host: self.layout.host(), swap_mb: boot.swap_mb, root_size, ..record },
        )
    }

    /// A copy of an image that the hypervisor itself reads: a kernel, a memory disk.
    async fn part(&self, image: Option<ImageId>, path: &Path) -> Result<(), Error> {
        let Some(image) = image.filter(|_| !path.is_file()) else { return Ok(()) };
        let (base, _held) = self.cache.base(image, None).await?;
        let new = layout::beside(path)?;
        let (from, to) = (base.path, new.clone());
        let copied = tokio::task::spawn_blocking(move || std::fs::copy(from, to)).await;
        match copied {
            Ok(Ok(_)) => layout::put(&new, path),
            Ok(Err(error)) => Err(Error::file(&new, error)),
            Err(error) => Err(Error::file(&new, std::io::Error::other(error))),
        }
    }

    /// Brings the disk into place that a guest is to be mended from, if it is to be; it is made anew
    /// each time.
    ///
    /// # Errors
    /// All of [`Error`].
    pub async fn prepare_rescue(&self, want: &Definition) -> Result<(), Error> {
        let Some(rescue) = &want.rescue else { return Ok(()) };
        self.layout.is_ours(want.server)?;
        let record = self.layout.record(want.server).ok_or(Error::Absent(want.server))?;
        let folder = self.layout.folder(want.server);
        self.end_rescue(want.server)?;
        for (image, name) in [
            (rescue.machine.kernel, layout::RESCUE_KERNEL),
            (rescue.machine.ramdisk, layout::RESCUE_RAMDISK),
        ] {
            self.part(image, &folder.join(name)).await?;
        }
        let path = folder.join(layout::RESCUE);
        let Some(image) = rescue.image else { return blank::empty(&path, GIB).await };
        let (base, _held) = self.cache.base(image, None).await?;
        overlay(&path, &base, base.size).await?;
        layout::write_record(&folder, &Record { rescue: Some(base.name()), ..record })
    }

    /// Removes what a guest was mended from.
    ///
    /// # Errors
    /// When a file cannot be removed.
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
    /// When one cannot be removed.
    pub fn remove(&self, server: ServerId) -> Result<(), Error> {
        self.layout.remove(server)
    }
}

pub(crate) fn rebuilt(want: &Definition) -> Option<String> {
    want.boot.rebuilt.map(|operation| operation.to_string())
}

/// A disk that is the image until the guest writes to it.
async fn overlay(path: &Path, base: &Base, size: u64) -> Result<(), Error> {
    let new = layout::beside(path)?;
    let create = Run::new("qemu-img").args(["create", "-q", "-f", "qcow2", "-F"]);
    let create = create.arg(base.format.as_str()).arg("-b").arg(&base.path);
    create.arg("--").arg(&new).arg(size.to_string()).wait().await?;
    layout::put(&new, path)
}

/// Makes a disk larger, if it is too small; says how large it is.
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
