//! Empty disks, and disks with only a file system or swap space.

use std::fs::File;
use std::path::Path;

use crate::run::Run;
use crate::{DisksConfig, Error, layout};

/// The file system kind that stands for swap space.
pub(crate) const SWAP: &str = "swap";

/// Creates an empty disk.
pub(crate) async fn empty(path: &Path, size: u64) -> Result<(), Error> {
    let new = layout::temporary_path(path)?;
    let create = Run::new("qemu-img").args(["create", "-q", "-f", "qcow2", "--"]);
    create.arg(&new).arg(size.to_string()).wait().await?;
    layout::install_file(&new, path)
}

/// Creates a disk with a file system or swap space. It is formatted as a sparse raw file first,
/// because the mkfs programs do not support qcow2.
pub(crate) async fn formatted(
    path: &Path,
    size: u64,
    kind: &str,
    config: &DisksConfig,
) -> Result<(), Error> {
    let raw = layout::temporary_path(&path.with_extension("raw"))?;
    let result = fill(path, &raw, size, kind, config).await;
    layout::remove_file(&raw)?;
    result
}

async fn fill(
    path: &Path,
    raw: &Path,
    size: u64,
    kind: &str,
    config: &DisksConfig,
) -> Result<(), Error> {
    let file = File::create(raw).map_err(|error| Error::file(raw, error))?;
    file.set_len(size).map_err(|error| Error::file(raw, error))?;
    drop(file);
    maker(kind)?.arg(raw).wait().await?;
    let new = layout::temporary_path(path)?;
    let convert = Run::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2", "--"]);
    convert.arg(raw).arg(&new).limit(config.copying).wait().await?;
    layout::install_file(&new, path)
}

/// The mkfs program with its arguments, without the file.
fn maker(kind: &str) -> Result<Run, Error> {
    let program = Run::new(if kind == SWAP { "mkswap".to_owned() } else { format!("mkfs.{kind}") });
    Ok(match kind {
        SWAP => program,
        "ext2" | "ext3" | "ext4" => program.args(["-q", "-F", "-L", "ephemeral0"]),
        "xfs" => program.args(["-q", "-f", "-L", "ephemeral0"]),
        "vfat" => program.args(["-n", "EPHEMERAL0"]),
        "ntfs" => program.args(["--force", "--fast", "--quiet", "--label", "ephemeral0"]),
        other => {
            return Err(Error::Program {
                program: format!("mkfs.{other}"),
                why: "default_ephemeral_format must be ext2, ext3, ext4, xfs, vfat or ntfs"
                    .to_owned(),
            });
        }
    })
}
