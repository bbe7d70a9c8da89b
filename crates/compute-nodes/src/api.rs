//! The HTTP API that agents on other machines call: the [`ControlPlane`] trait over HTTP. It is
//! mounted apart from Nova's API and has its own authentication; tokens of tenants give no access.
//!
//! ```text
//! GET  /v1/clock                                            -> Clock: the controller's
//! POST /v1/register                             Registration   -> Session
//! GET  /v1/hosts/{host}/desired?epoch=&since=                  -> Batch (a long poll)
//!      X-Kilonova-Clock: the host's time, in microseconds since 1970
//! POST /v1/hosts/{host}/observed?epoch=         [Observation]  -> 204
//! POST /v1/hosts/{host}/carried_out?epoch=      [OrderResult]  -> 204
//! GET  /v1/hosts/{host}/images/{image}?epoch=&offset=          -> a chunk; X-Image-Size: the image's size
//! PUT  /v1/hosts/{host}/images/{image}?epoch=   bytes          -> 204
//! POST /v1/hosts/{host}/replies?epoch=          [Reply]        -> 204
//! POST /v1/hosts/{host}/guest_password?epoch=   PasswordRequest -> PasswordAnswer
//! POST /v1/hosts/{host}/vendordata?epoch=       VendordataRequest -> VendordataAnswer
//! POST /v1/hosts/{host}/consoles/{id}           ConsoleReply   -> 204
//! POST /v1/hosts/{host}/consoles/{id}, Upgrade: kilonova-console -> 101, then the console's bytes
//! ```
//!
//! A connection with a certificate may act only for the host named in the certificate ([`CertifiedHost`]). 409 fences
//! the caller, 422 rejects its message, 503 requests a retry.

mod consoles;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{
    self as node_api, Batch, Clock, ControlPlane, DiskFormat, Observation, OrderResult,
    PasswordAnswer, PasswordRequest, Registration, Reply, Session, VendordataAnswer,
    VendordataRequest,
};
use kilonova_wire::certified_host::only_itself;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{CertifiedHost, Dialect, Refusal, Service, time};
use serde::de::DeserializeOwned;

use crate::link::snapshot_data;
use crate::{Drain, Link};

/// Maximum size of a message in bytes; enough for a host with thousands of virtual functions.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The size of the whole image; the body of the answer is one chunk of it.
const SIZE: HeaderName = HeaderName::from_static("x-image-size");
/// The disk format of the image.
const FORMAT: HeaderName = HeaderName::from_static("x-image-format");
/// The SHA-512 hash of the whole image.
const SHA512: HeaderName = HeaderName::from_static("x-image-sha512");

/// The time on the caller's clock, in microseconds since 1970.
const CLOCK: HeaderName = HeaderName::from_static("x-kilonova-clock");

/// The routes of the API. With the extension [`Drain`], a controller that drains or stops ends the
/// waiting polls.
pub fn routes(link: Link) -> Router {
    Router::new()
        .route("/v1/clock", get(clock))
        .route("/v1/register", post(register))
        .route("/v1/hosts/{host}/desired", get(desired))
        .route("/v1/hosts/{host}/observed", post(observed))
        .route("/v1/hosts/{host}/carried_out", post(carried_out))
        .route("/v1/hosts/{host}/images/{image}", get(image).put(upload_image))
        .route("/v1/hosts/{host}/replies", post(replied))
        .route("/v1/hosts/{host}/guest_password", post(guest_password))
        .route("/v1/hosts/{host}/vendordata", post(vendordata))
        .route("/v1/hosts/{host}/consoles/{id}", post(consoles::answered))
        .route_layer(axum::middleware::from_fn(only_itself))
        .with_state(Arc::new(link))
}

/// The description of the service for the middleware around the routes.
pub fn service() -> Service {
    Service { name: "node", dialect: Dialect::Compute, versions: None, public: |_| false }
}

async fn clock() -> Json<Clock> {
    Json(Clock { now: time::now() })
}

async fn register(
    State(link): State<Arc<Link>>,
    certified: Option<Extension<CertifiedHost>>,
    request: Request,
) -> Result<Json<Session>, Refusal> {
    let registration: Registration = message(request).await?;
    if let Some(Extension(certified)) = certified {
        certified.check(&registration.host)?;
    }
    link.register(registration).await.map(Json).map_err(refused)
}

