//! Removed resources of Nova: 410 at every microversion, or 404 for reads of Nova's Neutron proxy.

use axum::http::Method;
use kilonova_access::{Guard, Routes, any, get, on};
use kilonova_compute_app::Compute;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Context, Fault, Refusal};

/// Paths that return 410 for every method.
const PATHS: &[&str] = &[
    "/os-agents",
    "/os-agents/{id}",
    "/os-cells",
    "/os-cells/{*rest}",
    "/os-certificates",
    "/os-certificates/{id}",
    "/os-cloudpipe",
    "/os-cloudpipe/{id}",
    "/os-fixed-ips/{id}",
    "/os-fixed-ips/{id}/action",
    "/os-floating-ip-dns",
    "/os-floating-ip-dns/{id}",
    "/os-floating-ip-dns/{id}/entries/{entry}",
    "/os-floating-ips-bulk",
    "/os-floating-ips-bulk/{id}",
    "/os-fping",
    "/os-fping/{id}",
    "/os-security-group-default-rules",
    "/os-security-group-default-rules/{id}",
    "/servers/{id}/os-virtual-interfaces",
    "/servers/{id}/consoles",
    "/servers/{id}/consoles/{console}",
];

/// Paths of Nova's Neutron proxy, which Kilonova does not have: reads return 404, changes 410.
const UNCHANGEABLE: &[&str] = &[
    "/os-networks",
    "/os-networks/{id}",
    "/os-networks/{id}/action",
    "/os-tenant-networks",
    "/os-tenant-networks/{id}",
];

/// Paths of which only reads exist.
const READ_ONLY: &[&str] = &["/os-security-groups", "/os-security-groups/{id}"];

pub(super) fn routes() -> Routes<Compute> {
    let changes = [Method::POST, Method::PUT, Method::DELETE];
    let read_only = READ_ONLY.iter().fold(Routes::new(), |routes, path| {
        routes.route(format!("/v2.1{path}"), [on(&changes, Guard::Anyone, absent)])
    });
    let routes = PATHS.iter().fold(read_only, |routes, path| {
        routes.route(format!("/v2.1{path}"), [any(Guard::Anyone, gone)])
    });
    UNCHANGEABLE.iter().fold(routes, |routes, path| {
        let methods = [on(&changes, Guard::Anyone, gone), get(Guard::Anyone, absent)];
        routes.route(format!("/v2.1{path}"), methods)
    })
}

async fn gone(_: Context) -> Refusal {
    Refusal::new(
        Kind::Gone,
        "This resource is no longer available. No forwarding address is given.",
    )
}

async fn absent(_: Context) -> Fault {
    Fault::from(Refusal::not_found("The resource could not be found.")).unrouted()
}
