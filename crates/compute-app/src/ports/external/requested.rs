//! The resources that the ports of a server request now, read from Neutron before the transaction that claims them.
//!
//! The rows record what a port requested when it was last read. That is too old if a claim cannot be repeated later, as
//! when a resize is reverted. This file changes nothing in Neutron or in the rows.

use std::collections::BTreeMap;
use std::time::Duration;

use kilonova_compute_db::port_claims::{self, PortClaim};
use kilonova_ids::{ConsumerId, HostName, PortId, ProviderId, ServerId};
use kilonova_neutron::{Port, PortFilter};
use kilonova_store::Tx;
use kilonova_wire::{IntoRefusal, Refusal};
use newtype_uuid::GenericUuid;

use super::{journal, own};
use crate::boot::{self, PortResources};
use crate::{Compute, Error};

/// Maximum number of times that the ports are read while Neutron changes the QoS policy of one of them.
const READINGS: u32 = 3;
/// The pause between two readings. Neutron changes the allocations of a server a moment before the port.
const PAUSE: Duration = Duration::from_millis(300);

/// The resources that the ports of a server request, and the claims for them when the ports were read.
#[derive(Debug, Clone, Default)]
pub struct SeenRequests(Option<Seen>);

#[derive(Debug, Clone)]
struct Seen {
    ports: Vec<PortResources>,
    claims: Vec<PortClaim>,
}

impl SeenRequests {
    /// Updates the claims of a migration on its source to what the ports request now.
    ///
    /// # Errors
    /// 409 if the source has too few resources, or if the claims have changed since the ports were read.
    pub(crate) fn claim(
        &self,
        tx: &mut Tx<'_>,
        compute: &Compute,
        server: ServerId,
        (migration, source): (ConsumerId, &HostName),
    ) -> Result<(), Error> {
        let Some(Seen { ports, claims }) = &self.0 else { return Ok(()) };
        let seen = sums(claims);
        let claims = port_claims::of_server(tx, server)?;
        // Compares only the sums, because the worker may have adopted new names of groups that Neutron changed earlier.
        if sums(&claims) != seen {
            let words = format!(
                "The QoS policy of a port of instance {server} has just changed. Try again."
            );
            return Err(Refusal::conflict(words).into());
        }
        let lack = boot::claim_again(tx, compute, migration, source, &claims, ports)?;
        lack.map_err(|lack| {
            let words = format!(
                "The source host has too few of the resources that the ports of instance {server} request since their \
                 QoS policy changed: {lack}. Set the earlier policy, or confirm the resize."
            );
            Refusal::conflict(words).into()
        })
    }
}

impl Compute {
    /// Reads the resources that the ports of a server request. Only supplied ports can request resources; without such
    /// ports, or without Neutron, no call is made.
    ///
    /// # Errors
    /// 400 for a request in an unknown form; 503 if Neutron does not answer.
    pub async fn look_up_requests(&self, server: ServerId) -> Result<SeenRequests, Refusal> {
        let Some(cloud) = &self.neutron else { return Ok(SeenRequests::default()) };
        let mut reading = 1;
        loop {
            let (ids, claims) = self.store.read(move |tx| of_server(tx, server)).await?;
            if ids.is_empty() {
                return Ok(SeenRequests(Some(Seen { ports: Vec::new(), claims })));
            }
            let fields = ["id", "resource_request"];
            let found = cloud.client.ports(own(), PortFilter::Ids(&ids), &fields).await;
            let found = found.map_err(IntoRefusal::into_refusal)?;
            let ports = found.iter().map(requested).collect::<Result<Vec<_>, _>>()?;
            if reading >= READINGS || ports.iter().all(|port| is_counted(port, server, &claims)) {
                return Ok(SeenRequests(Some(Seen { ports, claims })));
            }
            reading += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The amounts of claims by consumer, provider and class. Neutron changes these when a QoS policy changes.
fn sums(claims: &[PortClaim]) -> BTreeMap<(ConsumerId, ProviderId, &str), i64> {
    let mut sums = BTreeMap::new();
    for claim in claims {
        for (class, amount) in &claim.resources {
            *sums.entry((claim.consumer, claim.provider, class.as_str())).or_default() += amount;
        }
    }
    sums.retain(|_, amount| *amount != 0);
    sums
}

/// The amounts that a server has claimed for its ports, without those of its migrations, by provider and class.
///
/// # Errors
/// Store errors only.
pub(crate) fn claimed_by(
    tx: &mut Tx<'_>,
    server: ServerId,
) -> Result<BTreeMap<ProviderId, BTreeMap<String, i64>>, Error> {
    let claims = port_claims::of_server(tx, server)?;
    let own = ConsumerId::from_untyped_uuid(server.into_untyped_uuid());
    let mut claimed: BTreeMap<_, BTreeMap<String, i64>> = BTreeMap::new();
    for ((consumer, provider, class), amount) in sums(&claims) {
        if consumer == own {
            claimed.entry(provider).or_default().insert(class.to_owned(), amount);
        }
    }
    Ok(claimed)
}

/// The supplied ports of a server, and the claims for them.
fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<(Vec<PortId>, Vec<PortClaim>), Error> {
    let ports = journal::ports(tx, server)?.into_iter();
    let supplied = ports.filter(|port| port.is_supplied && !port.is_detaching);
    Ok((supplied.filter_map(|port| port.port).collect(), port_claims::of_server(tx, server)?))
}

fn requested(port: &Port) -> Result<PortResources, Refusal> {
    let request = port.requested().ok_or_else(|| {
        Refusal::bad_request(format!(
            "Port {} requests resources in a form that is not supported.",
            port.id
        ))
    })?;
    Ok(PortResources { port: port.id, request })
}

/// True if the server has claimed the amounts that a port requests. Neutron changes the claims before the port.
fn is_counted(port: &PortResources, server: ServerId, claims: &[PortClaim]) -> bool {
    let consumer = ConsumerId::from_untyped_uuid(server.into_untyped_uuid());
    let claimed =
        claims.iter().filter(|claim| claim.consumer == consumer && claim.port == port.port);
    let sum = |all: &mut dyn Iterator<Item = &BTreeMap<String, i64>>| {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for (class, amount) in all.flatten() {
            *sums.entry(class.clone()).or_default() += amount;
        }
        sums.retain(|_, amount| *amount > 0);
        sums
    };
    let requested = port.request.groups.iter().map(|group| &group.resources);
    sum(&mut claimed.map(|claim| &claim.resources)) == sum(&mut { requested })
}
