//! A strict Glance v2 with its Keystone, on a free port: it refuses the same requests as a real
//! one, and fails on demand. `scripts/cloud.py` shows the same exchanges with the real services.
//!
//! Tokens are plain text: `USER:PROJECT` belongs to a member of that project, `admin` to an admin, and `own-N` to the
//! N-th login of the service user, who is also an admin. Others are refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use md5::Md5;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

/// How the next request of a kind fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The answer has this status, and the request is not carried out.
    Status(u16),
    /// The connection ends, and the request is not carried out.
    Lost,
    /// It is carried out, and the connection ends without an answer.
    LostAnswer,
    /// A download ends after this many bytes.
    Short(usize),
    /// A download has wrong bytes.
    Wrong,
    /// The request is never answered.
    Hangs,
}

/// An image of the fake.
#[derive(Debug, Clone, Default)]
pub struct FakeImage {
    /// The JSON of `GET`.
    pub shown: serde_json::Map<String, Value>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The projects with which it is shared.
    pub members: Vec<String>,
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// `GET show`, `PUT file`, …
    pub kind: String,
    /// The caller's token.
    pub token: String,
    /// The service token.
    pub service: Option<String>,
    /// The request id that the caller passed on.
    pub request_id: Option<String>,
    /// The requested range.
    pub range: Option<String>,
}

#[derive(Default)]
struct Inner {
    images: BTreeMap<String, FakeImage>,
    /// Ids that no new image may have.
    deleted: Vec<String>,
    failures: Vec<(String, Failure)>,
    arrived: Vec<Arrived>,
    logins: usize,
    has_no_ranges: bool,
    algorithm: Option<&'static str>,
    /// Called before and after a request is carried out.
    observer: Option<Observer>,
    /// Tokens that have expired.
    expired: Vec<String>,
}

/// Called with the kind of a request and whether it was carried out.
type Observer = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// The fake; cheap to clone.
#[derive(Clone)]
pub struct FakeGlance {
    inner: Arc<Mutex<Inner>>,
    url: String,
}

impl FakeGlance {
    /// Starts it.
    pub async fn start() -> Self {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the socket is bound");
        let address = listener.local_addr().expect("the socket has an address");
        let fake = Self { inner: Arc::default(), url: format!("http://{address}") };
        let routes = Router::new().fallback(handle).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        fake
    }

    /// The URL of Glance and of Keystone.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("the lock is not poisoned")
    }

    /// Makes the next request of a kind fail; several calls make several requests fail, in order.
    pub fn fail(&self, kind: &str, failure: Failure) {
        self.inner().failures.push((kind.to_owned(), failure));
    }

    /// Makes a token expire: it is accepted only together with a service token.
    pub fn expire(&self, token: &str) {
        self.inner().expired.push(token.to_owned());
    }

    /// Cancels the failures that have not happened.
    pub fn recover(&self) {
        self.inner().failures.clear();
    }

    /// From now on, answers range requests with all bytes, like a store without random access.
    pub fn without_ranges(&self) {
        self.inner().has_no_ranges = true;
    }

    /// Hashes new image data with this algorithm of `hashlib` (`sha256`, or `md5` for only a checksum).
    pub fn hash_by(&self, algorithm: &'static str) {
        self.inner().algorithm = Some(algorithm);
    }

    /// Calls `observer` with each request, before and after it is carried out.
    pub fn observe(&self, observer: impl Fn(&str, bool) + Send + Sync + 'static) {
        self.inner().observer = Some(Arc::new(observer));
    }

    /// The requests since the last call.
    pub fn take_arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut self.inner().arrived)
    }

    /// The images by id.
    pub fn images(&self) -> BTreeMap<String, FakeImage> {
        self.inner().images.clone()
    }

    /// Adds an active image of a project.
    pub fn add(&self, id: &str, owner: &str, more: Value, bytes: &[u8]) {
        let mut inner = self.inner();
        let mut image = new_image(id, owner);
        image.shown.extend(more.as_object().cloned().unwrap_or_default());
        for key in ["disk_format", "container_format"] {
            if image.shown[key].is_null() {
                image
                    .shown
                    .insert(key.into(), json!(if key == "disk_format" { "raw" } else { "bare" }));
            }
        }
        let algorithm = inner.algorithm;
        store(&mut image, bytes.to_vec(), algorithm);
        inner.images.insert(id.to_owned(), image);
    }

    /// Changes an attribute of an image.
    pub fn set(&self, id: &str, key: &str, value: Value) {
        let mut inner = self.inner();
        let image = inner.images.get_mut(id).expect("the image exists");
        image.shown.insert(key.to_owned(), value);
    }

    /// Removes an image without the API.
    pub fn remove(&self, id: &str) {
        self.inner().images.remove(id);
    }
}

