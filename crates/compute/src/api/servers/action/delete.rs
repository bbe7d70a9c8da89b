//! `forceDelete`: deletes a server in any state, irreversibly. `restore`: restores a soft-deleted
//! server.

use axum::response::Response;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::{flows, states};
use kilonova_wire::Refusal;

use super::ActionRequest;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let restore = request.action == ServerAction::Restore;
    request
        .begin(move |tx, request, server, now| {
            if restore {
                return flows::restore(tx, &request.compute, &request.context, server, now);
            }
            states::allow(&request.context, server, ServerAction::Delete)?;
            flows::delete(tx, &request.compute, &request.context, server, now)
        })
        .await
}
