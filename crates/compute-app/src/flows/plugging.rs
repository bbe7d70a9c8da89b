//! Guests that are paused until their ports are plugged, so that their first DHCP request is answered.
//!
//! ```text
//!   document with starts_paused ──Paused──► wait ──ports plugged──► document without it ──Running──► the flow continues
//!                                            └─too late, or not plugged──► failure of the host
//! ```
//!
//! A live migration has no paused guest. Instead, it waits before it copies memory: the destination must be ready and
//! must have plugged the ports that it can plug without the guest (`migration/live.rs`).
//!
//! As upstream, such a guest is requested by the flows of boot, unshelve, evacuation and resize revert; they wait until
//! it runs, as they do for any other guest. Apart from a live migration, this file must not depend on which flow waits.
//! Controllers of an earlier version ignore such guests; therefore agents repeat their reports, and the sweep looks for
//! events that those controllers missed.

use jiff::Timestamp;
use kilonova_compute_db::{documents, external_ports};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Desired, Document, Domain, Observation, Outcome, Power};
use kilonova_store::Tx;

use super::create;
use super::journal::{self, OpenOperation};
use super::migration::live;
use crate::ports::external;
use crate::{Compute, Error};

/// The failed step that is reported to the flows.
const STEP: &str = "ports";
/// Upstream's message.
const FAILED: &str = "Virtual Interface creation failed";

/// True if a report states that the guest exists and waits for its ports. An agent of an earlier version reports it as
/// running, because it does not start guests paused.
pub(super) fn is_there(desired: &Desired, outcome: &Outcome) -> bool {
    matches!(desired, Desired::Present(domain) if domain.starts_paused)
        && matches!(outcome, Outcome::Paused | Outcome::Running)
}

/// Handles a host's report that a guest exists and waits for its ports.
pub(super) fn reported(
    tx: &mut Tx<'_>,
    compute: &Compute,
    open: Option<&OpenOperation>,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let waits = compute.neutron.as_ref().is_some_and(|cloud| cloud.waits_for_plugs());
    if open.is_none() || !waits {
        return run(tx, compute, server);
    }
    // The transaction that handles the last port's event writes the same row, so one of the two transactions sees the
    // other's change.
    external_ports::wait(tx, server, now)?;
    if external::is_plugged(tx, server)? {
        return run(tx, compute, server);
    }
    Ok(())
}

/// The delivered documents of a server that keep its guests paused.
fn paused(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<(HostName, Document, Domain)>, Error> {
    let held = documents::held(tx, server)?;
    let mut found = Vec::new();
    for (host, document) in documents::of_server(tx, server)? {
        let Desired::Present(domain) = &document.desired else { continue };
        if domain.starts_paused && !held.iter().any(|(on, _)| *on == host) {
            let domain = (**domain).clone();
            found.push((host, document, domain));
        }
    }
    Ok(found)
}

/// Lets the guest run. The flow continues once the guest's host reports it as running.
pub(super) fn run(tx: &mut Tx<'_>, compute: &Compute, server: ServerId) -> Result<(), Error> {
    external_ports::end_wait(tx, server)?;
    for (host, _, domain) in paused(tx, server)? {
        let runs = Desired::Present(Box::new(Domain { starts_paused: false, ..domain }));
        documents::put(tx, compute, &host, server, &runs)?;
    }
    Ok(())
}

/// Lets a guest that waits for its ports run once all of them are plugged.
///
/// # Errors
/// Store errors only; also for the functions below.
pub fn ports_plugged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(dest) = live::preparing(tx, server)? {
        return live::ports_plugged(tx, compute, server, &dest);
    }
    if !external::is_plugged(tx, server)? {
        return Ok(());
    }
    match paused(tx, server)?.is_empty() {
        true => {
            // For example, a guest that was rebooted while it waited already runs.
            external_ports::end_wait(tx, server)?;
            create::complete_plugged(tx, compute, server, now)
        }
        false => run(tx, compute, server),
    }
}

/// Lets a guest that waits for its ports run even if they are not plugged.
pub fn ports_late(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(dest) = live::preparing(tx, server)? {
        return live::ports_late(tx, compute, server, &dest);
    }
    let is_there = external_ports::waits_since(tx, server)?.is_some();
    if is_there || create::is_plugging(tx, server)? {
        tracing::warn!(
            %server,
            "the ports of a server were not plugged in time; the guest runs without them: see the logs of \
             Neutron and of its agent on the host"
        );
    }
    match is_there {
        true => run(tx, compute, server),
        false => create::complete_plugged(tx, compute, server, now),
    }
}

/// Handles the failure to plug a port of a guest that is paused or about to be paused: aborts a boot, and reports a
/// failure of the host to any other flow.
pub fn ports_not_plugged(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    let failed = || Outcome::Failed { step: STEP.to_owned(), message: FAILED.to_owned() };
    if let Some(dest) = live::preparing(tx, server)? {
        return live::ports_not_plugged(tx, compute, server, &dest, failed(), now);
    }
    let guests = paused(tx, server)?;
    if guests.is_empty() && !create::is_plugging(tx, server)? {
        return Ok(external_ports::end_wait(tx, server)?);
    }
    if journal::open_of(tx, server)?.is_none() {
        // No flow waits for the guest, so nothing has failed.
        return run(tx, compute, server);
    }
    tracing::warn!(
        %server, host = guests.first().map(|(host, ..)| host.as_str()),
        "the ports of a server could not be plugged: see the logs of Neutron and of its agent on the host"
    );
    external_ports::end_wait(tx, server)?;
    let why = "Failed to allocate the network(s), not rescheduling.";
    if create::abort_build(tx, compute, server, why, now)? {
        return Ok(());
    }
    for (host, document, _) in guests {
        let observation = Observation::new(server, document.generation, failed());
        super::observe(tx, compute, &host, &observation, now)?;
    }
    // If the flow failed permanently, its guest still exists and is shut off, as upstream.
    for (host, _, domain) in paused(tx, server)? {
        let off = Domain { starts_paused: false, power: Power::Off, ..domain };
        documents::put(tx, compute, &host, server, &Desired::Present(Box::new(off)))?;
    }
    Ok(())
}
