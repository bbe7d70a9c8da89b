//! Begins operations on existing servers, and records actions that complete immediately.
//!
//! The server's row is written before the operation's. Two concurrent transactions therefore conflict on that row, and
//! on PostgreSQL the later one is repeated instead of violating the unique key.

use jiff::Timestamp;
use kilonova_compute_db::documents;
use kilonova_compute_db::servers::{self, Server, TaskState};
use kilonova_flow::{self as flow, Outcome};
use kilonova_ids::{HostName, OperationId, RequestId};
use kilonova_store::{Asked, Tx};
use kilonova_wire::Context;

use super::journal::{self, OpenOperation, Requester};
use super::operation::{Action, Operation};
use crate::Error;

/// Begins an operation on behalf of the caller. `task` becomes the server's task state; without a task
/// the server looks idle during the operation. A verb that the host carries out on the guest is cancelled.
///
/// # Errors
/// Busy when another operation is open.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    task: Option<TaskState>,
    state: Operation,
    now: Timestamp,
) -> Result<OpenOperation, Error> {
    servers::set_task(tx, server.id, task, now)?;
    journal::cancel_guest_verb(tx, server.id, now)?;
    journal::begin(tx, server.id, &Requester::from(context), state, now)
}

/// Like [`begin`], and also asks for the next document generation of each of `hosts` in the same round trip.
///
/// # Errors
/// Busy when another operation is open.
pub(super) fn begin_on(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    task: Option<TaskState>,
    state: Operation,
    hosts: &[HostName],
    now: Timestamp,
) -> Result<(OpenOperation, Vec<Asked>), Error> {
    let (open, begun) = ask_begin(tx, context, server, task, state, now)?;
    let next = hosts.iter().map(|host| documents::ask_next(tx, host)).collect::<Result<_, _>>()?;
    journal::begun(tx, &open, begun)?;
    Ok((open, next))
}

/// Asks for [`begin`]; [`journal::begun`] checks the answer.
pub(super) fn ask_begin(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    task: Option<TaskState>,
    state: Operation,
    now: Timestamp,
) -> Result<(OpenOperation, Asked), Error> {
    servers::set_task(tx, server.id, task, now)?;
    journal::cancel_guest_verb(tx, server.id, now)?;
    journal::ask_begin(tx, server.id, &Requester::from(context), state, now)
}

/// Records an action that is complete when it is requested, such as a lock, with Nova's event.
///
/// # Errors
/// Store errors only.
pub fn record_action(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    action: Action,
    now: Timestamp,
) -> Result<(), Error> {
    record_until_failed(tx, context, server, action, now)?;
    Ok(())
}

/// [`record_action`] for an action that may still fail: [`fail_recorded`] then changes the record.
///
/// # Errors
/// Store errors only.
pub fn record_until_failed(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    action: Action,
    now: Timestamp,
) -> Result<OperationId, Error> {
    let (by, state) = (Requester::from(context), Operation::Recorded(action));
    let id = journal::record(tx, server.id, &by, &state, Outcome::Done, now)?;
    // Upstream: `lock` and `unlock` in `nova/compute/api.py`; `attach_interface`, `detach_interface`,
    // `live_migration_abort` and `live_migration_force_complete` in `nova/compute/manager.py`.
    let host = server.host.clone().unwrap_or_else(nowhere);
    let (name, host) = match action {
        Action::Lock => ("api_lock", nowhere()),
        Action::Unlock => ("api_unlock", nowhere()),
        Action::AttachInterface => ("compute_attach_interface", host),
        Action::DetachInterface => ("compute_detach_interface", host),
        Action::LiveMigrationCancel => ("compute_live_migration_abort", host),
        Action::LiveMigrationForceComplete => ("compute_live_migration_force_complete", host),
        _ => return Ok(id),
    };
    flow::event(tx, id, &event(name, &host, None, now, now))?;
    Ok(id)
}

