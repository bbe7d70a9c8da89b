//! `os-migrateLive`: live migration.

use axum::response::Response;
use kilonova_compute_app::flows::{self, LiveRequest};
use kilonova_compute_app::microversions::LIVE_MIGRATION_CHECKED_LATER;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

use super::ActionRequest;
use super::migrate::{check_host_exists, requested_host};
use crate::api::input;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    // Disks are local to the host, so they always migrate with the guest, regardless of
    // `block_migration`.
    let argument = &request.argument;
    let force = input::boolean(&argument["force"]);
    let host = requested_host(argument);
    if force && host.is_none() {
        return Err(Refusal::bad_request(
            "Can't force to a non-provided destination. Name the host too.",
        ));
    }
    let live = LiveRequest {
        host,
        force,
        refuse_without_host: request.version < LIVE_MIGRATION_CHECKED_LATER,
    };
    request
        .begin(move |tx, request, server, now| {
            check_host_exists(&request.compute, live.host.as_ref(), Kind::BadRequest)?;
            if let Some(host) =
                live.host.as_ref().filter(|host| server.host.as_ref() == Some(*host))
            {
                let message =
                    format!("Unable to migrate instance ({}) to current host ({host}).", server.id);
                return Err(Refusal::bad_request(message).into());
            }
            flows::migrate_live(tx, &request.compute, &request.context, server, &live, now)
        })
        .await
}
