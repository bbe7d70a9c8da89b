//! Issues certificates: the first against a join token, later ones against the present certificate.
//!
//! A renewal checks the row of the presented certificate in the transaction that adds the new one.
//! So a revocation that this controller has not noticed yet takes effect, and the revocation of
//! another certificate of the same host does not. A renewal with the addresses of the host's valid
//! certificates reads the host's own rows only, so that all hosts can renew at the same time.
//!
//! A token without a host name admits new hosts only: the name of a host that has joined before would
//! give control over that host's guests. An address is in the certificates of at most one host.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_node_api::{Credential, Join, Renewal};
use kilonova_pki::{HostCertificateParams, Secret, check_host};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time::{self, zulu};

use crate::app::names;
use crate::authorities::Held;
use crate::db::certificates::{self, IssuedCertificate};
use crate::db::{authorities, authority, tokens};
use crate::{Enrollment, Error, Existing};
use kilonova_changes::Topic;

/// Maximum number of addresses of a host.
const ADDRESSES: usize = 16;
/// Maximum number of attempts to sign a certificate while authorities change.
const ATTEMPTS: usize = 3;

/// Issues the first certificate of a host against its join token.
pub(crate) async fn join(enrollment: &Enrollment, join: Join) -> Result<Credential, Error> {
    let unknown = "This token is unknown; create a new one with `kilonova node enroll`.";
    let secret: Secret = join.secret.parse().map_err(|_| Error::forbidden(unknown))?;
    check_host(&join.host)?;
    let (hash, host, now) = (secret.hash(), join.host.clone(), time::now());
    let token_of_host = (hash.clone(), host.clone());
    let existing = Arc::clone(&enrollment.existing);
    let may = move |tx: &mut Tx<'_>| {
        may_join(tx, &*existing, &token_of_host.0, &token_of_host.1, now).map(|_| ())
    };
    enrollment.store.read(may).await?;
    let joined = host.clone();
    let credential = signed(enrollment, &host, &join.request, now, |certificate| {
        let revoked = enrollment.revoked.clone();
        let existing = Arc::clone(&enrollment.existing);
        let (hash, host) = (hash.clone(), host.clone());
        move |tx: &mut Tx<'_>| {
            let bound = may_join(tx, &*existing, &hash, &host, now)?;
            if !tokens::use_up(tx, &hash, now, &host)? {
                return Err(Error::forbidden(unknown));
            }
            if bound {
                let before = certificates::revoke(tx, &host, now)?;
                if !before.is_empty() {
                    kilonova_changes::append(tx, Topic::Revoked, &host, 0)?;
                }
                let revoked = revoked.clone();
                tx.on_commit(move || revoked.add(before));
            }
            check_addresses(tx, &certificate, now)?;
            Ok(certificates::add(tx, &certificate)?)
        }
    })
    .await?;
    tracing::info!(host = %joined, "a host joined");
    Ok(credential)
}

/// Renews the certificate of `host`; `serial` is the serial number of the present certificate.
pub(crate) async fn renew(
    enrollment: &Enrollment,
    host: &HostName,
    serial: &str,
    renewal: &Renewal,
) -> Result<Credential, Error> {
    let now = time::now();
    let credential = signed(enrollment, host, renewal, now, |certificate| {
        let serial = serial.to_owned();
        move |tx: &mut Tx<'_>| {
            may_renew(tx, &serial, &certificate.host)?;
            if !has_addresses(tx, &certificate, now)? {
                check_addresses(tx, &certificate, now)?;
            }
            Ok(certificates::add(tx, &certificate)?)
        }
    })
    .await?;
    tracing::info!(%host, "renewed the certificate of a host");
    Ok(credential)
}