fn new_image(id: &str, owner: &str) -> FakeImage {
    let now = "2026-11-24T02:34:48Z";
    let shown = json!({
        "id": id, "name": null, "owner": owner, "status": "queued", "visibility": "shared",
        "protected": false, "os_hidden": false, "checksum": null, "os_hash_algo": null,
        "os_hash_value": null, "size": null, "virtual_size": null, "min_disk": 0, "min_ram": 0,
        "disk_format": null, "container_format": null, "tags": [], "created_at": now,
        "updated_at": now, "self": format!("/v2/images/{id}"),
        "file": format!("/v2/images/{id}/file"), "schema": "/v2/schemas/image",
    });
    FakeImage { shown: shown.as_object().cloned().unwrap_or_default(), ..FakeImage::default() }
}

fn store(image: &mut FakeImage, bytes: Vec<u8>, algorithm: Option<&str>) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut set = |key: &str, value: Value| image.shown.insert(key.to_owned(), value);
    set("status", json!("active"));
    set("size", json!(bytes.len()));
    set("checksum", json!(hex(&Md5::digest(&bytes))));
    match algorithm {
        None => {
            set("os_hash_algo", json!("sha512"));
            set("os_hash_value", json!(hex(&Sha512::digest(&bytes))));
        }
        Some("sha256") => {
            set("os_hash_algo", json!("sha256"));
            set("os_hash_value", json!(hex(&sha2::Sha256::digest(&bytes))));
        }
        Some(_) => {}
    }
    image.bytes = bytes;
}

/// Ends the connection. Its task unwinds without a panic message.
fn hang_up() -> ! {
    std::panic::resume_unwind(Box::new("the fake ends the connection"))
}

fn fault(status: u16, why: &str) -> Response {
    let page =
        format!("<html><head><title>{status}</title></head><body>{why}<br /><br /></body></html>");
    let status = StatusCode::from_u16(status).expect("the status is valid");
    (status, [(header::CONTENT_TYPE, "text/html; charset=UTF-8")], page).into_response()
}

/// The project of a request, and whether the caller is an admin.
fn admit(inner: &Inner, headers: &HeaderMap) -> Option<(String, bool)> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    let is_own = |token: &str| {
        let number = token.strip_prefix("own-").and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| (1..=inner.logins).contains(&number))
    };
    let token = text("x-auth-token")?;
    if let Some(service) = text("x-service-token")
        && !is_own(&service)
    {
        return None;
    }
    if is_own(&token) {
        return Some(("service".into(), true));
    }
    if inner.expired.contains(&token) && text("x-service-token").is_none() {
        return None;
    }
    match token.split_once(':') {
        Some((_, project)) => Some((project.to_owned(), false)),
        None => (token == "admin").then_some((token, true)),
    }
}

async fn handle(State(fake): State<FakeGlance>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if path == "/v3/auth/tokens" {
        return log_in(&fake);
    }
    let Some(rest) = path.strip_prefix("/v2/images") else { return fault(404, "no such page") };
    let rest: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let what = match rest.as_slice() {
        [] => "images",
        [_] => "show",
        [_, "file"] => "file",
        [_, "members"] => "members",
        _ => return fault(404, "no such page"),
    };
    let kind = format!("{} {what}", parts.method);
    let text = |name: &str| parts.headers.get(name)?.to_str().ok().map(str::to_owned);
    let (caller, failure, observer) = {
        let mut inner = fake.inner();
        let at = inner.failures.iter().position(|(of, _)| *of == kind);
        let failure = at.map(|at| inner.failures.remove(at).1);
        let arrived = Arrived {
            kind: kind.clone(),
            token: text("x-auth-token").unwrap_or_default(),
            service: text("x-service-token"),
            request_id: text("x-openstack-request-id"),
            range: text("range"),
        };
        inner.arrived.push(arrived);
        (admit(&inner, &parts.headers), failure, inner.observer.clone())
    };
    if let Some(observer) = &observer {
        observer(&kind, false);
    }
    match failure {
        Some(Failure::Status(status)) => return fault(status, "the fake fails"),
        Some(Failure::Lost) => hang_up(),
        Some(Failure::Hangs) => return std::future::pending().await,
        Some(Failure::LostAnswer | Failure::Short(_) | Failure::Wrong) | None => {}
    }
    let Some((project, is_admin)) = caller else {
        return fault(401, "This server could not verify that you are authorized");
    };
    if text("x-openstack-request-id").is_some_and(|id| !id.starts_with("req-")) {
        return fault(400, "the request id is invalid");
    }
    let id = rest.first().copied().unwrap_or_default();
    let by = By { fake: &fake, project: &project, is_admin, headers: &parts.headers };
    let answer = match (&parts.method, what) {
        (&Method::POST, "images") => by.create(&read(body).await),
        (&Method::GET, "images") => by.list(parts.uri.query().unwrap_or_default()),
        (&Method::GET, "show") => by.show(id),
        (&Method::PATCH, "show") => by.patch(id, &read(body).await),
        (&Method::DELETE, "show") => by.delete(id),
        (&Method::POST, "members") => by.share(id, &read(body).await),
        (&Method::PUT, "file") => by.upload(id, body).await,
        (&Method::GET, "file") => by.download(id, failure),
        _ => fault(405, "method not allowed"),
    };
    if let Some(observer) = &observer {
        observer(&kind, true);
    }
    if failure == Some(Failure::LostAnswer) {
        hang_up();
    }
    answer
}

