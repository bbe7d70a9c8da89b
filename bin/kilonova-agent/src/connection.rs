//! The connection to the controller: by certificate, or by a shared token for tests and for one
//! machine.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use kilonova_ids::HostName;
use kilonova_node_api::{Revocations, RevokedHost};
use kilonova_node_link::{HostIdentity, Identity, Remote, follow_revocations, keep_certified};
use tokio::task::JoinHandle;

use crate::settings::Settings;
use crate::{facts, libvirt_tls, pki_dir};

/// Interval of checks of the certificate.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Interval of checks of the revocation list.
const REVOKED: Duration = Duration::from_secs(15);

/// A connection to the controller.
pub struct Connection {
    /// The controller.
    pub remote: Remote,
    /// The name of this host.
    pub host: HostName,
    /// Its address.
    pub address: IpAddr,
    keepers: Vec<JoinHandle<()>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.keepers.iter().for_each(JoinHandle::abort);
    }
}

/// Prepares the connection. The error says what to do.
pub fn open(settings: &Settings) -> Result<Connection, String> {
    if let Some((url, file)) = &settings.by_token {
        let shown = file.display();
        let token =
            std::fs::read_to_string(file).map_err(|e| format!("cannot read {shown}: {e}"))?;
        let remote = Remote::new(url, &token).map_err(|e| e.to_string())?;
        tracing::warn!(
            "this host uses the shared token in {shown}, which lets any host act for any other: \
             use it only for tests and on one machine"
        );
        let host = settings
            .host
            .clone()
            .unwrap_or_else(|| HostName::verbatim(kilonova_program::host_name()));
        return Ok(Connection {
            remote,
            host,
            address: address(settings, url),
            keepers: Vec::new(),
        });
    }
    let identity = Identity::at(&settings.state_dir);
    let known = identity.read().map_err(|e| e.to_string())?.ok_or_else(|| {
        "this host has not joined a cloud: run `kilonova node enroll` on the controller, and \
         the command that it prints here"
            .to_owned()
    })?;
    if let Some(host) = settings.host.as_ref().filter(|host| **host != known.host) {
        return Err(format!(
            "this host joined as {} but is configured as {host}: change [DEFAULT] host back, or join \
             again under the new name",
            known.host
        ));
    }
    let controllers = settings.controllers.as_deref().unwrap_or(&known.control);
    let address = address(settings, controllers);
    let remote = known.remote_at(controllers).map_err(|e| e.to_string())?;
    let host = known.host.clone();
    let folder = settings.pki_dir.clone();
    let publish = move |known: &HostIdentity| {
        let Some(folder) = &folder else { return };
        match pki_dir::write(folder, known) {
            Ok(true) => drop(tokio::task::spawn_blocking(|| libvirt_tls::reload(&[]))),
            Ok(false) => {}
            Err(why) => {
                tracing::error!(%why, "[node] pki_dir: could not install the certificate for libvirt");
            }
        }
    };
    publish(&known);
    let kept = remote.clone();
    let mut keepers = vec![tokio::spawn(async move {
        match keep_certified(kept, identity, known, vec![address], CHECK_INTERVAL, publish).await {}
    })];
    if let Some(folder) = settings.pki_dir.clone() {
        let followed = remote.clone();
        let publish = move |list: &Revocations, new: &[RevokedHost]| revoked(&folder, list, new);
        keepers.push(tokio::spawn(async move {
            match follow_revocations(followed, REVOKED, publish).await {}
        }));
    }
    Ok(Connection { remote, host, address, keepers })
}

/// Installs the list of revoked certificates. Libvirt reloads it on a thread; a failure is logged
/// with the command to run.
fn revoked(folder: &Path, list: &Revocations, new: &[RevokedHost]) -> bool {
    match pki_dir::write_revocations(folder, &list.crl) {
        Ok(false) if new.is_empty() => true,
        Ok(_) => {
            let new = new.to_vec();
            drop(tokio::task::spawn_blocking(move || libvirt_tls::reload(&new)));
            true
        }
        Err(why) => {
            tracing::error!(%why, "[node] pki_dir: could not install the revocation list for libvirt");
            false
        }
    }
}

fn address(settings: &Settings, url: &str) -> IpAddr {
    let found = settings
        .my_ip
        .or_else(|| url.split(',').find_map(|url| facts::address_towards(url.trim())));
    found.unwrap_or_else(|| {
        tracing::warn!("could not determine this host's address; set [DEFAULT] my_ip");
        Ipv4Addr::LOCALHOST.into()
    })
}
