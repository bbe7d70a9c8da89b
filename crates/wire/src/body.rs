//! Request bodies: bounded, read once, and JSON unless the route says otherwise.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::Fault;

/// Bytes that a JSON body may have.
pub const JSON_LIMIT: usize = 1024 * 1024;

/// The raw bytes of a body within [`JSON_LIMIT`].
pub struct Body(pub Bytes);

/// A body that is JSON.
pub struct JsonBody(pub Value);

fn too_large() -> Fault {
    Fault::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("Request is too large: a body may have at most {JSON_LIMIT} bytes."),
    )
}

impl<S: Sync> FromRequest<S> for Body {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let announced = request
            .headers()
            .get(http::header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > JSON_LIMIT as u64) {
            return Err(too_large());
        }
        match http_body_util::Limited::new(request.into_body(), JSON_LIMIT).collect().await {
            Ok(collected) => Ok(Self(collected.to_bytes())),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
            Err(_) => Err(Fault::bad_request("The request body could not be read to its end.")),
        }
    }
}

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let Body(bytes) = Body::from_request(request, state).await?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| Fault::bad_request(format!("Malformed request body: {error}")))
    }
}