/// Signs a certificate and runs the transaction that `store` returns for it. If the authority has
/// ceased to sign in the meantime, signs again with the next one.
async fn signed<W>(
    enrollment: &Enrollment,
    host: &HostName,
    request: &Renewal,
    now: Timestamp,
    store: impl Fn(Arc<IssuedCertificate>) -> W,
) -> Result<Credential, Error>
where
    W: FnMut(&mut Tx<'_>) -> Result<(), Error> + Send + 'static,
{
    for _ in 0..ATTEMPTS {
        let held = enrollment.authorities.held();
        let (credential, certificate) = sign(enrollment, &held, host, request, now)?;
        let number = certificate.authority;
        let mut work = store(Arc::new(certificate));
        let stored = enrollment.store.write(move |tx| {
            authority::touch(tx)?;
            if authorities::signing(tx)? != Some(number) {
                return Ok(false);
            }
            work(tx).map(|()| true)
        });
        if stored.await? {
            return Ok(credential);
        }
        enrollment.authorities.reload().await?;
    }
    Err(Error::Refused(Kind::Unavailable, "The authority is changing; try again.".to_owned()))
}

fn sign(
    enrollment: &Enrollment,
    held: &Held,
    host: &HostName,
    request: &Renewal,
    now: Timestamp,
) -> Result<(Credential, IssuedCertificate), Error> {
    if request.addresses.len() > ADDRESSES {
        return Err(Error::forbidden(format!("A host may have at most {ADDRESSES} addresses.")));
    }
    let content = HostCertificateParams {
        host,
        addresses: &request.addresses,
        valid: enrollment.options.valid,
    };
    let (number, signing) = &held.signing;
    let (certificate, facts) = signing.sign(&request.csr, &content, now)?;
    let authority = held.bundle.clone();
    let addresses: Vec<String> = request.addresses.iter().map(IpAddr::to_string).collect();
    let issued = IssuedCertificate {
        serial: facts.serial,
        host: host.clone(),
        addresses: addresses.join(" "),
        made_at: now,
        expires_at: facts.not_after,
        revoked_at: None,
        authority: *number,
    };
    Ok((Credential { certificate, authority }, issued))
}

/// True if the token names the host. Fails if the token does not allow it to join.
fn may_join(
    tx: &mut Tx<'_>,
    existing: &Existing,
    hash: &str,
    host: &HostName,
    now: Timestamp,
) -> Result<bool, Error> {
    let advice = "create a new one with `kilonova node enroll`";
    let token = tokens::read(tx, hash)?
        .ok_or_else(|| Error::forbidden(format!("This token is unknown; {advice}.")))?;
    if let (Some(at), Some(by)) = (token.used_at, token.used_by) {
        let at = zulu(at);
        return Err(Error::forbidden(format!(
            "Host {by} used this token at {at}, and it works only once; {advice}."
        )));
    }
    if token.expires_at <= now {
        let at = zulu(token.expires_at);
        return Err(Error::forbidden(format!("This token expired at {at}; {advice}.")));
    }
    let free = names::free(tx, existing, host, token.replaces)?;
    if let Err(why) = free {
        return Err(Error::forbidden(why));
    }
    match token.host {
        Some(bound) if bound == *host => Ok(true),
        Some(bound) => Err(Error::forbidden(format!(
            "This token is for host {bound}, but this is host {host}; use --host {bound}, or \
             {advice}."
        ))),
        None if certificates::of_host(tx, host, now)?.is_empty() => Ok(false),
        None => Err(Error::forbidden(format!(
            "Host {host} has joined before; to join again, use a token for this host: `kilonova \
             node enroll --host {host}`."
        ))),
    }
}

/// Refuses a certificate that was revoked. The listener has verified the certificate. If its row is
/// missing, an older backup was restored, and the host may continue.
fn may_renew(tx: &mut Tx<'_>, serial: &str, host: &HostName) -> Result<(), Error> {
    match certificates::read(tx, serial)? {
        Some(presented) if presented.revoked_at.is_some() || presented.host != *host => {
            Err(Error::forbidden(format!(
                "The certificate of host {host} was revoked: create a token with `kilonova node enroll \
                 --host {host}`, and join again."
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// True if the host's valid certificates contain all the addresses, so that no other host has them.
fn has_addresses(
    tx: &mut Tx<'_>,
    certificate: &IssuedCertificate,
    now: Timestamp,
) -> Result<bool, Error> {
    let own = certificates::of_host(tx, &certificate.host, now)?;
    let has =
        |address| own.iter().any(|one| one.addresses.split_whitespace().any(|a| a == address));
    Ok(certificate.addresses.split_whitespace().all(has))
}

/// Refuses an address that the valid certificate of another host has.
fn check_addresses(
    tx: &mut Tx<'_>,
    certificate: &IssuedCertificate,
    now: Timestamp,
) -> Result<(), Error> {
    for address in certificate.addresses.split_whitespace() {
        let other = certificates::other_with_address(tx, &certificate.host, address, now)?;
        if let Some(other) = other {
            return Err(Error::forbidden(format!(
                "Address {address} is in the certificate of host {other}; give this host one of its own with \
                 [DEFAULT] my_ip, or revoke that host first."
            )));
        }
    }
    Ok(())
}
