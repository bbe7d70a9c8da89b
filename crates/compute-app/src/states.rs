//! Decides whether a server's state allows an action, using the table of actions, with Nova's error messages
//! (Nova `compute/api.py`: the decorators of its methods, in their order: lock, host, state).
//!
//! This module must examine only the server's row; the actions themselves check further conditions.

use kilonova_compute_db::servers::{Server, TaskState, VmState};
use kilonova_ids::HostName;
use kilonova_wire::{Context, Refusal};

use crate::Error;
use crate::actions::{ServerAction, Tasks};

/// True if the host must already have the server's guest: the server has been built there, and no task may create the
/// guest.
pub fn has_guest(server: &Server, host: &HostName) -> bool {
    let launched = server.launched_at.is_some();
    is_built(server.vm_state, server.task_state, launched) && server.host.as_ref() == Some(host)
}

/// True if the host of a server in these states must already have its guest. `os-resetState` gives some of them to a
/// server that has never run.
///
/// A failed server counts as built: otherwise the host that reported the loss of a guest would create an empty one with
/// the next document. During a task that does not create the guest, such as a migration away from the host, a host that
/// has lost it creates none either.
pub fn is_built(vm_state: VmState, task_state: Option<TaskState>, launched: bool) -> bool {
    let is_built = match vm_state {
        VmState::Active
        | VmState::Paused
        | VmState::Suspended
        | VmState::Stopped
        | VmState::Rescued
        | VmState::Resized
        | VmState::Shelved
        | VmState::SoftDeleted
        | VmState::Error => true,
        VmState::Building | VmState::ShelvedOffloaded | VmState::Deleted => false,
    };
    is_built && launched && !task_state.is_some_and(may_create)
}

/// True for the tasks that may create a guest on the server's own host. A resize and a migration create it on another
/// one, and change the server's host only once it is there.
fn may_create(task: TaskState) -> bool {
    match task {
        TaskState::Scheduling
        | TaskState::Spawning
        | TaskState::RebootingHard
        | TaskState::RebootPendingHard
        | TaskState::RebootStartedHard
        | TaskState::Rebuilding
        | TaskState::RebuildBlockDeviceMapping
        | TaskState::RebuildSpawning
        | TaskState::Unshelving => true,
        TaskState::PoweringOn
        | TaskState::PoweringOff
        | TaskState::Rebooting
        | TaskState::RebootPending
        | TaskState::RebootStarted
        | TaskState::Pausing
        | TaskState::Unpausing
        | TaskState::Suspending
        | TaskState::Resuming
        | TaskState::Rescuing
        | TaskState::Unrescuing
        | TaskState::ImageSnapshotPending
        | TaskState::ImageSnapshot
        | TaskState::ImageBackup
        | TaskState::ImagePendingUpload
        | TaskState::ImageUploading
        | TaskState::Shelving
        | TaskState::ShelvingImagePendingUpload
        | TaskState::ShelvingImageUploading
        | TaskState::ShelvingOffloading
        | TaskState::SoftDeleting
        | TaskState::Restoring
        | TaskState::Deleting
        | TaskState::ResizePrep
        | TaskState::ResizeMigrating
        | TaskState::ResizeMigrated
        | TaskState::ResizeFinish
        | TaskState::ResizeReverting
        | TaskState::Migrating
        | TaskState::UpdatingPassword => false,
    }
}

/// Refuses an action that the server's state does not allow.
///
/// # Errors
/// 409 with Nova's message.
pub fn allow(context: &Context, server: &Server, action: ServerAction) -> Result<(), Error> {
    allow_as(context, server, action, action.row().refused_as)
}

