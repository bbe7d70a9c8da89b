//! The traits that the image of a rebuild requires.

use std::collections::HashSet;

use kilonova_compute_db::servers::Server;
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use super::consumer_of;
use crate::{Compute, Error};

/// Checks that the providers of a server's allocations have the traits that its new image requires, and that its flavor
/// forbids none of them (`_validate_image_traits_for_rebuild` in `nova/conductor/manager.py`). Upstream answers 202 and
/// sets the server to `ERROR`; here, the refusal leaves the server unchanged.
///
/// # Errors
/// 400 with Nova's message.
pub fn check_image_traits(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
) -> Result<(), Error> {
    let spec = &server.spec;
    let required: HashSet<&str> = spec
        .image_properties
        .iter()
        .filter(|(_, value)| *value == "required")
        .filter_map(|(key, _)| key.strip_prefix("trait:").map(str::trim))
        .collect();
    if required.is_empty() {
        return Ok(());
    }
    let forbids = |key: &str, value: &str| {
        let name = key.strip_prefix("trait").and_then(|rest| rest.split_once(':'));
        value == "forbidden" && name.is_some_and(|(_, name)| required.contains(name))
    };
    if spec.flavor.extra_specs.iter().any(|(key, value)| forbids(key, value)) {
        return Err(no_valid_host(
            "Image traits are part of forbidden traits in flavor associated with the server. Either specify a \
             different image during rebuild or create a new server with the specified image and a compatible \
             flavor.",
        ));
    }
    let held = placement::allocations_of(tx, consumer_of(server.id))?;
    let snapshot = compute.world.snapshot();
    let roots: HashSet<_> = held.iter().filter_map(|one| snapshot.root_of(one.provider)).collect();
    // On a divided host, the root may have the traits although only its cells have the allocations.
    let providers: HashSet<_> =
        held.iter().map(|one| one.provider).chain(roots.iter().copied()).collect();
    let trees = roots.into_iter().filter_map(|root| snapshot.tree(root));
    let has: HashSet<_> = trees
        .flat_map(|tree| tree.providers().collect::<Vec<_>>())
        .filter(|provider| providers.contains(&provider.id))
        .flat_map(|provider| provider.traits)
        .collect();
    if required.iter().any(|name| !has.contains(*name)) {
        return Err(no_valid_host(
            "Image traits cannot be satisfied by the current resource providers. Either specify a different image \
             during rebuild or create a new server with the specified image.",
        ));
    }
    Ok(())
}

fn no_valid_host(reason: &str) -> Error {
    Refusal::bad_request(format!("No valid host was found. {reason}")).into()
}
