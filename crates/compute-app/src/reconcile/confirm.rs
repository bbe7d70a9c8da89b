//! Confirms resizes and cold migrations that exceed `resize_confirm_window`.

use kilonova_compute_db::moves;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error, flows};

/// Confirms all that are due, once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let window = compute.options.resize_confirm_window;
    if window.is_zero() {
        return Ok(());
    }
    let before = time::before(time::now(), window);
    for server in compute.store.read(move |tx| moves::unconfirmed(tx, before)).await? {
        let compute_ = compute.clone();
        let write = move |tx: &mut Tx<'_>| {
            flows::confirm_expired(tx, &compute_, server, before, time::now())
        };
        if compute.store.write(write).await? {
            tracing::info!(%server, "confirmed a resize that exceeded resize_confirm_window");
        }
    }
    Ok(())
}
