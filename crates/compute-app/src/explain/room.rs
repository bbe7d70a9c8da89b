//! The hosts on which a server without a host could be scheduled now, and the conditions that
//! exclude others.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_compute_db::servers::Server;
use kilonova_compute_scheduler::{Requirements, choose};
use kilonova_engine::Step;
use kilonova_store::Tx;

use crate::{Compute, Error, boot, ports};

/// The result of scheduling now.
#[derive(Debug, Clone)]
pub struct Room {
    /// True if a valid host exists.
    pub exists: bool,
    /// How the host was chosen, or why none is valid; with host names.
    pub text: String,
    /// The reason for the server's owner, without host names.
    pub owner_text: String,
    /// Number of hosts.
    pub hosts: usize,
    /// The conditions on resources and traits that removed hosts, in the order in which they were
    /// applied.
    pub steps: Vec<Step>,
    /// The host that comes closest, and its unmet condition.
    pub nearest: Option<(String, String)>,
}

impl Room {
    fn refused(text: String) -> Self {
        let owner_text = text.clone();
        Self { exists: false, text, owner_text, hosts: 0, steps: Vec::new(), nearest: None }
    }
}

/// Schedules like a boot, but claims nothing.
///
/// # Errors
/// Store errors only.
pub(super) fn room(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    now: Timestamp,
) -> Result<Room, Error> {
    let flavor = &server.spec.flavor;
    let profiles = match ports::profiles_of(tx, &*compute.networks, server, flavor)? {
        Ok(profiles) => profiles,
        Err(why) => return Ok(Room::refused(why)),
    };
    let (properties, aliases) = (&server.spec.image_properties, &compute.options.pci_aliases);
    let query = match boot::query_of(
        &boot::on_host(&server.spec, flavor),
        properties,
        &profiles,
        aliases,
        0,
    ) {
        Ok(query) => query,
        Err(Error::Refused(fault)) => return Ok(Room::refused(fault.message)),
        Err(error) => return Err(error),
    };
    let nobody = HashSet::new();
    let requirements =
        Requirements { server, spec: &server.spec, excluded: &nobody, forced: false };
    let (exists, text, owner_text) =
        match choose(tx, compute.scope(), compute.world.snapshot(), requirements, &query, now)? {
            Ok(plan) => {
                let how = plan.into_iter().next().map(|choice| choice.how).unwrap_or_default();
                (true, how, String::new())
            }
            Err(none) => {
                let reason = none.reason(compute.scope());
                (false, reason.all(), reason.owner_text())
            }
        };
    let explanation = compute.world.snapshot().explain(&query);
    let nearest = explanation.nearest.filter(|_| explanation.left == 0);
    Ok(Room {
        exists,
        text,
        owner_text,
        hosts: explanation.hosts,
        steps: explanation.steps,
        nearest: nearest.map(|nearest| (nearest.name.to_string(), nearest.lacks)),
    })
}
