//! The leases of a controller that was killed.
//!
//! Workers lease the ports and volumes of a server for minutes, because a call to another service may last that long.
//! The next process of the same controller knows that these workers are dead, and ends their leases. It never ends
//! those of another controller.

use jiff::SignedDuration;
use kilonova_compute_db::{external_ports, volumes};
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error};

/// The time allowed for calls that were sent before the process died and may still be processed.
const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(10);

impl Compute {
    /// Ends the leases of earlier processes of this controller. Call it before this process takes its first lease,
    /// while no other process can have the controller's id.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn end_earlier_leases(&self) -> Result<(), Error> {
        let controller = self.controller.clone();
        let end = move |tx: &mut Tx<'_>| {
            let until = time::after(time::now(), IN_FLIGHT);
            external_ports::end_leases(tx, &controller, until)?;
            Ok::<_, Error>(volumes::end_leases(tx, &controller, until)?)
        };
        self.store.write(end).await
    }
}
