//! One row per resource: the calls of a client at one microversion.

pub mod actions;
mod events;
mod flavors;
mod hosts;
mod images;
mod keypairs;
mod limits;
mod server_groups;
mod server_parts;
mod servers;
mod usage;
mod versions;

use std::future::Future;
use std::pin::Pin;

use crate::compute::api::Api;

/// Makes the calls of a resource.
pub type Row = for<'a> fn(Api<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! row {
    ($path:path) => {
        |api| Box::pin($path(api))
    };
}

/// Rows, with the paths that determine their boundaries.
pub const ROWS: &[(&[&str], Row)] = &[
    (&["/", "/versions", "/extensions"], row!(versions::row)),
    (&["/flavors"], row!(flavors::row)),
    (&["/images"], row!(images::row)),
    (&["/os-keypairs"], row!(keypairs::row)),
    (&["/limits", "/os-quota-sets", "/os-quota-class-sets"], row!(limits::row)),
    (&["/os-aggregates"], row!(hosts::aggregates)),
    (&["/os-services", "/os-hypervisors", "/os-availability-zone", "/os-hosts"], row!(hosts::row)),
    (&["/os-server-groups"], row!(server_groups::row)),
    (&["/os-server-external-events"], row!(events::row)),
    (&["/os-simple-tenant-usage", "/os-migrations"], row!(usage::row)),
    (&["/servers"], row!(servers::row)),
    (&["/servers/{server_id}"], row!(server_parts::row)),
    (&["/os-security-groups"], row!(server_parts::security_groups)),
    (&["/servers/{id}/action"], row!(actions::stay)),
    (&["/servers/{id}/action"], row!(actions::moves)),
    (&["/servers/{id}/action"], row!(actions::shelve)),
    (&["/servers/{id}/action"], row!(actions::evacuate)),
    (&["/servers/{id}/action"], row!(actions::delete)),
    (&["/servers/{id}/action"], row!(actions::refusals)),
];
