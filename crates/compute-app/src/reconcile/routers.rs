//! Gives each router a gateway host, and another one when that host is down or disabled.
//!
//! The gateway host of a router is recorded in a row. It changes in one transaction with the host of
//! the router's ports and with the requests to both hosts, so a crash leaves a router on one host, or
//! waiting for one. The lists of hosts and routers are read before that transaction, which reads the
//! decisive rows again.
//!
//! A run processes a page of the routers, and the next run the page after it: routers that cannot
//! be placed do not delay others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::hosts::{self, Gateway};
use kilonova_compute_scheduler::fleet::DOWN_AFTER;
use kilonova_ids::{HostName, RouterId};
use kilonova_network::ledger::{Place, ROUTERS_PAGE};
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error};

/// True if the host can accept routers, according to its row and the database's clock.
fn is_fit(gateway: &Gateway) -> bool {
    gateway.enabled && !is_lost(gateway)
}

fn is_lost(gateway: &Gateway) -> bool {
    gateway.forced_down || gateway.silent >= DOWN_AFTER
}

/// Adjusts the gateway host of a changed router: a router without ports has none, and one whose
/// host does not reach all of its networks waits for another. Returns the host to notify.
pub(super) fn follow(
    tx: &mut Tx<'_>,
    compute: &Compute,
    router: RouterId,
    now: Timestamp,
) -> Result<Option<HostName>, Error> {
    let networks = &*compute.networks;
    networks.lock_router(tx, router)?;
    let facts = networks.router_facts(tx, router)?;
    let needed = !facts.physical_networks.is_empty();
    match facts.place {
        Place::Nowhere => Ok(None),
        Place::Waiting if needed => Ok(None),
        Place::Waiting => {
            networks.place_router(tx, router, &Place::Nowhere, now)?;
            Ok(None)
        }
        Place::On(host) => {
            let reaches = hosts::one_gateway(tx, &host)?
                .is_some_and(|gateway| gateway.reaches(&facts.physical_networks));
            if !needed {
                networks.place_router(tx, router, &Place::Nowhere, now)?;
            } else if !reaches {
                networks.place_router(tx, router, &Place::Waiting, now)?;
            }
            Ok(Some(host))
        }
    }
}

/// The last router of the previous run's page; `None` before the first page.
#[derive(Debug, Clone, Default)]
pub struct Page(Arc<Mutex<Option<RouterId>>>);

impl Page {
    fn last(&self) -> Option<RouterId> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a page. A page that is not full is the last one.
    fn turn(&self, read: &[RouterId]) {
        let last = read.last().filter(|_| read.len() >= ROUTERS_PAGE);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last.copied();
    }
}

/// Finds the routers that need a host or must leave theirs, and places them.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute, page: Page) -> Result<(), Error> {
    let now = time::now();
    // Memory only suggests hosts that are down; their rows decide.
    let suspects = compute.fleet.names_of(|host| !host.takes_servers(now));
    let (own, after) = (compute.clone(), page.last());
    let choices = compute.store.read(move |tx| choices(tx, &own, &suspects, after)).await?;
    page.turn(&choices.read);
    let Choices { gateways, load, movable, .. } = choices;
    let mut load = match load {
        _ if movable.is_empty() => return Ok(()),
        Some(load) => load,
        None => {
            let own = compute.clone();
            compute.store.read(move |tx| own.networks.router_load(tx)).await?
        }
    };
    for (router, needs) in movable {
        let mut hosts: Vec<HostName> = gateways
            .iter()
            .filter(|gateway| gateway.reaches(&needs))
            .map(|gateway| gateway.host.clone())
            .collect();
        hosts.sort_by_key(|host| load.get(host).copied().unwrap_or(0));
        let (own, hosts) = (compute.clone(), Arc::<[HostName]>::from(hosts));
        let placed =
            compute.store.write(move |tx| place(tx, &own, router, &hosts, time::now())).await?;
        if let Some(host) = placed {
            *load.entry(host).or_default() += 1;
        }
    }
    Ok(())
}

/// The hosts and the routers of one run.
struct Choices {
    /// The routers that wait for a host, and those on hosts that may be down or disabled.
    read: Vec<RouterId>,
    /// The suitable hosts, by name.
    gateways: Vec<Gateway>,
    /// The number of routers on each host, if it was read.
    load: Option<BTreeMap<HostName, i64>>,
    /// The routers for which there is a suitable host, with the physical networks that each needs.
    movable: BTreeMap<RouterId, BTreeSet<String>>,
}

fn choices(
    tx: &mut Tx<'_>,
    compute: &Compute,
    suspects: &[HostName],
    after: Option<RouterId>,
) -> Result<Choices, Error> {
    let networks = &*compute.networks;
    let load = match suspects {
        [] => None,
        _ => Some(networks.router_load(tx)?),
    };
    let has_routers = |host: &&HostName| load.iter().any(|load| load.contains_key(*host));
    let left: Vec<HostName> = suspects.iter().filter(has_routers).cloned().collect();
    let read = networks.next_routers(tx, &left, after)?;
    let mut choices = Choices { read, gateways: Vec::new(), load, movable: BTreeMap::new() };
    if choices.read.is_empty() {
        return Ok(choices);
    }
    choices.gateways = hosts::gateways(tx)?;
    choices.gateways.retain(is_fit);
    choices.gateways.sort_by(|one, other| one.host.cmp(&other.host));
    if choices.gateways.is_empty() {
        tracing::debug!(routers = choices.read.len(), "no host that is up can route");
        return Ok(choices);
    }
    for (router, needs) in networks.router_needs(tx, &choices.read)? {
        if choices.gateways.iter().any(|gateway| gateway.reaches(&needs)) {
            choices.movable.insert(router, needs);
        } else {
            tracing::debug!(%router, ?needs, "no host that is up reaches all networks of a router");
        }
    }
    Ok(choices)
}

/// Places a router on the first of these hosts that is still suitable, unless its current host is.
/// Returns the new host.
fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    router: RouterId,
    hosts: &[HostName],
    now: Timestamp,
) -> Result<Option<HostName>, Error> {
    let networks = &*compute.networks;
    networks.lock_router(tx, router)?;
    let facts = networks.router_facts(tx, router)?;
    let needs = &facts.physical_networks;
    if needs.is_empty() {
        return Ok(None);
    }
    let old = match facts.place {
        Place::Nowhere => return Ok(None),
        Place::Waiting => None,
        Place::On(host) => {
            if hosts::one_gateway(tx, &host)?
                .is_some_and(|gateway| is_fit(&gateway) && gateway.reaches(needs))
            {
                return Ok(None);
            }
            Some(host)
        }
    };
    for host in hosts.iter().filter(|host| Some(*host) != old.as_ref()) {
        let is_still_fit =
            hosts::one_gateway(tx, host)?.is_some_and(|row| is_fit(&row) && row.reaches(needs));
        if !is_still_fit {
            continue;
        }
        let host = host.clone();
        networks.place_router(tx, router, &Place::On(host.clone()), now)?;
        documents::filter(tx, compute, &host)?;
        if let Some(old) = &old {
            documents::filter(tx, compute, old)?;
        }
        let (to, from) = (host.clone(), old.clone());
        tx.on_commit(move || match from {
            Some(from) => tracing::info!(%router, %from, %to, "moved a router to another host"),
            None => tracing::info!(%router, host = %to, "placed a router on a host"),
        });
        return Ok(Some(host));
    }
    Ok(None)
}
