//! Identifies the machine that registers as a host. Two machines with one name would fence each other
//! forever, and a renamed machine would offer devices that guests under its old name still use.

use std::borrow::Cow;

use jiff::Timestamp;
use kilonova_accelerator::ledger::{self as devices, HeldHandles, UncleanDevice};
use kilonova_compute_app::{Compute, Error, services};
use kilonova_compute_db::hosts::Host;
use kilonova_compute_db::{fits, machines};
use kilonova_ids::HostName;
use kilonova_node_api::{Device, Health, NumaCell, Registration};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

/// Maximum number of a machine's other names in a warning.
const NAMED: usize = 3;

/// The parts of a registration that guests under the machine's other names, or from before the service was deleted, may
/// use.
pub(super) struct Offered<'a> {
    /// The devices; all of them count as failed if another name of the machine has handles that are not free, or if the
    /// host must first remove guests.
    pub devices: Cow<'a, [Device]>,
    /// The NUMA cells; none if servers under another name of the machine have dedicated CPUs, or if the host must first
    /// remove guests.
    pub cells: Option<&'a [NumaCell]>,
}

/// Records the machine and returns what it offers.
///
/// # Errors
/// An error if another machine is registered as this host and is up; store errors.
pub(super) fn identify<'a>(
    tx: &mut Tx<'_>,
    compute: &Compute,
    registration: &'a Registration,
    row: Option<&Host>,
    now: Timestamp,
) -> Result<Offered<'a>, Error> {
    let devices = Cow::Borrowed(registration.devices.as_slice());
    let mut offered = Offered { devices, cells: registration.cells.as_deref() };
    let (host, machine) = (&registration.host, &registration.machine_id);
    if machine.is_empty() {
        return Ok(offered);
    }
    let known = machines::of_host(tx, host)?;
    if known.as_ref() != Some(machine) {
        if let Some(other) = known {
            check_replacement(compute, row, machine, &other, now)?;
        }
        machines::put(tx, host, machine, now)?;
    }
    let others = machines::others(tx, machine, host)?;
    let former = machines::former(tx, machine, host)?;
    if !former.is_empty() {
        withhold_unclean(tx, &mut offered, host, &former)?;
    }
    if others.is_empty() {
        return Ok(offered);
    }
    let names: Vec<&str> = others.iter().take(NAMED).map(HostName::as_str).collect();
    tracing::warn!(
        %host, %machine, others = others.len(), newest = names.join(", "),
        "this machine was registered under other names; drain those hosts and delete their services, or restore the \
         name"
    );
    if offered.cells.is_some() && fits::are_pinned(tx, &others)? {
        offered.cells = None;
    }
    let held = devices::held_on(tx, &others)?;
    // `others` begins with the newest name.
    let held = others.iter().find_map(|old| Some((old, *held.get(old)?)));
    if let Some((old, held)) = held {
        let reason = held_elsewhere(old, held);
        offered.devices = Cow::Owned(as_failed(&registration.devices, &reason));
    }
    Ok(offered)
}

/// Withholds the devices with a function that was not clean when the service of another name of the machine was deleted.
/// Only the agent of that name has the order to clean it.
fn withhold_unclean(
    tx: &mut Tx<'_>,
    offered: &mut Offered<'_>,
    host: &HostName,
    former: &[HostName],
) -> Result<(), Error> {
    for unclean in devices::unclean_on(tx, former)? {
        let UncleanDevice { host: old, address, card } = unclean;
        let reason = format!(
            "this machine was registered as host {old}, whose service was deleted before device {address} was clean: \
             restore the machine's old name until it is"
        );
        let is_of = |device: &Device| {
            device.address == address || device.card.as_ref().unwrap_or(&device.address) == &card
        };
        if !offered.devices.iter().any(is_of) {
            continue;
        }
        tracing::warn!(%host, former = %old, device = %address, "{reason}");
        for device in offered.devices.to_mut().iter_mut().filter(|device| is_of(device)) {
            device.health = Health::Failed { reason: reason.clone(), since: None };
        }
    }
    Ok(())
}

/// Withholds what the host's guests from before its service was deleted may use.
pub(super) fn withhold(offered: &mut Offered<'_>, registration: &Registration, guests: usize) {
    let host = &registration.host;
    tracing::warn!(
        %host, guests,
        "the machine may have guests from before its host's service was deleted; it removes them before its devices are \
         available"
    );
    let reason = format!(
        "this machine may have guests from before its host's service was deleted ({guests}): the devices are available \
         once host {host} has removed them"
    );
    offered.cells = None;
    offered.devices = Cow::Owned(as_failed(&registration.devices, &reason));
}

/// The reason for which the devices of a machine are failed while its old name has handles that are not free. Handles
/// with an owner become free when their servers are moved or deleted; only the agent of the old name can clean the
/// others.
fn held_elsewhere(old: &HostName, held: HeldHandles) -> String {
    match held {
        HeldHandles { owned: 0, ownerless } => format!(
            "this machine was registered as host {old}, which has accelerators that no server holds \
             and that are not clean ({ownerless}): restore the machine's old name until they are"
        ),
        HeldHandles { owned, .. } => format!(
            "this machine was registered as host {old}, whose servers hold accelerators ({owned}): move \
             or delete the servers of {old}, or restore the machine's old name"
        ),
    }
}

/// The devices, marked as failed.
fn as_failed(devices: &[Device], reason: &str) -> Vec<Device> {
    let as_failed = |device: &Device| Device {
        health: Health::Failed { reason: reason.to_owned(), since: None },
        ..device.clone()
    };
    devices.iter().map(as_failed).collect()
}

/// Allows another machine to take over a host's name only if the previous one is down.
fn check_replacement(
    compute: &Compute,
    row: Option<&Host>,
    machine: &str,
    other: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(row) = row else { return Ok(()) };
    let host = &row.host;
    if !services::is_up(&compute.fleet, row, now) {
        tracing::warn!(%host, %machine, %other, "another machine has registered under the host's name");
        return Ok(());
    }
    let seconds = now.duration_since(services::last_seen(&compute.fleet, row)).as_secs().max(0);
    Err(Error::from(Refusal::new(
        Kind::Unprocessable,
        format!(
            "Host {host} is another machine: it has the machine id {other} and last reported \
             {seconds} s ago; this one has {machine}. Give each machine its own host name and, if \
             it is a copy, its own /etc/machine-id. If this one replaces the other, stop the agent \
             there, force the service of {host} down, and start this one again."
        ),
    )))
}