/// [`allow`], with another name for the action in the refusal.
///
/// # Errors
/// 409 with Nova's message.
pub fn allow_as(
    context: &Context,
    server: &Server,
    action: ServerAction,
    named: &str,
) -> Result<(), Error> {
    let id = server.id;
    let refuse = |attribute: &str, state: &str| {
        Err(Refusal::conflict(format!(
            "Cannot '{named}' instance {id} while it is in {attribute} {state}"
        ))
        .into())
    };
    let task = server.task_state.map(TaskState::as_str);
    let state = State {
        vm_state: server.vm_state.as_str(),
        task_state: task,
        locked: server.lock.is_some(),
        launched: server.launched_at.is_some(),
        on_host: server.host.is_some(),
    };
    match state.forbids(action, context.is_admin()) {
        None => Ok(()),
        Some(Obstacle::Lock) => Err(Refusal::conflict(format!("Instance {id} is locked")).into()),
        Some(Obstacle::NoHost) => Err(not_ready(server)),
        Some(Obstacle::VmState) => refuse("vm_state", server.vm_state.as_str()),
        Some(Obstacle::Task) => refuse("task_state", task.unwrap_or("None")),
        Some(Obstacle::NeverRan) => {
            Err(Refusal::conflict(format!("Instance {id} is in an invalid state for '{named}'"))
                .into())
        }
    }
}

/// The part of a server's state that decides which actions are allowed; also built from an API's view of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State<'a> {
    /// Nova's name for the VM state.
    pub vm_state: &'a str,
    /// Nova's name for the task.
    pub task_state: Option<&'a str>,
    /// True if the server is locked.
    pub locked: bool,
    /// True if the server has ever run.
    pub launched: bool,
    /// True if the server is on a host.
    pub on_host: bool,
}

/// The part of a state that does not allow an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The server is locked.
    Lock,
    /// The server is on no host.
    NoHost,
    /// The VM state.
    VmState,
    /// The task in progress, or its absence.
    Task,
    /// The server has never run.
    NeverRan,
}

impl State<'_> {
    /// The first obstacle to an action; `None` if the state allows it. A lock does not stop an administrator.
    pub fn forbids(&self, action: ServerAction, admin: bool) -> Option<Obstacle> {
        let requires = action.row().requires?;
        if requires.lock && self.locked && !admin {
            return Some(Obstacle::Lock);
        }
        if requires.host && !self.on_host {
            return Some(Obstacle::NoHost);
        }
        let is = |state: &VmState| state.as_str() == self.vm_state;
        if !requires.states.is_empty() && !requires.states.iter().any(is) {
            return Some(Obstacle::VmState);
        }
        let among = |some: &[TaskState], task: &str| some.iter().any(|one| one.as_str() == task);
        let fits = match requires.tasks {
            Tasks::Any => true,
            Tasks::None => self.task_state.is_none(),
            Tasks::Or(some) => self.task_state.is_none_or(|task| among(some, task)),
            Tasks::Only(some) => self.task_state.is_some_and(|task| among(some, task)),
        };
        if !fits {
            return Some(Obstacle::Task);
        }
        (requires.launched && !self.launched).then_some(Obstacle::NeverRan)
    }
}

/// Refuses an action on a server whose root disk is a volume.
///
/// # Errors
/// 400 with this message.
pub fn refuse_volume_root(server: &Server, words: &str) -> Result<(), Error> {
    match server.spec.image {
        Some(_) => Ok(()),
        None => Err(Refusal::bad_request(words).into()),
    }
}

/// 409 for a server that has no host, or no document on its host.
pub fn not_ready(server: &Server) -> Error {
    Refusal::conflict(format!("Instance {} is not ready", server.id)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_ran_are_built_unless_a_task_may_create_the_guest() {
        for state in [VmState::Active, VmState::Stopped, VmState::Error] {
            assert!(is_built(state, None, true), "{state:?}");
            assert!(!is_built(state, None, false), "{state:?} by os-resetState");
            for task in [TaskState::Rebuilding, TaskState::RebootingHard, TaskState::Spawning] {
                assert!(!is_built(state, Some(task), true), "{state:?} {task:?}");
            }
            for task in [TaskState::Migrating, TaskState::ImageUploading, TaskState::ResizeMigrated]
            {
                assert!(is_built(state, Some(task), true), "{state:?} {task:?}");
                assert!(!is_built(state, Some(task), false), "{state:?} {task:?}");
            }
        }
        assert!(!is_built(VmState::Building, None, true));
        assert!(!is_built(VmState::ShelvedOffloaded, None, true));
    }
}
