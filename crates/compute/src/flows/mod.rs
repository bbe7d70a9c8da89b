//! What moves a server's operation on: one file per operation.
//!
//! ```text
//!   create:  spawn ──Running──► done
//!              └─Failed─► clear ──Absent──► spawn (next host) │ ERROR, all released
//!   delete:  destroy ──Absent──► row and claims gone
//!              └─host lost─► row gone, devices dirty; its host's Absent, some day ──► devices free
//!   power:   settle ──as asked──► done │ Failed ──► ERROR with the reason
//!   stay:    see there; what is done to a server where it is
//!   moving:  see there; the only ones that hear two hosts
//! ```
//!
//! Each step is one transaction, started by what a node observed. A step never waits and never
//! calls out; the node learns of it from the next document.

mod create;
mod delete;
mod moving;
mod power;
mod reset;
mod start;
mod stay;

use kilonova_flow as flow;
use kilonova_node_api::{Desired, Domain, Observation, Outcome, Power};
use kilonova_store::Tx;

use crate::db::{documents, servers};
use crate::{Compute, Error};

pub use delete::{delete, give_up};
pub use moving::{
    Cold, Evacuation, Live, abort, confirm, confirm_unasked, evacuate, force_complete,
    give_up_dest, migrate_live, move_cold, no_progress, revert,
};
pub use power::{Change, change_power};
pub use reset::reset;
pub use start::{note, note_failed};
pub use stay::{
    Destination, Picture, Wish, ask, offload, offload_unasked, reclaim, restore, shelve,
    soft_delete, take, unshelve,
};

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
            Desired::Present(domain) => settle(tx, compute, host, *domain, observation, now),
        };
    };
    let kind = operation.kind.as_str();
    if !matches!(kind, "create" | "delete")
        && !moving::is_move(kind)
        && servers::host_of(tx, observation.server)?.as_deref() != Some(host)
    {
        return left_behind(tx, compute, host, &document.desired, observation);
    }
    if stay::is_one(&operation) {
        return stay::observed(tx, compute, host, &operation, observation, now);
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

/// What a guest does by itself (it shuts down, somebody pauses it) becomes the server's state, as
/// Nova's power sync does it. One that has shut down is to stay so.
fn settle(
    tx: &mut Tx<'_>,
    compute: &Compute,
    host: &str,
    domain: Domain,
    observation: &Observation,
    now: i64,
) -> Result<(), Error> {
    use servers::VmState::{Active, Paused, Stopped, Suspended};
    let Some(server) = servers::find(tx, observation.server)? else { return Ok(()) };
    if server.host.as_deref() != Some(host) {
        return Ok(());
    }
    let id = server.id;
    match (&observation.outcome, server.vm_state) {
        (Outcome::Stopped, Active | Paused | Suspended) => {
            if domain.power != Power::Off {
                let off = Domain { power: Power::Off, verb: None, ..domain };
                let generation = documents::put(tx, host, id, &Desired::Present(Box::new(off)))?;
                compute.wake_on_commit(tx, host, generation);
            }
            servers::set_state(tx, id, Stopped, None, power::SHUTDOWN, now)
        }
        (Outcome::Running, Stopped) => {
            servers::set_state(tx, id, Active, None, power::RUNNING, now)
        }
        (Outcome::Paused, Active) if server.power_state != stay::PAUSED => {
            servers::set_state(tx, id, Active, None, stay::PAUSED, now)
        }
        (Outcome::Running, Active) if server.power_state != power::RUNNING => {
            servers::set_state(tx, id, Active, None, power::RUNNING, now)
        }
        _ => Ok(()),
    }
}
