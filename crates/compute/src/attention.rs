//! What is in order and still needs an operator: devices that are not in health and the servers on
//! them, machines that changed their name, hosts that say nothing. Each with what to do.
//!
//! It must never write, and nothing here means that the ledger is wrong.

use kilonova_accelerator::ledger::{self as devices, Question};
use kilonova_store::{Store, Tx};
use kilonova_wire::time::{now_micros, offset};

use crate::Error;
use crate::app::fleet::DOWN_AFTER;
use crate::db::{hosts, machines};

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What is so.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// Looks at everything, on one snapshot.
///
/// # Errors
/// The database's.
pub async fn look(store: &Store) -> Result<Vec<Notice>, Error> {
    store
        .read(|tx| {
            let mut notices = unhealthy(tx)?;
            notices.extend(renamed(tx)?);
            notices.extend(silent(tx)?);
            Ok(notices)
        })
        .await
}

fn unhealthy(tx: &mut Tx<'_>) -> Result<Vec<Notice>, Error> {
    let all = devices::health(tx, &Question::default())?;
    Ok(all
        .into_iter()
        .map(|one| {
            let servers: Vec<String> = one.servers.iter().map(ToString::to_string).collect();
            let held = match servers.len() {
                0 => "no server is on it".to_owned(),
                1 => format!("server {} is on it", servers[0]),
                _ => format!("servers {} are on it", servers.join(", ")),
            };
            let since = one.since.map(offset).unwrap_or_default();
            Notice {
                what: format!(
                    "device {} of host {} ({}) is {} since {since}: {}; {held}",
                    one.address,
                    one.host,
                    one.device,
                    one.health,
                    one.reason.unwrap_or_default()
                ),
                remedy: format!(
                    "see to it, then: openstack accelerator device enable {}",
                    one.device
                ),
            }
        })
        .collect())
}

fn renamed(tx: &mut Tx<'_>) -> Result<Vec<Notice>, Error> {
    let rows = machines::renamed(tx)?;
    let notice = |group: &[(String, String)]| {
        let (machine, now) = group.first()?;
        let old: Vec<&str> = group[1..].iter().map(|(_, host)| host.as_str()).collect();
        let old = old.join(", ");
        Some(Notice {
            what: format!("host {now} is the machine that was host {old} (machine id {machine})"),
            remedy: format!(
                "name it {old} again, or move or delete the servers of {old} and delete its \
                 compute service"
            ),
        })
    };
    Ok(rows.chunk_by(|a, b| a.0 == b.0).filter_map(notice).collect())
}

fn silent(tx: &mut Tx<'_>) -> Result<Vec<Notice>, Error> {
    let now = now_micros();
    let quiet = |host: &hosts::Host| now - host.last_seen >= DOWN_AFTER && !host.forced_down;
    let all = hosts::all(tx)?.into_iter().filter(quiet);
    Ok(all
        .map(|host| Notice {
            what: format!(
                "host {} was last heard of {} s ago",
                host.host,
                (now - host.last_seen) / 1_000_000
            ),
            remedy: "start its agent; if the host is lost, force its service down".to_owned(),
        })
        .collect())
}
