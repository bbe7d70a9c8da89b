//! Snapshots of volumes.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Identity, State, bad, check, has_metadata, not_found, ok, parameter, refuse};
use crate::cinder::state::PROJECT;

/// True if the caller sees a snapshot.
pub(super) fn sees(state: &State, by: &Identity, id: &str) -> bool {
    let found = state.snapshots.get(id);
    found.is_some_and(|snapshot| by.admin || snapshot[PROJECT] == json!(by.project))
}

/// Shows a snapshot. Each call advances its creation.
pub(super) fn show(state: &mut State, id: &str) -> Value {
    match state.snapshotting.get_mut(id) {
        Some(left) if *left > 0 => *left -= 1,
        Some(_) => {
            state.snapshotting.remove(id);
            if let Some(snapshot) = state.snapshots.get_mut(id) {
                snapshot["status"] = json!("available");
            }
        }
        None => {}
    }
    state.snapshots[id].clone()
}

/// Before 3.22 the list cannot be filtered by metadata: Cinder ignores the key.
pub(super) fn list(state: &State, by: &Identity, query: &str) -> Answer {
    let filter = parameter(query, "metadata").filter(|_| by.version >= 22);
    let everywhere = by.admin && parameter(query, "all_tenants").is_some();
    let own = state.snapshots.values().filter(|snapshot| {
        has_metadata(snapshot.get("metadata"), filter.as_deref())
            && (everywhere || snapshot[PROJECT] == json!(by.project))
    });
    ok(json!({"snapshots": own.collect::<Vec<_>>()}))
}

pub(super) fn create(state: &mut State, by: &Identity, body: &Value) -> Answer {
    let allowed = ["volume_id", "name", "description", "force", "metadata"];
    if let Err(refusal) = check(body, "snapshot", &allowed) {
        return refusal;
    }
    let asked = &body["snapshot"];
    if !asked["metadata"].is_null()
        && asked["metadata"].as_object().is_none_or(|all| all.values().any(|one| !one.is_string()))
    {
        return bad("Invalid input for field/attribute metadata.");
    }
    let volume = asked["volume_id"].as_str().unwrap_or_default();
    if !super::sees(state, by, volume) {
        return not_found("Volume", volume);
    }
    if asked["force"] != true && state.status(volume) != "available" {
        let status = state.status(volume);
        return bad(format!(
            "Invalid volume: Volume {volume} status must be available, but current status is: {status}."
        ));
    }
    if state.snapshot_limit.is_some_and(|most| state.snapshots.len() as i64 >= most) {
        return refuse(
            413,
            "overLimit",
            "SnapshotLimitExceeded: Maximum number of snapshots allowed exceeded",
        );
    }
    let volume = volume.to_owned();
    let id = state.add_snapshot(&volume);
    let looks = state.creating;
    if let Some(snapshot) = state.snapshots.get_mut(&id) {
        for key in ["name", "description", "metadata"] {
            if !asked[key].is_null() {
                snapshot[key] = asked[key].clone();
            }
        }
        snapshot[PROJECT] = json!(by.project);
        if looks > 0 {
            snapshot["status"] = json!("creating");
            state.snapshotting.insert(id.clone(), looks - 1);
        }
    }
    (StatusCode::ACCEPTED, json!({"snapshot": state.snapshots[&id]}))
}

/// Refuses to delete a snapshot that is being created; each attempt advances its creation.
pub(super) fn delete(state: &mut State, id: &str) -> Answer {
    let status = state.snapshots[id]["status"].clone();
    if status != "available" && status != "error" {
        show(state, id);
        return bad(
            "Invalid snapshot: Snapshot status must be available or error and must not be part of a group.",
        );
    }
    state.snapshots.remove(id);
    (StatusCode::ACCEPTED, Value::Null)
}
