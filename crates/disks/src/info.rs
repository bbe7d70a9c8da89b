//! Inspects images with `qemu-img info` and decides whether they may be used.
//!
//! The format is never probed: data written by a guest or sent by a user could look like a format
//! that refers to files of the host.

use std::path::Path;

use kilonova_ids::ImageId;
use serde::Deserialize;

use crate::run::Run;
use crate::{Error, Format};

/// The output of `qemu-img info`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Info {
    /// Virtual size in bytes.
    pub virtual_size: u64,
    backing_filename: Option<String>,
    encrypted: Option<bool>,
    format_specific: Option<Specific>,
    snapshots: Option<Vec<serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
struct Specific {
    data: Option<Data>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Data {
    data_file: Option<String>,
    #[serde(default)]
    corrupt: bool,
}

/// Inspects a file of a known format without opening any file that it refers to.
pub(crate) async fn of(path: &Path, format: Format) -> Result<Info, Error> {
    let run = Run::untrusted("qemu-img").args(["info", "--output=json", "-f", format.as_str()]);
    let output = run.arg("--").arg(path).wait().await?;
    serde_json::from_slice(&output).map_err(|error| Error::Program {
        program: "qemu-img".to_owned(),
        why: format!("unexpected output for {}: {error}", path.display()),
    })
}

/// Virtual size of a file that was verified before. The length of a raw file is its size, which
/// saves a process per boot.
pub(crate) async fn size(path: &Path, format: Format) -> Result<u64, Error> {
    const SECTOR: u64 = 512;
    if format != Format::Raw {
        return of(path, format).await.map(|info| info.virtual_size);
    }
    let found = std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
    Ok(found.len().next_multiple_of(SECTOR))
}

/// Inspects a received image, and refuses one that is not self-contained.
pub(crate) async fn checked(image: ImageId, path: &Path, format: Format) -> Result<Info, Error> {
    let info = of(path, format).await.map_err(|error| match error {
        Error::NotInstalled(_) => error,
        _ => Error::image(image, format!("not a valid {} image: {error}", format.as_str())),
    })?;
    let data = info.format_specific.as_ref().and_then(|specific| specific.data.as_ref());
    let why = if info.backing_filename.is_some() {
        "it has a backing file; flatten it (qemu-img convert) and upload it again"
    } else if data.is_some_and(|data| data.data_file.is_some()) {
        "it stores its data in another file; flatten it (qemu-img convert) and upload it again"
    } else if info.encrypted == Some(true) {
        "it is encrypted, and no key is available"
    } else if data.is_some_and(|data| data.corrupt) {
        "it is marked as corrupt; repair it (qemu-img check -r all) and upload it again"
    } else if info.snapshots.as_ref().is_some_and(|snapshots| !snapshots.is_empty()) {
        "it contains snapshots; flatten it (qemu-img convert) and upload it again"
    } else {
        return check_consistency(image, path, format).await.map(|()| info);
    };
    Err(Error::image(image, why))
}

/// Refuses a guest's disk from another host that would read files of this host: an external data
/// file, or a backing file, unless the caller replaces it (`rebased`).
pub(crate) async fn check_self_contained(path: &Path, rebased: bool) -> Result<(), String> {
    let info = of(path, Format::Qcow2).await.map_err(|error| error.to_string())?;
    let name = path.file_name().unwrap_or_default().display();
    let data = info.format_specific.as_ref().and_then(|specific| specific.data.as_ref());
    if data.is_some_and(|data| data.data_file.is_some()) {
        return Err(format!("{name} stores its data in another file; refusing it"));
    }
    if !rebased && info.backing_filename.is_some() {
        return Err(format!("{name} has an unexpected backing file; refusing it"));
    }
    Ok(())
}

/// Checks the consistency of an image. Leaked clusters are harmless.
async fn check_consistency(image: ImageId, path: &Path, format: Format) -> Result<(), Error> {
    const LEAKS: i32 = 3;
    if format == Format::Raw {
        return Ok(());
    }
    let check = Run::untrusted("qemu-img").args(["check", "-q", "-f", format.as_str(), "--"]);
    match check.arg(path).success_codes(&[0, LEAKS]).wait().await {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::image(image, format!("it is corrupt; upload it again: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[tokio::test]
    async fn sizes_match_qemu_img() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, qcow2) = (folder.path().join("raw"), folder.path().join("qcow2"));
        std::fs::write(&raw, vec![1; 1000]).unwrap();
        Run::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "--"])
            .arg(&qcow2)
            .arg("3M")
            .wait()
            .await
            .unwrap();
        for (path, format, wanted) in [(&raw, Format::Raw, 1024), (&qcow2, Format::Qcow2, 3 << 20)]
        {
            assert_eq!(size(path, format).await.unwrap(), wanted);
            assert_eq!(of(path, format).await.unwrap().virtual_size, wanted);
        }
        let absent = folder.path().join("absent");
        let error = size(&absent, Format::Raw).await.unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
