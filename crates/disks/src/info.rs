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
