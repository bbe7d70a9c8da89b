//! Watches the clock, libvirt and missing devices, and reports changes in the log and to systemd.

use std::convert::Infallible;
use std::time::Duration;

use kilonova_libvirt::Driver;
use kilonova_program::systemd;

use crate::check::now;
use crate::way::Way;

const LOOK: Duration = Duration::from_secs(15);
/// The clock is checked every this many rounds.
const CLOCK: u32 = 240;
/// A larger difference is reported, microseconds.
const OFF: i64 = 2_000_000;

/// Runs forever.
pub async fn keep(way: &Way, driver: &Driver, lacking: Option<&str>) -> Infallible {
    let (mut said, mut clock, mut looks) = (None, None, 0_u32);
    loop {
        if looks.is_multiple_of(CLOCK) {
            let asked = now();
            if let Ok(theirs) = way.remote.clock().await {
                clock = off(asked + (now() - asked) / 2 - theirs.micros);
            }
        }
        looks = looks.wrapping_add(1);
        let problems = [driver.connection_error(), lacking.map(str::to_owned), clock.clone()];
        let trouble = problems.into_iter().flatten().collect::<Vec<_>>().join("; ");
        if said.as_ref() != Some(&trouble) {
            if trouble.is_empty() {
                if said.is_some() {
                    tracing::info!(host = way.host, "all problems are solved");
                }
                systemd::status(&format!("host {}, no problems", way.host));
            } else {
                tracing::warn!(host = way.host, "{trouble}");
                systemd::status(&trouble);
            }
            said = Some(trouble);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn off(ahead: i64) -> Option<String> {
    let which = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.abs() > OFF).then(|| {
        format!(
            "the clock of this host is {} s {which} the control plane's: set both by NTP",
            ahead.abs() / 1_000_000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_reported() {
        assert_eq!(off(1_900_000), None);
        let said = off(-600_000_000).expect("it is off");
        assert!(said.contains("600 s behind"), "{said}");
    }
}
