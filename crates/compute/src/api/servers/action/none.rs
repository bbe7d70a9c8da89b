//! Actions that no cloud without agents in guests and console proxies can carry out, security groups, and
//! those that Nova itself has taken away: each with the answer that a client expects.

use axum::response::Response;
use http::StatusCode;
use kilonova_wire::Fault;

use super::ActionRequest;
use crate::app::actions::ServerAction;
use crate::app::{nics, states};
use crate::flows;
use crate::flows::operation::Action;

/// Adding and removing addresses, until 2.43.
pub(super) async fn addresses(request: ActionRequest) -> Result<Response, Fault> {
    exists(request).await?;
    Err(Fault::bad_request("Addresses are changed on the server's ports, by the network service."))
}

/// A security group on all ports of the server, or on none of them.
pub(super) async fn groups(request: ActionRequest) -> Result<Response, Fault> {
    let name = request.argument["name"].as_str().unwrap_or_default().to_owned();
    request
        .begin(move |tx, request, server, now| {
            nics::set_group(
                tx,
                server,
                &name,
                request.action == ServerAction::AddSecurityGroup,
                now,
            )
        })
        .await
}

/// Upstream's answer to what it no longer does.
pub(super) fn gone() -> Fault {
    let why = "This resource is no longer available.  No forwarding address is given.";
    Fault::new(StatusCode::GONE, why)
}

async fn exists(request: ActionRequest) -> Result<(), Fault> {
    request.read(|_, _| Ok(())).await
}

/// Changing a password needs an agent in the guest, which no guest has.
pub(super) async fn password(request: ActionRequest) -> Result<Response, Fault> {
    const WHY: &str = "QEMU guest agent is not enabled";
    request
        .write(|tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::ChangePassword)?;
            flows::record_failure(tx, &request.context, server, Action::ChangePassword, WHY, now)
        })
        .await?;
    Err(Fault::conflict(WHY))
}

/// `os-getVNCConsole` and its kin, until 2.5.
pub(super) async fn console(request: ActionRequest) -> Result<Response, Fault> {
    let kind = request.argument["type"].as_str().unwrap_or_default().to_owned();
    request
        .read(|_, server| match server.host {
            Some(_) => Ok(()),
            None => Err(states::not_ready(server)),
        })
        .await?;
    Err(Fault::bad_request(format!("Unavailable console type {}.", kind.escape_debug())))
}
