//! The list of tasks, which is always empty, because there is no image import. Clients expect the
//! list to exist.

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::{Context, Refusal};
use serde_json::json;

use super::{Answer, id_of};
use crate::Images;

pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route("/v2/tasks", [get("tasks_api_access", list)])
        .route("/v2/tasks/{id}", [get("tasks_api_access", show)])
        .route("/v2/images/{id}/tasks", [get(Guard::Object(&["get_image"]), of_image)])
}

async fn list(_: Context) -> Answer {
    let body = json!({"tasks": [], "first": "/v2/tasks", "schema": "/v2/schemas/tasks"});
    Ok(axum::Json(body).into_response())
}

async fn show(_: Context, Path(id): Path<String>) -> Answer {
    Err(Refusal::not_found(format!("No task found with ID {}", id.escape_debug())))
}

async fn of_image(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    images.show(&context, id_of(&id)?).await?;
    Ok(axum::Json(json!({"tasks": []})).into_response())
}
