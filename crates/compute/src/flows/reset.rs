//! `os-resetState`: the row says what an operator says, and nothing is being done any more.
//!
//! What is half way between two hosts, or is being removed from one, cannot be declared done: its
//! devices would be nobody's. A deletion that was answered is not called off either, one that can be
//! taken back included: `restore` is for that.

use kilonova_flow::{self as flow, Outcome as End};
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};

use super::{moving, note, stay};
use crate::db::documents;
use crate::db::servers::{self, Server, VmState};
use crate::{Compute, Error};

/// Sets the state.
///
/// # Errors
/// 409 for a server that is being moved or removed.
pub fn reset(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    state: VmState,
    now: i64,
) -> Result<(), Error> {
    if let Some(open) = flow::open_of(tx, server.id)? {
        let removed = match &server.host {
            None => true,
            Some(host) => documents::get(tx, host, server.id)?
                .is_none_or(|document| document.desired == Desired::Absent),
        };
        if removed || open.kind == "delete" || moving::is_move(&open.kind) {
            let task = server.task_state.as_deref().unwrap_or("None");
            return Err(Fault::conflict(format!(
                "Cannot 'resetState' instance {} while it is in task_state {task}: it is being moved, \
                 or removed from its host. Wait for the end of it, or delete the server.",
                server.id
            ))
            .into());
        }
        stay::call_off(tx, compute, &open)?;
        flow::finish(tx, &open, End::Cancelled, Some("An operator reset the state."), now)?;
    }
    moving::stay_there(tx, compute, server.id, now)?;
    servers::set_state(tx, server.id, state, None, server.power_state, now)?;
    note(tx, context, server, "resetState", now)
}
