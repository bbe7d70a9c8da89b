//! `/servers`: one file per resource or operation.

mod action;
mod actions;
mod consoles;
mod create;
mod delete;
mod diagnostics;
mod extra;
mod filter;
mod filter_keys;
mod find;
mod interfaces;
mod list;
pub(super) mod metadata;
mod migrations;
mod password;
mod personality;
mod ports_view;
mod schema;
mod shares;
mod show;
mod sort;
mod tags;
mod topology;
mod update;
pub(super) mod view;
mod volumes;

use kilonova_access::{Routes, delete, get, post, put};
use kilonova_compute_app::Compute;

/// Routes below `/v2.1`.
pub fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/servers",
            [
                get("os_compute_api:servers:index", list::brief),
                post("os_compute_api:servers:create", create::create),
            ],
        )
        .route("/v2.1/servers/detail", [get("os_compute_api:servers:detail", list::detail)])
        .route(
            "/v2.1/servers/{id}",
            [
                get("os_compute_api:servers:show", show::show),
                put("os_compute_api:servers:update", update::update),
                delete("os_compute_api:servers:delete", delete::delete),
            ],
        )
        .route("/v2.1/servers/{id}/action", [post(action::ACTIONS, action::action)])
        .route(
            "/v2.1/servers/{id}/metadata",
            [
                get("os_compute_api:server-metadata:index", metadata::list),
                post("os_compute_api:server-metadata:create", metadata::update),
                put("os_compute_api:server-metadata:update_all", metadata::replace),
            ],
        )
        .route(
            "/v2.1/servers/{id}/metadata/{key}",
            [
                get("os_compute_api:server-metadata:show", metadata::show),
                put("os_compute_api:server-metadata:update", metadata::set),
                delete("os_compute_api:server-metadata:delete", metadata::delete),
            ],
        )
        .route(
            "/v2.1/servers/{id}/tags",
            [
                get("os_compute_api:os-server-tags:index", tags::list),
                put("os_compute_api:os-server-tags:update_all", tags::replace),
                delete("os_compute_api:os-server-tags:delete_all", tags::clear),
            ],
        )
        .route(
            "/v2.1/servers/{id}/tags/{tag}",
            [
                get("os_compute_api:os-server-tags:show", tags::check),
                put("os_compute_api:os-server-tags:update", tags::add),
                delete("os_compute_api:os-server-tags:delete", tags::delete),
            ],
        )
        .route(
            "/v2.1/servers/{id}/migrations",
            [get("os_compute_api:servers:migrations:index", migrations::list)],
        )
        .route(
            "/v2.1/servers/{id}/migrations/{number}",
            [
                get("os_compute_api:servers:migrations:show", migrations::show),
                delete("os_compute_api:servers:migrations:delete", migrations::abort),
            ],
        )
        .route(
            "/v2.1/servers/{id}/migrations/{number}/action",
            [post("os_compute_api:servers:migrations:force_complete", migrations::force_complete)],
        )
        .route(
            "/v2.1/servers/{id}/os-instance-actions",
            [get("os_compute_api:os-instance-actions:list", actions::list)],
        )
        .route(
            "/v2.1/servers/{id}/os-instance-actions/{request}",
            [get("os_compute_api:os-instance-actions:show", actions::show)],
        )
        .merge(sub_resources())
}

/// Routes of the other sub-resources of a server.
fn sub_resources() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/servers/{id}/diagnostics",
            [get("os_compute_api:os-server-diagnostics", diagnostics::show)],
        )
        .route(
            "/v2.1/servers/{id}/topology",
            [get("compute:server:topology:index", topology::topology)],
        )
        .route("/v2.1/servers/{id}/ips", [get("os_compute_api:ips:index", interfaces::addresses)])
        .route(
            "/v2.1/servers/{id}/ips/{network}",
            [get("os_compute_api:ips:show", interfaces::address)],
        )
        .route(
            "/v2.1/servers/{id}/os-security-groups",
            [get("os_compute_api:os-security-groups:list", interfaces::security_groups)],
        )
        .route(
            "/v2.1/servers/{id}/os-interface",
            [
                get("os_compute_api:os-attach-interfaces:list", interfaces::list),
                post("os_compute_api:os-attach-interfaces:create", interfaces::attach),
            ],
        )
        .route(
            "/v2.1/servers/{id}/os-interface/{port}",
            [
                get("os_compute_api:os-attach-interfaces:show", interfaces::show),
                delete("os_compute_api:os-attach-interfaces:delete", interfaces::detach),
            ],
        )
        .route(
            "/v2.1/servers/{id}/os-volume_attachments",
            [
                get("os_compute_api:os-volumes-attachments:index", volumes::list),
                post("os_compute_api:os-volumes-attachments:create", volumes::attach),
            ],
        )
        .route(
            "/v2.1/servers/{id}/os-volume_attachments/{volume}",
            [
                get("os_compute_api:os-volumes-attachments:show", volumes::show),
                put("os_compute_api:os-volumes-attachments:update", volumes::update),
                delete("os_compute_api:os-volumes-attachments:delete", volumes::detach),
            ],
        )
        .route(
            "/v2.1/servers/{id}/shares",
            [
                get("os_compute_api:os-server-shares:index", shares::list),
                post("os_compute_api:os-server-shares:create", shares::attach),
            ],
        )
        .route(
            "/v2.1/servers/{id}/shares/{share}",
            [
                get("os_compute_api:os-server-shares:show", shares::missing),
                delete("os_compute_api:os-server-shares:delete", shares::missing),
            ],
        )
        .route(
            "/v2.1/servers/{id}/os-server-password",
            [
                get("os_compute_api:os-server-password:show", password::show),
                delete("os_compute_api:os-server-password:clear", password::clear),
            ],
        )
        .route(
            "/v2.1/servers/{id}/remote-consoles",
            [post("os_compute_api:os-remote-consoles", consoles::create)],
        )
}
