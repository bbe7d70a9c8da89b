//! Generates docs/server-actions.md from the table.

use std::fmt::Write;

use kilonova_compute_db::servers::{TaskState, VmState};

use super::{Body, Request, ServerAction, Tasks};
use crate::microversions::{MIN, Span};

const HEAD: &str = "\
# Server actions

This page is generated from the table in `crates/compute-app/src/actions/table.rs`. To update it, run
`UPDATE_DOCS=1 cargo nextest run -p kilonova-compute-app actions`.

*Allowed in* lists the states and, after a semicolon, the tasks in which the service accepts the action; an
action without listed tasks requires a server without a task. *Locked*: the action is accepted even if the
server is locked. *Task* is the server's task during the action, *event* the last event of its history.
`unshelve` has those of `os-start` if the server is still on its host.

";

/// The text of docs/server-actions.md.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    text.push_str(
        "| action | microversions | allowed in | locked | task | event | rule | argument | |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for action in ServerAction::ALL {
        let row = action.row();
        let request = match row.request {
            Request::Body(key) => format!("`{key}`"),
            Request::Variant(key, which) => format!("`{key}`, {which}"),
            Request::Route(route) => format!("`{route}`"),
        };
        let (allowed, locked) = row.requires.map_or(("any state".to_owned(), "yes"), |requires| {
            (allowed(requires.states, requires.tasks), if requires.lock { "" } else { "yes" })
        });
        let rules: Vec<String> = row.rules.iter().map(|rule| format!("`{}`", rule.name)).collect();
        let body = match row.body {
            Body::Ignored => "ignored",
            Body::Nothing => "none",
            Body::Schema(_) => "checked",
        };
        let _ = writeln!(
            text,
            "| {request} | {} | {allowed} | {locked} | {} | {} | {} | {body} | {} |",
            span(row.span),
            row.task.map_or(String::new(), |task| format!("`{}`", task.as_str())),
            row.event.map_or(String::new(), |event| format!("`{event}`")),
            rules.join(", "),
            row.about,
        );
    }
    text
}

fn span(span: Span) -> String {
    match (span.first == MIN, span.gone) {
        (true, None) => "all".to_owned(),
        (false, None) => format!("from {}", span.first),
        (true, Some(gone)) => format!("before {gone}"),
        (false, Some(gone)) => format!("from {}, before {gone}", span.first),
    }
}

fn allowed(states: &[VmState], tasks: Tasks) -> String {
    let of = |tasks: &[TaskState]| {
        tasks.iter().map(|task| format!("`{}`", task.as_str())).collect::<Vec<_>>().join(", ")
    };
    let states = match states {
        [] => "any state".to_owned(),
        some => some.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", "),
    };
    match tasks {
        Tasks::None => states,
        Tasks::Or(some) => format!("{states}; also {}", of(some)),
        Tasks::Only(some) => format!("{states}; only {}", of(some)),
        Tasks::Any => format!("{states}; any task"),
    }
}
