//! Whose name a new host may take.
//!
//! Host names are the same in upper and lower case. The name of a host that exists stands for its guests
//! and its devices, so a machine gets it only by an operator's word: a token for that very host when it
//! had a certificate before, and one that says that it replaces the host when it never had one.

use kilonova_pki::check_new_host;
use kilonova_store::Tx;

use crate::db::certificates;
use crate::{Error, Existing};

/// Why a machine may not take the name, if it may not.
pub(crate) fn free(
    tx: &mut Tx<'_>,
    existing: &Existing,
    host: &str,
    replaces: bool,
) -> Result<Result<(), String>, Error> {
    let certified = certificates::spellings(tx, host)?;
    let there = existing(tx, host)?;
    if let Some(other) = certified.iter().chain(&there).find(|other| *other != host) {
        return Ok(Err(format!(
            "There is a host {other}, and {host} is the same name; give this machine another one."
        )));
    }
    if there.is_empty() && certified.is_empty() {
        check_new_host(host)?;
    }
    if !there.is_empty() && certified.is_empty() && !replaces {
        return Ok(Err(format!(
            "There is a host {host} that has no certificate. If this machine is that host, or takes \
             its place and its guests, have a token made by `kilonova node enroll --host {host} \
             --replace`."
        )));
    }
    Ok(Ok(()))
}
