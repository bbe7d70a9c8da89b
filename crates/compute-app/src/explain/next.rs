//! A summary of a server's state in one sentence, and the next actions. Derived only from the
//! explanation.

use jiff::{SignedDuration, Timestamp};
use kilonova_accelerator::HealthState;
use kilonova_compute_db::servers::VmState;
use kilonova_flow::{Operation, Outcome};

use super::SLOW;
use super::server::{HostNow, ServerExplanation};
use super::words::{Awaited, connecting, failure};
use crate::actions::ServerAction;
use crate::flows::operation::Action;

/// The server in one sentence.
pub fn summary(explained: &ServerExplanation) -> String {
    let server = &explained.server;
    let place = match &server.host {
        Some(host) if server.deleted_at.is_none() => format!("on host {host}"),
        Some(host) => format!("last on host {host}"),
        None => "on no host".to_owned(),
    };
    let own = format!("Server {} ({})", server.name, server.id);
    if server.deleted_at.is_some() {
        return format!("{own} was deleted; it was {place}.");
    }
    let state = server.vm_state.as_str();
    let devices = match explained.held.len() {
        0 => "no accelerators".to_owned(),
        1 => "1 accelerator".to_owned(),
        many => format!("{many} accelerators"),
    };
    match (&explained.operation, &explained.awaited) {
        (Some(operation), Some(awaited)) => format!(
            "{own} is {state}, {place}, with {devices}; its {} is in progress and waits for {}.",
            operation.kind,
            awaited.text()
        ),
        (Some(operation), None) => format!(
            "{own} is {state}, {place}, with {devices}; its {} is in progress, which this version of \
             Kilonova cannot read.",
            operation.kind
        ),
        _ => format!("{own} is {state}, {place}, with {devices}; no operation is in progress."),
    }
}

/// The next actions, most urgent first. Never empty.
pub fn next(explained: &ServerExplanation) -> Vec<String> {
    let mut todo = Vec::new();
    if explained.server.deleted_at.is_some() {
        dirty_handles(explained, &mut todo);
        if todo.is_empty() {
            todo.push("Nothing: it is deleted and holds no resources.".to_owned());
        }
        return todo;
    }
    match (&explained.operation, &explained.awaited) {
        (Some(operation), Some(awaited)) => {
            in_progress(explained, awaited, explained.age(operation), &mut todo);
        }
        (Some(operation), None) => todo.push(unreadable(explained, operation)),
        _ => {
            idle(explained, &mut todo);
            for host in &explained.lacking {
                todo.push(format!(
                    "It waits for {}. The log of the controller states the reason for the delay.",
                    connecting(host)
                ));
            }
        }
    }
    unhealthy_devices(explained, &mut todo);
    dirty_handles(explained, &mut todo);
    if todo.is_empty() {
        todo.push("Nothing: it is in its desired state.".to_owned());
    }
    todo
}

fn silence(host: &HostNow, now: Timestamp) -> String {
    let name = &host.row.host;
    if host.row.forced_down {
        return format!("Host {name} was forced down by an operator.");
    }
    let seconds = now.duration_since(host.row.last_seen).as_secs().max(0);
    format!("Host {name} last reported {seconds} s ago.")
}

fn in_progress(
    explained: &ServerExplanation,
    awaited: &Awaited,
    age: SignedDuration,
    todo: &mut Vec<String>,
) {
    let id = explained.server.id;
    let host = awaited.host.as_ref().and_then(|name| explained.host(name));
    if let Some(host) = host.filter(|host| !host.up) {
        let (name, silence) = (&host.row.host, silence(host, explained.now));
        let action = explained.state.as_ref().map(|state| state.action());
        let lost = match action {
            Some(Action::Delete) => {
                "the deletion completes without it; its devices stay dirty until the host is back"
                    .to_owned()
            }
            _ if explained.server.host.as_ref() == Some(name) => format!(
                "`openstack compute service set --down {name} nova-compute`, then `openstack server \
                 evacuate {id}`"
            ),
            _ => "the move is rolled back automatically".to_owned(),
        };
        todo.push(format!(
            "{silence} Start its agent; it then continues. If the host does not return: {lost}."
        ));
        return;
    }
    if age < SLOW {
        todo.push(format!("Wait for {}.", awaited.text()));
        return;
    }
    let seconds = age.as_secs();
    let about = awaited.host.as_deref().unwrap_or("the controller");
    let mut text = format!(
        "It has been waiting {seconds} s for {}. Search the log of {about} for {id}",
        awaited.text()
    );
    if let Some(open) = explained.open_move().filter(|_| explained.is_transferring()) {
        text.push_str(&format!(
            "; `openstack server migration abort {id} {0}` aborts it; `openstack server migration \
             force complete {id} {0}` pauses the guest until it has arrived",
            open.number
        ));
    }
    text.push('.');
    todo.push(text);
}

/// The next action for an operation that only another version of the controller can read.
fn unreadable(explained: &ServerExplanation, operation: &Operation) -> String {
    let why = explained.unreadable.as_deref().unwrap_or("unknown");
    format!(
        "A newer version of Kilonova has begun its {} at step {} ({why}), and only a controller of that \
         version continues it. Upgrade this controller. If no controller is newer, the row is \
         damaged: run `kilonova doctor`.",
        operation.kind, operation.step
    )
}

