//! Parses Keystone's description of a token.

use std::time::Duration;

use jiff::Timestamp;
use kilonova_wire::Context;
use serde_json::Value;

/// The remaining lifetime of the described token; `None` without an expiry.
pub(crate) fn time_left(body: &Value) -> Option<Duration> {
    let end: Timestamp = body["token"]["expires_at"].as_str()?.parse().ok()?;
    let left = end.duration_since(Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

/// The caller that the description names; `None` without a user.
pub(crate) fn context(body: &Value) -> Option<Context> {
    let token = &body["token"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Context {
        user_id: token["user"]["id"].as_str()?.to_owned(),
        user_name: text(&token["user"]["name"]),
        project_id: text(&token["project"]["id"]),
        project_name: text(&token["project"]["name"]),
        system: token["system"]["all"].as_bool() == Some(true),
        domain_id: text(&token["domain"]["id"]),
        user_domain_id: text(&token["user"]["domain"]["id"]),
        project_domain_id: text(&token["project"]["domain"]["id"]),
        roles: token["roles"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|role| role["name"].as_str())
            .map(str::to_owned)
            .collect(),
        ..Context::default()
    })
}
