//! `os-migrateLive`.

use axum::response::Response;
use kilonova_wire::Fault;

use super::ActionRequest;
use super::migrate::{host, known};
use crate::api::input;
use crate::flows::{self, LiveRequest};
use crate::microversions::LIVE_MIGRATION_CHECKED_LATER;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
    // A guest's disks are its host's own, so they always move with it, whatever `block_migration` says.
    let argument = &request.argument;
    let force = input::boolean(&argument["force"]);
    let host = host(argument);
    if force && host.is_none() {
        return Err(Fault::bad_request(
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
            known(&request.compute, live.host.as_deref(), 400)?;
            if let Some(host) =
                live.host.as_ref().filter(|host| server.host.as_ref() == Some(*host))
            {
                let words =
                    format!("Unable to migrate instance ({}) to current host ({host}).", server.id);
                return Err(Fault::bad_request(words).into());
            }
            flows::migrate_live(tx, &request.compute, &request.context, server, &live, now)
        })
        .await
}
