//! Actions that no cloud without agents in guests and console proxies can carry out, security groups, and
//! those that Nova itself has taken away: each with the answer that a client expects.

use axum::response::Response;
use http::StatusCode;
use kilonova_wire::Fault;

use super::Asked;
use crate::api::input;
use crate::app::{nics, states};
use crate::flows;
use crate::flows::operation::Action;

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    match asked.name.as_str() {
        "changePassword" => password(asked).await,
        "injectNetworkInfo" => Err(gone()),
        "addFixedIp" | "removeFixedIp" | "addFloatingIp" | "removeFloatingIp" => {
            input::within(asked.version, 1, 43)?;
            exists(asked).await?;
            Err(Fault::bad_request(
                "Addresses are changed on the server's ports, by the network service.",
            ))
        }
        "addSecurityGroup" | "removeSecurityGroup" => groups(asked).await,
        _ => console(asked).await,
    }
}

/// A security group on all ports of the server, or on none of them.
async fn groups(asked: Asked) -> Result<Response, Fault> {
    let name = asked.argument["name"].as_str().map(str::to_owned);
    let name = name.ok_or_else(|| asked.wrong("It takes `name`."))?;
    asked
        .begin(move |tx, asked, server, now| {
            nics::set_group(tx, server, &name, asked.name == "addSecurityGroup", now)
        })
        .await
}

/// Upstream's answer to what it no longer does.
pub(super) fn gone() -> Fault {
    let why = "This resource is no longer available.  No forwarding address is given.";
    Fault::new(StatusCode::GONE, why)
}

async fn exists(asked: Asked) -> Result<(), Fault> {
    asked.read(|_, _| Ok(())).await
}

/// Guests are asked for a new password by an agent in them, which none has.
async fn password(asked: Asked) -> Result<Response, Fault> {
    let fields = asked.argument.as_object().filter(|fields| fields.len() == 1);
    if fields.and_then(|fields| fields.get("adminPass")?.as_str()).is_none() {
        return Err(asked.wrong("It takes `adminPass`, the new password."));
    }
    const WHY: &str = "QEMU guest agent is not enabled";
    asked
        .write(|tx, asked, server, now| {
            states::check(&asked.context, server, "changePassword")?;
            let action = Action::ChangePassword;
            flows::record_failure(tx, &asked.context, server, action, WHY, now)
        })
        .await?;
    Err(Fault::conflict(WHY))
}

/// `os-getVNCConsole` and its kin, until 2.5.
async fn console(asked: Asked) -> Result<Response, Fault> {
    input::within(asked.version, 1, 5)?;
    let kind = asked.argument["type"].as_str().map(str::to_owned);
    let kind = kind.ok_or_else(|| asked.wrong("It takes `type`, the type of console."))?;
    asked
        .read(|_, server| match server.host {
            Some(_) => Ok(()),
            None => Err(states::not_ready(server)),
        })
        .await?;
    Err(Fault::bad_request(format!("Unavailable console type {}.", kind.escape_debug())))
}
