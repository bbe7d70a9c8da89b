//! The names that a new host may take.
//!
//! Host names are case-insensitive. The name of an existing host stands for its guests and devices,
//! so a machine gets it only with an operator's consent: a token for that host if the host had a
//! certificate before, and a token that replaces the host if it never had one.

use kilonova_ids::HostName;
use kilonova_pki::check_new_host;
use kilonova_store::Tx;

use crate::db::certificates;
use crate::{Error, Existing};

/// Checks that a machine may take the name. The inner error is the reason for a refusal.
pub(crate) fn free(
    tx: &mut Tx<'_>,
    existing: &Existing,
    host: &HostName,
    replaces: bool,
) -> Result<Result<(), String>, Error> {
    let certified = certificates::spellings(tx, host)?;
    let existing = existing(tx, host)?;
    if let Some(other) = certified.iter().chain(&existing).find(|other| *other != host) {
        return Ok(Err(format!(
            "Host {other} exists, and {host} differs from it only in case; give this machine \
             another name."
        )));
    }
    if existing.is_empty() && certified.is_empty() {
        check_new_host(host)?;
    }
    if !existing.is_empty() && certified.is_empty() && !replaces {
        return Ok(Err(format!(
            "Host {host} exists without a certificate. If this machine is that host, or takes over \
             its guests, create a token with `kilonova node enroll --host {host} --replace`."
        )));
    }
    Ok(Ok(()))
}
