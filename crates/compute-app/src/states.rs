//! Decides whether a server's state allows an action, by the table of actions, with Nova's error messages
//! (Nova `compute/api.py`: the decorators of its methods, in their order: lock, host, state).
//!
//! This module must examine only the server's row; the actions themselves check further conditions.

use kilonova_compute_db::servers::{Server, TaskState};
use kilonova_wire::{Context, Refusal};

use crate::Error;
use crate::actions::{ServerAction, Tasks};

/// Refuses an action that the server's state does not allow.
///
/// # Errors
/// 409 with Nova's message.
pub fn allow(context: &Context, server: &Server, action: ServerAction) -> Result<(), Error> {
    allow_as(context, server, action, action.row().refused_as)
}

/// [`allow`], with another name of the action in the refusal.
///
/// # Errors
/// 409 with Nova's message.
pub fn allow_as(
    context: &Context,
    server: &Server,
    action: ServerAction,
    named: &str,
) -> Result<(), Error> {
    let Some(requires) = action.row().requires else { return Ok(()) };
    let id = server.id;
    let refuse = |attribute: &str, state: &str| {
        Err(Refusal::conflict(format!(
            "Cannot '{named}' instance {id} while it is in {attribute} {state}"
        ))
        .into())
    };
    if requires.lock && server.lock.is_some() && !context.is_admin() {
        return Err(Refusal::conflict(format!("Instance {id} is locked")).into());
    }
    if requires.host && server.host.is_none() {
        return Err(not_ready(server));
    }
    if !requires.states.is_empty() && !requires.states.contains(&server.vm_state) {
        return refuse("vm_state", server.vm_state.as_str());
    }
    let task = server.task_state;
    let fits = match requires.tasks {
        Tasks::Any => true,
        Tasks::None => task.is_none(),
        Tasks::Or(some) => task.is_none_or(|task| some.contains(&task)),
        Tasks::Only(some) => task.is_some_and(|task| some.contains(&task)),
    };
    if !fits {
        return refuse("task_state", task.map_or("None", TaskState::as_str));
    }
    if requires.launched && server.launched_at.is_none() {
        return Err(Refusal::conflict(format!(
            "Instance {id} is in an invalid state for '{named}'"
        ))
        .into());
    }
    Ok(())
}

/// Refuses an action on a server whose root disk is a volume.
///
/// # Errors
/// 400 with these words.
pub fn refuse_volume_root(server: &Server, words: &str) -> Result<(), Error> {
    match server.spec.image {
        Some(_) => Ok(()),
        None => Err(Refusal::bad_request(words).into()),
    }
}

/// 409 for a server without a host, or whose host has no document of it.
pub fn not_ready(server: &Server) -> Error {
    Refusal::conflict(format!("Instance {} is not ready", server.id)).into()
}
