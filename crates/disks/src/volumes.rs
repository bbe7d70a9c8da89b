//! The existing files of a server, for the driver that attaches them.

use std::path::PathBuf;

use kilonova_ids::ServerId;

use crate::{Disks, Format, layout};

/// A disk image file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its path.
    pub path: PathBuf,
    /// Its format. QEMU must never probe it: guests can write data that looks like another format.
    pub format: Format,
}

/// The files of a server; only existing ones are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volumes {
    /// The server's directory.
    pub folder: PathBuf,
    /// The root disk.
    pub root: Option<Volume>,
    /// The ephemeral disk.
    pub ephemeral: Option<Volume>,
    /// The swap disk.
    pub swap: Option<Volume>,
    /// The config drive, a read-only CD-ROM image.
    pub config: Option<Volume>,
    /// The kernel.
    pub kernel: Option<PathBuf>,
    /// The kernel's initial RAM disk.
    pub ramdisk: Option<PathBuf>,
    /// The rescue files.
    pub rescue: Option<RescueVolumes>,
    /// Path of the console log, which need not exist.
    pub console: PathBuf,
}

/// The files of a rescue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescueVolumes {
    /// The rescue disk.
    pub root: Volume,
    /// Its kernel.
    pub kernel: Option<PathBuf>,
    /// The kernel's initial RAM disk.
    pub ramdisk: Option<PathBuf>,
}

impl Disks {
    /// The existing files of a server.
    pub fn volumes(&self, server: ServerId) -> Volumes {
        let folder = self.layout.folder(server);
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        let volume = |name: &str, format| file(name).map(|path| Volume { path, format });
        Volumes {
            root: volume(layout::ROOT, Format::Qcow2),
            ephemeral: volume(layout::EPHEMERAL, Format::Qcow2),
            swap: volume(layout::SWAP, Format::Qcow2),
            config: volume(layout::CONFIG, Format::Raw),
            kernel: file(layout::KERNEL),
            ramdisk: file(layout::RAMDISK),
            rescue: volume(layout::RESCUE, Format::Qcow2).map(|root| RescueVolumes {
                root,
                kernel: file(layout::RESCUE_KERNEL),
                ramdisk: file(layout::RESCUE_RAMDISK),
            }),
            console: folder.join(layout::CONSOLE),
            folder,
        }
    }
}
