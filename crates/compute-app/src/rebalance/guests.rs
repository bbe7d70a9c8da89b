//! The guests that can live-migrate, according to the rows: the server is idle and not locked, none of its moves waits
//! for its confirmation, its devices can move, and its host is enabled and up.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kilonova_compute_db::servers::{self, Server, VmState};
use kilonova_compute_db::{documents, moves};
use kilonova_compute_scheduler::rebalance::Guest;
use kilonova_compute_scheduler::{Subject, facts};
use kilonova_ids::{HostName, ProviderId, ServerId};
use kilonova_node_api::Desired;
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use crate::flows::{self, journal};
use crate::{Compute, Error, boot, moves as claims, numa};

/// Maximum number of guests read for one plan.
const MOST: usize = 512;

/// The guests, and the names of their servers.
#[derive(Debug, Default)]
pub(super) struct Guests {
    pub(super) guests: Vec<Guest>,
    pub(super) names: HashMap<ServerId, String>,
    /// The root providers of the hosts from which every server can move.
    pub(super) fully_movable: Vec<ProviderId>,
}

/// At most [`MOST`] guests that can live-migrate from these hosts.
///
/// # Errors
/// Store errors only.
pub(super) fn of_hosts(
    tx: &mut Tx<'_>,
    compute: &Compute,
    roots: &[ProviderId],
    now: Timestamp,
) -> Result<Guests, Error> {
    let mut found = Guests::default();
    for root in roots {
        let Some(host) = compute.fleet.by_root(*root).filter(|host| host.takes_servers(now)) else {
            continue;
        };
        let mut can_all_move = true;
        for id in servers::ids_on(tx, &host.name)? {
            if found.guests.len() >= MOST {
                return Ok(found);
            }
            let movable = match servers::find(tx, id)?.filter(is_movable) {
                Some(server) => {
                    found.names.insert(id, server.name.clone());
                    guest(tx, compute, &server, &host.name, *root)?
                }
                None => None,
            };
            can_all_move &= movable.is_some();
            found.guests.extend(movable);
        }
        if can_all_move {
            found.fully_movable.push(*root);
        }
    }
    Ok(found)
}

/// True if nothing in the server's row rules out a live migration. A paused guest could move, but its owner may expect
/// it to stay on its host.
fn is_movable(server: &Server) -> bool {
    server.vm_state == VmState::Active
        && server.task_state.is_none()
        && server.lock.is_none()
        && server.launched_at.is_some()
        && !numa::is_requested(&server.spec.flavor, &server.spec.image_properties)
}

fn guest(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    host: &HostName,
    root: ProviderId,
) -> Result<Option<Guest>, Error> {
    let id = server.id;
    let mut excluded: HashSet<HostName> = HashSet::new();
    let mut domain = None;
    for (on, document) in documents::of_server(tx, id)? {
        match document.desired {
            Desired::Present(present) if on == *host => domain = Some(present),
            Desired::Present(_) | Desired::Absent => {}
        }
        excluded.insert(on);
    }
    let Some(domain) = domain else { return Ok(None) };
    let required = flows::required_for_running(compute, host, &domain.config.devices);
    let Some(required) = required else { return Ok(None) };
    // A finished migration stays open until it is confirmed or reverted, even if `os-resetState` has replaced the
    // state.
    if journal::open_of(tx, id)?.is_some() || moves::open_of(tx, id)?.is_some() {
        return Ok(None);
    }
    let Ok((query, _)) = claims::query(tx, compute, server, &server.spec.flavor, &required)? else {
        return Ok(None);
    };
    let rules = &compute.options.scheduler;
    let facts = facts(tx, rules, Subject::Server(id, &server.spec.hints))?;
    let allocations = placement::allocations_of(tx, boot::consumer_of(id))?;
    let allocations =
        allocations.into_iter().map(|one| (one.provider, one.class, one.amount)).collect();
    Ok(Some(Guest {
        server: id,
        project_id: server.project_id.clone(),
        source: root,
        allocations,
        query,
        spec: servers::Spec { wanted_host: None, ..server.spec.clone() },
        facts,
        excluded,
        memory_mb: server.spec.flavor.ram,
    }))
}
