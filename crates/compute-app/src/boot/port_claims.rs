//! Claims for the resources requested by ports in an external Neutron: guaranteed bandwidth and packet rates.
//!
//! The claim of a boot or a move contains them. This file records their providers, extends and reduces the claim of a
//! server that has a host, and follows changes that Neutron makes. It never calls Neutron.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_compute_db::port_claims::{self, PortClaim};
use kilonova_engine::{Candidate, Snapshot};
use kilonova_ids::{ConsumerId, HostName, PortId, ProviderId, ResourceClass, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use super::claim::{allocations, consumer_of, provider_of};
use super::query::{PortResources, query_of_ports};
use crate::ports::neutron::ChangedClaims;
use crate::{Compute, Error};

/// Number of candidates that are tried for one more port of a server.
const CANDIDATES: usize = 8;

/// Records the providers of the resources that ports request.
///
/// # Errors
/// Store errors only.
pub(super) fn record(
    tx: &mut Tx<'_>,
    candidate: &Candidate,
    ports: &[PortResources],
    consumer: ConsumerId,
    host: &HostName,
) -> Result<(), Error> {
    for PortResources { port, request } in ports {
        for group in &request.groups {
            let Some(provider) = provider_of(candidate, &group.id) else { continue };
            let claim = PortClaim {
                consumer,
                group: group.id.clone(),
                port: *port,
                host: host.clone(),
                provider,
                resources: group.resources.clone(),
            };
            port_claims::insert(tx, &claim)?;
        }
    }
    Ok(())
}

/// Claims the resources of one more port for a server on a host. False if the host has too few.
///
/// # Errors
/// Store errors only.
pub(crate) fn claim_port(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
    port: PortResources,
) -> Result<bool, Error> {
    let Some(known) = compute.fleet.by_name(host) else { return Ok(false) };
    let (world, consumer) = (compute.world.snapshot(), consumer_of(server));
    let query = query_of_ports(std::slice::from_ref(&port), known.root);
    let Ok(search) = world.search(&query) else { return Ok(false) };
    for candidate in search.take(CANDIDATES) {
        let claimed = tx.attempt(|tx| {
            placement::extend(tx, &compute.world, consumer, &allocations(&candidate))?;
            record(tx, &candidate, std::slice::from_ref(&port), consumer, host)
        });
        match claimed {
            Ok(()) => return Ok(true),
            Err(error) if error.is_lack_of_room() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Releases the resources that are claimed for a port that its server no longer has.
///
/// # Errors
/// Store errors only.
pub(crate) fn release_port(tx: &mut Tx<'_>, compute: &Compute, port: PortId) -> Result<(), Error> {
    for claim in port_claims::take(tx, port)? {
        let part = |(class, amount): (&String, &i64)| placement::Allocation {
            provider: claim.provider,
            class: ResourceClass::verbatim(class.as_str()),
            amount: *amount,
        };
        let parts: Vec<_> = claim.resources.iter().map(part).collect();
        placement::release_part(tx, &compute.world, claim.consumer, &parts)?;
    }
    Ok(())
}

/// Updates a consumer's claims on a host to what the ports request now: Neutron never changes the claim of a migration
/// when the QoS policy of a port changes. Returns the missing resources if the host has too few; the caller must then
/// abort the transaction.
///
/// # Errors
/// Store errors only.
pub(crate) fn claim_again(
    tx: &mut Tx<'_>,
    compute: &Compute,
    consumer: ConsumerId,
    host: &HostName,
    claims: &[PortClaim],
    ports: &[PortResources],
) -> Result<Result<(), String>, Error> {
    let is_earlier = |claim: &&PortClaim, of: &PortResources| {
        claim.consumer == consumer && claim.port == of.port
    };
    let mut wanted = Vec::new();
    let mut given_back = Vec::new();
    for port in ports {
        let earlier: Vec<_> = claims.iter().filter(|claim| is_earlier(claim, port)).collect();
        if port.is_claimed_by(&earlier) {
            continue;
        }
        for claim in port_claims::take_of(tx, consumer, port.port)? {
            for (class, amount) in claim.resources.into_iter().filter(|(_, amount)| *amount > 0) {
                given_back.push((claim.provider, ResourceClass::verbatim(class), amount));
            }
        }
        if !port.request.is_empty() {
            wanted.push(port.clone());
        }
    }
    if !given_back.is_empty() {
        let part = |(provider, class, amount): &(ProviderId, ResourceClass, i64)| {
            placement::Allocation { provider: *provider, class: class.clone(), amount: *amount }
        };
        let parts: Vec<_> = given_back.iter().map(part).collect();
        placement::release_part(tx, &compute.world, consumer, &parts)?;
    }
    if wanted.is_empty() {
        return Ok(Ok(()));
    }
    let known = compute.fleet.by_name(host).map(|known| known.root);
    let Some(root) = known else { return Ok(Err("the host is unknown".to_owned())) };
    // The world of this process changes only after the commit.
    let mut world = Snapshot::clone(&compute.world.snapshot());
    world.subtract_usage(&given_back);
    let query = query_of_ports(&wanted, root);
    let Ok(search) = world.search(&query) else { return Ok(Err(lack(&world, root, &wanted))) };
    for candidate in search.take(CANDIDATES) {
        let claimed = tx.attempt(|tx| {
            placement::extend(tx, &compute.world, consumer, &allocations(&candidate))?;
            record(tx, &candidate, &wanted, consumer, host)
        });
        match claimed {
            Ok(()) => return Ok(Ok(())),
            Err(error) if error.is_lack_of_room() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Err(lack(&world, root, &wanted)))
}

/// Describes the resources that the ports request and of which no provider of the host has enough.
fn lack(world: &Snapshot, root: ProviderId, ports: &[PortResources]) -> String {
    let free = |class: &str| {
        let nodes = world.tree(root).into_iter().flat_map(|tree| tree.nodes());
        let offered = nodes.flat_map(|node| node.inventories());
        let of_class = offered.filter(|(offered, _)| offered.as_str() == class);
        of_class.map(|(_, inventory)| inventory.capacity().saturating_sub(inventory.used)).max()
    };
    let groups =
        ports.iter().flat_map(|port| port.request.groups.iter().map(|group| (port.port, group)));
    let requested = groups.flat_map(|(port, group)| {
        group.resources.iter().map(move |(class, amount)| (port, class.as_str(), *amount))
    });
    let requested: BTreeSet<(PortId, &str, i64)> = requested.collect();
    let (mut short, mut all) = (Vec::new(), Vec::new());
    for (port, class, amount) in requested {
        all.push(format!("{amount} of {class} for port {port}"));
        match free(class) {
            Some(free) if free >= amount => {}
            Some(free) => {
                let free = free.max(0);
                short.push(format!("{amount} of {class} for port {port} (only {free} free)"));
            }
            None => short.push(format!("{amount} of {class} for port {port} (not offered)")),
        }
    }
    let lacking = if short.is_empty() { all } else { short };
    format!("it lacks {}", lacking.join("; "))
}

/// Records changes that Neutron has made to the claims for ports. Neutron changes the allocations itself; this function
/// corrects them if a change was attributed to the wrong port in the meantime. If the providers do not have enough free
/// for the correction, it logs a warning and keeps the earlier claims of all ports.
///
/// # Errors
/// Store errors only.
pub(crate) fn change_claims(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    changes: &[ChangedClaims],
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    match tx.attempt(|tx| replace_claims(tx, compute, changes)) {
        Err(error) if error.is_lack_of_room() => {
            tracing::warn!(
                %server, %error,
                "cannot claim the resources that a server's ports require since their QoS policy changed: restore \
                 the earlier policy, or move the server"
            );
            Ok(())
        }
        result => result,
    }
}

fn replace_claims(
    tx: &mut Tx<'_>,
    compute: &Compute,
    changes: &[ChangedClaims],
) -> Result<(), Error> {
    let mut sums: BTreeMap<ConsumerId, BTreeMap<(ProviderId, String), i64>> = BTreeMap::new();
    for ChangedClaims { consumer, port, claims } in changes {
        let earlier = port_claims::replace(tx, *consumer, *port, claims)?;
        if earlier.is_empty() {
            continue;
        }
        let sums = sums.entry(*consumer).or_default();
        for (claims, sign) in [(&earlier, -1), (claims, 1)] {
            for claim in claims {
                for (class, amount) in &claim.resources {
                    *sums.entry((claim.provider, class.clone())).or_default() += sign * amount;
                }
            }
        }
    }
    for (consumer, sums) in sums {
        let parts = |sign: i64| -> Vec<placement::Allocation> {
            let part = |((provider, class), sum): (&(ProviderId, String), &i64)| {
                let (class, amount) = (ResourceClass::verbatim(class.as_str()), sign * sum);
                (amount > 0).then_some(placement::Allocation { provider: *provider, class, amount })
            };
            sums.iter().filter_map(part).collect()
        };
        let (less, more) = (parts(-1), parts(1));
        if !less.is_empty() {
            placement::release_part(tx, &compute.world, consumer, &less)?;
        }
        if !more.is_empty() {
            placement::extend(tx, &compute.world, consumer, &more)?;
        }
    }
    Ok(())
}
