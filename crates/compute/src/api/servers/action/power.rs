//! `os-start`, `os-stop` and `reboot`.

use axum::response::Response;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::{PowerCommand, change_power};
use kilonova_wire::Refusal;

use super::ActionRequest;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let kind = request.argument["type"].as_str().unwrap_or_default();
    let change = match request.action {
        ServerAction::Start => PowerCommand::Start,
        ServerAction::Stop => PowerCommand::Stop,
        _ if kind.eq_ignore_ascii_case("HARD") => PowerCommand::RebootHard,
        _ => PowerCommand::RebootSoft,
    };
    request
        .begin(move |tx, request, server, now| {
            change_power(tx, &request.compute, &request.context, server, change, now)
        })
        .await
}
