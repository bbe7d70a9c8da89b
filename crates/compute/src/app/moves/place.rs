//! A new place for a server that is there already.

use std::collections::HashSet;

use kilonova_accelerator::ledger::profile_by_name;
use kilonova_node_api::Attachment;
use kilonova_store::Tx;

use crate::app::boot::{self, Placement, ProfileGroups};
use crate::app::scheduler::{NoHost, Wanted, choose};
use crate::db::servers::{FlavorOf, Server, Spec};
use crate::{Compute, Error};

/// What is looked for.
pub struct Search<'a> {
    /// Who moves.
    pub server: &'a Server,
    /// Its size there.
    pub flavor: &'a FlavorOf,
    /// The one host that it may go to.
    pub host: Option<&'a str>,
    /// Whether that host is taken even where the server's zone does not reach.
    pub force: bool,
    /// Hosts that it must not go to.
    pub excluded: HashSet<String>,
    /// What asked for it.
    pub request_id: &'a str,
    /// Whether devices will do in place of those that it has.
    pub fits: &'a dyn Fn(&[Attachment]) -> bool,
}

/// Claims a place for the server, which must hold nothing; or says why there is none.
///
/// # Errors
/// The database's. That there is no place is not an error.
pub fn place(
    tx: &mut Tx<'_>,
    compute: &Compute,
    search: Search<'_>,
    now: i64,
) -> Result<Result<Placement, String>, Error> {
    let server = search.server;
    let profile = match search.flavor.extra_specs.get("accel:device_profile") {
        None => None,
        Some(name) => match profile_by_name(tx, name)? {
            Some(profile) => Some(ProfileGroups { id: profile.id, groups: profile.groups }),
            None => return Ok(Err(format!("Device profile {name} could not be found."))),
        },
    };
    let query = match boot::query_of(search.flavor, profile.as_ref(), rand::random()) {
        Ok(query) => query,
        Err(Error::Refused(fault)) => return Ok(Err(fault.message)),
        Err(error) => return Err(error),
    };
    let zone = server.spec.availability_zone.clone().filter(|_| !search.force);
    let spec = Spec {
        flavor: search.flavor.clone(),
        wanted_host: search.host.map(str::to_owned),
        availability_zone: zone,
        ..server.spec.clone()
    };
    let who = boot::Who { user_id: &server.user_id, request_id: search.request_id };
    let mut excluded = search.excluded;
    loop {
        let wanted = Wanted { server, spec: &spec, excluded: &excluded, forced: search.force };
        let candidates = match choose(tx, compute, wanted, &query, now)? {
            Ok(mut plan) => plan.pop().unwrap_or_default(),
            Err(NoHost(reason)) => return Ok(Err(reason)),
        };
        let project = &server.project_id;
        let placed =
            boot::claim(tx, compute, server.id, project, who, profile.as_ref(), &candidates)?;
        let Some(place) = placed else {
            let taken = "Every host that had room was taken by other requests; try again.";
            return Ok(Err(taken.to_owned()));
        };
        if (search.fits)(&place.devices) {
            return Ok(Ok(place));
        }
        boot::release(tx, compute, server.id)?;
        excluded.insert(place.host);
    }
}
