//! Gives each router a gateway host, and another one when that host is lost or disabled.
//!
//! A router's place is a row. It changes in one transaction with the host of the router's ports and with the
//! requests to both hosts, so a crash leaves a router on one host, or waiting for one. The lists are read
//! before; the transaction reads again what decides.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::hosts::{self, Gateway};
use kilonova_compute_scheduler::fleet::DOWN_AFTER;
use kilonova_ids::{HostName, RouterId};
use kilonova_network::ledger::Place;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error};

/// True if the host can get routers, as its row and the database's clock say.
fn is_fit(gateway: &Gateway) -> bool {
    gateway.enabled && !is_lost(gateway)
}

fn is_lost(gateway: &Gateway) -> bool {
    gateway.forced_down || gateway.silent >= DOWN_AFTER
}

/// Adjusts the place of a changed router: one without ports has none, and one whose host does not reach
/// all of its networks waits for another. Returns the hosts that must be told.
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

/// Finds the routers that need a host, or another one, and moves them.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let now = time::now();
    // Memory suggests hosts to leave; their rows decide.
    let suspects: Vec<HostName> = compute
        .fleet
        .all()
        .iter()
        .filter(|host| !host.takes_servers(now))
        .map(|host| host.name.clone())
        .collect();
    let own = compute.clone();
    let stranded = compute.store.read(move |tx| stranded(tx, &own, &suspects)).await?;
    if stranded.is_empty() {
        return Ok(());
    }
    let own = compute.clone();
    let Choices { gateways, mut load, movable } =
        compute.store.read(move |tx| choices(tx, &own, stranded.clone())).await?;
    for router in movable {
        let (own, all, known) = (compute.clone(), gateways.clone(), load.clone());
        let placed = compute
            .store
            .write(move |tx| place(tx, &own, router, &all, &known, time::now()))
            .await?;
        if let Some(host) = placed {
            *load.entry(host).or_default() += 1;
        }
    }
    Ok(())
}

/// The routers that wait for a host, and those of hosts that are lost or disabled.
fn stranded(
    tx: &mut Tx<'_>,
    compute: &Compute,
    suspects: &[HostName],
) -> Result<BTreeSet<RouterId>, Error> {
    let networks = &*compute.networks;
    let mut all: BTreeSet<RouterId> = networks.routers_on(tx, None)?.into_iter().collect();
    for host in suspects {
        all.extend(networks.routers_on(tx, Some(host))?);
    }
    Ok(all)
}

/// The hosts and the routers of one run.
struct Choices {
    /// The fit hosts.
    gateways: Vec<Gateway>,
    /// The number of routers of each host.
    load: BTreeMap<HostName, i64>,
    /// The routers for which there is a fit host.
    movable: Vec<RouterId>,
}

fn choices(
    tx: &mut Tx<'_>,
    compute: &Compute,
    stranded: BTreeSet<RouterId>,
) -> Result<Choices, Error> {
    let networks = &*compute.networks;
    let mut gateways = hosts::gateways(tx)?;
    gateways.retain(is_fit);
    let mut movable = Vec::new();
    for router in stranded {
        let needs = networks.router_facts(tx, router)?.physical_networks;
        if gateways.iter().any(|gateway| gateway.reaches(&needs)) {
            movable.push(router);
        } else {
            tracing::debug!(%router, ?needs, "no host that is up reaches all networks of a router");
        }
    }
    Ok(Choices { gateways, load: networks.router_load(tx)?, movable })
}

/// Gives a router the fit host with the fewest routers, unless its own is fit. Returns the new host.
fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    router: RouterId,
    gateways: &[Gateway],
    load: &BTreeMap<HostName, i64>,
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
    let reaching = gateways.iter().filter(|gateway| gateway.reaches(needs));
    let mut best: Vec<&Gateway> =
        reaching.filter(|gateway| Some(&gateway.host) != old.as_ref()).collect();
    best.sort_by_key(|gateway| (load.get(&gateway.host).copied().unwrap_or(0), &gateway.host));
    for gateway in best {
        let is_still_fit = hosts::one_gateway(tx, &gateway.host)?
            .is_some_and(|row| is_fit(&row) && row.reaches(needs));
        if !is_still_fit {
            continue;
        }
        let host = gateway.host.clone();
        networks.place_router(tx, router, &Place::On(host.clone()), now)?;
        documents::filter(tx, compute, &host)?;
        if let Some(old) = &old {
            documents::filter(tx, compute, old)?;
        }
        let (to, from) = (host.clone(), old.clone());
        tx.on_commit(move || match from {
            Some(from) => tracing::info!(%router, %from, %to, "moved a router to another host"),
            None => tracing::info!(%router, host = %to, "a host realizes a router"),
        });
        return Ok(Some(host));
    }
    Ok(None)
}
