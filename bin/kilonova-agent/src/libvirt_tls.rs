//! Makes libvirt reload its certificates and the CRL, and closes the connections of revoked hosts,
//! because open connections outlive both.
//!
//! Uses `virt-admin` with the daemon that listens for TLS: `libvirtd`, or `virtproxyd` with
//! libvirt's modular daemons. It must never restart a daemon: that would abort migrations.

use std::path::Path;
use std::process::{Command, Stdio};

use kilonova_node_api::RevokedHost;

/// The daemons that listen for TLS, and their admin sockets.
const DAEMONS: [(&str, &str); 2] = [
    ("libvirtd", "/run/libvirt/libvirt-admin-sock"),
    ("virtproxyd", "/run/libvirt/virtproxyd-admin-sock"),
];

/// Makes the running daemons reload all files, and closes the connections of `revoked` hosts.
/// Returns whether all of that succeeded.
pub fn reload(revoked: &[RevokedHost]) -> bool {
    let mut done = true;
    for (daemon, socket) in DAEMONS {
        if !Path::new(socket).exists() {
            continue;
        }
        if let Err(why) = one(daemon, revoked) {
            tracing::warn!(
                daemon,
                why,
                "could not reload its certificates and revocation list; if it listens for \
                 TLS, run: virt-admin -c {daemon}:///system server-update-tls {daemon}"
            );
            done = false;
        }
    }
    done
}

fn one(daemon: &str, revoked: &[RevokedHost]) -> Result<(), String> {
    ask(daemon, &["server-update-tls", daemon])?;
    if revoked.is_empty() {
        return Ok(());
    }
    for client in tls_clients(&ask(daemon, &["client-list", daemon])?) {
        let about = ask(daemon, &["client-info", daemon, &client])?;
        let Some(host) = named(&about) else { continue };
        if revoked.iter().any(|one| one.host == host) {
            ask(daemon, &["client-disconnect", daemon, &client])?;
            tracing::warn!(
                daemon,
                host,
                "closed the connection of a host with a revoked certificate"
            );
        }
    }
    Ok(())
}

fn ask(daemon: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new("virt-admin")
        .args(["-c", &format!("{daemon}:///system")])
        .args(words)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("virt-admin: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The ids of TLS clients in the table of `client-list`.
fn tls_clients(table: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (id, transport) = (words.next()?, words.next()?);
        (transport == "tls" && id.bytes().all(|byte| byte.is_ascii_digit())).then(|| id.to_owned())
    };
    table.lines().filter_map(row).collect()
}

/// The host in the client certificate's name, in the output of `client-info`.
fn named(about: &str) -> Option<&str> {
    about.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        let value = (key.trim() == "tls_x509_dname").then_some(value)?;
        value.split(',').find_map(|part| part.trim().strip_prefix("CN="))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_their_certificates() {
        let table = " Id   Transport   Connected since\n\
                     ------------------------------------------------\n \
                     1    unix        2026-11-23 01:00:00+0000\n \
                     12   tls         2026-11-23 01:02:00+0000\n";
        assert_eq!(tls_clients(table), ["12"]);
        let about = "id             : 12\nconnection_time: 2026-11-23 01:02:00+0000\n\
                     transport      : tls\nreadonly       : no\nsock_addr      : 192.0.2.1:5\n\
                     tls_x509_dname : CN=gpu-1\n";
        assert_eq!(named(about), Some("gpu-1"));
        assert_eq!(named("transport : unix\n"), None);
    }
}
