//! Keeps a host's certificate valid: renews it in time, uses a certificate that an operator
//! installed by joining again, and follows a rotation of the cloud's authority: it trusts the
//! authorities that the controller names, and replaces a certificate of an authority that no
//! longer signs.
//!
//! It never gives up: a host with an expired certificate keeps its guests, and its log tells the
//! operator the remedy.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use kilonova_ids::HostName;

use super::{HostIdentity, Identity, Remote};

/// Number of checks between two requests for the authorities.
const ROUNDS: u32 = 5;

/// Checks at this interval. `changed` receives every new certificate and every change of the
/// trusted authorities.
pub async fn keep_certified(
    remote: Remote,
    identity: Identity,
    mut known: HostIdentity,
    addresses: Vec<IpAddr>,
    every: Duration,
    changed: impl Fn(&HostIdentity) + Send,
) -> std::convert::Infallible {
    let mut round = 0_u32;
    let (mut checking, mut following) = (Problem::default(), Problem::default());
    loop {
        let checked = check(&remote, &identity, &known, &addresses).await;
        checking.log(&known.host, checked.as_ref().err());
        if let Ok(Some(new)) = checked {
            changed(&new);
            known = new;
        }
        if round.is_multiple_of(ROUNDS) {
            let followed = follow(&remote, &identity, &known, &addresses, &changed).await;
            following.log(&known.host, followed.as_ref().err());
            if let Ok(Some(new)) = followed {
                known = new;
            }
        }
        round = round.wrapping_add(1);
        tokio::time::sleep(every).await;
    }
}

/// The problem with the certificate that the last check found.
#[derive(Default)]
struct Problem(Option<String>);

/// The difference between a check and the previous one.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// A problem that differs from the last one, for example in the number of remaining days.
    New,
    Same,
    Ended,
}

impl Problem {
    fn next(&mut self, found: Option<&String>) -> Change {
        let change = match (&self.0, found) {
            (None, None) => Change::Nothing,
            (Some(_), None) => Change::Ended,
            (Some(last), Some(found)) if last == found => Change::Same,
            (_, Some(_)) => Change::New,
        };
        self.0 = found.cloned();
        change
    }

    /// Logs a new problem and its end. A repeated problem is logged only at debug level.
    fn log(&mut self, host: &HostName, found: Option<&String>) {
        let text = found.map_or("", String::as_str);
        match self.next(found) {
            Change::Nothing => {}
            Change::New => tracing::error!(%host, "{text}"),
            Change::Same => tracing::debug!(%host, "still: {text}"),
            Change::Ended => {
                tracing::info!(%host, "the certificate of this host is valid again")
            }
        }
    }
}

/// Follows the authorities of the cloud. Returns the identity if it changed.
async fn follow(
    remote: &Remote,
    identity: &Identity,
    known: &HostIdentity,
    addresses: &[IpAddr],
    changed: &(impl Fn(&HostIdentity) + Send),
) -> Result<Option<HostIdentity>, String> {
    let text = |error: super::Error| error.to_string();
    let host = &known.host;
    let named = match remote.authorities(host, &known.trust()).await {
        Ok(named) => named,
        // A controller of an earlier version does not know this request. The agent's other
        // requests log other failures.
        Err(error) => {
            tracing::debug!(%error, "could not request the authorities");
            return Ok(None);
        }
    };
    let mut new = known.clone();
    if named.authorities != known.authority {
        new = identity.trust(known, named.authorities).map_err(text)?;
        remote.speak_by(new.settings().map_err(text)?).map_err(text)?;
        tracing::info!(%host, "the authorities of the cloud have changed");
        changed(&new);
        // Immediately reports that this host trusts them.
        if let Err(error) = remote.authorities(host, &new.trust()).await {
            tracing::debug!(%error, "could not confirm the authorities");
        }
    }
    let is_current = kilonova_pki::is_issued_by(&new.certificate, &new.authority, &named.signing);
    if !is_current.map_err(|error| error.to_string())? {
        new = identity.renew(remote, &new, addresses.to_vec()).await.map_err(|error| {
            format!("could not get a certificate of the cloud's new authority: {error}")
        })?;
        remote.speak_by(new.settings().map_err(text)?).map_err(text)?;
        tracing::info!(%host, "renewed the certificate of this host with the cloud's new \
            authority");
        changed(&new);
    }
    Ok((new != *known).then_some(new))
}

async fn check(
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
            "the certificate of this host has expired, so the controller refuses it; its guests \
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_once_and_again_when_it_changes() {
        let (nine, eight) = ("9 more day(s)".to_owned(), "8 more day(s)".to_owned());
        let mut problem = Problem::default();
        for (found, change) in [
            (None, Change::Nothing),
            (Some(&nine), Change::New),
            (Some(&nine), Change::Same),
            (Some(&nine), Change::Same),
            (Some(&eight), Change::New),
            (None, Change::Ended),
            (None, Change::Nothing),
            (Some(&eight), Change::New),
        ] {
            assert_eq!(problem.next(found), change);
        }
    }
}
