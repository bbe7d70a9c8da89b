//! `os-resetState`: an operator says what the server is.

use axum::response::Response;
use kilonova_wire::Fault;

use super::ActionRequest;
use crate::db::servers::VmState;
use crate::flows;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
    let active = request.argument["state"] == "active";
    let state = if active { VmState::Active } else { VmState::Error };
    request
        .begin(move |tx, request, server, now| {
            flows::reset_state(tx, &request.compute, &request.context, server, state, now)
        })
        .await
}