fn idle(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let server = &explained.server;
    let id = server.id;
    if let Some(host) = explained.own_host().filter(|host| !host.up) {
        let (name, silence) = (&host.row.host, silence(host, explained.now));
        todo.push(format!(
            "{silence} Start its agent. If the host does not return: `openstack compute service set --down {name} \
             nova-compute`, then `openstack server evacuate {id}`."
        ));
    }
    unconfirmed(explained, todo);
    if server.vm_state == VmState::Error {
        failed(explained, todo);
    } else {
        idle_states(explained, todo);
    }
    if server.vm_state != VmState::Error
        && let Some((operation, events)) = explained.actions.first()
        && operation.outcome == Outcome::Failed
    {
        let why = failure(operation, events).unwrap_or("see its events");
        todo.push(format!(
            "Its last action, {}, failed: {why} Correct that and retry.",
            operation.kind
        ));
    }
    locked(explained, todo);
}

/// The client's command for an action.
fn command(action: ServerAction) -> &'static str {
    action.row().command.unwrap_or_default()
}

/// Adds the end of a resize or a cold migration that waits for it, in any state that `os-resetState` may have set.
pub(super) fn unconfirmed(explained: &ServerExplanation, todo: &mut Vec<String>) {
    if explained.awaits_confirmation() {
        let id = explained.server.id;
        todo.push(format!(
            "It waits for its owner to confirm or revert the resize: `{} {id}`, or `… resize \
             revert {id}`.",
            command(ServerAction::ConfirmResize)
        ));
    }
}

/// Adds the action that the server's state requires.
pub(super) fn idle_states(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let id = explained.server.id;
    match explained.server.vm_state {
        VmState::Stopped => {
            todo.push(format!("It is shut off: `{} {id}`.", command(ServerAction::Start)));
        }
        VmState::Paused => {
            todo.push(format!("It is paused: `{} {id}`.", command(ServerAction::Unpause)))
        }
        VmState::Suspended => {
            todo.push(format!("It is suspended: `{} {id}`.", command(ServerAction::Resume)));
        }
        VmState::Rescued => {
            todo.push(format!("It is in rescue: `{} {id}`.", command(ServerAction::Unrescue)));
        }
        VmState::Shelved => {
            todo.push(format!("It is shelved: `{} {id}`.", command(ServerAction::Unshelve)));
        }
        VmState::ShelvedOffloaded => shelved(explained, todo),
        VmState::SoftDeleted => todo.push(format!(
            "It is soft-deleted: `{} {id}`, or `{} {id}`.",
            command(ServerAction::Restore),
            command(ServerAction::ForceDelete)
        )),
        VmState::Error
        | VmState::Building
        | VmState::Active
        | VmState::Resized
        | VmState::Deleted => {}
    }
}

pub(super) fn locked(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let id = explained.server.id;
    if let Some(lock) = &explained.server.lock {
        let why = lock.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        let unlock = command(ServerAction::Unlock);
        todo.push(format!("It is locked by its {}{why}: `{unlock} {id}`.", lock.by));
    }
}

fn failed(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let id = explained.server.id;
    let Some(host) = explained.own_host() else {
        todo.push(match &explained.room {
            Some(room) if room.exists => format!(
                "There is room for it now. Delete it (`openstack server delete {id}`) and create it \
                 again."
            ),
            Some(_) => format!(
                "There is still no room for it, for the listed reasons. Make room, then delete it \
                 (`openstack server delete {id}`) and create it again."
            ),
            None => format!("Delete it (`openstack server delete {id}`) and create it again."),
        });
        return;
    };
    if host.up {
        todo.push(format!(
            "Fix the cause that the fault states, then `openstack server reboot --hard {id}`; if \
             its disk is lost, `openstack server rebuild {id}`."
        ));
    }
}

fn shelved(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let id = explained.server.id;
    todo.push(match &explained.room {
        Some(room) if !room.exists => {
            "It is shelved, and there is no room for it now, for the listed reasons.".to_owned()
        }
        _ => format!("It is shelved: `openstack server unshelve {id}`."),
    });
}

/// Adds actions for unhealthy devices, and for devices that the guest's document does not contain.
fn unhealthy_devices(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let id = explained.server.id;
    for held in &explained.held {
        let Some(handle) = &held.handle else {
            todo.push(format!(
                "Accelerator request {} is {}, without a device.",
                held.arq, held.state
            ));
            continue;
        };
        if handle.health != HealthState::Healthy {
            let why = handle.health_reason.as_deref().unwrap_or("reason unknown");
            todo.push(format!(
                "Its device {} is {} ({why}): migrate the server (`openstack server migrate \
                 {id}`), then repair the device.",
                handle.device_address, handle.health
            ));
        }
        if explained.operation.is_none() && !explained.is_in_document(held) {
            todo.push(format!(
                "It holds {} on {}, but its document there does not contain it: run `kilonova \
                 doctor`.",
                handle.address,
                held.host.as_deref().unwrap_or("no host")
            ));
        }
    }
}

fn dirty_handles(explained: &ServerExplanation, todo: &mut Vec<String>) {
    let mut named: Vec<&str> = Vec::new();
    for left in &explained.left {
        if named.contains(&left.host.as_str()) {
            continue;
        }
        named.push(&left.host);
        let many = explained.left.iter().filter(|other| other.host == left.host).count();
        let state = match explained.host(&left.host) {
            Some(host) if !host.up => silence(host, explained.now),
            _ => "The host is up and will report it.".to_owned(),
        };
        todo.push(format!(
            "{many} of its device(s) on host {} stay dirty until that host reports that the guest \
             is removed. {state}",
            left.host
        ));
    }
}
