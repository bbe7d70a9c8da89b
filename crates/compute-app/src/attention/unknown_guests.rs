//! Guests that no document names: a restored database lacks their servers, or places them on other hosts.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::unknown_guests::{self, UnknownGuest};
use kilonova_ids::HostName;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::{Bounds, Finding, Level};
use crate::Error;

/// Hosts report these guests every ten minutes, so a guest without a report for this long is gone.
const RECENT: SignedDuration = SignedDuration::from_mins(30);
/// Maximum number of guests to examine.
const MOST: i64 = 10_000;
/// Maximum number of servers named for each host.
const NAMED: usize = 10;

pub(super) fn found(
    tx: &mut Tx<'_>,
    bounds: &Bounds,
    now: Timestamp,
) -> Result<Vec<Finding>, Error> {
    // Without a controller, newer reports are not recorded, so reports of any age count.
    let since = if bounds.listening { time::before(now, RECENT) } else { Timestamp::UNIX_EPOCH };
    let mut lost: BTreeMap<HostName, Vec<String>> = BTreeMap::new();
    let mut findings = Vec::new();
    for guest in unknown_guests::since(tx, since, MOST)? {
        if guest.is_known {
            findings.push(elsewhere(&guest));
        } else {
            lost.entry(guest.host).or_default().push(guest.server.to_string());
        }
    }
    findings.extend(lost.iter().map(|(host, servers)| unnamed(host, servers)));
    Ok(findings)
}

/// The finding about a guest whose server is on another host.
fn elsewhere(guest: &UnknownGuest) -> Finding {
    let UnknownGuest { host, server, own_host, .. } = guest;
    let own = own_host.as_ref().map_or_else(|| "no host".to_owned(), |own| format!("host {own}"));
    Finding {
        area: "nodes",
        level: Level::Error,
        what: format!(
            "host {host} has a guest of server {server}, which is on {own}: it may run twice, with the same \
             addresses"
        ),
        remedy: format!(
            "decide which guest is needed: if the fault of the server says that its host has removed the guest, the one \
             on {host} is the only one, so save its disk first. Then remove it with virsh destroy and virsh undefine. This finding disappears half an hour later"
        ),
    }
}

/// The finding about guests of servers that are not in the database.
fn unnamed(host: &HostName, servers: &[String]) -> Finding {
    let named = servers.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = match servers.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!(" and {more} more"),
        _ => String::new(),
    };
    let guests = if servers.len() == 1 { "guest" } else { "guests" };
    Finding {
        area: "nodes",
        level: Level::Warning,
        what: format!(
            "host {host} has {} {guests} of servers that the database does not have, as after restoring \
             an older dump: {named}{more}",
            servers.len()
        ),
        remedy: format!(
            "they keep running, and the cloud does not touch them. Save what is needed from their disks on {host}; \
             then virsh destroy and virsh undefine them. This finding disappears half an hour later"
        ),
    }
}
