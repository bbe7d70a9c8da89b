//! Adding and removing single tags.

use axum::extract::{Path, State};
use kilonova_access::{Guard, Routes, delete, put};
use kilonova_wire::Context;

use super::{Answer, id_of, no_content};
use crate::Images;

const MODIFY: Guard = Guard::Object(&["modify_image"]);

pub(super) fn routes() -> Routes<Images> {
    Routes::new().route("/v2/images/{id}/tags/{tag}", [put(MODIFY, add), delete(MODIFY, remove)])
}

async fn add(
    State(images): State<Images>,
    context: Context,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    images.add_tag(&context, id_of(&id)?, &tag).await?;
    no_content()
}

async fn remove(
    State(images): State<Images>,
    context: Context,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    images.remove_tag(&context, id_of(&id)?, &tag).await?;
    no_content()
}
