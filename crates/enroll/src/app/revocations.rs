//! The signed list of revoked certificates, for hosts whose libvirt needs it.
//!
//! Each controller signs its own list; all lists have the same certificates, so only the dates
//! differ between controllers. A list is signed again when a certificate is revoked and after half
//! its validity, not on each request.

use std::sync::PoisonError;

use kilonova_node_api::{Revocations, RevokedHost};
use kilonova_pki::{Fingerprint, Revocation};
use kilonova_wire::time::now_micros;

use crate::{Enrollment, Error};

/// Validity of a list. A host without a newer list then refuses all TLS clients.
const VALID: i64 = 48 * 3600 * 1_000_000;

/// A signed list.
#[derive(Debug)]
pub(crate) struct List {
    said: Revocations,
    made_at: i64,
}

/// The current list.
pub(crate) fn current(enrollment: &Enrollment) -> Result<Revocations, Error> {
    let now = now_micros();
    let live = enrollment.revoked.live(now);
    let serials: Vec<&str> = live.iter().map(|one| one.serial.as_str()).collect();
    let mark = Fingerprint::of(serials.join(" ").as_bytes()).to_string();
    let mut list = enrollment.list.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(List { said, made_at }) = &*list
        && said.mark == mark
        && (*made_at..*made_at + VALID / 2).contains(&now)
    {
        return Ok(said.clone());
    }
    let revoked: Vec<Revocation> = live.iter().map(Revocation::from).collect();
    let crl = enrollment.authority.revocations(&revoked, now, now + VALID)?;
    let revoked =
        live.into_iter().map(|one| RevokedHost { serial: one.serial, host: one.host }).collect();
    let said = Revocations { crl, mark, renew_at: now + VALID / 2, revoked };
    *list = Some(List { said: said.clone(), made_at: now });
    Ok(said)
}
