//! The explanation for a server's owner: without host names, messages from hosts, and details from
//! the ledger.

use kilonova_compute_db::servers::VmState;
use kilonova_flow::Outcome;

use super::SLOW;
use super::next::{idle_states, locked, unconfirmed};
use super::server::ServerExplanation;

/// The server in one sentence.
pub fn owner_summary(explained: &ServerExplanation) -> String {
    let server = &explained.server;
    let own = format!("Server {} ({})", server.name, server.id);
    if server.deleted_at.is_some() {
        return format!("{own} was deleted.");
    }
    let state = server.vm_state.as_str();
    match &explained.operation {
        Some(operation) => format!("{own} is {state}; its {} is in progress.", operation.kind),
        None => format!("{own} is {state}; no operation is in progress."),
    }
}

/// The next actions, most urgent first. Never empty.
pub fn owner_next(explained: &ServerExplanation) -> Vec<String> {
    let server = &explained.server;
    let id = server.id;
    let mut todo = Vec::new();
    if server.deleted_at.is_some() {
        return vec!["Nothing: it is deleted.".to_owned()];
    }
    if explained.own_host().is_some_and(|host| !host.up) {
        todo.push("Its host does not answer. Ask an administrator to check the host.".to_owned());
    }
    if explained.operation.is_none() {
        unconfirmed(explained, &mut todo);
    }
    match &explained.operation {
        Some(operation) if explained.age(operation) < SLOW => {
            todo.push(format!("Wait for its {} to end.", operation.kind));
        }
        Some(operation) => todo.push(format!(
            "Its {} has made no progress for a while. Ask an administrator to check it.",
            operation.kind
        )),
        None if server.vm_state == VmState::Error => todo.push(match (&server.host, &explained.room) {
            (Some(_), _) => format!(
                "Try `openstack server reboot --hard {id}`. An administrator can see why it failed."
            ),
            (None, Some(room)) if room.exists => format!(
                "There is room for it now. Delete it (`openstack server delete {id}`) and create it \
                 again."
            ),
            (None, Some(_)) => format!(
                "There is still no room for it, for the listed reasons. Delete it (`openstack \
                 server delete {id}`), and create it with another flavor or later."
            ),
            (None, None) => {
                format!("Delete it (`openstack server delete {id}`) and create it again.")
            }
        }),
        None => idle_states(explained, &mut todo),
    }
    let last = explained.actions.first().map(|(operation, _)| operation);
    if server.vm_state != VmState::Error
        && let Some(failed) = last.filter(|last| last.outcome == Outcome::Failed)
    {
        todo.push(format!("Its last action, {}, failed.", failed.kind));
    }
    locked(explained, &mut todo);
    if todo.is_empty() {
        todo.push("Nothing: it is in its desired state.".to_owned());
    }
    todo
}
