//! Finds clocks that differ. The controller's clock decides which hosts are up and which rows are
//! old; a host's clock matters for its logs and for the events of its kernel.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::{clock, hosts};
use kilonova_store::{Store, Tx};
use kilonova_wire::time::offset;

use super::{Finding, Level};
use crate::Error;

/// Tolerated difference of a host's clock. It covers the time that a heartbeat takes to arrive.
const HOST: Duration = Duration::from_secs(2);
/// Tolerated lead of a row's time over the controller's clock.
const ROW: SignedDuration = SignedDuration::from_secs(5);

pub(super) fn differ(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for host in hosts::all(tx)? {
        let Some(skew) = host.clock_skew.filter(|skew| skew.unsigned_abs() > HOST) else {
            continue;
        };
        let seconds = skew.unsigned_abs().as_secs_f64();
        let how = if skew.is_positive() { "ahead of" } else { "behind" };
        findings.push(Finding {
            area: "clock",
            level: Level::Warning,
            what: format!(
                "the clock of host {} is {seconds:.1} s {how} the controller's",
                host.host
            ),
            remedy: format!(
                "fix its time service (chronyc tracking on {}); this finding disappears within \
                 seconds",
                host.host
            ),
        });
    }
    let ahead = |newest: &Timestamp| newest.duration_since(now) > ROW;
    if let Some(newest) = clock::newest(tx)?.filter(ahead) {
        findings.push(Finding {
            area: "clock",
            level: Level::Error,
            what: format!(
                "the newest row has the time {}, {} s ahead of this machine's clock: the clock was set back",
                offset(newest),
                newest.duration_since(now).as_secs()
            ),
            remedy:
                "correct the clock (chronyc tracking). If it is correct now, and was ahead when the row was \
                 written: kilonova doctor --redate. Until then hosts that are down are shown as up, and tokens \
                 expire late"
                    .to_owned(),
        });
    }
    Ok(findings)
}

/// The numbers of rows whose times were ahead of the controller's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redated {
    /// Hosts.
    pub hosts: u64,
    /// Operations.
    pub operations: u64,
    /// Servers.
    pub servers: u64,
}

/// Sets every time ahead of `now` to `now`, in one transaction. An operator requests it after a
/// clock that was ahead has been corrected.
///
/// # Errors
/// Store errors only.
pub async fn redate(store: &Store, now: Timestamp) -> Result<Redated, Error> {
    store
        .write(move |tx| {
            Ok(Redated {
                hosts: clock::redate_hosts(tx, now)?,
                operations: kilonova_flow::redate(tx, now)?,
                servers: clock::redate_servers(tx, now)?,
            })
        })
        .await
}
