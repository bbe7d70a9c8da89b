//! The config drive: an ISO image labelled `config-2` with the guest's metadata.
//!
//! ```text
//!   openstack/{latest,2012-08-10,…}/  meta_data.json user_data vendor_data.json network_data.json …
//!   openstack/content/                0000 0001 …
//!   ec2/{latest,2009-04-04}/          meta-data.json user-data
//! ```
//!
//! Each dated directory contains the files and keys of that version of the format, as upstream's
//! does. `kilonova-guest-metadata` makes the files; a program builds the image from them.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_guest_metadata::{Document, Vendordata};
use kilonova_hypervisor::Definition;

use crate::run::Run;
use crate::{DisksConfig, Error, Images, layout};

/// The volume label by which a guest finds the config drive.
const LABEL: &str = "config-2";
/// Size of the guest's random seed in bytes.
const SEED: usize = 512;

/// Builds the config drive.
pub(crate) async fn make(
    config: &DisksConfig,
    source: &dyn Images,
    definition: &Definition,
    path: &Path,
) -> Result<(), Error> {
    let mut vendordata = config.vendordata.clone();
    if definition.config.guest.dynamic_vendordata {
        let answers = source.vendordata(definition.server).await;
        vendordata.dynamic =
            answers.map_err(|why| Error::ConfigDrive(format!("the vendor data: {why}")))?;
    }
    let seed: Vec<u8> = (0..SEED).map(|_| rand::random()).collect();
    let files = files(definition, config, vendordata, &BASE64_STANDARD.encode(seed))?;
    let folder = tempfile::tempdir_in(path.parent().unwrap_or(Path::new("/")))
        .map_err(|error| Error::file(path, error))?;
    for (name, content) in files {
        let file = folder.path().join(name);
        let written = std::fs::create_dir_all(file.parent().unwrap_or(folder.path()))
            .and_then(|()| std::fs::write(&file, content));
        written.map_err(|error| Error::file(&file, error))?;
    }
    let new = layout::temporary_path(path)?;
    Run::new(&config.mkisofs_cmd)
        .arg("-o")
        .arg(&new)
        .args(["-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-quiet", "-J", "-r"])
        .args(["-publisher", "Kilonova", "-V", LABEL])
        .arg(folder.path())
        .wait()
        .await?;
    layout::install_file(&new, path)
}

/// The files of the config drive with their contents.
fn files(
    definition: &Definition,
    config: &DisksConfig,
    vendordata: Vendordata,
    seed: &str,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let domain = &config.dhcp_domain;
    let made = Document::of_guest(definition.server, &definition.config, domain, vendordata);
    let document = made.map_err(|error| {
        let server = definition.server;
        Error::ConfigDrive(format!("the user data of {server} is not base64: {error}"))
    })?;
    document.drive(&definition.config.guest.files, seed).map_err(|error| {
        let server = definition.server;
        Error::ConfigDrive(format!("a file of {server} is not base64: {error}"))
    })
}

#[cfg(test)]
mod tests;