async fn read(body: Body) -> Bytes {
    body.collect().await.map(|all| all.to_bytes()).unwrap_or_default()
}

fn log_in(fake: &FakeGlance) -> Response {
    let number = {
        let mut inner = fake.inner();
        inner.logins += 1;
        inner.logins
    };
    let catalog = json!([{"type": "image", "name": "glance", "endpoints": [
        {"interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": fake.url},
    ]}]);
    let body = json!({"token": {"expires_at": "2099-01-01T00:00:00Z", "catalog": catalog}});
    (StatusCode::CREATED, [("x-subject-token", format!("own-{number}"))], Json(body))
        .into_response()
}

struct By<'a> {
    fake: &'a FakeGlance,
    project: &'a str,
    is_admin: bool,
    headers: &'a HeaderMap,
}

impl By<'_> {
    fn owns(&self, image: &FakeImage) -> bool {
        self.is_admin || image.shown["owner"] == self.project
    }

    fn sees(&self, image: &FakeImage) -> bool {
        self.owns(image)
            || image.shown["visibility"] == "public"
            || image.members.iter().any(|member| member == self.project)
    }

    fn create(&self, body: &Bytes) -> Response {
        let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
            return fault(400, "Malformed JSON in request body.");
        };
        let id = body.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        if uuid::Uuid::parse_str(&id).is_err() {
            return fault(400, "Provided object does not match schema 'image'");
        }
        let owner = body.get("owner").and_then(Value::as_str).unwrap_or(self.project).to_owned();
        if owner != self.project && !self.is_admin {
            return fault(403, "You are not permitted to create images owned by others");
        }
        let mut image = new_image(&id, &owner);
        for (key, value) in body {
            if let Err((status, why)) = assign(&mut image, &key, value) {
                return fault(status, &why);
            }
        }
        let mut inner = self.fake.inner();
        if inner.images.contains_key(&id) || inner.deleted.contains(&id) {
            return fault(409, &format!("Image ID {id} already exists!"));
        }
        let shown = Value::Object(image.shown.clone());
        inner.images.insert(id, image);
        (StatusCode::CREATED, Json(shown)).into_response()
    }

    fn list(&self, query: &str) -> Response {
        let decode = |text: &str| {
            let mut bytes = Vec::new();
            let mut rest = text.as_bytes();
            while let Some((first, after)) = rest.split_first() {
                let code = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
                match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(byte) if *first == b'%' => {
                        bytes.push(byte);
                        rest = &after[2..];
                    }
                    _ => {
                        bytes.push(*first);
                        rest = after;
                    }
                }
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let pairs: BTreeMap<String, String> =
            pairs.map(|(key, value)| (decode(key), decode(value))).collect();
        let inner = self.fake.inner();
        let mut found: Vec<&FakeImage> = inner
            .images
            .values()
            .filter(|image| self.sees(image))
            .filter(|image| {
                pairs.iter().all(|(key, value)| match key.as_str() {
                    "limit" | "marker" | "sort_key" | "sort_dir" | "sort" => true,
                    "min_ram" | "min_disk" => {
                        let least: Option<i64> = value.parse().ok();
                        image.shown[key].as_i64() >= least
                    }
                    "updated_at" => {
                        image.shown["updated_at"].as_str() >= value.strip_prefix("gte:")
                    }
                    key => image.shown.get(key).and_then(Value::as_str) == Some(value),
                })
            })
            .collect();
        found.sort_by_key(|image| {
            let text = |key: &str| image.shown[key].as_str().unwrap_or_default().to_owned();
            std::cmp::Reverse((text("created_at"), text("id")))
        });
        let limit = pairs.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(25);
        let after = pairs.get("marker").map_or(0, |marker| {
            found.iter().position(|image| image.shown["id"] == **marker).map_or(0, |at| at + 1)
        });
        let page: Vec<&FakeImage> = found.iter().skip(after).take(limit).copied().collect();
        let mut answer = json!({"images": page.iter().map(|one| &one.shown).collect::<Vec<_>>()});
        if found.len() > after + page.len()
            && let Some(last) = page.last()
        {
            let rest: Vec<&str> =
                query.split('&').filter(|pair| !pair.starts_with("marker=")).collect();
            let marker = last.shown["id"].as_str().unwrap_or_default();
            answer["next"] = json!(format!("/v2/images?{}&marker={marker}", rest.join("&")));
        }
        Json(answer).into_response()
    }

    fn show(&self, id: &str) -> Response {
        match self.fake.inner().images.get(id).filter(|image| self.sees(image)) {
            Some(image) => Json(Value::Object(image.shown.clone())).into_response(),
            None => fault(404, &format!("No image found with ID {id}")),
        }
    }

    fn patch(&self, id: &str, body: &Bytes) -> Response {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if kind != Some("application/openstack-images-v2.1-json-patch") {
            return fault(415, "Unsupported Media Type");
        }
        let Ok(Value::Array(operations)) = serde_json::from_slice(body) else {
            return fault(400, "Request body must be a JSON array of operation objects.");
        };
        let mut inner = self.fake.inner();
        let Some(image) = inner.images.get_mut(id).filter(|image| self.owns(image)) else {
            return fault(404, &format!("No image found with ID {id}"));
        };
        for operation in operations {
            let path = operation["path"].as_str().unwrap_or_default();
            let Some(key) = path.strip_prefix('/') else { return fault(400, "Invalid path") };
            let exists = image.shown.contains_key(key);
            match operation["op"].as_str() {
                Some("add" | "replace") => {
                    if operation["op"] == "replace" && !exists {
                        return fault(409, &format!("Property {key} does not exist."));
                    }
                    if let Err((status, why)) = assign(image, key, operation["value"].clone()) {
                        return fault(status, &why);
                    }
                }
                Some("remove") if exists => {
                    image.shown.remove(key);
                }
                Some("remove") => return fault(409, &format!("Property {key} does not exist.")),
                _ => return fault(400, "Operation must be one of add, replace, remove."),
            }
        }
        Json(Value::Object(image.shown.clone())).into_response()
    }

    fn share(&self, id: &str, body: &Bytes) -> Response {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut inner = self.fake.inner();
        let Some(image) = inner.images.get_mut(id).filter(|image| self.owns(image)) else {
            return fault(404, &format!("No image found with ID {id}"));
        };
        let Some(member) = body["member"].as_str() else { return fault(400, "no member") };
        if image.shown["visibility"] != "shared" {
            return fault(403, "Only shared images have members.");
        }
        if image.members.iter().any(|one| one == member) {
            return fault(409, "Image member already exists");
        }
        image.members.push(member.to_owned());
        Json(json!({"member_id": member, "image_id": id, "status": "pending"})).into_response()
    }

    fn delete(&self, id: &str) -> Response {
        let mut inner = self.fake.inner();
        let Some(image) = inner.images.get(id).filter(|image| self.sees(image)) else {
            return fault(404, &format!("Failed to find image {id} to delete"));
        };
        if image.shown["protected"] == true || !self.owns(image) {
            return fault(403, &format!("Image {id} is protected and cannot be deleted."));
        }
        inner.images.remove(id);
        inner.deleted.push(id.to_owned());
        StatusCode::NO_CONTENT.into_response()
    }

    async fn upload(&self, id: &str, body: Body) -> Response {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if kind != Some("application/octet-stream") {
            return fault(415, "Unsupported Media Type");
        }
        {
            let mut inner = self.fake.inner();
            let Some(image) = inner.images.get_mut(id).filter(|image| self.owns(image)) else {
                return fault(404, &format!("No image found with ID {id}"));
            };
            if image.shown["disk_format"].is_null() || image.shown["container_format"].is_null() {
                let why =
                    "Properties disk_format, container_format must be set prior to saving data.";
                return fault(400, why);
            }
            if image.shown["status"] != "queued" {
                return fault(409, "Image status transition from active to saving is not allowed");
            }
            image.shown.insert("status".into(), json!("saving"));
        }
        let read = body.collect().await;
        let mut inner = self.fake.inner();
        let algorithm = inner.algorithm;
        let Some(image) = inner.images.get_mut(id) else {
            return fault(410, &format!("Image {id} could not be found after upload."));
        };
        match read {
            Ok(all) => {
                let data = all.to_bytes();
                // As Glance since 33, `[image_format] require_image_format_match`.
                if image.shown["disk_format"] == "qcow2" && !data.starts_with(b"QFI\xfb") {
                    image.shown.insert("status".into(), json!("queued"));
                    return fault(415, "Image disk_format qcow2 does not match stream data raw");
                }
                store(image, data.to_vec(), algorithm);
                StatusCode::NO_CONTENT.into_response()
            }
            Err(_) => {
                image.shown.insert("status".into(), json!("queued"));
                fault(400, "the data ended early")
            }
        }
    }

    fn download(&self, id: &str, failure: Option<Failure>) -> Response {
        let inner = self.fake.inner();
        let Some(image) = inner.images.get(id).filter(|image| self.sees(image)) else {
            return fault(404, &format!("No image found with ID {id}"));
        };
        if image.shown["status"] != "active" {
            return StatusCode::NO_CONTENT.into_response();
        }
        let mut bytes = image.bytes.clone();
        let total = bytes.len();
        let range = self.headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        let begin: Option<usize> = range
            .filter(|_| !inner.has_no_ranges)
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let mut status = StatusCode::OK;
        let mut headers = HeaderMap::new();
        if let Some(begin) = begin {
            if begin >= total {
                return fault(416, "the range is not satisfiable");
            }
            bytes.drain(..begin);
            status = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {begin}-{}/{total}", total - 1);
            headers.insert(header::CONTENT_RANGE, range.parse().expect("the header is valid"));
        }
        if failure == Some(Failure::Wrong)
            && let Some(first) = bytes.first_mut()
        {
            *first ^= 1;
        }
        let length = bytes.len();
        headers.insert(header::CONTENT_LENGTH, length.into());
        let body = match failure {
            Some(Failure::Short(most)) => {
                bytes.truncate(most);
                // The server sends the bytes while the stream is pending.
                let ends = async {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    Err(std::io::Error::other("the fake ends the connection"))
                };
                let begin = futures_util::stream::once(async { Ok(Bytes::from(bytes)) });
                Body::from_stream(begin.chain(futures_util::stream::once(ends)))
            }
            _ => Body::from(bytes),
        };
        (status, headers, body).into_response()
    }
}

