//! Watches the clock, libvirt and missing devices, and reports changes in the log and to systemd.

use std::convert::Infallible;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_libvirt::Driver;
use kilonova_program::systemd;

use crate::check::ahead;
use crate::connection::Connection;

const INTERVAL: Duration = Duration::from_secs(15);
/// Number of rounds between two checks of the clock.
const CLOCK: u32 = 240;
/// The clock difference above which a problem is reported.
const OFF: Duration = Duration::from_secs(2);

/// Runs forever.
pub async fn run(connection: &Connection, driver: &Driver, missing: Option<&str>) -> Infallible {
    let (mut reported, mut clock, mut rounds) = (None, None, 0_u32);
    loop {
        if rounds.is_multiple_of(CLOCK) {
            let sent = Timestamp::now();
            if let Ok(theirs) = connection.remote.clock().await {
                clock = off(ahead(sent, Timestamp::now(), theirs.now));
            }
        }
        rounds = rounds.wrapping_add(1);
        let problems = [driver.connection_error(), missing.map(str::to_owned), clock.clone()];
        let problem = problems.into_iter().flatten().collect::<Vec<_>>().join("; ");
        if reported.as_ref() != Some(&problem) {
            if problem.is_empty() {
                if reported.is_some() {
                    tracing::info!(host = %connection.host, "all problems are resolved");
                }
                systemd::status(&format!("host {}, no problems", connection.host));
            } else {
                tracing::warn!(host = %connection.host, "{problem}");
                systemd::status(&problem);
            }
            reported = Some(problem);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn off(ahead: SignedDuration) -> Option<String> {
    let which = if ahead.is_positive() { "ahead of" } else { "behind" };
    (ahead.unsigned_abs() > OFF).then(|| {
        format!(
            "the clock of this host is {} s {which} the controller's: synchronize both with NTP",
            ahead.unsigned_abs().as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_reported() {
        assert_eq!(off(SignedDuration::from_millis(1900)), None);
        let reported = off(SignedDuration::from_secs(-600)).expect("the clocks differ");
        assert!(reported.contains("600 s behind"), "{reported}");
    }
}
