//! `If-Match: revision_number=N`: a change of exactly this revision of a resource.

use axum::extract::FromRequestParts;
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::Value;

use crate::error::{bad, refused};
use crate::record::Body;

/// The revision that a request requires, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IfMatch(pub Option<i64>);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let values = parts.headers.get_all(IF_MATCH).iter().filter_map(|value| value.to_str().ok());
        required(values.flat_map(tags)).map(Self)
    }
}

/// The tags of a header as webob reads them: the quoted ones that are not weak, or the whole value if nothing is quoted.
fn tags(value: &str) -> Vec<&str> {
    let (mut tags, mut rest, mut is_quoted) = (Vec::new(), value, false);
    while let Some((before, after)) = rest.split_once('"') {
        let Some((tag, left)) = after.split_once('"') else { break };
        is_quoted = true;
        if !before.ends_with("W/") {
            tags.push(tag);
        }
        rest = left;
    }
    if is_quoted { tags } else { vec![value] }
}

/// As `check_request_for_revision_constraint` of `neutron/api/api_common.py`: other tags have no effect.
fn required<'a>(tags: impl Iterator<Item = &'a str>) -> Result<Option<i64>, Refusal> {
    let mut required = None;
    for number in tags.filter_map(|tag| tag.strip_prefix("revision_number=")) {
        if required.is_some() {
            return Err(bad("if-match", "Multiple revision_number etags are not supported"));
        }
        let number = number.trim().parse().map_err(|_| {
            bad("if-match", "Revision number etag must be in the format of revision_number=<int>")
        })?;
        required = Some(number);
    }
    Ok(required)
}

/// Refuses a revision other than the required one (`RevisionNumberConstraintFailed` of
/// `neutron/services/revisions/revision_plugin.py`).
pub(super) fn check(view: &Body, required: i64) -> Result<(), Refusal> {
    let current = view.get("revision_number").and_then(Value::as_i64).unwrap_or_default();
    if current == required {
        return Ok(());
    }
    Err(refused(
        Kind::PreconditionFailed,
        "RevisionNumberConstraintFailed",
        format!("Constrained to {required}, but current revision is {current}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_upstream_reads_them() {
        for (value, number) in [
            ("revision_number=7", Some(7)),
            ("\"revision_number=7\"", Some(7)),
            ("\"x\", \"revision_number=7\"", Some(7)),
            ("W/\"revision_number=7\"", None),
            ("revision=7", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(required(tags(value).into_iter()).ok(), Some(number), "{value}");
        }
        for wrong in ["revision_number=x", "\"revision_number=1\" \"revision_number=1\""] {
            assert!(required(tags(wrong).into_iter()).is_err(), "{wrong}");
        }
    }
}
