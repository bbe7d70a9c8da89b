//! `/servers`: one file per thing that can be asked of a server.

mod action;
mod actions;
mod create;
mod delete;
mod diagnostics;
mod extra;
mod filter;
mod filter_keys;
mod find;
mod interfaces;
mod list;
mod metadata;
mod migrations;
mod parts;
mod schema;
mod show;
mod sort;
mod tags;
mod update;
pub(super) mod view;

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
        .route("/v2.1/servers/{id}/migrations", get(migrations::list))
        .route(
            "/v2.1/servers/{id}/migrations/{number}",
            get(migrations::show).delete(migrations::abort),
        )
        .route("/v2.1/servers/{id}/migrations/{number}/action", post(migrations::act))
        .route("/v2.1/servers/{id}/os-instance-actions", get(actions::list))
        .route("/v2.1/servers/{id}/os-instance-actions/{request}", get(actions::show))
        .merge(hanging())
}

/// What hangs on a server and says little here.
fn hanging() -> Router<Compute> {
    Router::new()
        .route("/v2.1/servers/{id}/diagnostics", get(diagnostics::show))
        .route("/v2.1/servers/{id}/topology", get(parts::topology))
        .route("/v2.1/servers/{id}/ips", get(interfaces::addresses))
        .route("/v2.1/servers/{id}/ips/{network}", get(interfaces::address))
        .route("/v2.1/servers/{id}/os-security-groups", get(interfaces::security_groups))
        .route("/v2.1/servers/{id}/os-interface", get(interfaces::list).post(interfaces::attach))
        .route(
            "/v2.1/servers/{id}/os-interface/{port}",
            get(interfaces::show).delete(interfaces::detach),
        )
        .route(
            "/v2.1/servers/{id}/os-volume_attachments",
            get(parts::volumes).post(parts::add_volume),
        )
        .route(
            "/v2.1/servers/{id}/os-volume_attachments/{volume}",
            get(parts::volume).put(parts::volume).delete(parts::volume),
        )
        .route(
            "/v2.1/servers/{id}/os-server-password",
            get(parts::password).delete(parts::forget_password),
        )
        .route("/v2.1/servers/{id}/remote-consoles", post(parts::console))
}
