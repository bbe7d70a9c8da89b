//! The rows of the journal.

use jiff::Timestamp;
use kilonova_ids::{HostName, OperationId, ServerId};
use serde_json::Value;

/// An operation to begin.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// Its id, chosen by the caller because documents for hosts may carry it.
    pub id: OperationId,
    /// The instance action: `create`, `stop`, …
    pub kind: &'static str,
    /// The server.
    pub subject: ServerId,
    /// `req-<uuid>` of its request.
    pub request_id: String,
    /// The caller's project.
    pub project_id: String,
    /// The caller's user.
    pub user_id: String,
    /// The first step.
    pub step: &'static str,
    /// The data of the step.
    pub data: Value,
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is in progress.
    Open,
    /// Done.
    Done,
    /// It failed; the message says why.
    Failed,
    /// Another operation replaced it.
    Cancelled,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Open, Self::Done, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

/// A row of the journal.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// The instance action.
    pub kind: String,
    /// The server.
    pub subject: ServerId,
    /// `req-<uuid>`.
    pub request_id: String,
    /// The caller's project.
    pub project_id: String,
    /// The caller's user.
    pub user_id: String,
    /// The step it has reached.
    pub step: String,
    /// Grows with each step; a transaction that read an older version cannot advance the operation.
    pub version: i64,
    /// The data of the step.
    pub data: Value,
    /// Its outcome.
    pub outcome: Outcome,
    /// The reason for a failure.
    pub message: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// An instance action event.
#[derive(Debug, Clone)]
pub struct Event {
    /// `compute__do_build_and_run_instance`, …
    pub name: String,
    /// The host.
    pub host: Option<HostName>,
    /// `Success`, `Error`, or `None` while it is in progress.
    pub result: Option<String>,
    /// Details for operators.
    pub details: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}
