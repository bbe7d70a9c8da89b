//! `os-resetState`: an operator sets the state of a server.

use axum::response::Response;
use kilonova_compute_app::flows;
use kilonova_compute_db::servers::VmState;
use kilonova_wire::Refusal;

use super::ActionRequest;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let active = request.argument["state"] == "active";
    let state = if active { VmState::Active } else { VmState::Error };
    request
        .begin(move |tx, request, server, now| {
            flows::reset_state(tx, &request.compute, &request.context, server, state, now)
        })
        .await
}
