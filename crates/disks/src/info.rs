//! What an image really is, by `qemu-img info`, and whether it may be used.
//!
//! The format is never guessed: what a guest has written, or a user has sent, could look like a format
//! that points at files of the host.

use std::path::Path;

use kilonova_ids::ImageId;
use serde::Deserialize;

use crate::run::Run;
use crate::{Error, Format};

/// What `qemu-img` says of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Info {
    /// Bytes that the guest sees.
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

/// Looks at a file of this format; nothing that it points at is opened.
pub(crate) async fn of(path: &Path, format: Format) -> Result<Info, Error> {
    let run = Run::guarded("qemu-img").args(["info", "--output=json", "-f", format.as_str()]);
    let said = run.arg("--").arg(path).wait().await?;
    serde_json::from_slice(&said).map_err(|error| Error::Program {
        program: "qemu-img".to_owned(),
        why: format!("says of {} what is not understood: {error}", path.display()),
    })
}

/// Bytes that a guest sees of a file that was looked at before. A raw one's length says it, without a
/// process for each boot.
pub(crate) async fn size(path: &Path, format: Format) -> Result<u64, Error> {
    const SECTOR: u64 = 512;
    if format != Format::Raw {
        return of(path, format).await.map(|info| info.virtual_size);
    }
    let found = std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
    Ok(found.len().next_multiple_of(SECTOR))
}

/// Looks at an image as it came, and refuses one that is more than its own bytes.
pub(crate) async fn checked(image: ImageId, path: &Path, format: Format) -> Result<Info, Error> {
    let info = of(path, format).await.map_err(|error| {
        Error::image(image, format!("it is no {} image: {error}", format.as_str()))
    })?;
    let data = info.format_specific.as_ref().and_then(|specific| specific.data.as_ref());
    let why = if info.backing_filename.is_some() {
        "it has a backing file; flatten it (qemu-img convert) and send it again"
    } else if data.is_some_and(|data| data.data_file.is_some()) {
        "it keeps its data in another file; flatten it (qemu-img convert) and send it again"
    } else if info.encrypted == Some(true) {
        "it is encrypted, and there is no key for it here"
    } else if data.is_some_and(|data| data.corrupt) {
        "it is marked as corrupt; mend it (qemu-img check -r all) and send it again"
    } else if info.snapshots.as_ref().is_some_and(|snapshots| !snapshots.is_empty()) {
        "it has snapshots inside; flatten it (qemu-img convert) and send it again"
    } else {
        return sound(image, path, format).await.map(|()| info);
    };
    Err(Error::image(image, why))
}

/// Refuses a guest's disk from another host that reads files of this one: its backing file, unless it
/// is to get another (`rebased`), or a file that its data is in.
pub(crate) async fn own(path: &Path, rebased: bool) -> Result<(), String> {
    let info = of(path, Format::Qcow2).await.map_err(|error| error.to_string())?;
    let name = path.file_name().unwrap_or_default().display();
    let data = info.format_specific.as_ref().and_then(|specific| specific.data.as_ref());
    if data.is_some_and(|data| data.data_file.is_some()) {
        return Err(format!("{name} keeps its data in another file, so it is not used"));
    }
    if !rebased && info.backing_filename.is_some() {
        return Err(format!("{name} has a backing file, and should have none, so it is not used"));
    }
    Ok(())
}

/// Whether all that the image says of itself fits together. Space that it has lost is no harm.
async fn sound(image: ImageId, path: &Path, format: Format) -> Result<(), Error> {
    const LEAKS: i32 = 3;
    if format == Format::Raw {
        return Ok(());
    }
    let check = Run::guarded("qemu-img").args(["check", "-q", "-f", format.as_str(), "--"]);
    match check.arg(path).fine(&[0, LEAKS]).wait().await {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::image(image, format!("it is corrupt; send it again: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[tokio::test]
    async fn a_size_is_what_qemu_img_says() {
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
