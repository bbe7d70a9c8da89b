//! Issues certificates: the first for a token, later ones for the present certificate.
//!
//! A token without a host name does not allow anybody to become a host that has joined before,
//! because that would give control over that host's guests. An address is in at most one host's
//! certificates.

use std::net::IpAddr;
use std::sync::Arc;

use kilonova_node_api::{Credential, Join, Renewal};
use kilonova_pki::{HostCertificateParams, Secret, check_host};
use kilonova_store::Tx;
use kilonova_wire::time::{now_micros, zulu};

use crate::app::names;
use crate::db::certificates::{self, Given};
use crate::db::{authority, tokens};
use crate::{Enrollment, Error, Existing};

/// Maximum number of addresses of a host.
const ADDRESSES: usize = 16;

pub(crate) async fn first(enrollment: &Enrollment, join: Join) -> Result<Credential, Error> {
    let unknown = "This token is unknown; create a new one with `kilonova node enroll`.";
    let secret: Secret = join.secret.parse().map_err(|_| Error::forbidden(unknown))?;
    check_host(&join.host)?;
    let (hash, host, now) = (secret.hash(), join.host.clone(), now_micros());
    let asked = (hash.clone(), host.clone());
    let existing = Arc::clone(&enrollment.existing);
    let may = move |tx: &mut Tx<'_>| may_join(tx, &*existing, &asked.0, &asked.1, now).map(|_| ());
    enrollment.store.read(may).await?;
    let (credential, given) = sign(enrollment, &host, &join.request, now)?;
    let (revoked, given) = (enrollment.revoked.clone(), Arc::new(given));
    let joined = host.clone();
    let existing = Arc::clone(&enrollment.existing);
    enrollment
        .store
        .write(move |tx| {
            let bound = may_join(tx, &*existing, &hash, &host, now)?;
            if !tokens::use_up(tx, &hash, now, &host)? {
                return Err(Error::forbidden(unknown));
            }
            if bound {
                let before = certificates::revoke(tx, &host, now)?;
                let revoked = revoked.clone();
                tx.on_commit(move || revoked.add(before));
            }
            own_addresses(tx, &given, now)?;
            Ok(certificates::add(tx, &given)?)
        })
        .await?;
    tracing::info!(host = joined, "a host joined");
    Ok(credential)
}

/// Renews the certificate of `host`, which the present certificate names.
pub(crate) async fn next(
    enrollment: &Enrollment,
    host: &str,
    renewal: &Renewal,
) -> Result<Credential, Error> {
    let now = now_micros();
    let (credential, given) = sign(enrollment, host, renewal, now)?;
    let given = Arc::new(given);
    enrollment
        .store
        .write(move |tx| {
            own_addresses(tx, &given, now)?;
            Ok::<_, Error>(certificates::add(tx, &given)?)
        })
        .await?;
    tracing::info!(host, "renewed the certificate of a host");
    Ok(credential)
}

fn sign(
    enrollment: &Enrollment,
    host: &str,
    asked: &Renewal,
    now: i64,
) -> Result<(Credential, Given), Error> {
    if asked.addresses.len() > ADDRESSES {
        return Err(Error::forbidden(format!("A host may have at most {ADDRESSES} addresses.")));
    }
    let content = HostCertificateParams {
        host,
        addresses: &asked.addresses,
        valid: enrollment.options.valid,
    };
    let (certificate, said) = enrollment.authority.sign(&asked.csr, &content, now)?;
    let authority = enrollment.authority.pem().to_owned();
    let addresses: Vec<String> = asked.addresses.iter().map(IpAddr::to_string).collect();
    let given = Given {
        serial: said.serial,
        host: host.to_owned(),
        addresses: addresses.join(" "),
        made_at: now,
        expires_at: said.not_after,
        revoked_at: None,
    };
    Ok((Credential { certificate, authority }, given))
}

/// True if the token names the host. Fails if the token does not allow it to join.
fn may_join(
    tx: &mut Tx<'_>,
    existing: &Existing,
    hash: &str,
    host: &str,
    now: i64,
) -> Result<bool, Error> {
    let again = "create a new one with `kilonova node enroll`";
    let kept = tokens::read(tx, hash)?
        .ok_or_else(|| Error::forbidden(format!("This token is unknown; {again}.")))?;
    if let (Some(at), Some(by)) = (kept.used_at, kept.used_by) {
        let at = zulu(at);
        return Err(Error::forbidden(format!(
            "Host {by} used this token at {at}, and it works only once; {again}."
        )));
    }
    if kept.expires_at <= now {
        let at = zulu(kept.expires_at);
        return Err(Error::forbidden(format!("This token expired at {at}; {again}.")));
    }
    let free = names::free(tx, existing, host, kept.replaces)?;
    if let Err(why) = free {
        return Err(Error::forbidden(why));
    }
    match kept.host {
        Some(bound) if bound == host => Ok(true),
        Some(bound) => Err(Error::forbidden(format!(
            "This token is for host {bound}, but this is host {host}; use --host {bound}, or \
             {again}."
        ))),
        None if certificates::of_host(tx, host, now)?.is_empty() => Ok(false),
        None => Err(Error::forbidden(format!(
            "Host {host} has joined before; to join again it needs a token of its own: `kilonova node \
             enroll --host {host}`."
        ))),
    }
}

fn own_addresses(tx: &mut Tx<'_>, given: &Given, now: i64) -> Result<(), Error> {
    authority::touch(tx)?;
    let ours: Vec<&str> = given.addresses.split_whitespace().collect();
    for other in certificates::live(tx, now)? {
        if other.host == given.host || other.revoked_at.is_some() {
            continue;
        }
        if let Some(both) = other.addresses.split_whitespace().find(|one| ours.contains(one)) {
            return Err(Error::forbidden(format!(
                "Address {both} is in the certificate of host {}; give this host one of its own with \
                 [DEFAULT] my_ip, or revoke that host first.",
                other.host
            )));
        }
    }
    Ok(())
}
