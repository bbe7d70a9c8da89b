//! What nodes on other machines call: the [`ControlPlane`] trait over HTTP. Mounted apart from
//! Nova's API, with a door of its own; tenants' tokens open nothing here.
//!
//! ```text
//! GET  /v1/clock                                            -> Clock: what ours shows
//! POST /v1/register                             Registration   -> Session
//! GET  /v1/hosts/{host}/desired?epoch=&since=                  -> Batch (a long poll)
//!      X-Kilonova-Clock: what the node's clock shows, microseconds since 1970
//! POST /v1/hosts/{host}/observed?epoch=         [Observation]  -> 204
//! POST /v1/hosts/{host}/carried_out?epoch=      [OrderResult]      -> 204
//! GET  /v1/hosts/{host}/images/{image}?epoch=&offset=          -> some bytes; X-Image-Size: of how many
//! PUT  /v1/hosts/{host}/images/{image}?epoch=   bytes          -> 204
//! POST /v1/hosts/{host}/replies?epoch=          [Reply]        -> 204
//! ```
//!
//! Whose connection has a certificate speaks for the host in it alone ([`Speaker`]). 409 fences the caller, 422 refuses what it said, 503 asks it to try again.

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kilonova_ids::ImageId;
use kilonova_node_api::{
    Batch, Clock, ControlPlane, DiskFormat, Observation, OrderResult, Refusal, Registration, Reply,
    Session,
};
use kilonova_wire::query::Query;
use kilonova_wire::speaker::only_itself;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Dialect, Fault, Service, Speaker};
use serde::de::DeserializeOwned;

use crate::Link;
use crate::app::link::keep;

/// Bytes that a node's message may have: a host with thousands of virtual functions fits.
const LIMIT: usize = 16 * 1024 * 1024;
/// Says how large the image is of which an answer holds some bytes.
const SIZE: HeaderName = HeaderName::from_static("x-image-size");
/// Says of which format it is.
const FORMAT: HeaderName = HeaderName::from_static("x-image-format");
/// Says the hash of the whole of it.
const SHA512: HeaderName = HeaderName::from_static("x-image-sha512");

/// What the caller's clock shows, in microseconds since 1970.
const CLOCK: HeaderName = HeaderName::from_static("x-kilonova-clock");

/// The routes that nodes call.
pub fn routes(link: Link) -> Router {
    Router::new()
        .route("/v1/clock", get(clock))
        .route("/v1/register", post(register))
        .route("/v1/hosts/{host}/desired", get(desired))
        .route("/v1/hosts/{host}/observed", post(observed))
        .route("/v1/hosts/{host}/carried_out", post(carried_out))
        .route("/v1/hosts/{host}/images/{image}", get(image).put(keep_image))
        .route("/v1/hosts/{host}/replies", post(replied))
        .route_layer(axum::middleware::from_fn(only_itself))
        .with_state(link)
}

/// What the layers around the routes need to know.
pub fn service() -> Service {
    Service { name: "node", dialect: Dialect::Compute, versions: None, public: |_| false }
}

async fn clock() -> Json<Clock> {
    Json(Clock { micros: now_micros() })
}

async fn register(
    State(link): State<Link>,
    speaker: Option<Extension<Speaker>>,
    request: Request,
) -> Result<Json<Session>, Fault> {
    let registration: Registration = message(request).await?;
    if let Some(Extension(speaker)) = speaker {
        speaker.check(&registration.host)?;
    }
    link.register(registration).await.map(Json).map_err(refused)
}

async fn desired(
    State(link): State<Link>,
    Path(host): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Json<Batch>, Fault> {
    let (epoch, since) = (number(&query, "epoch")?, number(&query, "since")?);
    let clock = headers.get(CLOCK).and_then(|value| value.to_str().ok()?.parse().ok());
    if let (Some(clock), Some(entry)) = (clock, link.0.fleet.by_name(&host)) {
        entry.told_time(clock, now_micros());
    }
    link.desired(&host, epoch, since).await.map(Json).map_err(refused)
}

async fn observed(
    State(link): State<Link>,
    Path(host): Path<String>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Fault> {
    let epoch = number(&query, "epoch")?;
    let observations: Vec<Observation> = message(request).await?;
    link.observed(&host, epoch, observations).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn carried_out(
    State(link): State<Link>,
    Path(host): Path<String>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Fault> {
    let epoch = number(&query, "epoch")?;
    let carried: Vec<OrderResult> = message(request).await?;
    link.report_orders(&host, epoch, carried).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn image(
    State(link): State<Link>,
    Path((host, image)): Path<(String, String)>,
    query: Query,
) -> Result<impl IntoResponse, Fault> {
    let (epoch, offset) = (number(&query, "epoch")?, number(&query, "offset")?);
    let image: ImageId =
        image.parse().map_err(|_| Fault::bad_request("The image must be a uuid."))?;
    let offset =
        u64::try_from(offset).map_err(|_| Fault::bad_request("offset must not be negative."))?;
    let chunk = link.image(&host, epoch, image, offset).await.map_err(refused)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(SIZE, chunk.size.into());
    for (name, said) in [(FORMAT, chunk.format), (SHA512, chunk.sha512)] {
        if let Some(value) = said.and_then(|said| HeaderValue::from_str(&said).ok()) {
            headers.insert(name, value);
        }
    }
    Ok((headers, chunk.bytes))
}

async fn keep_image(
    State(link): State<Link>,
    Path((host, image)): Path<(String, String)>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Fault> {
    let epoch = number(&query, "epoch")?;
    let image: ImageId =
        image.parse().map_err(|_| Fault::bad_request("The image must be a uuid."))?;
    let format = match query.get("format") {
        None => DiskFormat::Raw,
        Some(said) => DiskFormat::parse(said)
            .ok_or_else(|| Fault::bad_request("format must be raw or qcow2."))?,
    };
    let body = request.into_body();
    keep::body(&link.0, &host, epoch, image, format, || body).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn replied(
    State(link): State<Link>,
    Path(host): Path<String>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Fault> {
    let epoch = number(&query, "epoch")?;
    let replies: Vec<Reply> = message(request).await?;
    link.report_replies(&host, epoch, replies).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

fn refused(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Fenced => Fault::conflict(Refusal::Fenced.to_string()),
        Refusal::Rejected(why) => Fault::new(StatusCode::UNPROCESSABLE_ENTITY, why),
        Refusal::Unavailable(why) => {
            let mut fault = Fault::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The control plane cannot answer now; try again.",
            );
            fault.internal = Some(why);
            fault
        }
    }
}

fn number(query: &Query, key: &str) -> Result<i64, Fault> {
    query
        .get(key)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Fault::bad_request(format!("{key} must be a number.")))
}

async fn message<T: DeserializeOwned>(request: Request) -> Result<T, Fault> {
    let bytes = match Limited::new(request.into_body(), LIMIT).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Fault::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("A node's message may have at most {LIMIT} bytes."),
            ));
        }
        Err(_) => return Err(Fault::bad_request("The message could not be read to its end.")),
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("This is no message of a node: {error}"),
        )
    })
}
