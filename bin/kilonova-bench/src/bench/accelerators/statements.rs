//! The number of statements of the four calls. For Kilonova, the store counts them, behind the same
//! routes as in the server; for a Cyborg, its database counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use kilonova_accelerator::{State, routes, service};
use kilonova_placement::World;
use kilonova_program::Failure;
use kilonova_store::Store;
use kilonova_store::testing::Meter;
use kilonova_wire::mount;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use super::arq_cycle::{DeviceRef, PROFILE, headers};
use super::table::Row;

const ARQS: &str = "/v2/accelerator_requests";
/// A profile of a hundred accelerators, which creates many requests with one call.
const OTHERS_PROFILE: &str = "kilonova-bench-crowd";

/// The rows of create, bind, GET and delete.
pub fn rows(counts: [u64; 4], others: usize) -> Vec<Row> {
    let names = ["create", "bind", "GET ?instance=", "DELETE ?instance="];
    let row = |(name, count): (&str, u64)| Row {
        what: format!("statements of {name}, {others} other requests"),
        server: count as f64,
        services: 0.0,
        unit: "statements",
        aim: None,
    };
    names.into_iter().zip(counts).map(row).collect()
}

/// The accelerator API over the measured database, without a socket.
struct Api(Router);

impl Api {
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::failed("the counted API", e);
        let mut request = Request::builder().method(method.clone()).uri(path);
        for (name, value) in headers() {
            request = request.header(name, value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.header("content-type", "application/json").body(body);
        let request = request.map_err(|e| failed(&e))?;
        let reply = self.0.clone().oneshot(request).await.map_err(|e| failed(&e))?;
        let status = reply.status();
        let body = reply.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
        if !status.is_success() {
            let message = String::from_utf8_lossy(&body);
            return Err(Failure::Failed(format!("{method} {path}: {status} {message}")));
        }
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn create(&self, profile: &str) -> Result<Vec<String>, Failure> {
        let body = json!({"device_profile_name": profile});
        let made = self.call(Method::POST, ARQS, Some(body)).await?;
        let uuids = made["arqs"].as_array().into_iter().flatten();
        Ok(uuids.map(|arq| arq["uuid"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

/// Requests of other instances, created a hundred at a time.
pub struct OtherRequests {
    api: Api,
    meter: Meter,
}

impl OtherRequests {
    /// Opens the API over the database; creates no request.
    pub async fn new(store: &Store) -> Result<Self, Failure> {
        let meter = Meter::counting();
        let world = World::new();
        world.load(store).await.map_err(|e| Failure::failed("cannot load the providers", e))?;
        let state = State::new(store.with_meter(meter.clone()), world).with_unbound_limit(-1);
        let api = Api(mount(routes(state), service(), "", Arc::new(NoAuth)));
        let path = format!("/v2/device_profiles?name={OTHERS_PROFILE}");
        let found = api.call(Method::GET, &path, None).await?;
        if found["device_profiles"].as_array().is_none_or(Vec::is_empty) {
            let profile = json!([{"name": OTHERS_PROFILE, "groups": [{"resources:FPGA": "100"}]}]);
            api.call(Method::POST, "/v2/device_profiles", Some(profile)).await?;
        }
        Ok(Self { api, meter })
    }

    /// Creates a hundred requests.
    pub async fn create(&self) -> Result<Vec<String>, Failure> {
        self.api.create(OTHERS_PROFILE).await
    }

    /// Binds the requests, each for an instance of its own.
    pub async fn bind(
        &self,
        arqs: &[String],
        device: impl Fn(usize) -> DeviceRef,
    ) -> Result<(), Failure> {
        let mut body = json!({});
        for (at, arq) in arqs.iter().enumerate() {
            let bind = device(at).bind(arq, &Uuid::new_v4().to_string());
            body[arq] = bind[arq].clone();
        }
        self.api.call(Method::PATCH, ARQS, Some(body)).await.map(|_| ())
    }

    async fn count(&self, device: &DeviceRef) -> Result<[u64; 4], Failure> {
        self.meter.take();
        let one = self.api.create(PROFILE).await?;
        let create = self.meter.take();
        let instance = Uuid::new_v4().to_string();
        let arq = one.first().map_or("", String::as_str);
        self.api.call(Method::PATCH, ARQS, Some(device.bind(arq, &instance))).await?;
        let bind = self.meter.take();
        let path = format!("{ARQS}?instance={instance}");
        self.api.call(Method::GET, &path, None).await?;
        let show = self.meter.take();
        self.api.call(Method::DELETE, &path, None).await?;
        Ok([create, bind, show, self.meter.take()])
    }
}

/// Counts statements with this number of other requests, and deletes them afterwards.
pub async fn count(store: &Store, device: &DeviceRef, others: usize) -> Result<Vec<Row>, Failure> {
    let other_requests = OtherRequests::new(store).await?;
    let mut made = Vec::new();
    while made.len() < others {
        made.extend(other_requests.create().await?);
    }
    let counts = other_requests.count(device).await?;
    for some in made.chunks(100) {
        let path = format!("{ARQS}?arqs={}", some.join(","));
        other_requests.api.call(Method::DELETE, &path, None).await?;
    }
    Ok(rows(counts, others))
}

/// Counts the statements of another server's database, with a command that prints the total.
pub struct Counter<'a> {
    command: &'a str,
    seen: AtomicU64,
}

impl<'a> Counter<'a> {
    /// Uses this command.
    pub fn new(command: &'a str) -> Self {
        Self { command, seen: AtomicU64::new(0) }
    }

    /// Statements since the last call.
    pub async fn since(&self) -> Result<u64, Failure> {
        // Includes the work that a request causes after its answer.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let output = std::process::Command::new("sh").arg("-c").arg(self.command).output();
        let output = output.map_err(|e| Failure::failed("cannot count statements", e))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let now: u64 = text.trim().parse().map_err(|_| {
            Failure::Failed(format!("`{}` printed {text:?}, not a number", self.command))
        })?;
        Ok(now.saturating_sub(self.seen.swap(now, Ordering::Relaxed)))
    }
}