async fn desired(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    drain: Option<Extension<Drain>>,
    query: Query,
    headers: HeaderMap,
) -> Result<Json<Batch>, Refusal> {
    let (epoch, since) = (number(&query, "epoch")?, number(&query, "since")?);
    let micros = headers.get(CLOCK).and_then(|value| value.to_str().ok()?.parse().ok());
    let clock = micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    if let (Some(clock), Some(entry)) = (clock, link.0.fleet.by_name(&host)) {
        entry.record_clock(clock, time::now());
    }
    let polled = link.desired(&host, epoch, since);
    let answer = match drain {
        // A request for all documents (`since` is 0) never waits.
        Some(Extension(drain)) if since > 0 => tokio::select! {
            biased;
            answer = polled => answer,
            () = drain.next() => Ok(nothing_newer(since)),
        },
        _ => polled.await,
    };
    answer.map(Json).map_err(refused)
}

/// The answer to a poll that ends without documents: the host polls again.
fn nothing_newer(since: i64) -> Batch {
    Batch {
        generation: since,
        complete: false,
        documents: Vec::new(),
        held: Vec::new(),
        orders: Vec::new(),
        questions: Vec::new(),
        consoles: Vec::new(),
        filters: None,
        routers: None,
        register: false,
    }
}

async fn observed(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let epoch = number(&query, "epoch")?;
    let observations: Vec<Observation> = message(request).await?;
    link.observed(&host, epoch, observations).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn carried_out(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let epoch = number(&query, "epoch")?;
    let results: Vec<OrderResult> = message(request).await?;
    link.report_orders(&host, epoch, results).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn image(
    State(link): State<Arc<Link>>,
    Path((host, image)): Path<(HostName, String)>,
    query: Query,
) -> Result<impl IntoResponse, Refusal> {
    let (epoch, offset) = (number(&query, "epoch")?, number(&query, "offset")?);
    let image: ImageId =
        image.parse().map_err(|_| Refusal::bad_request("The image must be a UUID."))?;
    let offset =
        u64::try_from(offset).map_err(|_| Refusal::bad_request("offset must not be negative."))?;
    let chunk = link.image(&host, epoch, image, offset).await.map_err(refused)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(SIZE, chunk.size.into());
    for (name, text) in [(FORMAT, chunk.format), (SHA512, chunk.sha512)] {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(name, value);
        }
    }
    Ok((headers, chunk.bytes))
}

async fn upload_image(
    State(link): State<Arc<Link>>,
    Path((host, image)): Path<(HostName, String)>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let epoch = number(&query, "epoch")?;
    let image: ImageId =
        image.parse().map_err(|_| Refusal::bad_request("The image must be a UUID."))?;
    let format = match query.get("format") {
        None => DiskFormat::Raw,
        Some(name) => DiskFormat::parse(name)
            .ok_or_else(|| Refusal::bad_request("format must be raw or qcow2."))?,
    };
    let body = request.into_body();
    snapshot_data::store_stream(&link.0, &host, epoch, image, format, || body)
        .await
        .map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn replied(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    query: Query,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let epoch = number(&query, "epoch")?;
    let replies: Vec<Reply> = message(request).await?;
    link.report_replies(&host, epoch, replies).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn guest_password(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    query: Query,
    request: Request,
) -> Result<Json<PasswordAnswer>, Refusal> {
    let epoch = number(&query, "epoch")?;
    let request: PasswordRequest = message(request).await?;
    link.guest_password(&host, epoch, request).await.map(Json).map_err(refused)
}

async fn vendordata(
    State(link): State<Arc<Link>>,
    Path(host): Path<HostName>,
    query: Query,
    request: Request,
) -> Result<Json<VendordataAnswer>, Refusal> {
    let epoch = number(&query, "epoch")?;
    let request: VendordataRequest = message(request).await?;
    link.vendordata(&host, epoch, request).await.map(Json).map_err(refused)
}

/// Translates a refusal of the [`ControlPlane`] trait into an HTTP refusal.
fn refused(refusal: node_api::Refusal) -> Refusal {
    match refusal {
        node_api::Refusal::Fenced => Refusal::conflict(node_api::Refusal::Fenced.to_string()),
        node_api::Refusal::Rejected(why) => Refusal::new(Kind::Unprocessable, why),
        node_api::Refusal::Unavailable(why) => {
            Refusal::new(Kind::Unavailable, "The controller cannot answer now; try again.")
                .with_internal(why)
        }
    }
}

fn number(query: &Query, key: &str) -> Result<i64, Refusal> {
    query
        .get(key)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Refusal::bad_request(format!("{key} must be a number.")))
}

async fn message<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let bytes = match Limited::new(request.into_body(), MAX_MESSAGE).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Refusal::new(
                Kind::TooLarge,
                format!("A message from an agent may have at most {MAX_MESSAGE} bytes."),
            ));
        }
        Err(_) => return Err(Refusal::bad_request("The message ended prematurely.")),
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        Refusal::new(Kind::Unprocessable, format!("Invalid message from an agent: {error}"))
    })
}
