//! The way to the control plane: by certificate, or by a word for tests and for one machine.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use kilonova_node_link::{Identity, Known, Remote, keep_certified};
use tokio::task::JoinHandle;

use crate::settings::Settings;
use crate::{facts, pki_dir};

/// How often the certificate is looked at.
const LOOK: Duration = Duration::from_secs(60);

/// The way.
pub struct Way {
    /// The control plane.
    pub remote: Remote,
    /// What this host is called.
    pub host: String,
    /// Its address.
    pub address: IpAddr,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// Finds the way; the error says what to do.
pub fn find(settings: &Settings) -> Result<Way, String> {
    if let Some((url, file)) = &settings.by_token {
        let shown = file.display();
        let token =
            std::fs::read_to_string(file).map_err(|e| format!("cannot read {shown}: {e}"))?;
        let remote = Remote::new(url, &token).map_err(|e| e.to_string())?;
        tracing::warn!(
            "this host speaks by the word in {shown}, as any host could: that is for tests and for \
             one machine"
        );
        let host = settings.host.clone().unwrap_or_else(kilonova_program::host_name);
        return Ok(Way { remote, host, address: address(settings, url), keeper: None });
    }
    let identity = Identity::at(&settings.state_dir);
    let known = identity.read().map_err(|e| e.to_string())?.ok_or_else(|| {
        "this host has not joined a cloud: type `kilonova node enroll` where the control plane is, and \
         what it prints here"
            .to_owned()
    })?;
    if let Some(host) = settings.host.as_ref().filter(|host| **host != known.host) {
        return Err(format!(
            "this host joined as {}, and is told to be {host}: change [DEFAULT] host back, or join \
             again under the new name",
            known.host
        ));
    }
    let address = address(settings, &known.control);
    let remote = known.remote().map_err(|e| e.to_string())?;
    let host = known.host.clone();
    let folder = settings.pki_dir.clone();
    let publish = move |known: &Known| {
        let Some(folder) = &folder else { return };
        if let Err(why) = pki_dir::write(folder, known) {
            tracing::error!(%why, "[node] pki_dir: libvirt does not get the certificate");
        }
    };
    publish(&known);
    let kept = remote.clone();
    let keeper = tokio::spawn(async move {
        match keep_certified(kept, identity, known, vec![address], LOOK, publish).await {}
    });
    Ok(Way { remote, host, address, keeper: Some(keeper) })
}

fn address(settings: &Settings, url: &str) -> IpAddr {
    let found = settings.my_ip.or_else(|| facts::address_towards(url));
    found.unwrap_or_else(|| {
        tracing::warn!("no address of this host is known; name it with [DEFAULT] my_ip");
        Ipv4Addr::LOCALHOST.into()
    })
}
