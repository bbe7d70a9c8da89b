//! `forceDelete`: as `DELETE`, from any state, and for good. `restore`: what a deletion that can be
//! taken back has left.

use axum::response::Response;
use kilonova_wire::Fault;

use super::ActionRequest;
use crate::app::actions::ServerAction;
use crate::app::states;
use crate::flows;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
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
