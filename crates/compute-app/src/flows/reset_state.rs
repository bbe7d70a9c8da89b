//! `os-resetState`: sets the server's state to the operator's choice and ends its open operation.
//!
//! A move or a removal must run to its end: otherwise its devices would have no owner. An accepted
//! deletion is not cancelled either, nor is a soft delete, which `restore` undoes.
//!
//! A reset deletes no data. The migration of a server in `VERIFY_RESIZE` stays finished, as upstream (`_reset_state` in
//! `nova/api/openstack/compute/admin_actions.py`), and can still be confirmed or reverted.

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::servers::{self, Server, TaskState, VmState};
use kilonova_flow::Outcome as End;
use kilonova_node_api::Desired;
use kilonova_store::Tx;
use kilonova_wire::{Context, Refusal};

use super::operation::Action;
use super::{in_place, journal, plugging, record_action};
use crate::{Compute, Error};

/// Sets the state.
///
/// # Errors
/// 409 for a server that is being moved or removed.
pub fn reset_state(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    state: VmState,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(open) = journal::open_of(tx, server.id)? {
        let removed = match &server.host {
            None => true,
            Some(host) => documents::get(tx, host, server.id)?
                .is_none_or(|document| document.desired == Desired::Absent),
        };
        if removed || open.state.action() == Action::Delete || open.state.is_move() {
            let task = server.task_state.map_or("None", TaskState::as_str);
            return Err(Refusal::conflict(format!(
                "Cannot 'resetState' instance {} while it is in task_state {task}: it is being \
                 moved, or removed from its host. Wait until that has ended, or delete the server.",
                server.id
            ))
            .into());
        }
        in_place::cancel(tx, compute, &open)?;
        let why = Some("An operator reset the state.");
        journal::finish(tx, &open, End::Cancelled, why, now)?;
        // No flow waits for the guest's ports any longer.
        plugging::run(tx, compute, server.id)?;
    }
    servers::reset_state(tx, server.id, state, now)?;
    record_action(tx, context, server, Action::ResetState, now)
}
