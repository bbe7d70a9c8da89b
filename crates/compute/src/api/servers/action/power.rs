//! `os-start`, `os-stop`, `reboot`.

use axum::response::Response;
use kilonova_wire::Fault;

use super::ActionRequest;
use crate::app::actions::ServerAction;
use crate::flows::{PowerCommand, change_power};

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
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
