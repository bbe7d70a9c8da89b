//! `os-migrateLive`.

use axum::response::Response;
use kilonova_wire::{Fault, Microversion};
use serde_json::Value;

use super::Asked;
use super::migrate::{fields, flag, host, known, names_host};
use crate::flows::{self, LiveRequest};

pub(super) async fn act(mut asked: Asked) -> Result<Response, Fault> {
    if names_host(&asked.argument) {
        asked.caller = asked.caller.with_rule("os_compute_api:os-migrate-server:migrate_live:host");
    }
    asked.caller.may_route()?;
    let version = asked.version;
    let at = |first: u32| version >= Microversion(2, first);
    let mut keys = vec!["host", "block_migration"];
    if !at(25) {
        keys.push("disk_over_commit");
    }
    if at(30) && !at(68) {
        keys.push("force");
    }
    let fields = fields(&asked, &keys)?;
    for key in keys.iter().filter(|key| **key != "force") {
        if !fields.contains_key(*key) {
            return Err(asked.wrong(&format!("'{key}' is a required property")));
        }
    }
    // Every guest's disks are its host's own: they always go along, whatever is asked.
    let auto = fields.get("block_migration").and_then(Value::as_str) == Some("auto");
    if !(auto && at(25)) {
        flag(&asked, fields, "block_migration")?;
    }
    flag(&asked, fields, "disk_over_commit")?;
    let force = flag(&asked, fields, "force")?;
    let host = host(&asked, fields)?;
    if force && host.is_none() {
        return Err(Fault::bad_request(
            "Can't force to a non-provided destination. Name the host too.",
        ));
    }
    let request = LiveRequest { host, force, refuse_without_host: !at(34) };
    asked
        .begin(move |tx, asked, server, now| {
            known(&asked.compute, request.host.as_deref(), 400)?;
            if let Some(host) =
                request.host.as_ref().filter(|host| server.host.as_ref() == Some(*host))
            {
                let words =
                    format!("Unable to migrate instance ({}) to current host ({host}).", server.id);
                return Err(Fault::bad_request(words).into());
            }
            flows::migrate_live(tx, &asked.compute, &asked.context, server, &request, now)
        })
        .await
}
