//! Decides whether a server's state allows an action, by the table of actions, with Nova's error messages
//! (Nova `compute/api.py`: the decorators of its methods, in their order: lock, host, state).
//!
//! This module must examine only the server's row; the actions themselves check further conditions.

use kilonova_wire::{Context, Fault};

use crate::Error;
use crate::app::actions::{ServerAction, Tasks};
use crate::db::servers::{Server, TaskState};

/// Refuses an action that the server's state does not allow.
///
/// # Errors
/// 409 with Nova's message.
pub fn allow(context: &Context, server: &Server, action: ServerAction) -> Result<(), Error> {
    allow_as(context, server, action, action.row().refused_as)
}

/// [`allow`], for the action with this name in messages; a hard reboot is `reboot_hard`.
///
/// # Errors
/// 409 with Nova's message; 400 for an unknown action.
pub fn check(context: &Context, server: &Server, name: &str) -> Result<(), Error> {
    let of_name = |action: &&ServerAction| action.row().refused_as == name;
    let found = match name {
        "reboot_hard" => Some(&ServerAction::RebootHard),
        _ => ServerAction::ALL.iter().find(of_name),
    };
    match found {
        Some(action) => allow(context, server, *action),
        None => Err(Fault::bad_request(format!("There is no such action: {name}")).into()),
    }
}

/// [`allow`], with another name of the action in the refusal.
///
/// # Errors
/// 409 in Nova's words.
pub fn allow_as(
    context: &Context,
    server: &Server,
    action: ServerAction,
    named: &str,
) -> Result<(), Error> {
    let Some(requires) = action.row().requires else { return Ok(()) };
    let id = server.id;
    let refuse = |attribute: &str, state: &str| {
        Err(Fault::conflict(format!(
            "Cannot '{named}' instance {id} while it is in {attribute} {state}"
        ))
        .into())
    };
    if requires.lock && server.lock.is_some() && !context.is_admin() {
        return Err(Fault::conflict(format!("Instance {id} is locked")).into());
    }
    if requires.host && server.host.is_none() {
        return Err(not_ready(server));
    }
    if !requires.states.is_empty() && !requires.states.contains(&server.vm_state) {
        return refuse("vm_state", server.vm_state.as_str());
    }
    let task = server.task_state.as_deref();
    let among = |some: &[TaskState], task: &str| some.iter().any(|one| one.as_str() == task);
    let fits = match requires.tasks {
        Tasks::Any => true,
        Tasks::None => task.is_none(),
        Tasks::Or(some) => task.is_none_or(|task| among(some, task)),
        Tasks::Only(some) => task.is_some_and(|task| among(some, task)),
    };
    if !fits {
        return refuse("task_state", task.unwrap_or("None"));
    }
    if requires.launched && server.launched_at.is_none() {
        return Err(
            Fault::conflict(format!("Instance {id} is in an invalid state for '{named}'")).into()
        );
    }
    Ok(())
}

/// 409 for a server without a host, or whose host has no document of it.
pub fn not_ready(server: &Server) -> Error {
    Fault::conflict(format!("Instance {} is not ready", server.id)).into()
}
