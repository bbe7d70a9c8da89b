//! The columns of the table of actions.

use kilonova_compute_db::servers::{TaskState, VmState};
use kilonova_policy::Rule;
use kilonova_wire::Microversion;
use serde_json::Value;

use crate::flows::operation::Action;
use crate::microversions::Span;

/// How an action is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// By this key in the body of `POST /servers/{id}/action`.
    Body(&'static str),
    /// By the key of another row, with this argument.
    Variant(&'static str, &'static str),
    /// By its own route.
    Route(&'static str),
}

/// The argument of an action in the body.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// Ignored, as in upstream.
    Ignored,
    /// Null, or an empty object.
    Nothing,
    /// Matches this JSON schema.
    Schema(fn(Microversion) -> Value),
}

/// The task states in which an action is allowed.
#[derive(Debug, Clone, Copy)]
pub enum Tasks {
    /// No task is in progress.
    None,
    /// No task, or one of these.
    Or(&'static [TaskState]),
    /// One of these tasks.
    Only(&'static [TaskState]),
    /// Any task, or none.
    Any,
}

/// The state that a server must be in.
#[derive(Debug, Clone, Copy)]
pub struct Requires {
    /// The allowed states; empty for all of them.
    pub states: &'static [VmState],
    /// The allowed tasks.
    pub tasks: Tasks,
    /// True if the server must have run once.
    pub launched: bool,
    /// True if a lock forbids the action to everyone except administrators.
    pub lock: bool,
    /// True if the server must be on a host.
    pub host: bool,
}

/// The rule that replaces an action's own rule if the request names a host.
#[derive(Debug, Clone, Copy)]
pub struct HostRule {
    /// The rule's name.
    pub rule: &'static str,
    /// The microversions in which the argument may name a host.
    pub span: Span,
}

/// A server action.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// How it is requested.
    pub request: Request,
    /// The microversions that define it.
    pub span: Span,
    /// The policy rules, with upstream's defaults. The first governs the action, the others parts of it.
    pub rules: &'static [Rule],
    /// The rule that replaces the first one if the request names a host.
    pub host_rule: Option<HostRule>,
    /// The state that the server must be in; `None` if only the handler decides.
    pub requires: Option<Requires>,
    /// The action's name in a refusal that the server's state causes.
    pub refused_as: &'static str,
    /// The instance action in the server's history, which is also the kind of the operation; `None` if
    /// the history does not record the action.
    pub recorded_as: Option<Action>,
    /// The server's task state while the action is in progress.
    pub task: Option<TaskState>,
    /// The event that Nova records when the host has finished; `None` if there is none or more than one.
    pub event: Option<&'static str>,
    /// The argument.
    pub body: Body,
    /// The host's task, as `explain` describes it.
    pub host_does: Option<&'static str>,
    /// The client's command, to which the server's id is appended.
    pub command: Option<&'static str>,
    /// One sentence for the documentation.
    pub about: &'static str,
}

impl Row {
    /// The key of the body, for an action that has its own.
    pub fn key(&self) -> Option<&'static str> {
        match self.request {
            Request::Body(key) => Some(key),
            Request::Variant(..) | Request::Route(_) => None,
        }
    }
}
