//! The typed journal of operations. Only this module writes operations through [`kilonova_flow`].
//!
//! Every function works inside the caller's transaction.

use jiff::Timestamp;
use kilonova_compute_db::servers::Server;
use kilonova_flow::{self as flow, NewOperation, Outcome};
use kilonova_ids::{OperationId, RequestId, ServerId, ascending};
use kilonova_node_api::GuestVerb;
use kilonova_store::{Asked, Tx};
use kilonova_wire::Context;

use super::operation::{Action, Operation, Unreadable};
use crate::Error;

/// An open operation: its row, and the state that the row describes.
#[derive(Debug, Clone)]
pub struct OpenOperation {
    /// The row.
    pub row: flow::Operation,
    /// The operation at its step.
    pub state: Operation,
}

/// The identity that requests an operation.
#[derive(Debug, Clone)]
pub struct Requester {
    /// `req-<uuid>`.
    pub request_id: String,
    /// The caller's project.
    pub project_id: String,
    /// The caller's user.
    pub user_id: String,
}

impl From<&Context> for Requester {
    fn from(context: &Context) -> Self {
        Self {
            request_id: context.request_id_text(),
            project_id: context.project_id.clone(),
            user_id: context.user_id.clone(),
        }
    }
}

impl Requester {
    /// The service itself, with the identity of the server's owner.
    pub fn service(server: &Server) -> Self {
        Self {
            request_id: format!("req-{}", RequestId::new_v4()),
            project_id: server.project_id.clone(),
            user_id: server.user_id.clone(),
        }
    }
}

/// Reads a row of the journal.
///
/// # Errors
/// [`Error::Unreadable`] when the row describes no operation.
pub fn read(row: flow::Operation) -> Result<OpenOperation, Error> {
    match Operation::read(&row.kind, &row.step, &row.data) {
        Ok(state) => Ok(OpenOperation { row, state }),
        Err(why) => Err(unreadable(row.id, row.subject, why)),
    }
}

/// Announces [`open_of`].
///
/// # Errors
/// Store errors only.
pub fn expect_open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    Ok(flow::expect_open_of(tx, server)?)
}

/// The open operation of a server.
///
/// # Errors
/// [`Error::Unreadable`]; store errors.
pub fn open_of(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<OpenOperation>, Error> {
    flow::open_of(tx, server)?.map(read).transpose()
}

/// Begins an operation.
///
/// # Errors
/// Busy when the server has an open operation; the transaction must then end.
pub fn begin(
    tx: &mut Tx<'_>,
    server: ServerId,
    by: &Requester,
    state: Operation,
    now: Timestamp,
) -> Result<OpenOperation, Error> {
    let new = new(server, by, &state)?;
    flow::begin(tx, &new, now)?;
    Ok(opened(new, state, now))
}

/// Asks for [`begin`], so that other statements can share its round trip; [`begun`] checks the
/// answer.
///
/// # Errors
/// Store errors only.
pub fn ask_begin(
    tx: &mut Tx<'_>,
    server: ServerId,
    by: &Requester,
    state: Operation,
    now: Timestamp,
) -> Result<(OpenOperation, Asked), Error> {
    let new = new(server, by, &state)?;
    let asked = flow::ask_begin(tx, &new, now)?;
    Ok((opened(new, state, now), asked))
}

/// Checks the answer to [`ask_begin`].
///
/// # Errors
/// Those of [`begin`].
pub fn begun(tx: &mut Tx<'_>, open: &OpenOperation, asked: Asked) -> Result<(), Error> {
    Ok(flow::begun(tx, open.row.subject, asked)?)
}

/// Begins the first operation of a server that this transaction inserts.
///
/// # Errors
/// Store errors only.
pub fn begin_first(
    tx: &mut Tx<'_>,
    server: ServerId,
    by: &Requester,
    state: Operation,
    now: Timestamp,
) -> Result<OpenOperation, Error> {
    let new = new(server, by, &state)?;
    flow::begin_first(tx, &new, now)?;
    Ok(opened(new, state, now))
}

fn opened(new: NewOperation, state: Operation, now: Timestamp) -> OpenOperation {
    let row = flow::Operation {
        id: new.id,
        kind: new.kind.to_owned(),
        subject: new.subject,
        request_id: new.request_id,
        project_id: new.project_id,
        user_id: new.user_id,
        step: new.step.to_owned(),
        version: 0,
        data: new.data,
        outcome: Outcome::Open,
        message: None,
        created_at: now,
        updated_at: now,
    };
    OpenOperation { row, state }
}

/// Records an operation that has already ended; another operation may be open at the same time.
///
/// # Errors
/// Store errors only.
pub fn record(
    tx: &mut Tx<'_>,
    server: ServerId,
    by: &Requester,
    state: &Operation,
    outcome: Outcome,
    now: Timestamp,
) -> Result<OperationId, Error> {
    let new = new(server, by, state)?;
    flow::record(tx, &new, outcome, now)?;
    Ok(new.id)
}

/// Moves an operation to another step of the same kind, or changes the data of its step.
///
/// # Errors
/// [`flow::Error::Moved`] when another transaction has advanced or ended the operation.
pub fn advance(
    tx: &mut Tx<'_>,
    open: &OpenOperation,
    state: &Operation,
    now: Timestamp,
) -> Result<(), Error> {
    debug_assert_eq!(open.state.action(), state.action(), "an operation keeps its kind");
    let columns = state.write().map_err(|why| unreadable(open.row.id, open.row.subject, why))?;
    Ok(flow::advance(tx, &open.row, columns.step.as_str(), &columns.data, now)?)
}

/// Cancels the open operation of a server if it is a verb that the host carries out on the guest. Such a verb sets no task
/// and changes no state, so no other operation waits for it, also while the host is slow or down.
///
/// # Errors
/// Store errors only.
pub fn cancel_guest_verb(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    let why = "Another operation on the server has started.";
    for verb in GuestVerb::ALL {
        flow::cancel(tx, server, Action::Guest(*verb).as_str(), why, now)?;
    }
    Ok(())
}

/// Ends an operation.
///
/// # Errors
/// Store errors only.
pub fn finish(
    tx: &mut Tx<'_>,
    open: &OpenOperation,
    outcome: Outcome,
    message: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    Ok(flow::finish(tx, &open.row, outcome, message, now)?)
}

/// Ends a server's operation because it failed, and logs the reason once the transaction is committed.
///
/// # Errors
/// Store errors only.
pub fn fail(tx: &mut Tx<'_>, open: &OpenOperation, why: &str, now: Timestamp) -> Result<(), Error> {
    let (action, server) = (open.state.action(), open.row.subject);
    let (request, text) = (open.row.request_id.clone(), why.to_owned());
    tx.on_commit(move || tracing::info!(%server, %request, "{action} failed: {text}"));
    finish(tx, open, Outcome::Failed, Some(why), now)
}

fn new(server: ServerId, by: &Requester, state: &Operation) -> Result<NewOperation, Error> {
    let id: OperationId = ascending();
    let columns = state.write().map_err(|why| unreadable(id, server, why))?;
    Ok(NewOperation {
        id,
        kind: columns.action.as_str(),
        subject: server,
        request_id: by.request_id.clone(),
        project_id: by.project_id.clone(),
        user_id: by.user_id.clone(),
        step: columns.step.as_str(),
        data: columns.data,
    })
}

fn unreadable(operation: OperationId, server: ServerId, why: Unreadable) -> Error {
    Error::Unreadable { operation, server, why: Box::new(why) }
}
