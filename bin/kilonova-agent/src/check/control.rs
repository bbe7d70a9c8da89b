//! Checks that the controller is reachable, accepts this host, and has the same time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_node_link::{HostIdentity, Identity, Remote};
use kilonova_pki::Certificate;

use super::Report;
use crate::settings::Settings;

/// The clock difference above which the check fails: certificates and logs depend on the time.
const FAR: Duration = Duration::from_secs(60);
/// The clock difference above which the check warns.
const OFF: Duration = Duration::from_secs(2);

pub(super) async fn check(settings: &Settings, report: &mut Report) {
    let remote = match &settings.by_token {
        Some((url, file)) => {
            report.warn(
                "identity",
                format!(
                    "this host uses the shared token in {}, which lets any host act for any other",
                    file.display()
                ),
                "use it only for tests; otherwise join the cloud: kilonova-agent join",
            );
            let token =
                std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()));
            token.and_then(|token| Remote::new(url, &token).map_err(|e| e.to_string()))
        }
        None => match Identity::at(&settings.state_dir).read() {
            Ok(Some(known)) => {
                certificate(settings, &known, report);
                known
                    .remote_at(settings.controllers.as_deref().unwrap_or(&known.control))
                    .map_err(|error| error.to_string())
            }
            Ok(None) => {
                return report.wrong(
                    "identity",
                    "this host has not joined a cloud",
                    "run `kilonova node enroll` on the controller, then the printed command on this host",
                );
            }
            Err(error) => Err(error.to_string()),
        },
    };
    match remote {
        Ok(remote) => clock(&remote, report).await,
        Err(why) => report.wrong("identity", why, "join the cloud again: kilonova node enroll"),
    }
}

fn certificate(settings: &Settings, known: &HostIdentity, report: &mut Report) {
    let again = format!("create a token: kilonova node enroll --host {}", known.host);
    if let Some(host) = settings.host.as_ref().filter(|host| **host != known.host) {
        report.wrong(
            "identity",
            format!("this host joined as {} but is configured as {host}", known.host),
            "change [DEFAULT] host back, or join again under the new name",
        );
    }
    match known.parsed_certificate() {
        Err(error) => report.wrong("identity", error.to_string(), again),
        Ok(issued) if issued.has_expired(Timestamp::now()) => {
            report.wrong("identity", "the certificate of this host has expired", again);
        }
        Ok(issued) if is_late(&issued, Timestamp::now()) => report.warn(
            "identity",
            format!("the certificate expires in {} day(s) and was not renewed", days_left(&issued)),
            "see the agent's log: journalctl -u kilonova-agent",
        ),
        Ok(issued) => report.ok(
            "identity",
            format!("{}, with a certificate for {} more days", known.host, days_left(&issued)),
        ),
    }
}

/// True in the last sixth of a certificate's validity, when it should have been renewed.
fn is_late(issued: &Certificate, now: Timestamp) -> bool {
    let renew_at = issued.renew_at();
    now.duration_since(renew_at) > issued.not_after.duration_since(now)
}

fn days_left(issued: &Certificate) -> i64 {
    issued.not_after.duration_since(Timestamp::now()).as_hours() / 24
}

async fn clock(remote: &Remote, report: &mut Report) {
    let asked = Timestamp::now();
    let theirs = match remote.clock().await {
        Ok(clock) => clock.now,
        Err(error) => {
            return report.wrong(
                "controller",
                error.to_string(),
                "check that it runs and that its port is open for this host; guests run without it",
            );
        }
    };
    report.ok("controller", "answers");
    evaluate(ahead(asked, Timestamp::now(), theirs), report);
}

/// How far this host's clock is ahead of the controller's. `theirs` is the controller's time at
/// some moment between `asked` and `replied`.
pub fn ahead(asked: Timestamp, replied: Timestamp, theirs: Timestamp) -> SignedDuration {
    let half = replied.duration_since(asked).checked_div(2).unwrap_or_default();
    asked.duration_since(theirs).saturating_add(half)
}

fn evaluate(ahead: SignedDuration, report: &mut Report) {
    let by = ahead.unsigned_abs().as_secs();
    let which = if ahead.is_positive() { "ahead of" } else { "behind" };
    let what = format!("{by} s {which} the controller's");
    let remedy = "synchronize both by NTP: apt install chrony, and see `chronyc tracking`";
    match ahead.unsigned_abs() {
        far if far > FAR => report.wrong("clock", what, remedy),
        off if off > OFF => report.warn("clock", what, remedy),
        _ => report.ok("clock", "in sync with the controller"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_wrong_and_some_seconds_a_warning() {
        let mut report = Report::default();
        evaluate(SignedDuration::from_secs(-1), &mut report);
        evaluate(SignedDuration::from_secs(5), &mut report);
        assert_eq!(report.exit_code(), 0, "{}", report.text());
        evaluate(SignedDuration::from_secs(-600), &mut report);
        assert!(report.exit_code() == 1, "{}", report.text());
        assert!(report.text().contains("600 s behind the controller's"), "{}", report.text());
        assert!(report.text().contains("5 s ahead of the controller's"), "{}", report.text());
    }
}
