//! Scheduling an existing server on a new host.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_compute_db::servers::{FlavorOf, Server, Spec};
use kilonova_compute_scheduler::{NoHost, Requirements, choose};
use kilonova_engine::Query;
use kilonova_ids::HostName;
use kilonova_node_api::Attachment;
use kilonova_store::Tx;

use crate::boot::{self, Placement, Profiles};
use crate::numa::{self, Misfits, RunningGuest};
use crate::{Compute, Error, ports};

/// The search for a host.
pub struct Search<'a> {
    /// The server.
    pub server: &'a Server,
    /// Its flavor on the new host.
    pub flavor: &'a FlavorOf,
    /// The only host allowed, if set.
    pub host: Option<&'a HostName>,
    /// True if that host is used even if the server's zone does not include it.
    pub force: bool,
    /// Hosts to exclude.
    pub excluded: HashSet<HostName>,
    /// The id of the request that caused the move.
    pub request_id: &'a str,
    /// The traits that the root provider must have.
    pub root_required: &'a [&'static str],
    /// A running guest with NUMA cells: its memory pages keep their size, and it sees its devices at the same cells.
    pub running: Option<RunningGuest<'a>>,
    /// Returns true if the server can use these devices on the new host.
    pub fits: &'a dyn Fn(&[Attachment]) -> bool,
}

/// Claims resources on a host for the server, which must have no claim. Returns the reason if no
/// host fits.
///
/// # Errors
/// Store errors only. A lack of resources is not an error.
pub fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    search: Search<'_>,
    now: Timestamp,
) -> Result<Result<Placement, NoHost>, Error> {
    let server = search.server;
    let (query, profiles) = match query(tx, compute, server, search.flavor, search.root_required)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(NoHost::new(why))),
    };
    let zone = server.spec.availability_zone.clone().filter(|_| !search.force);
    let spec = Spec {
        wanted_host: search.host.cloned(),
        availability_zone: zone,
        ..server.spec.clone().with_flavor(search.flavor.clone())
    };
    let initiator = boot::Initiator { user_id: &server.user_id, request_id: search.request_id };
    let mut excluded = search.excluded;
    let mut numa = numa::requested(search.flavor, &server.spec.image_properties);
    if let (Some(topology), Some(running)) = (&mut numa.topology, search.running) {
        numa::keep_pages(topology, running.numa);
    }
    let wanted = boot::Wanted { profiles: &profiles, numa: &numa, running: search.running };
    let mut misfits = Misfits::default();
    loop {
        let requirements =
            Requirements { server, spec: &spec, excluded: &excluded, forced: search.force };
        let choice =
            match choose(tx, compute.scope(), compute.world.snapshot(), requirements, &query, now)?
            {
                Ok(mut plan) => plan.pop().unwrap_or_default(),
                Err(_) if !misfits.is_empty() => {
                    let reason = NoHost::new("No other host has enough resources.");
                    return Ok(Err(misfits.explain(reason)));
                }
                Err(none) => {
                    return Ok(Err(compute.reasons.of(none).map_err(Error::Unexplained)?));
                }
            };
        let project = &server.project_id;
        let placed = boot::claim(tx, compute, server.id, project, initiator, wanted, &choice)?;
        let place = match placed {
            Ok(place) => place,
            Err(unfit) if unfit.is_empty() => {
                let taken = "Every host that had room was taken by other requests; try again.";
                return Ok(Err(misfits.explain(NoHost::new(taken))));
            }
            Err(unfit) => {
                excluded.extend(unfit.hosts().cloned());
                misfits.extend(unfit);
                if misfits.are_enough() {
                    let reason = NoHost::new("Further hosts were not tried.");
                    return Ok(Err(misfits.explain(reason)));
                }
                continue;
            }
        };
        let has_same_pages = search
            .running
            .is_none_or(|running| numa::has_same_pages(running.numa, place.numa.as_deref()));
        if has_same_pages && (search.fits)(&place.devices) {
            return Ok(Ok(place));
        }
        boot::release(tx, compute, server.id)?;
        excluded.insert(place.host);
    }
}

/// The query that finds another host for a server; `Err` with the reason if there can be none.
///
/// # Errors
/// Store errors only.
pub fn query(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    flavor: &FlavorOf,
    root_required: &[&'static str],
) -> Result<Result<(Query, Profiles), String>, Error> {
    let profiles = match ports::profiles_of(tx, &*compute.networks, server, flavor)? {
        Ok(profiles) => profiles,
        Err(why) => return Ok(Err(why)),
    };
    let built = boot::query_of(
        &boot::on_host(&server.spec, flavor),
        &server.spec.image_properties,
        &profiles,
        &compute.options.pci_aliases,
        rand::random(),
    );
    let mut query = match built {
        Ok(query) => query,
        Err(Error::Refused(fault)) => return Ok(Err(fault.message)),
        Err(error) => return Err(error),
    };
    query.root_required.extend(root_required.iter().map(|name| (*name).to_owned()));
    query.root_required.sort_unstable();
    Ok(Ok((query, profiles)))
}
