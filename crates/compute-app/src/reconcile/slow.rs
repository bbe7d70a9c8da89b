//! Fails builds that exceed `instance_build_timeout`, turns soft reboots that exceed
//! `reboot_timeout` into hard ones, and ends deletions that wait too long for Neutron or Cinder.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::slow;
use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error, flows};

/// Ends all such builds, reboots and deletions, once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let options = compute.options.clone();
    if let Some(before) = before(options.instance_build_timeout) {
        for server in compute.store.read(move |tx| slow::builds(tx, before)).await? {
            let own = compute.clone();
            let write =
                move |tx: &mut Tx<'_>| flows::fail_slow_build(tx, &own, server, time::now());
            skip_unreadable(server, compute.store.write(write).await)?;
        }
    }
    if let Some(before) = before(options.reboot_timeout) {
        for server in compute.store.read(move |tx| slow::reboots(tx, before)).await? {
            let own = compute.clone();
            let write = move |tx: &mut Tx<'_>| flows::force_reboot(tx, &own, server, time::now());
            skip_unreadable(server, compute.store.write(write).await)?;
        }
    }
    if compute.neutron.is_some() || compute.volumes.is_some() {
        let before = time::before(time::now(), flows::RELEASE);
        for server in compute.store.read(move |tx| slow::releases(tx, before)).await? {
            let own = compute.clone();
            let write = move |tx: &mut Tx<'_>| flows::end_release(tx, &own, server, time::now());
            skip_unreadable(server, compute.store.write(write).await)?;
        }
    }
    Ok(())
}

/// Skips a server whose operation was written by a newer version, so that it does not delay the
/// others.
fn skip_unreadable(server: ServerId, done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error @ Error::Unreadable { .. }) => {
            tracing::warn!(%server, %error, "cannot end an operation that takes too long");
            Ok(())
        }
        done => done,
    }
}

/// The latest start time whose timeout has expired; `None` without a timeout.
fn before(timeout: SignedDuration) -> Option<Timestamp> {
    timeout.is_positive().then(|| time::before(time::now(), timeout))
}
