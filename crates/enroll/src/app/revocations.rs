//! The signed list of revoked certificates, for hosts whose libvirt needs it.
//!
//! Each controller signs its own list. All lists have the same certificates and differ only in their
//! dates. A controller signs again after a revocation and after half the validity, not on each request.

use std::sync::PoisonError;

use jiff::{SignedDuration, Timestamp};
use kilonova_node_api::{Revocations, RevokedHost};
use kilonova_pki::{Fingerprint, Revocation};
use kilonova_wire::time;

use crate::{Enrollment, Error};

/// Validity of a list. A host without a newer list then refuses all TLS clients.
const VALID: SignedDuration = SignedDuration::from_hours(48);
/// A controller signs again after this time.
const RENEW: SignedDuration = SignedDuration::from_hours(24);

/// A signed list.
#[derive(Debug)]
pub(crate) struct List {
    revocations: Revocations,
    signed_at: Timestamp,
}

/// The current list.
pub(crate) fn current(enrollment: &Enrollment) -> Result<Revocations, Error> {
    let now = time::now();
    let live = enrollment.revoked.live(now);
    let serials: Vec<&str> = live.iter().map(|one| one.serial.as_str()).collect();
    let held = enrollment.authorities.held();
    let mut parts: Vec<String> =
        held.trusted.iter().map(|one| one.fingerprint().to_string()).collect();
    parts.extend(serials.iter().map(|serial| (*serial).to_owned()));
    let mark = Fingerprint::of(parts.join(" ").as_bytes()).to_string();
    let mut list = enrollment.list.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(List { revocations, signed_at }) = &*list
        && revocations.mark == mark
        && (*signed_at..time::after(*signed_at, RENEW)).contains(&now)
    {
        return Ok(revocations.clone());
    }
    let revoked: Vec<Revocation> = live.iter().map(Revocation::from).collect();
    // One list per authority, because a verifier needs the list of the certificate's issuer.
    let until = time::after(now, VALID);
    let crl = held.trusted.iter().map(|one| one.revocations(&revoked, now, until));
    let crl = crl.collect::<Result<String, _>>()?;
    let revoked =
        live.into_iter().map(|one| RevokedHost { serial: one.serial, host: one.host }).collect();
    let revocations = Revocations { crl, mark, renew_at: time::after(now, RENEW), revoked };
    *list = Some(List { revocations: revocations.clone(), signed_at: now });
    Ok(revocations)
}
