//! `lock`, `unlock`: a mark on the server's row, and a line in its history.

use axum::response::Response;
use kilonova_wire::{Fault, Microversion};
use serde_json::Value;

use super::super::find::target;
use super::Asked;
use crate::db::servers::{self, Lock};
use crate::flows;
use crate::flows::operation::Action;

/// Longest reason.
const REASON: usize = 255;

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let reason = if asked.name == "lock" { reason(&asked)? } else { None };
    asked
        .begin(move |tx, asked, server, now| {
            if asked.name == "lock" {
                let by =
                    if server.project_id == asked.context.project_id { "owner" } else { "admin" };
                let lock = Lock { by: by.to_owned(), reason: reason.clone() };
                servers::set_lock(tx, server.id, Some(&lock))?;
                return flows::record_action(tx, &asked.context, server, Action::Lock, now);
            }
            let own = server.project_id == asked.context.project_id;
            let expected = if own { "owner" } else { "admin" };
            if server.lock.as_ref().is_some_and(|lock| lock.by != expected) {
                const OVERRIDE: &str = "os_compute_api:os-lock-server:unlock:unlock_override";
                asked.caller.may(OVERRIDE, &target(server))?;
            }
            servers::set_lock(tx, server.id, None)?;
            flows::record_action(tx, &asked.context, server, Action::Unlock, now)
        })
        .await
}

/// `{"locked_reason": …}` from 2.73 on; before, the argument has no meaning, whatever it is.
fn reason(asked: &Asked) -> Result<Option<String>, Fault> {
    if asked.argument.is_null() || asked.version < Microversion(2, 73) {
        return Ok(None);
    }
    let wrong = || asked.wrong("It takes an object with `locked_reason`, or null.");
    let fields = asked.argument.as_object().ok_or_else(wrong)?;
    match (fields.len(), fields.get("locked_reason")) {
        (0, _) => Ok(None),
        (1, Some(Value::String(reason))) if (1..=REASON).contains(&reason.chars().count()) => {
            Ok(Some(reason.clone()))
        }
        _ => {
            Err(asked.wrong("It takes `locked_reason`, of 1 to 255 characters, and nothing else."))
        }
    }
}
