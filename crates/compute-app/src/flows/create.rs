//! A boot after its claim: the host starts the guest, or the boot moves to the next host.
//!
//! The claim on a failed host remains until the host reports that it has removed the guest, so that no device is given
//! to another guest while the previous one may still use it.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::servers::{self, Fault, PowerState, Server, TaskState};
use kilonova_compute_scheduler::{NoHost, Requirements, choose};
use kilonova_flow::{self as flow, Outcome as End};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;

use super::begin::{event, nowhere};
use super::journal::{self, OpenOperation};
use super::operation::{Create, Operation};
use crate::numa::Misfits;
use crate::{Compute, Error, boot, numa, ports, volumes};

const EVENT: &str = "compute__do_build_and_run_instance";

pub(super) fn observed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    create: &Create,
    observation: &Observation,
    now: Timestamp,
) -> Result<(), Error> {
    match create {
        // The server is on no host yet.
        Create::Wait { .. } => Ok(()),
        Create::Spawn { tried, .. } => {
            spawned(tx, compute, host, open, tried, &observation.outcome, now)
        }
        Create::Plug { tried } => match &observation.outcome {
            Outcome::Failed { step, message } => {
                let reason = format!("{host}: {step}: {message}");
                failed(tx, compute, host, open, tried, reason, false, now)
            }
            Outcome::Running
            | Outcome::Paused
            | Outcome::Suspended
            | Outcome::Stopped
            | Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Absent => Ok(()),
        },
        Create::Clear { tried, reason, aborted } => match &observation.outcome {
            Outcome::Absent => cleared(tx, compute, host, open, tried, reason, *aborted, now),
            Outcome::Running
            | Outcome::Paused
            | Outcome::Suspended
            | Outcome::Stopped
            | Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Failed { .. } => Ok(()),
        },
    }
}

fn spawned(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    tried: &[HostName],
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    match outcome {
        Outcome::Running => built(tx, compute, host, open, now),
        Outcome::Failed { step, message } => {
            let reason = format!("{host}: {step}: {message}");
            failed(tx, compute, host, open, tried, reason, false, now)
        }
        Outcome::Paused
        | Outcome::Suspended
        | Outcome::Stopped
        | Outcome::Ready
        | Outcome::Working { .. }
        | Outcome::MigratingOut(_)
        | Outcome::MigratedOut
        | Outcome::Absent => Ok(()),
    }
}

/// Completes a build whose guest runs.
fn built(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    now: Timestamp,
) -> Result<(), Error> {
    let row = &open.row;
    servers::set_built(tx, row.subject, PowerState::Running, now)?;
    compute.note_build(tx, host, true)?;
    flow::event(tx, row.id, &event(EVENT, host, None, row.updated_at, now))?;
    journal::finish(tx, open, End::Done, None, now)
}

/// Makes the host remove the guest. The boot then tries the next host, unless the build is aborted.
#[allow(clippy::too_many_arguments)]
fn failed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    tried: &[HostName],
    reason: String,
    aborted: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let (id, row) = (open.row.subject, &open.row);
    flow::event(tx, row.id, &event(EVENT, host, Some(&reason), row.updated_at, now))?;
    if !aborted {
        compute.note_build(tx, host, false)?;
    }
    let mut tried = tried.to_vec();
    tried.push(host.clone());
    let clear = Operation::Create(Create::Clear { tried, reason, aborted });
    journal::advance(tx, open, &clear, now)?;
    servers::set_task(tx, id, Some(TaskState::Scheduling), now)?;
    Ok(documents::put(tx, compute, host, id, &Desired::Absent)?)
}

/// An open build whose host has the guest or is starting it.
struct OpenBuild {
    open: OpenOperation,
    host: HostName,
    tried: Vec<HostName>,
    /// True if the build only waits for its ports.
    plugs: bool,
}

fn open_build(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<OpenBuild>, Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(None) };
    let Operation::Create(create) = &open.state else { return Ok(None) };
    let (tried, plugs) = match create {
        Create::Spawn { tried, .. } => (tried.clone(), false),
        Create::Plug { tried } => (tried.clone(), true),
        Create::Wait { .. } | Create::Clear { .. } => return Ok(None),
    };
    let Some(host) = servers::host_of(tx, server)? else { return Ok(None) };
    Ok(Some(OpenBuild { open, host, tried, plugs }))
}

/// Aborts the server's build. Returns false if none is open.
///
/// # Errors
/// Store errors only.
pub fn abort_build(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    why: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(build) = open_build(tx, server)? else { return Ok(false) };
    failed(tx, compute, &build.host, &build.open, &build.tried, why.to_owned(), true, now)?;
    Ok(true)
}

/// True if the build waits only for its ports.
///
/// # Errors
/// Store errors only.
pub(crate) fn is_plugging(tx: &mut Tx<'_>, server: ServerId) -> Result<bool, Error> {
    Ok(open_build(tx, server)?.is_some_and(|build| build.plugs))
}

/// Ends a build that still waits for its ports although its guest already runs, for example after a reboot.
///
/// # Errors
/// Store errors only.
pub(super) fn complete_plugged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    match open_build(tx, server)?.filter(|build| build.plugs) {
        Some(build) => built(tx, compute, &build.host, &build.open, now),
        None => Ok(()),
    }
}

