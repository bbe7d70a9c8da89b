//! The paths of the metadata service.

use serde_json::Value;

use crate::{Document, ec2, openstack};

/// The newest version of either format.
pub(crate) const LATEST: &str = "latest";

/// An answer to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A body.
    Body(ContentType, Vec<u8>),
    /// The password that the guest has set. The caller supplies it; the document does not contain
    /// it.
    Password,
}

/// The type of a body. Nova serves `network_data.json` as text, and so do we.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    /// `text/plain`.
    Text,
    /// `application/json`.
    Json,
}

/// Maximum length of a password in bytes: the content of four of Nova's rows of 255 bytes.
pub const MAX_PASSWORD: usize = 4 * 255;

/// Nova's texts for answers other than 200.
pub mod texts {
    /// 404.
    pub const NOT_FOUND: &str = "The resource could not be found.";
    /// 409: the guest has set a password before.
    pub const CONFLICT: &str = "There was a conflict when trying to complete your request.";
    /// 400: a password of more than [`MAX_PASSWORD`](super::MAX_PASSWORD) bytes.
    pub const TOO_LARGE: &str = "Request is too large.";
    /// 400: a password that is not UTF-8.
    pub const NOT_TEXT: &str = "The password is not text in UTF-8.";
    /// 400: another method for the password.
    pub const METHODS: &str = "GET and POST only are supported.";
    /// 500 and 503: a failure on our side.
    pub const UNKNOWN: &str = "An unknown error has occurred. Please try your request again.";
}

impl ContentType {
    /// The header of an answer.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=UTF-8",
            Self::Json => "application/json",
        }
    }

    /// The name of the type in HTTP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Json => "application/json",
        }
    }
}

impl Answer {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Body(ContentType::Text, text.into())
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::Body(ContentType::Json, value.to_string().into_bytes())
    }
}

/// The answer to `/`, which needs no identity: the versions of the EC2 format. `None` for other paths.
pub fn lookup_versions(path: &str) -> Option<Answer> {
    segments(path).is_empty().then(ec2::versions)
}

pub(crate) fn lookup(
    document: &Document,
    path: &str,
    seed: &str,
    today: &str,
    address: Option<&str>,
) -> Option<Answer> {
    let segments = segments(path);
    match *segments.as_slice() {
        [] | ["ec2"] => Some(ec2::versions()),
        ["openstack"] => Some(openstack::versions(today)),
        ["openstack", version, ref rest @ ..] => openstack::lookup(document, version, rest, seed),
        ["ec2", version, ref rest @ ..] | [version, ref rest @ ..] => {
            ec2::lookup(document, version, rest, address)
        }
    }
}

/// The segments of a path without empty ones, `.` and `..`.
fn segments(path: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    kept
}
