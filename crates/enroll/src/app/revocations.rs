//! The signed list of revoked certificates, for hosts whose libvirt has to know it.
//!
//! Each controller signs its own; all of them list the same certificates, so a host that asks one and
//! then another sees no difference but the dates. A list is signed again when a certificate is added
//! and when half of its time is over, not with each request.

use std::sync::PoisonError;

use kilonova_node_api::{Revocations, RevokedHost};
use kilonova_pki::{Fingerprint, Revocation};
use kilonova_wire::time::now_micros;

use crate::{Enrollment, Error};

/// For how long a list is good. A host that hears of no newer one lets nobody in by TLS from then on.
const VALID: i64 = 48 * 3600 * 1_000_000;

/// A list that was signed.
#[derive(Debug)]
pub(crate) struct List {
    said: Revocations,
    made_at: i64,
}

/// The list as it is now.
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
