//! What moves a server's operation on: one file per operation.
//!
//! ```text
//!   create:  spawn ──Running──► done
//!              └─Failed─► clear ──Absent──► spawn (next host) │ ERROR, all released
//!   delete:  destroy ──Absent──► row and claims gone
//!              └─host lost─► row gone, devices dirty; its host's Absent, some day ──► devices free
//!   power:   settle ──as asked──► done │ Failed ──► ERROR with the reason
//!   moving:  see there; the only ones that hear two hosts
//! ```
//!
//! Each step is one transaction, started by what a node observed. A step never waits and never
//! calls out; the node learns of it from the next document.

mod create;
mod delete;
mod moving;
mod power;
mod start;

use kilonova_flow as flow;
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;

use crate::db::{documents, servers};
use crate::{Compute, Error};

pub use delete::{delete, give_up};
pub use moving::{
    Cold, Evacuation, confirm, confirm_unasked, evacuate, give_up_dest, move_cold, revert,
};
pub use power::{Change, change_power};
pub use start::note;

/// Takes one observation into account. An old one changes nothing; one that fits no open operation
/// tells of a guest that changed by itself, or of one that is gone at last.
///
/// # Errors
/// The database's.
pub fn observe(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    let Some(document) = documents::get(tx, host, observation.server)? else { return Ok(()) };
    if document.generation != observation.generation {
        return Ok(());
    }
    let Some(operation) = flow::open_of(tx, observation.server)? else {
        return match document.desired {
            Desired::Absent => delete::dropped(tx, compute, host, observation),
            Desired::Present(_) => settle(tx, host, observation, now),
        };
    };
    let kind = operation.kind.as_str();
    if !matches!(kind, "create" | "delete")
        && !moving::is_move(kind)
        && servers::host_of(tx, observation.server)?.as_deref() != Some(host)
    {
        return left_behind(tx, compute, host, &document.desired, observation);
    }
    match kind {
        "create" => create::observed(tx, compute, host, &operation, observation, now),
        "delete" => delete::destroyed(tx, compute, host, &operation, observation, now),
        _ if moving::is_move(kind) => {
            if document.desired == Desired::Absent && !moving::waits_for(tx, &operation, host)? {
                return delete::dropped(tx, compute, host, observation);
            }
            moving::observed(tx, compute, host, &operation, observation, now)
        }
        _ => power::settled(tx, host, &operation, observation, now),
    }
}

/// A host that the server has left speaks, while something is done to it on the other.
fn left_behind(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    desired: &Desired,
    observation: &Observation,
) -> Result<(), Error> {
    match desired {
        Desired::Absent => delete::dropped(tx, compute, host, observation),
        Desired::Present(_) => Ok(()),
    }
}

/// What a guest does by itself (it shuts down) becomes the server's state, as Nova's power sync
/// does it.
fn settle(tx: &mut Tx<'_>, host: &str, observation: &Observation, now: i64) -> Result<(), Error> {
    use servers::VmState::{Active, Stopped};
    let Some(server) = servers::find(tx, observation.server)? else { return Ok(()) };
    if server.host.as_deref() != Some(host) {
        return Ok(());
    }
    match (&observation.outcome, server.vm_state) {
        (Outcome::Stopped, Active) => {
            servers::set_state(tx, server.id, Stopped, None, power::SHUTDOWN, now)
        }
        (Outcome::Running, Stopped) => {
            servers::set_state(tx, server.id, Active, None, power::RUNNING, now)
        }
        _ => Ok(()),
    }
}
