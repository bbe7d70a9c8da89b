//! Checks the secrets and certificates of a cloud: the sealing key of this machine against the
//! sealed secrets, the age of the token keys, the authorities of hosts, a rotation that hosts
//! delay, and certificates of hosts that are not renewed.
//!
//! It creates no key, and its texts contain none.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_app::attention::Level;
use kilonova_enroll::{Authorities, AuthorityState, InspectedAuthority, Inspection};
use kilonova_identity::{KeyRole, TokenKey, TokenKeys};
use kilonova_seal::{Error, KeySource, Vault};
use kilonova_store::Store;
use kilonova_wire::time::{self, zulu};

use super::Report;
use super::configuration::Locations;

const AREA: &str = "secrets";
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// A token key that has signed for longer is old. Keystone's operators rotate daily to monthly.
const OLD_KEY: SignedDuration = SignedDuration::from_hours(180 * 24);
/// The remaining validity of an authority below which to begin a rotation, and below which it is urgent.
const SOON: SignedDuration = SignedDuration::from_hours(365 * 24);
const URGENT: SignedDuration = SignedDuration::from_hours(60 * 24);
/// Agents request a staged authority every five minutes; a host that needs this long is off.
const STAGED: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of hosts to list, each with the expiry of its certificate.
const MAX_LISTED: usize = 20;

/// Checks the keys and the authorities. A schema without them, of an earlier version, is a finding.
pub(super) async fn examine(store: &Store, place: &Locations, report: &mut Report) {
    if let Err(error) = checks(store, place, report).await {
        report.skip(AREA, "not checked");
        let remedy = "correct the findings about the store first";
        report.find(AREA, Level::Error, format!("cannot read the secrets: {error}"), remedy);
    }
}

async fn checks(store: &Store, place: &Locations, report: &mut Report) -> Result<(), String> {
    let now = time::now();
    let seal = sealing(store, place, report).await.map_err(|error| error.to_string())?;
    let keys = TokenKeys::list(store).await.map_err(|error| error.to_string())?;
    let signed = token_keys(&keys, now, report);
    let trust = Authorities::inspect(store, now).await.map_err(|error| error.to_string())?;
    for authority in &trust.authorities {
        rotation(authority, now, report);
    }
    expiry(&trust, now, report);
    expiring(&trust, report);
    let trust = match trust.authorities.iter().map(|one| one.not_after).min() {
        None => "no authority for hosts".to_owned(),
        Some(until) => format!("authority until {}, {} hosts", zulu(until), trust.hosts),
    };
    match seal {
        Ok(seal) => report.area(AREA, format!("{seal}; {signed}; {trust}")),
        Err(why) => {
            report.skip(AREA, format!("sealing key not checked: {why}; {signed}; {trust}"));
        }
    }
    Ok(())
}

/// Checks the sealing keys, and returns a summary, or the reason why they are not checked.
async fn sealing(
    store: &Store,
    place: &Locations,
    report: &mut Report,
) -> Result<Result<String, String>, Error> {
    let Some(settings) = &place.settings else {
        return Ok(Err("the configuration has errors".to_owned()));
    };
    let source = settings.seal.source(&settings.state_dir);
    // With PostgreSQL, the controller may run on another machine, which has the key.
    if matches!(source, KeySource::Default(_)) && !place.state_dir.is_dir() {
        return Ok(Err(format!("no {}", place.state_dir.display())));
    }
    let found = Vault::inspect(store, &source).await?;
    for problem in &found.problems {
        let (what, remedy) = match problem {
            Error::Unknown { id, place } => (
                format!("secrets are sealed with key {id}, which is not in {place}"),
                "copy the key file of a controller that has it, with mode 0600; without it a controller \
                 here does not start, and cannot validate new tokens",
            ),
            Error::Damaged(place) => (
                format!("the sealed secret {place} cannot be unsealed: it is damaged or was moved"),
                "restore the database from a good backup",
            ),
            Error::Key(why) => (
                why.clone(),
                "kilonova serve does not start here until it can read the sealing key; run doctor as the \
                 user of the service",
            ),
            Error::Store(error) => (error.to_string(), "check the database"),
        };
        report.find(AREA, Level::Error, what, remedy);
    }
    Ok(Ok(match found.current {
        None => "no secrets before the first start".to_owned(),
        Some(_) => format!("{} secrets, {} sealing key(s)", found.secrets, found.keys),
    }))
}

/// Checks the age of the token keys, and returns a summary.
fn token_keys(keys: &[TokenKey], now: Timestamp, report: &mut Report) -> String {
    let Some(primary) = keys.iter().find(|key| key.role == KeyRole::Primary) else {
        return "no token keys".to_owned();
    };
    // It has signed since the rotation that retired its predecessor.
    let since = keys.iter().filter_map(|key| key.retired_at).max().unwrap_or(primary.made_at);
    let number = primary.number;
    if now.duration_since(since) > OLD_KEY {
        let what = format!("token key {number} has signed since {}", zulu(since));
        let remedy = "rotate: kilonova keys fernet-rotate, from cron or a timer; tokens stay valid";
        report.find(AREA, Level::Note, what, remedy);
    }
    format!("token key {number} has been signing since {}", zulu(since))
}

