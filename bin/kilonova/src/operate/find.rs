//! A server by what an operator calls it: its uuid, or a name that only one server has.

use http::StatusCode;
use serde_json::Value;

use super::text;
use crate::cloud::{Asked, Compute};
use crate::failure::Failure;

/// The uuid of a server that is named by uuid or by name.
///
/// # Errors
/// When no server or several have the name.
pub async fn server(compute: &Compute, named: &str) -> Result<String, Failure> {
    if uuid::Uuid::try_parse(named).is_ok() {
        return Ok(named.to_owned());
    }
    let path = format!("/servers?name={}", text::segment(&pattern(named)));
    let list = match compute.get(&format!("{path}&all_tenants=True")).await {
        // Only administrators see other projects' servers; anybody else has those of one project.
        Err(Asked::Refused { status: StatusCode::FORBIDDEN, .. }) => compute.get(&path).await,
        other => other,
    };
    let list = list.map_err(Asked::fatal)?;
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
            "no server is called {}; one that was deleted has to be named by its uuid",
            text::plain(named)
        ))),
        several => Err(Failure::Refused(format!(
            "{} servers are called {}: {}; name one by its uuid",
            several.len(),
            text::plain(named),
            several.join(", ")
        ))),
    }
}

/// A regular expression that only the name fits.
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
    fn a_name_is_no_pattern() {
        assert_eq!(super::pattern("a.b-1 (x)"), "^a\\.b\\-1 \\(x\\)$");
    }
}
