//! `resize`, `confirmResize`, `revertResize`.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_wire::Fault;
use serde_json::Value;

use super::Asked;
use crate::app::resolve;
use crate::db::servers;
use crate::flows::{self, ColdRequest};

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    match asked.name.as_str() {
        "resize" => resize(asked).await,
        "confirmResize" => {
            asked.nothing()?;
            asked
                .write(|tx, asked, server, now| {
                    flows::confirm(tx, &asked.compute, &asked.context, server, now)
                })
                .await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => {
            asked.nothing()?;
            asked
                .begin(|tx, asked, server, now| {
                    flows::revert(tx, &asked.compute, &asked.context, server, now)
                })
                .await
        }
    }
}

async fn resize(asked: Asked) -> Result<Response, Fault> {
    let wanted = flavor_ref(&asked)?;
    let disk_config = asked.argument["OS-DCF:diskConfig"].as_str().map(str::to_owned);
    asked
        .begin(move |tx, asked, server, now| {
            let mut server = server.clone();
            let flavor = resolve::flavor(tx, &asked.context, &wanted)?;
            if flavor.id == server.spec.flavor.id {
                let words = "When resizing, instances must change flavor!";
                return Err(Fault::bad_request(words).into());
            }
            if let Some(kind) = &disk_config {
                server.spec.disk_config.clone_from(kind);
                let (name, description) = (&server.name, server.description.as_deref());
                servers::set_text(tx, server.id, name, description, &server.spec, now)?;
            }
            let request = ColdRequest::Resize(Box::new(flavor));
            flows::migrate_cold(tx, &asked.compute, &asked.context, &server, &request, now)
        })
        .await
}

/// `{"flavorRef": …, "OS-DCF:diskConfig": …}`; disks are never partitioned here, so the latter is
/// shown and changes nothing else.
fn flavor_ref(asked: &Asked) -> Result<String, Fault> {
    let wrong = || asked.wrong("It takes `flavorRef`, the id of a flavor.");
    let fields = asked.argument.as_object().ok_or_else(wrong)?;
    for (key, value) in fields {
        let known = match key.as_str() {
            "flavorRef" => true,
            "OS-DCF:diskConfig" => matches!(value.as_str(), Some("AUTO" | "MANUAL")),
            _ => false,
        };
        if !known {
            return Err(asked.wrong(&format!("{key} is not known, or not with that value.")));
        }
    }
    match fields.get("flavorRef") {
        Some(Value::String(id)) if !id.is_empty() => Ok(id.clone()),
        Some(Value::Number(id)) if id.is_u64() => Ok(id.to_string()),
        _ => Err(wrong()),
    }
}
