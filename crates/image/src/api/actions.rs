//! Deactivating and reactivating an image.

use axum::extract::{Path, State};
use kilonova_access::{Guard, Routes, post};
use kilonova_wire::Context;

use super::{Answer, id_of, no_content};
use crate::{Images, Status};

pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route(
            "/v2/images/{id}/actions/deactivate",
            [post(Guard::Object(&["deactivate"]), deactivate)],
        )
        .route(
            "/v2/images/{id}/actions/reactivate",
            [post(Guard::Object(&["reactivate"]), reactivate)],
        )
}

async fn deactivate(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    images.set_status(&context, id_of(&id)?, "deactivate", Status::Deactivated).await?;
    no_content()
}

async fn reactivate(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    images.set_status(&context, id_of(&id)?, "reactivate", Status::Active).await?;
    no_content()
}
