//! `/servers`: one file per thing that can be asked of a server.

mod action;
mod actions;
mod create;
mod delete;
mod filter;
mod find;
mod list;
mod metadata;
mod schema;
mod show;
mod tags;
mod update;
mod view;

use axum::Router;
use axum::routing::{get, post};

use crate::Compute;

/// Routes below `/v2.1`.
pub fn routes() -> Router<Compute> {
    Router::new()
        .route("/v2.1/servers", get(list::brief).post(create::create))
        .route("/v2.1/servers/detail", get(list::detail))
        .route("/v2.1/servers/{id}", get(show::show).put(update::update).delete(delete::delete))
        .route("/v2.1/servers/{id}/action", post(action::action))
        .route(
            "/v2.1/servers/{id}/metadata",
            get(metadata::list).post(metadata::update).put(metadata::replace),
        )
        .route(
            "/v2.1/servers/{id}/metadata/{key}",
            get(metadata::show).put(metadata::set).delete(metadata::delete),
        )
        .route("/v2.1/servers/{id}/tags", get(tags::list).put(tags::replace).delete(tags::clear))
        .route(
            "/v2.1/servers/{id}/tags/{tag}",
            get(tags::check).put(tags::add).delete(tags::delete),
        )
        .route("/v2.1/servers/{id}/os-instance-actions", get(actions::list))
        .route("/v2.1/servers/{id}/os-instance-actions/{request}", get(actions::show))
}
