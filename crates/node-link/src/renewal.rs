//! Keeps a host's certificate valid: renews it in time, and uses one that an operator installed by
//! joining again.
//!
//! It never gives up: a host with an expired certificate keeps its guests and logs what to do.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::{HostIdentity, Identity, Remote};

/// Checks at this interval. `changed` gets every new certificate.
pub async fn keep_certified(
    remote: Remote,
    identity: Identity,
    mut known: HostIdentity,
    addresses: Vec<IpAddr>,
    every: Duration,
    changed: impl Fn(&HostIdentity) + Send,
) -> std::convert::Infallible {
    loop {
        match look(&remote, &identity, &known, &addresses).await {
            Ok(None) => {}
            Ok(Some(new)) => {
                changed(&new);
                known = new;
            }
            Err(error) => tracing::error!(host = %known.host, "{error}"),
        }
        tokio::time::sleep(every).await;
    }
}

async fn look(
    remote: &Remote,
    identity: &Identity,
    known: &HostIdentity,
    addresses: &[IpAddr],
) -> Result<Option<HostIdentity>, String> {
    let text = |error: super::Error| error.to_string();
    let host = &known.host;
    if let Some(other) = identity.read().map_err(text)?.filter(|other| other != known) {
        if other.control != known.control || other.host != *host {
            return Err(format!(
                "this host has joined {} as {}, but the agent still uses {} as {host}: restart it",
                other.control, other.host, known.control
            ));
        }
        remote.speak_by(other.settings().map_err(text)?).map_err(text)?;
        tracing::info!(%host, "using a newly installed certificate");
        return Ok(Some(other));
    }
    let (certificate, now) = (known.parsed_certificate().map_err(text)?, Timestamp::now());
    if certificate.has_expired(now) {
        return Err(format!(
            "the certificate of this host has expired, so the control plane refuses it; its guests \
             keep running. Create a token with `kilonova node enroll --host {host}`, and run the \
             command that it prints"
        ));
    }
    if now < certificate.renew_at() {
        return Ok(None);
    }
    let renewed = identity.renew(remote, known, addresses.to_vec()).await;
    let new = renewed.map_err(|error| {
        let days = certificate.not_after.duration_since(now).as_hours() / 24;
        format!("could not renew the certificate, which is valid for {days} more day(s): {error}")
    })?;
    remote.speak_by(new.settings().map_err(text)?).map_err(text)?;
    tracing::info!(%host, "renewed the certificate of this host");
    Ok(Some(new))
}
