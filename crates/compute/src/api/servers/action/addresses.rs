//! `addFixedIp` and `removeFixedIp`, up to 2.43 (`nova/api/openstack/compute/multinic.py`).
//!
//! Nova answers before it changes the port, so the client never learns of a failure. Here the request fails
//! with the message that Nova logs.

use axum::response::Response;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::ports::{self, AddressChange};
use kilonova_compute_app::states;
use kilonova_ids::parse_uuid_like;
use kilonova_wire::Refusal;

use super::ActionRequest;

/// The requested change; `None` for a network that no id can name.
fn read(request: &ActionRequest) -> Result<Option<AddressChange>, Refusal> {
    if request.action == ServerAction::AddFixedIp {
        let network = request.argument["networkId"].as_str().and_then(parse_uuid_like);
        return Ok(network.map(AddressChange::Add));
    }
    let address = request.argument["address"].as_str().unwrap_or_default();
    let parsed = address.parse().map_err(|_| request.invalid_argument("It is not an IP address."));
    parsed.map(|ip| Some(AddressChange::Remove(ip)))
}

/// Adds an address to a port of the server, or removes one.
pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let change = read(&request)?;
    let server = request
        .clone()
        .read(|request, server| {
            states::allow(&request.context, server, request.action)?;
            Ok(server.id)
        })
        .await?;
    let Some(change) = change else { return Err(ports::no_network(server)) };
    if let Some(cloud) = request.compute.neutron.clone() {
        cloud.change_address(&request.context, server, change).await?;
        let compute = request.compute.clone();
        let accepted = request
            .accept(|tx, request, server, now| {
                ports::address_changed(tx, &request.compute, server, now)
            })
            .await?;
        compute.refresh_ports(server).await?;
        return Ok(accepted);
    }
    request
        .accept(move |tx, request, server, now| {
            states::allow(&request.context, server, request.action)?;
            ports::change_address(tx, &request.compute, server, change, now)
        })
        .await
}
