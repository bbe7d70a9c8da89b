//! The machine types of this host's guests, for the controller, which names each to the next host of the server: the
//! guest then finds the same hardware there. Nothing here fails or delays a document.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_ids::ServerId;
use kilonova_node_api::Outcome;

use super::work::Work;

/// The longest wait for the hypervisor. A later report has the type then.
const LIMIT: Duration = Duration::from_secs(5);

/// The machine types that the hypervisor has told, so that it is asked once for each definition of a guest. `None` if the
/// image names the type.
#[derive(Default)]
pub(super) struct MachineTypes {
    known: Mutex<HashMap<ServerId, Option<String>>>,
}

impl MachineTypes {
    /// Forgets a guest whose domain has been defined or removed.
    pub(super) fn forget(&self, server: ServerId) {
        self.known().remove(&server);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ServerId, Option<String>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// The machine type of the guest, if the outcome says that it exists here and if this host or an earlier one chose it.
    pub(super) async fn machine_type(&self, server: ServerId, outcome: &Outcome) -> Option<String> {
        let is_here = match outcome {
            Outcome::Running | Outcome::Paused | Outcome::Suspended | Outcome::Stopped => true,
            Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Absent
            | Outcome::Failed { .. } => false,
        };
        if !is_here {
            return None;
        }
        if let Some(known) = self.machine_types.known().get(&server) {
            return known.clone();
        }
        let read = tokio::time::timeout(LIMIT, self.hypervisor.kept_machine_type(server)).await;
        let machine_type = match read {
            Ok(Ok(machine_type)) => machine_type,
            Ok(Err(error)) => {
                tracing::debug!(host = %self.host(), %server, %error, "could not read the machine type of a guest");
                return None;
            }
            Err(_) => {
                tracing::debug!(host = %self.host(), %server, "could not read the machine type of a guest in {LIMIT:?}");
                return None;
            }
        };
        self.machine_types.known().insert(server, machine_type.clone());
        machine_type
    }
}
