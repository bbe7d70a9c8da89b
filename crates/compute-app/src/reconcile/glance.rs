//! Deletes images of the cloud's Glance that nobody wants, and rotates backups there. Each call may be made
//! twice, and its row stays until it has succeeded.

use crate::{Compute, Error};

/// Does once what is due.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    match compute.images.glance() {
        Some(glance) => glance.sweep(&compute).await,
        None => Ok(()),
    }
}
