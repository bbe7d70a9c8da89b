//! How an operation on an existing server begins.
//!
//! The server's row is written before the operation's: two who begin at once meet on that row, and
//! PostgreSQL runs the later one again on what the first left, instead of breaking the unique key.

use kilonova_flow::{self as flow, NewOperation};
use kilonova_ids::{OperationId, RequestId, ascending};
use kilonova_store::Tx;
use kilonova_wire::Context;
use serde_json::json;

use crate::Error;
use crate::db::servers::{self, Server};

/// Begins an operation in the caller's name, with `task` as what is being done to the server, and
/// returns its id.
///
/// # Errors
/// Busy when another one is open.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    kind: &'static str,
    step: &'static str,
    task: &str,
    now: i64,
) -> Result<OperationId, Error> {
    let how = Begin { kind, step, task: Some(task), data: json!({}) };
    begin_with(tx, context, server, how, now)
}

/// How an operation begins.
pub(super) struct Begin<'a> {
    /// Nova's action.
    pub kind: &'static str,
    /// The first step.
    pub step: &'static str,
    /// What is being done; without it the server looks idle meanwhile.
    pub task: Option<&'a str>,
    /// What the steps need to know.
    pub data: serde_json::Value,
}

/// [`begin`], with what the steps need to know.
///
/// # Errors
/// As [`begin`].
pub(super) fn begin_with(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    how: Begin<'_>,
    now: i64,
) -> Result<OperationId, Error> {
    let Begin { kind, step, task, data } = how;
    servers::set_task(tx, server.id, task, now)?;
    let id: OperationId = ascending();
    let operation = NewOperation {
        id,
        kind,
        subject: server.id,
        request_id: context.request_id_text(),
        project_id: context.project_id.clone(),
        user_id: context.user_id.clone(),
        step,
        data,
    };
    flow::begin(tx, &operation, now)?;
    Ok(id)
}

/// Notes an action that was over as soon as it was asked for, such as a lock.
///
/// # Errors
/// The database's.
pub fn note(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    kind: &'static str,
    now: i64,
) -> Result<(), Error> {
    let operation = NewOperation {
        id: ascending(),
        kind,
        subject: server.id,
        request_id: context.request_id_text(),
        project_id: context.project_id.clone(),
        user_id: context.user_id.clone(),
        step: "done",
        data: json!({}),
    };
    Ok(flow::record(tx, &operation, flow::Outcome::Done, now)?)
}

/// Notes an action that could not even be begun, with an event that says why.
///
/// # Errors
/// The database's.
pub fn note_failed(
    tx: &mut Tx<'_>,
    context: &Context,
    server: &Server,
    kind: &'static str,
    why: &str,
    now: i64,
) -> Result<(), Error> {
    let operation = NewOperation {
        id: ascending(),
        kind,
        subject: server.id,
        request_id: context.request_id_text(),
        project_id: context.project_id.clone(),
        user_id: context.user_id.clone(),
        step: "done",
        data: json!({}),
    };
    flow::record(tx, &operation, flow::Outcome::Failed, now)?;
    let host = server.host.as_deref().unwrap_or_default();
    Ok(flow::event(
        tx,
        operation.id,
        &event(&format!("compute_{kind}"), host, Some(why), now, now),
    )?)
}

/// The event that Nova records for a finished step of an operation.
pub(super) fn event(
    name: &str,
    host: &str,
    failure: Option<&str>,
    started_at: i64,
    now: i64,
) -> flow::Event {
    flow::Event {
        name: name.to_owned(),
        host: Some(host.to_owned()),
        result: Some(if failure.is_some() { "Error" } else { "Success" }.to_owned()),
        details: failure.map(str::to_owned),
        started_at,
        finished_at: Some(now),
    }
}

/// In whose name something is done that nobody has asked for: the owner's, without a request.
pub(super) fn nobody(server: &Server) -> Context {
    Context {
        user_id: server.user_id.clone(),
        project_id: server.project_id.clone(),
        roles: vec!["admin".to_owned()],
        request_id: Some(RequestId::new_v4()),
        ..Context::default()
    }
}