/// Records an action on a volume, whose event ends later, with [`end_recorded`] or [`fail_recorded`]. Without a context,
/// the service itself acts.
///
/// # Errors
/// Store errors only.
pub fn record_in_progress(
    tx: &mut Tx<'_>,
    context: Option<&Context>,
    server: &Server,
    action: Action,
    now: Timestamp,
) -> Result<OperationId, Error> {
    let by = context.map_or_else(|| Requester::service(server), Requester::from);
    let id = journal::record(tx, server.id, &by, &Operation::Recorded(action), Outcome::Done, now)?;
    // Upstream: `attach_volume`, `detach_volume` and `extend_volume` in `nova/compute/manager.py`; for a server that is
    // shelved without a host, the API attaches and detaches (`nova/compute/api.py`).
    let (by, host) = match &server.host {
        Some(host) => ("compute", host.clone()),
        None => ("api", nowhere()),
    };
    let begun = event(&format!("{by}_{action}"), &host, None, now, now);
    flow::event(tx, id, &flow::Event { result: None, finished_at: None, ..begun })?;
    Ok(id)
}

/// Ends the event of a recorded action with success.
///
/// # Errors
/// Store errors only.
pub fn end_recorded(tx: &mut Tx<'_>, recorded: OperationId, now: Timestamp) -> Result<(), Error> {
    Ok(flow::end_events(tx, recorded, now)?)
}

/// Turns a recorded action into a failed one, with the reason.
///
/// # Errors
/// Store errors only.
pub fn fail_recorded(
    tx: &mut Tx<'_>,
    recorded: OperationId,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    Ok(flow::fail_recorded(tx, recorded, why, now)?)
}

/// Records an action that could not begin, with an event that contains the reason.
///
/// # Errors
/// Store errors only.
pub fn record_failure(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    action: Action,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let (by, state) = (Requester::from(context), Operation::Recorded(action));
    let id = journal::record(tx, server.id, &by, &state, Outcome::Failed, now)?;
    let host = server.host.clone().unwrap_or_else(nowhere);
    let failed = event(&format!("compute_{action}"), &host, Some(why), now, now);
    Ok(flow::event(tx, id, &failed)?)
}

/// Records that an action failed after its request was answered.
///
/// # Errors
/// Store errors only.
pub fn record_late_failure(
    tx: &mut Tx<'_>,
    server: &Server,
    action: Action,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let (by, state) = (Requester::service(server), Operation::Recorded(action));
    let id = journal::record(tx, server.id, &by, &state, Outcome::Failed, now)?;
    let host = server.host.clone().unwrap_or_else(nowhere);
    let failed = event(&format!("compute_{action}"), &host, Some(why), now, now);
    Ok(flow::event(tx, id, &failed)?)
}

/// The host name in the rows of events that happened on no host.
pub(super) fn nowhere() -> HostName {
    HostName::verbatim("")
}

/// The instance action event of a finished step.
pub(super) fn event(
    name: &str,
    host: &HostName,
    failure: Option<&str>,
    started_at: Timestamp,
    now: Timestamp,
) -> flow::Event {
    flow::Event {
        name: name.to_owned(),
        host: Some(host.clone()),
        result: Some(if failure.is_some() { "Error" } else { "Success" }.to_owned()),
        details: failure.map(str::to_owned),
        started_at,
        finished_at: Some(now),
    }
}

/// The context of an operation that the service itself starts on behalf of the server's owner.
pub(super) fn owner_context(server: &Server) -> Context {
    service_context(&server.user_id, &server.project_id)
}

/// The context of an operation that the service itself starts, as an administrator's action on behalf of a user. Each
/// context has its own request id.
pub fn service_context(user_id: &str, project_id: &str) -> Context {
    Context {
        user_id: user_id.to_owned(),
        project_id: project_id.to_owned(),
        roles: vec!["admin".to_owned()],
        request_id: Some(RequestId::new_v4()),
        ..Context::default()
    }
}
