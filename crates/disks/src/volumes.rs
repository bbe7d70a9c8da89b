//! What is there of a server's disks, for whoever plugs them in.

use std::path::PathBuf;

use kilonova_ids::ServerId;

use crate::{Disks, Format, layout};

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its file.
    pub path: PathBuf,
    /// The file's format. It must be named to QEMU: guests write what looks like another one.
    pub format: Format,
}

/// The files of a server. What is not there is not to be plugged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volumes {
    /// The folder that all of them are in.
    pub folder: PathBuf,
    /// The root disk.
    pub root: Option<Volume>,
    /// The ephemeral disk.
    pub ephemeral: Option<Volume>,
    /// The swap disk.
    pub swap: Option<Volume>,
    /// The config drive, to be read only: a disc.
    pub config: Option<Volume>,
    /// The kernel.
    pub kernel: Option<PathBuf>,
    /// Its memory disk.
    pub ramdisk: Option<PathBuf>,
    /// What the guest is mended from.
    pub rescue: Option<Mending>,
    /// Where the guest's console is written to; it need not be there.
    pub console: PathBuf,
}

/// What a guest is mended from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mending {
    /// The disk that it starts from.
    pub root: Volume,
    /// Its kernel.
    pub kernel: Option<PathBuf>,
    /// The kernel's memory disk.
    pub ramdisk: Option<PathBuf>,
}

impl Disks {
    /// What there is of a server's disks now.
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
            rescue: volume(layout::RESCUE, Format::Qcow2).map(|root| Mending {
                root,
                kernel: file(layout::RESCUE_KERNEL),
                ramdisk: file(layout::RESCUE_RAMDISK),
            }),
            console: folder.join(layout::CONSOLE),
            folder,
        }
    }
}