/// Sets an attribute or a property if the schema allows it.
fn assign(image: &mut FakeImage, key: &str, value: Value) -> Result<(), (u16, String)> {
    const READ_ONLY: [&str; 14] = [
        "checksum",
        "created_at",
        "direct_url",
        "file",
        "locations",
        "os_hash_algo",
        "os_hash_value",
        "schema",
        "self",
        "size",
        "status",
        "stores",
        "updated_at",
        "virtual_size",
    ];
    if READ_ONLY.contains(&key) || key.starts_with("os_glance") {
        return Err((403, format!("Attribute '{key}' is read-only.")));
    }
    let is_valid = match key {
        "name" => value.is_string() || value.is_null(),
        "min_disk" | "min_ram" => value.as_i64().is_some_and(|number| number >= 0),
        "protected" | "os_hidden" => value.is_boolean(),
        "tags" => value.is_array(),
        "visibility" => ["public", "private", "shared", "community"]
            .contains(&value.as_str().unwrap_or_default()),
        "disk_format" => ["raw", "qcow2", "iso", "aki", "ari", "ami"]
            .contains(&value.as_str().unwrap_or_default()),
        "container_format" => ["ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"]
            .contains(&value.as_str().unwrap_or_default()),
        _ => value.is_string(),
    };
    if !is_valid {
        return Err((400, format!("Provided object does not match schema 'image': {key}")));
    }
    image.shown.insert(key.to_owned(), value);
    Ok(())
}
