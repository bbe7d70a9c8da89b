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
//!   by_itself: what happens to a guest while nothing is done to it
//! ```
//!
//! Each step is one transaction, started by what a node observed. A step never waits and never
//! calls out; the node learns of it from the next document.

mod as_wanted;
mod by_itself;
mod create;
mod delete;
pub mod journal;
mod moving;
pub mod operation;
mod power;
mod reset;
mod start;
mod stay;
mod working;

use kilonova_flow as flow;
use kilonova_node_api::{Desired, Observation, Outcome};
use kilonova_store::Tx;

use crate::db::{documents, servers};
use crate::{Compute, Error};

pub use create::give_up_build;
pub use delete::{delete, give_up};
pub use moving::{
    Cold, Evacuation, Live, abort, address_of, confirm, confirm_unasked, evacuate, find_guest,
    force_complete, give_up_dest, let_next_go, migrate_live, move_cold, no_progress, revert, stays,
};
pub use power::{Change, change_power, force_reboot};
pub use reset::reset;
pub use start::{note, note_failed};
pub use stay::{
    Destination, Picture, Rebuild, Wish, ask, offload, offload_unasked, reclaim, restore, shelve,
    soft_delete, take, unrescue_unasked, unshelve,
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
    let Some(document) = documents::get(tx, host, observation.server)? else {
        return match observation.generation {
            0 => by_itself::stranger(tx, compute, host, observation, now),
            _ => Ok(()),
        };
    };
    if document.generation != observation.generation {
        return Ok(());
    }
    let open = flow::open_of(tx, observation.server)?;
    if let Desired::Present(domain) = &document.desired {
        let word = as_wanted::Word { host, domain, observation, operation: open.as_ref() };
        as_wanted::look(tx, compute, &word, now)?;
    }
    let Some(operation) = open else {
        return match document.desired {
            Desired::Absent => delete::dropped(tx, compute, host, observation),
            Desired::Present(domain) => {
                by_itself::settle(tx, compute, host, *domain, observation, now)
            }
        };
    };
    let kind = operation.kind.as_str();
    if !matches!(kind, "create" | "delete")
        && !moving::is_move(kind)
        && servers::host_of(tx, observation.server)?.as_deref() != Some(host)
    {
        return left_behind(tx, compute, host, &document.desired, observation);
    }
    if let Outcome::Working { phase } = observation.outcome {
        return working::working(tx, &operation, phase, now);
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
