//! Makes the pending calls to the external Neutron and releases ports of deleted servers. The rows
//! survive every crash, and each call may be made twice.

use crate::ports::external;
use crate::{Compute, Error};

/// Processes everything that is due, once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    match compute.neutron.clone() {
        Some(cloud) => cloud.process_due(&compute).await,
        None => Ok(()),
    }
}

/// Looks once for ports of deleted servers.
///
/// # Errors
/// Store errors; 503 if Neutron does not answer.
pub async fn sweep(compute: Compute) -> Result<(), Error> {
    external::sweep(&compute).await
}
