//! Creating tokens, and listing tokens and certificates.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kilonova_ids::HostName;
use kilonova_pki::{Secret, Token, check_host};
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;

use crate::app::names;
use crate::db::certificates::{self, IssuedCertificate};
use crate::db::tokens;
use crate::{Enrollment, Error};
use kilonova_store::Tx;

/// Maximum validity of a token, seconds.
const LONGEST: i64 = 30 * 24 * 3600;
/// Retention of expired rows, which explain refusals.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A new token.
pub(crate) struct NewToken {
    pub token: Token,
    pub host: Option<HostName>,
    pub expires_at: Timestamp,
}

/// Creates a join token, for one host or for any new host.
pub(crate) async fn make(
    enrollment: &Enrollment,
    host: Option<HostName>,
    seconds: i64,
    replaces: bool,
) -> Result<NewToken, Error> {
    if replaces && host.is_none() {
        let why = "To replace a host, the token must name it.";
        return Err(Error::Refused(Kind::BadRequest, why.to_owned()));
    }
    if let Some(host) = host.clone() {
        check_host(&host)?;
        let existing = Arc::clone(&enrollment.existing);
        let name = host.clone();
        let free = move |tx: &mut Tx<'_>| names::free(tx, &*existing, &name, replaces);
        if let Err(why) = enrollment.store.read(free).await? {
            return Err(Error::Refused(Kind::Conflict, why));
        }
    }
    if !(1..=LONGEST).contains(&seconds) {
        return Err(Error::Refused(
            Kind::BadRequest,
            format!("A token may be valid for 1 to {LONGEST} seconds."),
        ));
    }
    let secret = Secret::new();
    let (hash, now) = (secret.hash(), time::now());
    let (bound, expires_at) = (host.clone(), time::after(now, SignedDuration::from_secs(seconds)));
    enrollment
        .store
        .write(move |tx| {
            let expired_before = time::before(now, RETENTION);
            tokens::delete_expired(tx, expired_before)?;
            certificates::delete_expired(tx, expired_before)?;
            tokens::add(tx, &hash, bound.as_ref(), now, expires_at, replaces)
        })
        .await?;
    tracing::info!(
        host = host.as_deref().unwrap_or("any"),
        valid_s = seconds,
        "created a join token"
    );
    let token = Token { secret, authority: enrollment.authorities.shown().fingerprint() };
    Ok(NewToken { token, host, expires_at })
}

/// The tokens and certificates in use.
pub(crate) struct Listing {
    /// Certificates that have not expired.
    pub certificates: Vec<IssuedCertificate>,
    /// Host and expiry of each usable token.
    pub tokens: Vec<(Option<HostName>, Timestamp)>,
}

/// Lists the usable tokens and the certificates.
pub(crate) async fn list(enrollment: &Enrollment) -> Result<Listing, Error> {
    let now = time::now();
    enrollment
        .store
        .read(move |tx| {
            Ok(Listing {
                certificates: certificates::live(tx, now)?,
                tokens: tokens::usable(tx, now)?,
            })
        })
        .await
}
