//! The config drive: a disc named `config-2` that tells a guest what it is.
//!
//! ```text
//!   openstack/{latest,2012-08-10,…}/  meta_data.json user_data vendor_data.json network_data.json …
//!   ec2/{latest,2009-04-04}/          meta-data.json user-data
//! ```
//!
//! Each dated folder has what was known at its date, as upstream's has. [`files`] is pure; the disc is
//! made of them by a program.

mod ec2;
mod network;
mod openstack;

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_hypervisor::Definition;

use crate::run::Run;
use crate::{Config, Error, layout};

/// The name of the disc, by which a guest finds it.
const VOLUME: &str = "config-2";
/// Random bytes that a guest is given to begin with.
const SEED: usize = 512;

/// Makes the disc.
pub(crate) async fn make(config: &Config, want: &Definition, path: &Path) -> Result<(), Error> {
    let seed: Vec<u8> = (0..SEED).map(|_| rand::random()).collect();
    let files = files(want, &config.dhcp_domain, &BASE64_STANDARD.encode(seed))?;
    let folder = tempfile::tempdir_in(path.parent().unwrap_or(Path::new("/")))
        .map_err(|error| Error::file(path, error))?;
    for (name, content) in files {
        let file = folder.path().join(name);
        let written = std::fs::create_dir_all(file.parent().unwrap_or(folder.path()))
            .and_then(|()| std::fs::write(&file, content));
        written.map_err(|error| Error::file(&file, error))?;
    }
    let new = layout::beside(path)?;
    Run::new(&config.mkisofs_cmd)
        .arg("-o")
        .arg(&new)
        .args(["-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-quiet", "-J", "-r"])
        .args(["-publisher", "Kilonova", "-V", VOLUME])
        .arg(folder.path())
        .wait()
        .await?;
    layout::put(&new, path)
}

/// The files of the disc and what is in them.
fn files(want: &Definition, domain: &str, seed: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let hostname = hostname(&want.guest.hostname, domain);
    let user_data = match &want.guest.user_data {
        Some(data) => Some(BASE64_STANDARD.decode(data).map_err(|error| {
            Error::Told(format!("the user data of {} is not base64: {error}", want.server))
        })?),
        None => None,
    };
    let mut files = openstack::files(want, &hostname, seed, user_data.as_deref());
    files.extend(ec2::files(want, &hostname, user_data.as_deref()));
    Ok(files)
}

/// The host name with a domain, unless it has one.
fn hostname(name: &str, domain: &str) -> String {
    if domain.is_empty() || name.contains('.') {
        name.to_owned()
    } else {
        format!("{name}.{domain}")
    }
}

#[cfg(test)]
mod tests;
