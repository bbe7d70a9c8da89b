//! Finds a server by UUID, or by a unique name.

use http::StatusCode;
use kilonova_compute_app::statuses;
use serde_json::Value;

use super::text;
use crate::cloud::{Compute, ComputeError};
use crate::failure::Failure;

/// The UUID of the named server.
///
/// # Errors
/// If no server or several have the name.
pub async fn server(compute: &Compute, named: &str) -> Result<String, Failure> {
    if uuid::Uuid::try_parse(named).is_ok() {
        return Ok(named.to_owned());
    }
    // The filter by time selects soft-deleted and deleted servers too, for every user.
    let mut path = "/servers?changes-since=1970-01-01T00:00:00Z&name=".to_owned();
    path.push_str(&text::segment(&pattern(named)));
    path.extend(statuses::OF_EXISTING.map(|status| format!("&status={status}")));
    let list = match compute.get(&format!("{path}&all_tenants=True")).await {
        // Only administrators see other projects' servers; others search their own project.
        Err(ComputeError::Refused { status: StatusCode::FORBIDDEN, .. }) => {
            compute.get(&path).await
        }
        other => other,
    };
    let list = list.map_err(ComputeError::fatal)?;
    let found: Vec<&str> = list["servers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|server| server["name"] == named)
        .filter_map(|server: &Value| server["id"].as_str())
        .collect();
    match found.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Failure::Refused(format!(
            "no server is named {}; use the UUID for a deleted server",
            text::plain(named)
        ))),
        several => Err(Failure::Refused(format!(
            "{} servers are named {}: {}; use the uuid",
            several.len(),
            text::plain(named),
            several.join(", ")
        ))),
    }
}

/// A regular expression that matches only this name.
fn pattern(name: &str) -> String {
    let escaped = name.chars().map(|c| match c {
        c if c.is_alphanumeric() || c == '_' || c == ' ' => c.to_string(),
        c if c.is_ascii() => format!("\\{c}"),
        c => c.to_string(),
    });
    format!("^{}$", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_escaped() {
        assert_eq!(super::pattern("a.b-1 (x)"), "^a\\.b\\-1 \\(x\\)$");
    }
}
