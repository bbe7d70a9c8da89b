//! Actions that need guest agents, which this cloud does not have, and actions that Nova has removed: each returns the
//! answer that clients expect. This module also contains the actions on security groups.

use axum::response::Response;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows::operation::Action;
use kilonova_compute_app::{flows, ports, states};
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

use super::ActionRequest;

/// `addFloatingIp` and `removeFloatingIp`, up to 2.43: refused.
pub(super) async fn addresses(request: ActionRequest) -> Result<Response, Refusal> {
    check_exists(request).await?;
    Err(Refusal::bad_request(
        "Change the floating IPs of the server's ports in the network service.",
    ))
}

/// Adds a security group to all ports of the server, or removes it from them.
pub(super) async fn groups(request: ActionRequest) -> Result<Response, Refusal> {
    let name = request.argument["name"].as_str().unwrap_or_default().to_owned();
    if let Some(cloud) = request.compute.neutron.clone() {
        let add = request.action == ServerAction::AddSecurityGroup;
        let server = request
            .clone()
            .read(|request, server| {
                states::allow(&request.context, server, request.action)?;
                Ok(server.id)
            })
            .await?;
        let changed = cloud.set_group(&request.context, server, &name, add).await?;
        let compute = request.compute.clone();
        let accepted = request
            .accept(move |tx, request, server, _| {
                ports::group_changed(tx, &request.compute, server, &name, add, changed)
            })
            .await?;
        compute.refresh_ports(server).await?;
        return Ok(accepted);
    }
    request
        .accept(move |tx, request, server, now| {
            ports::set_group(
                tx,
                &request.compute,
                server,
                &name,
                request.action == ServerAction::AddSecurityGroup,
                now,
            )
        })
        .await
}

/// Upstream's answer to a removed action.
pub(super) fn gone() -> Refusal {
    let why = "This resource is no longer available.  No forwarding address is given.";
    Refusal::new(Kind::Gone, why)
}

async fn check_exists(request: ActionRequest) -> Result<(), Refusal> {
    request.read(|_, _| Ok(())).await
}

/// `changePassword`: recorded as failed, because no guest has the agent that it needs.
pub(super) async fn password(request: ActionRequest) -> Result<Response, Refusal> {
    const WHY: &str = "QEMU guest agent is not enabled";
    request
        .write(|tx, request, server, now| {
            states::allow(&request.context, server, ServerAction::ChangePassword)?;
            flows::record_failure(tx, &request.context, server, Action::ChangePassword, WHY, now)
        })
        .await?;
    Err(Refusal::conflict(WHY))
}
