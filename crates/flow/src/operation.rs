//! The values of the journal.

use kilonova_ids::{OperationId, ServerId};
use serde_json::Value;

/// An operation to begin.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// Its id, chosen by the caller since the node's documents may carry it.
    pub id: OperationId,
    /// Nova's action name: `create`, `stop`, …
    pub kind: &'static str,
    /// The server.
    pub subject: ServerId,
    /// `req-<uuid>` of the request that asked for it.
    pub request_id: String,
    /// Who asked.
    pub project_id: String,
    /// Who asked.
    pub user_id: String,
    /// The first step.
    pub step: &'static str,
    /// What the steps need to know.
    pub data: Value,
}

/// How an operation ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Still going on.
    Open,
    /// Done.
    Done,
    /// Given up; the message says why.
    Failed,
    /// Another operation took its place.
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

    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "done" => Self::Done,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => Self::Open,
        }
    }
}

/// An operation as it is kept.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// Nova's action name.
    pub kind: String,
    /// The server.
    pub subject: ServerId,
    /// `req-<uuid>`.
    pub request_id: String,
    /// Who asked.
    pub project_id: String,
    /// Who asked.
    pub user_id: String,
    /// Where it is.
    pub step: String,
    /// Grows with each step; guards against two who move it at once.
    pub version: i64,
    /// What the steps need to know.
    pub data: Value,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub message: Option<String>,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: i64,
}

/// One thing that happened in an operation; Nova's instance action event.
#[derive(Debug, Clone)]
pub struct Event {
    /// `compute__do_build_and_run_instance`, …
    pub name: String,
    /// Where.
    pub host: Option<String>,
    /// `Success`, `Error`, or nothing while it goes on.
    pub result: Option<String>,
    /// For people.
    pub details: Option<String>,
    /// Microseconds since 1970.
    pub started_at: i64,
    /// Microseconds since 1970.
    pub finished_at: Option<i64>,
}
