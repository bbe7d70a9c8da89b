//! Clocks that differ. Who is up, what is stuck and what is old is told by the clock of the control
//! plane; a host's own counts for its logs and for events of its kernel.

use kilonova_store::{Store, Tx, params};
use kilonova_wire::time::offset;

use super::{Level, Notice};
use crate::Error;
use crate::db::{clock, hosts};

/// Microseconds by which a host's clock may differ: its word is a little on its way.
const HOST: i64 = 2_000_000;
/// Microseconds by which a row may be ahead of us.
const ROW: i64 = 5_000_000;

pub(super) fn differ(tx: &mut Tx<'_>, now: i64) -> Result<Vec<Notice>, Error> {
    let mut notices = Vec::new();
    for host in hosts::all(tx)? {
        let Some(skew) = host.clock_skew.filter(|skew| skew.abs() > HOST) else { continue };
        let (seconds, how) = (skew.abs() as f64 / 1e6, if skew > 0 { "ahead" } else { "behind" });
        notices.push(Notice {
            area: "clock",
            level: Level::Warning,
            what: format!("the clock of host {} is {seconds:.1} s {how} of ours", host.host),
            remedy: format!(
                "see to its time service (chronyc tracking on {}); then it goes within seconds",
                host.host
            ),
        });
    }
    if let Some(newest) = tx.row(clock::NEWEST, params![])?.map(|row| row.int_opt(0)).transpose()?
        && let Some(newest) = newest.filter(|newest| *newest - now > ROW)
    {
        notices.push(Notice {
            area: "clock",
            level: Level::Error,
            what: format!(
                "the newest row is of {}, {} s ahead of this machine's clock: that was put back",
                offset(newest),
                (newest - now) / 1_000_000
            ),
            remedy:
                "set the clock right (chronyc tracking). If it is right now, and was ahead when the row \
                     was written: kilonova doctor --redate. Until then hosts look alive that are not, \
                     and tokens end late"
                    .to_owned(),
        });
    }
    Ok(notices)
}

/// Rows that had the time of a clock ahead of this one, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redated {
    /// Hosts.
    pub hosts: u64,
    /// Operations.
    pub operations: u64,
    /// Servers.
    pub servers: u64,
}

/// Gives every row that is newer than `now` the time `now`: a clock was ahead once, and is right now.
/// All in one transaction.
///
/// # Errors
/// The database's.
pub async fn redate(store: &Store, now: i64) -> Result<Redated, Error> {
    store
        .write(move |tx| {
            Ok(Redated {
                hosts: tx.execute(clock::REDATE_HOSTS, params![now])?,
                operations: kilonova_flow::redate(tx, now)?,
                servers: tx.execute(clock::REDATE_SERVERS, params![now])?,
            })
        })
        .await
}