/// Reports the hosts that delay a rotation of the authority.
fn rotation(authority: &InspectedAuthority, now: Timestamp, report: &mut Report) {
    if authority.late.is_empty() {
        return;
    }
    let (fingerprint, count) = (&authority.known.fingerprint, authority.late.len());
    let hosts = Inspection::names(&authority.late);
    match (authority.known.state, authority.known.trusted_until) {
        (AuthorityState::Staged, _) => {
            let age = now.duration_since(authority.known.made_at);
            let level = if age > STAGED { Level::Warning } else { Level::Note };
            let what =
                format!("{count} host(s) do not trust the staged authority {fingerprint}: {hosts}");
            let remedy = "agents request it every five minutes: start those that are off, and upgrade those of \
                          an earlier version; then run kilonova ca activate";
            report.find(AREA, level, what, remedy);
        }
        (AuthorityState::Outgoing, Some(until)) => {
            let left = until.duration_since(now);
            let level = if left < DAY * 3 { Level::Warning } else { Level::Note };
            let what = format!(
                "{count} host(s) still need the outgoing authority {fingerprint}, which is trusted until {}: \
                 {hosts}",
                zulu(until)
            );
            let remedy = "start their agents, which renew within minutes; after that time these hosts have to \
                          join again";
            report.find(AREA, level, what, remedy);
        }
        (AuthorityState::Outgoing | AuthorityState::Signing | AuthorityState::Retired, _) => {}
    }
}

/// Reports that the signing authority expires soon.
fn expiry(trust: &Inspection, now: Timestamp, report: &mut Report) {
    let signs = |one: &&InspectedAuthority| one.known.state == AuthorityState::Signing;
    let Some(signing) = trust.authorities.iter().find(signs) else { return };
    let left = signing.not_after.duration_since(now);
    if left > SOON {
        return;
    }
    let level = if left < URGENT { Level::Error } else { Level::Warning };
    let what = format!(
        "the authority {} for hosts expires at {}",
        signing.known.fingerprint,
        zulu(signing.not_after)
    );
    let remedy = "begin a rotation with kilonova ca rotate; after the authority expires, no host can connect";
    report.find(AREA, level, what, remedy);
}

/// Reports hosts that have not renewed their certificates.
fn expiring(trust: &Inspection, report: &mut Report) {
    if trust.expiring.is_empty() {
        return;
    }
    let named = trust.expiring.iter().take(MAX_LISTED);
    let mut hosts: Vec<String> =
        named.map(|(host, end)| format!("{host} ({})", zulu(*end))).collect();
    let more = trust.expiring.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        hosts.push(format!("and {more} more"));
    }
    let what = format!(
        "{} host(s) have not renewed a certificate that expires soon: {}",
        trust.expiring.len(),
        hosts.join(", ")
    );
    let remedy = "look at the agents' logs; let a host whose certificate has expired join again with kilonova \
                  node enroll --host HOST; for a host that no longer exists, run kilonova node revoke HOST";
    report.find(AREA, Level::Warning, what, remedy);
}

#[cfg(test)]
mod tests {
    use kilonova_enroll::KnownAuthority;
    use kilonova_ids::HostName;

    use super::*;

    fn after(time: Timestamp, days: i32) -> Timestamp {
        time::after(time, DAY * days)
    }

    fn authority(state: AuthorityState, now: Timestamp, days: i32) -> InspectedAuthority {
        let known = KnownAuthority {
            number: 1,
            fingerprint: "abcd".into(),
            certificate: String::new(),
            state,
            made_at: now,
            trusted_until: None,
        };
        InspectedAuthority { known, not_after: after(now, days), late: Vec::new() }
    }

    fn found(check: impl FnOnce(&mut Report)) -> Option<(Level, String)> {
        let mut report = Report::default();
        check(&mut report);
        assert!(report.findings.len() <= 1, "{:?}", report.findings);
        report.findings.pop().map(|one| (one.level, one.what))
    }

    #[test]
    fn the_end_of_the_authority_is_announced() {
        let now = time::now();
        for (days, level) in [(7300, None), (300, Some(Level::Warning)), (30, Some(Level::Error))] {
            let trust = Inspection {
                authorities: vec![
                    authority(AuthorityState::Outgoing, now, 1),
                    authority(AuthorityState::Signing, now, days),
                ],
                hosts: 0,
                expiring: Vec::new(),
            };
            let found = found(|report| expiry(&trust, now, report));
            assert_eq!(found.map(|one| one.0), level, "{days}");
        }
    }

    #[test]
    fn hosts_that_hold_up_a_rotation_are_named() {
        let now = time::now();
        let mut staged = authority(AuthorityState::Staged, now, 7300);
        assert_eq!(found(|report| rotation(&staged, now, report)), None);
        staged.late = vec![HostName::verbatim("gpu-1")];
        let level = |at: Timestamp, authority: &InspectedAuthority| {
            let (level, what) =
                found(|report| rotation(authority, at, report)).expect("it is late");
            assert!(what.contains("1 host(s)") && what.contains("gpu-1"), "{what}");
            level
        };
        assert_eq!(level(now, &staged), Level::Note, "the host still has time");
        assert_eq!(level(after(now, 1), &staged), Level::Warning);
        let mut old = authority(AuthorityState::Outgoing, now, 7300);
        old.known.trusted_until = Some(after(now, 30));
        old.late.clone_from(&staged.late);
        assert_eq!(level(now, &old), Level::Note);
        assert_eq!(level(after(now, 28), &old), Level::Warning);
    }

    #[test]
    fn many_certificates_are_one_finding() {
        let now = time::now();
        let hosts = (0..30).map(|n| (HostName::verbatim(format!("gpu-{n}")), now));
        let trust = Inspection { authorities: Vec::new(), hosts: 30, expiring: hosts.collect() };
        let (level, what) = found(|report| expiring(&trust, report)).expect("a finding");
        assert_eq!(level, Level::Warning);
        assert!(what.starts_with("30 host(s)") && what.ends_with("and 10 more"), "{what}");
        assert!(!what.contains("gpu-20 "), "{what}");
    }
}
