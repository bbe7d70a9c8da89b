//! `resize`, `confirmResize`, `revertResize`.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_wire::Fault;
use serde_json::Value;

use super::ActionRequest;
use crate::app::resolve;
use crate::db::servers;
use crate::flows::{self, ColdRequest};

pub(super) async fn confirm(request: ActionRequest) -> Result<Response, Fault> {
    request
        .write(|tx, request, server, now| {
            flows::confirm(tx, &request.compute, &request.context, server, now)
        })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn revert(request: ActionRequest) -> Result<Response, Fault> {
    request
        .begin(|tx, request, server, now| {
            flows::revert(tx, &request.compute, &request.context, server, now)
        })
        .await
}

/// Disks are never partitioned here, so `OS-DCF:diskConfig` is shown and changes nothing else.
pub(super) async fn resize(request: ActionRequest) -> Result<Response, Fault> {
    let wanted = match &request.argument["flavorRef"] {
        Value::String(id) => id.clone(),
        number => number.to_string(),
    };
    let disk_config = request.argument["OS-DCF:diskConfig"].as_str().map(str::to_owned);
    request
        .begin(move |tx, request, server, now| {
            let mut server = server.clone();
            let flavor = resolve::flavor(tx, &request.context, &wanted)?;
            if flavor.id == server.spec.flavor.id {
                let words = "When resizing, instances must change flavor!";
                return Err(Fault::bad_request(words).into());
            }
            if let Some(kind) = &disk_config {
                server.spec.disk_config.clone_from(kind);
                let (name, description) = (&server.name, server.description.as_deref());
                servers::set_text(tx, server.id, name, description, &server.spec, now)?;
            }
            let cold = ColdRequest::Resize(Box::new(flavor));
            flows::migrate_cold(tx, &request.compute, &request.context, &server, &cold, now)
        })
        .await
}
