//! Fails builds that exceed `instance_build_timeout`, and turns soft reboots that exceed
//! `reboot_timeout` into hard ones.

use kilonova_compute_db::slow;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use crate::{Compute, Error, flows};

/// Ends all of them once.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let options = compute.options.clone();
    if let Some(before) = before(options.instance_build_timeout) {
        for server in compute.store.read(move |tx| slow::builds(tx, before)).await? {
            let own = compute.clone();
            let write =
                move |tx: &mut Tx<'_>| flows::fail_slow_build(tx, &own, server, now_micros());
            compute.store.write(write).await?;
        }
    }
    if let Some(before) = before(options.reboot_timeout) {
        for server in compute.store.read(move |tx| slow::reboots(tx, before)).await? {
            let own = compute.clone();
            let write = move |tx: &mut Tx<'_>| flows::force_reboot(tx, &own, server, now_micros());
            compute.store.write(write).await?;
        }
    }
    Ok(())
}

/// The latest begin that exceeds the timeout; `None` where there is no timeout.
fn before(seconds: i64) -> Option<i64> {
    (seconds > 0).then(|| now_micros() - seconds.saturating_mul(1_000_000))
}
