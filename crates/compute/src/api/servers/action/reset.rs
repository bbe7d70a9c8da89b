//! `os-resetState`: an operator says what the server is.

use axum::response::Response;
use kilonova_wire::Fault;

use super::Asked;
use crate::db::servers::VmState;
use crate::flows;

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let fields = asked.argument.as_object().filter(|fields| fields.len() == 1);
    let state = match fields.and_then(|fields| fields.get("state")?.as_str()) {
        Some("active") => VmState::Active,
        Some("error") => VmState::Error,
        _ => return Err(asked.wrong("It takes `state`, which is active or error.")),
    };
    asked
        .begin(move |tx, asked, server, now| {
            flows::reset_state(tx, &asked.compute, &asked.context, server, state, now)
        })
        .await
}