#[allow(clippy::too_many_arguments)]
fn cleared(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &HostName,
    open: &OpenOperation,
    tried: &[HostName],
    reason: &str,
    aborted: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let id = open.row.subject;
    documents::forget(tx, host, id)?;
    boot::release(tx, compute, id)?;
    let Some(server) = servers::find(tx, id)? else {
        return journal::finish(tx, open, End::Cancelled, None, now);
    };
    let may_retry = !aborted && tried.len() < compute.options.max_attempts;
    if may_retry && next_host(tx, compute, open, &server, tried, reason, now)? {
        return Ok(());
    }
    let summary = if aborted {
        format!("Build of instance {} aborted: {reason}", server.id)
    } else if may_retry {
        let why = "The host could not start the guest, and no other host has room.";
        NoHost::new(why).message()
    } else {
        format!(
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying build \
             failures for instance {}.",
            server.id
        )
    };
    let message = match aborted {
        true => summary.clone(),
        false => format!("{summary} Last failure: {reason}"),
    };
    ports::set_host(tx, &*compute.networks, server.id, None, now)?;
    ports::detach_all(tx, &*compute.networks, &server, now)?;
    if aborted {
        // Upstream: `_cleanup_volumes` in `nova/compute/manager.py`.
        volumes::release_failed(tx, compute, server.id, &summary, now)?;
    }
    let fault = Fault::new(&summary, &*message, now);
    servers::set_error(tx, server.id, &fault, now)?;
    journal::fail(tx, open, &message, now)
}

/// Fails a build that takes longer than `instance_build_timeout`: the server is in `ERROR` and
/// holds nothing. Its devices stay dirty until their host has removed the guest.
///
/// # Errors
/// Store errors only.
pub fn fail_slow_build(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    if !matches!(open.state, Operation::Create(_)) {
        return Ok(());
    }
    let message = format!(
        "The build took longer than {} s (instance_build_timeout).",
        compute.options.instance_build_timeout.as_secs()
    );
    fail_build(tx, compute, server, &message, now)
}

/// Fails a build for a reason that applies to every host: the server is in `ERROR` and holds
/// nothing, as upstream (`_cleanup_allocated_networks` in `nova/compute/manager.py`). Its devices stay dirty until their
/// host has removed the guest.
///
/// # Errors
/// Store errors only.
pub fn fail_build(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(open) = journal::open_of(tx, server)? else { return Ok(()) };
    if !matches!(open.state, Operation::Create(_)) {
        return Ok(());
    }
    tracing::warn!(%server, "{message} The server is in ERROR; delete it and create it again");
    let host = servers::host_of(tx, server)?.unwrap_or_else(nowhere);
    let fault = Fault::new(message, format!("{host}: {message}"), now);
    servers::set_error(tx, server, &fault, now)?;
    ports::set_host(tx, &*compute.networks, server, None, now)?;
    compute.note_build(tx, &host, false)?;
    boot::abandon(tx, compute, server)?;
    if let Some(server) = servers::find(tx, server)? {
        ports::detach_all(tx, &*compute.networks, &server, now)?;
    }
    for (host, _) in documents::of_server(tx, server)? {
        documents::put(tx, compute, &host, server, &Desired::Absent)?;
    }
    let failed = event(EVENT, &host, Some(message), open.row.updated_at, now);
    flow::event(tx, open.row.id, &failed)?;
    journal::finish(tx, &open, End::Failed, Some(message), now)
}

/// Claims capacity on a host that has not been tried yet. Returns false if there is none.
fn next_host(
    tx: &mut Tx<'_>,
    compute: &Compute,
    open: &OpenOperation,
    server: &Server,
    tried: &[HostName],
    reason: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let Ok(profiles) = ports::profiles_of(tx, &*compute.networks, server, &server.spec.flavor)?
    else {
        return Ok(false);
    };
    let aliases = &compute.options.pci_aliases;
    let spec = &server.spec;
    let flavor = boot::on_host(spec, &spec.flavor);
    let query = boot::query_of(&flavor, &spec.image_properties, &profiles, aliases, rand::random());
    let Ok(query) = query else { return Ok(false) };
    let numa = numa::requested(&spec.flavor, &spec.image_properties);
    let mut excluded: HashSet<HostName> = tried.iter().cloned().collect();
    let mut misfits = Misfits::default();
    let place = loop {
        let requirements =
            Requirements { server, spec: &server.spec, excluded: &excluded, forced: false };
        let Ok(mut planned) =
            choose(tx, compute.scope(), compute.world.snapshot(), requirements, &query, now)?
        else {
            return Ok(false);
        };
        let choice = planned.pop().unwrap_or_default();
        let placed = boot::claim(
            tx,
            compute,
            server.id,
            &server.project_id,
            boot::Initiator { user_id: &server.user_id, request_id: &open.row.request_id },
            boot::Wanted { profiles: &profiles, numa: &numa, running: None },
            &choice,
        )?;
        match placed {
            Ok(place) => break place,
            Err(unfit) if unfit.is_empty() => return Ok(false),
            Err(unfit) => {
                excluded.extend(unfit.hosts().cloned());
                misfits.extend(unfit);
                if misfits.are_enough() {
                    return Ok(false);
                }
            }
        }
    };
    ports::set_host(tx, &*compute.networks, server.id, Some(&place.host), now)?;
    servers::set_task(tx, server.id, Some(TaskState::Spawning), now)?;
    let zone = compute.zone_of(Some(&place.host));
    let ports = ports::of_guest(tx, &*compute.networks, server, &place.host)?;
    let volumes = volumes::placeholders(tx, compute, server.id)?;
    let source = boot::GuestSource::of(server, &zone);
    let delivery = ports.delivery;
    let document = boot::desired(&source, place.devices, place.numa, ports, volumes);
    documents::put_as(tx, compute, &place.host, server.id, &document, delivery)?;
    let spawn = Create::Spawn {
        chosen: Some(place.how),
        tried: tried.to_vec(),
        reason: Some(reason.to_owned()),
    };
    journal::advance(tx, open, &Operation::Create(spawn), now)?;
    Ok(true)
}
