//! `shelve`, `shelveOffload`, `unshelve`.

use axum::response::Response;
use kilonova_wire::{Fault, Microversion};
use serde_json::Value;

use super::Asked;
use crate::flows::{self, UnshelveTarget};

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    match asked.name.as_str() {
        "unshelve" => unshelve(asked).await,
        "shelve" => {
            asked
                .begin(|tx, asked, server, now| {
                    flows::shelve(tx, &asked.compute, &asked.context, server, now)
                })
                .await
        }
        _ => {
            asked
                .begin(|tx, asked, server, now| {
                    flows::offload(tx, &asked.compute, &asked.context, server, now)
                })
                .await
        }
    }
}

async fn unshelve(asked: Asked) -> Result<Response, Fault> {
    let to = destination(&asked)?;
    asked
        .begin(move |tx, asked, server, now| {
            if let Some(Some(zone)) = &to.zone
                && !asked.compute.fleet.has_zone(zone)
            {
                let why = "The requested availability zone is not available";
                return Err(Fault::bad_request(why).into());
            }
            if let Some(host) = &to.host
                && asked.compute.fleet.by_name(host).is_none()
            {
                let host = host.escape_debug();
                let why = format!("Compute host {host} could not be found.");
                return Err(Fault::bad_request(why).into());
            }
            flows::unshelve(tx, &asked.compute, &asked.context, server, &to, now)
        })
        .await
}

/// A zone from 2.77 on; a host, and a zone that may be nothing, from 2.91 on.
fn destination(asked: &Asked) -> Result<UnshelveTarget, Fault> {
    let version = asked.version;
    if asked.argument.is_null() || version < Microversion(2, 77) {
        return Ok(UnshelveTarget::default());
    }
    let latest = version >= Microversion(2, 91);
    let wrong = || {
        asked.wrong(if latest {
            "It takes `availability_zone` (a zone, or null for none) and `host`, at least one of them."
        } else {
            "It takes `availability_zone`, the name of a zone, and nothing else."
        })
    };
    let fields =
        asked.argument.as_object().filter(|fields| !fields.is_empty()).ok_or_else(wrong)?;
    let mut to = UnshelveTarget::default();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("availability_zone", Value::String(zone)) if (1..=255).contains(&zone.len()) => {
                to.zone = Some(Some(zone.clone()));
            }
            ("availability_zone", Value::Null) if latest => to.zone = Some(None),
            ("host", Value::String(host)) if latest && (1..=255).contains(&host.len()) => {
                asked.caller.may_own("os_compute_api:os-shelve:unshelve_to_host")?;
                to.host = Some(host.clone());
            }
            _ => return Err(wrong()),
        }
    }
    Ok(to)
}
