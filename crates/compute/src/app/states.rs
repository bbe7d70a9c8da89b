//! The allowed states of each action, and the error messages (Nova `compute/api.py`: the decorators
//! of its methods, in their order: lock, host, state).
//!
//! One row per action, by the key of its request body. This module must examine only the server's
//! row; the actions themselves check further conditions.

use kilonova_wire::{Context, Fault};

use crate::Error;
use crate::db::servers::{Server, VmState};
use VmState::{
    Active, Error as Failed, Paused, Rescued, Resized, Shelved, ShelvedOffloaded, SoftDeleted,
    Stopped, Suspended,
};

/// The task states in which an action is allowed.
#[derive(Debug, Clone, Copy)]
enum Tasks {
    /// No task.
    None,
    /// No task, or one of these.
    Or(&'static [&'static str]),
    /// One of these tasks.
    Only(&'static [&'static str]),
    /// Any.
    Any,
}

/// The conditions of an action.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// Key of the body, and the name in error messages.
    key: &'static str,
    /// Allowed states; empty for any.
    states: &'static [VmState],
    tasks: Tasks,
    /// Whether the server must have been launched.
    launched: bool,
    /// Whether a lock prevents it.
    lock: bool,
    /// Whether the server must have a host.
    host: bool,
}

const USUAL: Rule =
    Rule { key: "", states: &[], tasks: Tasks::None, launched: true, lock: true, host: false };

/// Tasks that a hard reboot may replace, so that an unresponsive guest can be rebooted.
const REBOOTED_OVER: &[&str] = &[
    "rebooting",
    "reboot_pending",
    "reboot_started",
    "rebooting_hard",
    "resuming",
    "unpausing",
    "pausing",
    "suspending",
];

const RULES: &[Rule] = &[
    Rule { key: "start", states: &[Stopped], host: true, ..USUAL },
    Rule { key: "stop", states: &[Active, Failed], host: true, ..USUAL },
    Rule { key: "reboot", states: &[Active], ..USUAL },
    Rule {
        key: "reboot_hard",
        states: &[Active, Stopped, Paused, Suspended, Failed],
        tasks: Tasks::Or(REBOOTED_OVER),
        ..USUAL
    },
    Rule { key: "pause", states: &[Active], ..USUAL },
    Rule { key: "unpause", states: &[Paused], ..USUAL },
    Rule { key: "suspend", states: &[Active], ..USUAL },
    Rule { key: "resume", states: &[Suspended], ..USUAL },
    Rule { key: "rescue", states: &[Active, Stopped, Failed], ..USUAL },
    Rule { key: "unrescue", states: &[Rescued], ..USUAL },
    Rule { key: "attach_interface", states: &[Active, Paused, Stopped], host: true, ..USUAL },
    Rule { key: "detach_interface", states: &[Active, Paused, Stopped], host: true, ..USUAL },
    Rule { key: "rebuild", states: &[Active, Stopped, Failed], ..USUAL },
    Rule { key: "resize", states: &[Active, Stopped], host: true, ..USUAL },
    Rule { key: "migrate", states: &[Active, Stopped], host: true, ..USUAL },
    Rule { key: "confirmResize", states: &[Resized], ..USUAL },
    Rule { key: "revertResize", states: &[Resized], ..USUAL },
    Rule { key: "os-migrateLive", states: &[Active, Paused], ..USUAL },
    Rule { key: "force_complete", states: &[Active], tasks: Tasks::Only(&["migrating"]), ..USUAL },
    Rule { key: "abort live migration", tasks: Tasks::Only(&["migrating"]), ..USUAL },
    Rule {
        key: "evacuate",
        states: &[Active, Stopped, Failed],
        tasks: Tasks::Any,
        lock: false,
        ..USUAL
    },
    Rule { key: "shelve", states: &[Active, Stopped, Paused, Suspended], ..USUAL },
    Rule { key: "shelveOffload", states: &[Shelved], ..USUAL },
    Rule { key: "unshelve", states: &[Shelved, ShelvedOffloaded], ..USUAL },
    Rule {
        key: "createImage",
        states: &[Active, Stopped, Paused, Suspended],
        lock: false,
        ..USUAL
    },
    Rule {
        key: "createBackup",
        states: &[Active, Stopped, Paused, Suspended],
        lock: false,
        ..USUAL
    },
    Rule { key: "changePassword", states: &[Active], ..USUAL },
    Rule {
        key: "trigger_crash_dump",
        states: &[Active, Paused, Rescued, Resized, Failed],
        ..USUAL
    },
    Rule { key: "restore", states: &[SoftDeleted], ..USUAL },
    Rule {
        key: "update_instance_metadata",
        states: &[Active, Paused, Suspended, Stopped],
        tasks: Tasks::Any,
        ..USUAL
    },
    Rule {
        key: "tags",
        states: &[Active, Paused, Suspended, Stopped],
        tasks: Tasks::Any,
        launched: false,
        lock: false,
        ..USUAL
    },
    Rule { key: "delete", tasks: Tasks::Any, launched: false, ..USUAL },
    Rule { key: "get_console_output", tasks: Tasks::Any, lock: false, host: true, ..USUAL },
];

/// Allows or refuses the action. `key` is the action's name in messages; a hard reboot is
/// `reboot_hard` here and `reboot` to the user.
///
/// # Errors
/// 409 with Nova's message.
pub fn check(context: &Context, server: &Server, key: &str) -> Result<(), Error> {
    check_as(context, server, key, if key == "reboot_hard" { "reboot" } else { key })
}

/// Like [`check`], for an action that messages call `named`.
///
/// # Errors
/// 409 with Nova's message.
pub fn check_as(context: &Context, server: &Server, key: &str, named: &str) -> Result<(), Error> {
    let Some(rule) = RULES.iter().find(|rule| rule.key == key) else {
        return Err(Fault::bad_request(format!("There is no such action: {key}")).into());
    };
    let (key, id) = (named, server.id);
    let refuse = |attribute: &str, state: &str| {
        Err(Fault::conflict(format!(
            "Cannot '{key}' instance {id} while it is in {attribute} {state}"
        ))
        .into())
    };
    if rule.lock && server.lock.is_some() && !context.is_admin() {
        return Err(Fault::conflict(format!("Instance {id} is locked")).into());
    }
    if rule.host && server.host.is_none() {
        return Err(not_ready(server));
    }
    if !rule.states.is_empty() && !rule.states.contains(&server.vm_state) {
        return refuse("vm_state", server.vm_state.as_str());
    }
    let task = server.task_state.as_deref();
    let fits = match rule.tasks {
        Tasks::Any => true,
        Tasks::None => task.is_none(),
        Tasks::Or(some) => task.is_none_or(|task| some.contains(&task)),
        Tasks::Only(some) => task.is_some_and(|task| some.contains(&task)),
    };
    if !fits {
        return refuse("task_state", task.unwrap_or("None"));
    }
    if rule.launched && server.launched_at.is_none() {
        return Err(
            Fault::conflict(format!("Instance {id} is in an invalid state for '{key}'")).into()
        );
    }
    Ok(())
}

/// 409 for a server without a host, or whose host has no document of it.
pub fn not_ready(server: &Server) -> Error {
    Fault::conflict(format!("Instance {} is not ready", server.id)).into()
}
