//! One request as the handlers see it: who asks, in which version, with which query; and the
//! answers that all handlers give alike.
//!
//! Handlers ask in upstream's order: version, Accept, Content-Type, policy, and only then the body.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use kilonova_access::{credentials, refusal};
use kilonova_ids::{ProviderId, RequestId, parse_uuid_like};
use kilonova_policy::Target;
use kilonova_wire::accept::quality;
use kilonova_wire::query::Query;
use kilonova_wire::time::{http as http_date, now_micros};
use kilonova_wire::{Base, Body, Context, Dialect, Fault, Microversion};
use serde::Serialize;
use serde_json::Value;

use super::Placement;
use super::validate::Schema;

/// A request that was let in.
pub struct Call {
    /// State of the service.
    pub app: Placement,
    /// Who asks.
    pub context: Context,
    /// In which microversion.
    pub version: Microversion,
    /// The query string.
    pub query: Query,
    base: String,
    headers: HeaderMap,
}

impl FromRequestParts<Placement> for Call {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &Placement) -> Result<Self, Fault> {
        let length = parts.headers.get(header::CONTENT_LENGTH).map(HeaderValue::as_bytes);
        if length.is_some_and(|n| n != b"0") && !parts.headers.contains_key(header::CONTENT_TYPE) {
            return Err(Fault::bad_request("content-type header required when content-length > 0"));
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
    /// Whether the client speaks 1.`minor`.
    pub fn speaks(&self, minor: u32) -> bool {
        self.version >= Microversion(1, minor)
    }

    /// A number for searches to start from: the same for the same request id, whether it is the
    /// client's own (`X-Openstack-Request-Id`) or ours, and far from any other's.
    pub fn seed(&self) -> u64 {
        let told = self.headers.get("x-openstack-request-id").and_then(|v| v.to_str().ok());
        let told = told.and_then(|text| parse_uuid_like(text.strip_prefix("req-")?));
        let id: Option<RequestId> = told.or(self.context.request_id);
        let bytes = id.map_or([0; 16], |id| *id.as_bytes());
        let whole = u128::from_be_bytes(bytes);
        (whole >> 64) as u64 ^ whole as u64
    }

    /// 404 for clients older than 1.`minor`.
    pub fn since(&self, minor: u32) -> Result<(), Fault> {
        if self.speaks(minor) {
            return Ok(());
        }
        Err(Fault::not_found("The resource could not be found."))
    }

    /// 403 for callers whom the policy does not let do this. The target is their own: what is asked
    /// for belongs to no project.
    pub fn may(&self, operation: &str) -> Result<(), Fault> {
        let context = &self.context;
        self.may_on(
            operation,
            &[("project_id", &context.project_id), ("user_id", &context.user_id)],
        )
    }

    /// 403 for callers whom the policy does not let do this to the target.
    pub fn may_on(&self, operation: &str, target: Target<'_>) -> Result<(), Fault> {
        let context = &self.context;
        if self.app.policy.allows(operation, &credentials(context), target) {
            return Ok(());
        }
        Err(refusal(Dialect::Placement, operation))
    }

    /// 406 for clients that do not take JSON.
    pub fn takes_json(&self) -> Result<(), Fault> {
        if quality(&self.headers, "application/json") > 0.0 {
            return Ok(());
        }
        Err(Fault::not_acceptable("Only application/json is provided"))
    }

    /// 415 for clients that do not send JSON.
    pub fn sends_json(&self) -> Result<(), Fault> {
        let sent = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let bare = sent.map(|t| t.split(';').next().unwrap_or_default().trim().to_owned());
        if bare.as_deref() == Some("application/json") {
            return Ok(());
        }
        Err(Fault::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!(
                "The media type {} is not supported, use application/json",
                bare.as_deref().unwrap_or("None")
            ),
        ))
    }

    /// The body, if it is what the schema says.
    pub fn body(&self, body: &Body, schema: &Schema) -> Result<Value, Fault> {
        let value = serde_json::from_slice(&body.0)
            .map_err(|error| Fault::bad_request(format!("Malformed JSON: {error}")))?;
        schema.check(&value)?;
        Ok(value)
    }

    /// 400 for query keys that this version does not know.
    pub fn only(&self, known: &[&str]) -> Result<(), Fault> {
        match self.query.unknown(known) {
            None => Ok(()),
            Some(key) => Err(bad_query(&format!(
                "Additional properties are not allowed ('{key}' was unexpected)"
            ))),
        }
    }

    /// A link as bodies hold it: the path below the host.
    pub fn path(&self, rest: &str) -> String {
        let prefix = self.base.splitn(4, '/').nth(3).unwrap_or_default();
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("{slash}{prefix}{rest}")
    }

    /// A JSON answer; from 1.15 with the time of the last change (now, when nothing is said).
    pub fn json(
        &self,
        status: StatusCode,
        body: &impl Serialize,
        modified: Option<i64>,
    ) -> Response {
        let mut response = (status, axum::Json(body)).into_response();
        self.dated(&mut response, modified);
        response
    }

    /// An answer without a body.
    pub fn empty(&self, status: StatusCode) -> Response {
        status.into_response()
    }

    /// Puts the caching headers of 1.15 on an answer.
    pub fn dated(&self, response: &mut Response, modified: Option<i64>) {
        dated(self.version, response, modified);
    }

    /// Says where the thing is that was made.
    pub fn located(&self, mut response: Response, rest: &str) -> Response {
        put(&mut response, header::LOCATION, &format!("{}{rest}", self.base));
        response
    }
}

/// Puts the caching headers of 1.15 on an answer.
pub fn dated(version: Microversion, response: &mut Response, modified: Option<i64>) {
    if version < Microversion(1, 15) {
        return;
    }
    let date = http_date(modified.unwrap_or_else(now_micros));
    put(response, header::LAST_MODIFIED, &date);
    put(response, header::CACHE_CONTROL, "no-cache");
}

/// 400 in the words of query checks.
pub fn bad_query(why: &str) -> Fault {
    Fault::bad_request(format!("Invalid query string parameters: {why}"))
}

fn put(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The provider of a path; a text that is no uuid names none.
pub fn provider_id(text: &str) -> Result<ProviderId, Fault> {
    parse_uuid_like(text)
        .ok_or_else(|| Fault::not_found(format!("No resource provider with uuid {text} found")))
}

/// 405 that names what is allowed, on everything that a route does not take. `HEAD` is not taken
/// where `GET` is.
pub fn only(allowed: &'static str, router: MethodRouter<Placement>) -> MethodRouter<Placement> {
    let refuse = move |method: Method| async move {
        Fault::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("The method {method} is not allowed for this resource."),
        )
        .with_header(header::ALLOW, HeaderValue::from_static(allowed))
    };
    router.head(refuse).fallback(refuse)
}

/// An integer of a body; JSON's `2.0` is one.
pub fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
}
