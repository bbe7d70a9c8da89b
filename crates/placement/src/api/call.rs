//! One request as the handlers see it (caller, version, query), and the responses common to all
//! handlers.
//!
//! Handlers check in upstream's order: version, Accept, Content-Type, policy, and then the body.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use jiff::Timestamp;
use kilonova_access::{credentials, refusal};
use kilonova_ids::{ProviderId, RequestId, parse_uuid_like};
use kilonova_policy::Target;
use kilonova_wire::accept::quality;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time::{self, http as http_date};
use kilonova_wire::{Base, Body, Context, Dialect, Fault, Microversion, Refusal};
use serde::Serialize;
use serde_json::Value;

use super::Placement;
use super::validate::Schema;

/// An authenticated request.
pub struct Call {
    /// The state of the service.
    pub app: Placement,
    /// The caller.
    pub context: Context,
    /// The requested microversion.
    pub version: Microversion,
    /// The query string.
    pub query: Query,
    base: String,
    headers: HeaderMap,
}

impl FromRequestParts<Placement> for Call {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Placement) -> Result<Self, Refusal> {
        let length = parts.headers.get(header::CONTENT_LENGTH).map(HeaderValue::as_bytes);
        if length.is_some_and(|n| n != b"0") && !parts.headers.contains_key(header::CONTENT_TYPE) {
            return Err(Refusal::bad_request(
                "content-type header required when content-length > 0",
            ));
        }
        Ok(Self {
            app: state.clone(),
            context: Context::from_request_parts(parts, state).await?,
            version: Microversion::from_request_parts(parts, state).await?,
            query: Query::from_request_parts(parts, state).await?,
            base: Base::from_request_parts(parts, state).await?.0,
            headers: parts.headers.clone(),
        })
    }
}

impl Call {
    /// True if the request's version is at least 1.`minor`.
    pub fn speaks(&self, minor: u32) -> bool {
        self.version >= Microversion(1, minor)
    }

    /// The seed of a search. It depends only on the request id (the client's
    /// `X-Openstack-Request-Id` or ours), so that a repeated request gives the same result and
    /// different requests spread over the trees.
    pub fn seed(&self) -> u64 {
        let from_client = self.headers.get("x-openstack-request-id").and_then(|v| v.to_str().ok());
        let from_client = from_client.and_then(|text| parse_uuid_like(text.strip_prefix("req-")?));
        let id: Option<RequestId> = from_client.or(self.context.request_id);
        let bytes = id.map_or([0; 16], |id| *id.as_bytes());
        let whole = u128::from_be_bytes(bytes);
        (whole >> 64) as u64 ^ whole as u64
    }

    /// Returns 404 for versions before 1.`minor`.
    pub fn require_version(&self, minor: u32) -> Result<(), Refusal> {
        if self.speaks(minor) {
            return Ok(());
        }
        Err(Refusal::not_found("The resource could not be found."))
    }

    /// Returns 403 if the policy refuses the operation. The target is the caller's own project,
    /// because the resources belong to no project.
    pub fn may(&self, operation: &str) -> Result<(), Refusal> {
        let context = &self.context;
        self.may_on(
            operation,
            &[("project_id", &context.project_id), ("user_id", &context.user_id)],
        )
    }

    /// Returns 403 if the policy refuses the operation on the target.
    pub fn may_on(&self, operation: &str, target: Target<'_>) -> Result<(), Refusal> {
        let context = &self.context;
        if self.app.policy.allows(operation, &credentials(context), target) {
            return Ok(());
        }
        Err(refusal(Dialect::Placement, operation))
    }

    /// Returns 406 if the client does not accept JSON.
    pub fn require_accepts_json(&self) -> Result<(), Refusal> {
        if quality(&self.headers, "application/json") > 0.0 {
            return Ok(());
        }
        Err(Refusal::not_acceptable("Only application/json is provided"))
    }

    /// Returns 415 if the body is not JSON.
    pub fn require_json_body(&self) -> Result<(), Refusal> {
        let sent = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let bare = sent.map(|t| t.split(';').next().unwrap_or_default().trim().to_owned());
        if bare.as_deref() == Some("application/json") {
            return Ok(());
        }
        Err(Refusal::new(
            Kind::UnsupportedMediaType,
            format!(
                "The media type {} is not supported, use application/json",
                bare.as_deref().unwrap_or("None")
            ),
        ))
    }

    /// Parses the body and checks it against the schema.
    pub fn body(&self, body: &Body, schema: &Schema) -> Result<Value, Refusal> {
        let value = serde_json::from_slice(&body.0)
            .map_err(|error| Refusal::bad_request(format!("Malformed JSON: {error}")))?;
        schema.check(&value)?;
        Ok(value)
    }

    /// Returns 400 for query keys that this version does not know.
    pub fn require_keys(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.query.unknown(known) {
            None => Ok(()),
            Some(key) => Err(bad_query(&format!(
                "Additional properties are not allowed ('{key}' was unexpected)"
            ))),
        }
    }

    /// A link for a response body: the path without the host.
    pub fn path(&self, rest: &str) -> String {
        let prefix = self.base.splitn(4, '/').nth(3).unwrap_or_default();
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("{slash}{prefix}{rest}")
    }

    /// A JSON response. From 1.15 it carries the time of the last change (now, for `None`).
    pub fn json(
        &self,
        status: StatusCode,
        body: &impl Serialize,
        modified: Option<Timestamp>,
    ) -> Response {
        let mut response = (status, axum::Json(body)).into_response();
        self.dated(&mut response, modified);
        response
    }

    /// A response without a body.
    pub fn empty(&self, status: StatusCode) -> Response {
        status.into_response()
    }

    /// Adds the caching headers of 1.15.
    pub fn dated(&self, response: &mut Response, modified: Option<Timestamp>) {
        dated(self.version, response, modified);
    }

    /// Adds the location of a created resource.
    pub fn located(&self, mut response: Response, rest: &str) -> Response {
        put(&mut response, header::LOCATION, &format!("{}{rest}", self.base));
        response
    }
}

/// Adds the caching headers of 1.15.
pub fn dated(version: Microversion, response: &mut Response, modified: Option<Timestamp>) {
    if version < Microversion(1, 15) {
        return;
    }
    let date = http_date(modified.unwrap_or_else(time::now));
    put(response, header::LAST_MODIFIED, &date);
    put(response, header::CACHE_CONTROL, "no-cache");
}

/// The 400 of a failed query check.
pub fn bad_query(why: &str) -> Refusal {
    Refusal::bad_request(format!("Invalid query string parameters: {why}"))
}

fn put(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The provider in a path. Returns 404 for a segment that is not a UUID.
pub fn provider_id(text: &str) -> Result<ProviderId, Refusal> {
    parse_uuid_like(text)
        .ok_or_else(|| Refusal::not_found(format!("No resource provider with uuid {text} found")))
}

/// Responds with 405 and an `Allow` header to methods that the router does not handle. `GET` routes
/// do not accept `HEAD`.
pub fn only(allowed: &'static str, router: MethodRouter<Placement>) -> MethodRouter<Placement> {
    let refuse = move |method: Method| async move {
        let why = format!("The method {method} is not allowed for this resource.");
        Fault::from(Refusal::new(Kind::MethodNotAllowed, why))
            .with_header(header::ALLOW, HeaderValue::from_static(allowed))
    };
    router.head(refuse).fallback(refuse)
}

/// An integer in a body. JSON's `2.0` is accepted.
pub fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
}
