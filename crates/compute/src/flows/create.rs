//! The rest of a boot, once the claim stands: the node starts the guest, or another host is tried.
//!
//! A host that failed keeps its claim until it says that nothing of the server is left on it: a
//! device is never given to the next guest while the last one may still hold it.

use std::collections::HashSet;

use kilonova_flow::{self as flow, Operation, Outcome as End};
use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;
use serde_json::json;

use super::start::event;
use crate::app::boot;
use crate::app::nics;
use crate::app::scheduler::{NoHost, Wanted, choose};
use crate::db::documents;
use crate::db::servers::{self, Fault, Server};
use crate::{Compute, Error};

const EVENT: &str = "compute__do_build_and_run_instance";

pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    if operation.step == "clear" {
        return cleared(tx, compute, host, operation, observation, now);
    }
    spawned(tx, compute, host, operation, observation, now)
}

fn spawned(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    match &observation.outcome {
        Outcome::Running => {
            let id = observation.server;
            servers::set_built(tx, id, super::power::RUNNING, now)?;
            compute.note_build(tx, host, true);
            flow::event(tx, operation.id, &event(EVENT, host, None, operation.updated_at, now))?;
            Ok(flow::finish(tx, operation, End::Done, None, now)?)
        }
        Outcome::Failed { step, message } => {
            let why = format!("{host}: {step}: {message}");
            let failed = event(EVENT, host, Some(&why), operation.updated_at, now);
            flow::event(tx, operation.id, &failed)?;
            compute.note_build(tx, host, false);
            let mut tried = tried(operation);
            tried.push(host.to_owned());
            let data = json!({"tried": tried, "reason": why});
            flow::advance(tx, operation, "clear", &data, now)?;
            servers::set_task(tx, observation.server, Some("scheduling"), now)?;
            let generation = documents::put(tx, host, observation.server, &Desired::Absent)?;
            compute.wake_on_commit(tx, host, generation);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn cleared(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    operation: &Operation,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    if observation.outcome != Outcome::Absent {
        return Ok(());
    }
    documents::forget(tx, host, observation.server)?;
    boot::release(tx, compute, observation.server)?;
    let Some(server) = servers::find(tx, observation.server)? else {
        return Ok(flow::finish(tx, operation, End::Cancelled, None, now)?);
    };
    let tried = tried(operation);
    if tried.len() < compute.options.max_attempts
        && elsewhere(tx, compute, operation, &server, &tried, now)?
    {
        return Ok(());
    }
    let reason = operation.data["reason"].as_str().unwrap_or_default();
    let told = if tried.len() < compute.options.max_attempts {
        let why = "The host could not start the guest, and no other host has room.";
        NoHost::new(why).message()
    } else {
        format!(
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying build \
             failures for instance {}.",
            server.id
        )
    };
    let message = format!("{told} Last failure: {reason}");
    nics::set_host(tx, server.id, None, now)?;
    nics::give_up(tx, &server, now)?;
    let fault = Fault::new(&told, &*message, now);
    servers::set_error(tx, server.id, &fault, now)?;
    Ok(flow::finish(tx, operation, End::Failed, Some(&message), now)?)
}

/// Gives up a build that takes too long (`instance_build_timeout`): the server is in `ERROR` and holds
/// nothing. What it had is given to nobody before its host has dropped it.
///
/// # Errors
/// The database's.
pub fn give_up_build(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: i64,
) -> Result<(), Error> {
    let Some(operation) = flow::open_of(tx, server)?.filter(|open| open.kind == "create") else {
        return Ok(());
    };
    let message = format!(
        "The build took longer than {} s (instance_build_timeout).",
        compute.options.instance_build_timeout
    );
    tracing::warn!(%server, "{message}");
    let host = servers::host_of(tx, server)?.unwrap_or_default();
    let fault = Fault::new(&message, format!("{host}: {message}"), now);
    servers::set_error(tx, server, &fault, now)?;
    nics::set_host(tx, server, None, now)?;
    compute.note_build(tx, &host, false);
    boot::abandon(tx, compute, server)?;
    for (host, _) in documents::of_server(tx, server)? {
        let generation = documents::put(tx, &host, server, &Desired::Absent)?;
        compute.wake_on_commit(tx, &host, generation);
    }
    let failed = event(EVENT, &host, Some(&message), operation.updated_at, now);
    flow::event(tx, operation.id, &failed)?;
    Ok(flow::finish(tx, &operation, End::Failed, Some(&message), now)?)
}

/// Claims a place on a host that was not tried yet; says whether there was one.
fn elsewhere(
    tx: &mut Tx<'_>,
    compute: &Compute,
    operation: &Operation,
    server: &Server,
    tried: &[String],
    now: i64,
) -> Result<bool, Error> {
    let Ok(profiles) = nics::profiles_of(tx, server, &server.spec.flavor)? else {
        return Ok(false);
    };
    let aliases = &compute.options.pci_aliases;
    let spec = &server.spec;
    let query =
        boot::query_of(&spec.flavor, &spec.image_properties, &profiles, aliases, rand::random());
    let Ok(query) = query else { return Ok(false) };
    let excluded: HashSet<String> = tried.iter().cloned().collect();
    let wanted = Wanted { server, spec: &server.spec, excluded: &excluded, forced: false };
    let Ok(mut planned) = choose(tx, compute, wanted, &query, now)? else { return Ok(false) };
    let choice = planned.pop().unwrap_or_default();
    let placed = boot::claim(
        tx,
        compute,
        server.id,
        &server.project_id,
        boot::Who { user_id: &server.user_id, request_id: &operation.request_id },
        &profiles,
        &choice,
    )?;
    let Some(place) = placed else { return Ok(false) };
    nics::set_host(tx, server.id, Some(&place.host), now)?;
    servers::set_task(tx, server.id, Some("spawning"), now)?;
    let zone = compute.zone_of(Some(&place.host));
    let nics = nics::of_guest(tx, server, &place.host)?;
    let document = boot::desired(&boot::Whole::of(server, &zone), place.devices, nics);
    let generation = documents::put(tx, &place.host, server.id, &document)?;
    let mut data = operation.data.clone();
    data["chosen"] = place.how.into();
    flow::advance(tx, operation, "spawn", &data, now)?;
    compute.wake_on_commit(tx, &place.host, generation);
    Ok(true)
}

fn tried(operation: &Operation) -> Vec<String> {
    operation.data["tried"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}
