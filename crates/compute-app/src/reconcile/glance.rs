//! Deletes unneeded images from the external Glance, and rotates backups there. Each call may be made
//! twice, and its row remains until the call has succeeded.

use crate::{Compute, Error};

/// Processes everything that is due, once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    match compute.images.glance() {
        Some(glance) => glance.sweep(&compute).await,
        None => Ok(()),
    }
}
