//! Unhealthy devices and the servers on them; devices that wait for a host that is down.

use jiff::{SignedDuration, Timestamp};
use kilonova_accelerator::ledger::{self as devices, HealthFilter};
use kilonova_store::Tx;
use kilonova_wire::time::offset;

use super::{Finding, Level};
use crate::Error;

pub(super) fn unhealthy(tx: &mut Tx<'_>) -> Result<Vec<Finding>, Error> {
    let all = devices::health(tx, &HealthFilter::default())?;
    Ok(all
        .into_iter()
        .map(|one| {
            let servers: Vec<String> = one.servers.iter().map(ToString::to_string).collect();
            let held = match servers.len() {
                0 => "no server uses it".to_owned(),
                1 => format!("server {} uses it", servers[0]),
                _ => format!("servers {} use it", servers.join(", ")),
            };
            let since = one.since.map(offset).unwrap_or_default();
            Finding {
                area: "devices",
                level: Level::Warning,
                what: format!(
                    "device {} of host {} ({}) is {} since {since}: {}; {held}",
                    one.address,
                    one.host,
                    one.device,
                    one.health,
                    one.reason.unwrap_or_default()
                ),
                remedy: format!(
                    "repair it, then: openstack accelerator device enable {}",
                    one.device
                ),
            }
        })
        .collect())
}

/// How long a release may wait for the host's report before it is listed.
const ANSWERED: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn awaited(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<Finding>, Error> {
    let all = devices::pending_releases(tx)?.into_iter();
    let all = all.filter(|one| now.duration_since(one.since) >= ANSWERED);
    Ok(all
        .map(|one| Finding {
            area: "devices",
            level: Level::Warning,
            what: format!(
                "{} of device {} of host {} ({}) have been waiting since {}: an instance of \
                 another Nova released them, and the host has not reported since",
                one.handles,
                one.address,
                one.host,
                one.device,
                offset(one.since)
            ),
            remedy: format!(
                "start the agent of {}; if the host does not return, or nothing runs there: openstack \
                 accelerator device enable {}",
                one.host, one.device
            ),
        })
        .collect())
}
