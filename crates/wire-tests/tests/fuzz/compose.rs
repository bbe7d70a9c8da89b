//! Composes one request from a seed: an operation with mutations.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request};
use kilonova_wire_tests::{Document, Operation, Side};
use serde_json::{Map, Value, json};

use crate::fuzz::headers::headers;
use crate::fuzz::identifiers::Identifiers;
use crate::fuzz::random::Rng;
use crate::fuzz::seeds::{SEEDS, Seed};
use crate::fuzz::uri::uri;
use crate::fuzz::{generate, mutate, values};

/// Operations that upstream removed or that are not supported, called occasionally.
const SELDOM: &[&str] = &[
    "os-agents",
    "os-cells",
    "os-certificates",
    "os-cloudpipe",
    "os-fixed-ips",
    "os-floating",
    "os-fping",
    "os-security-group",
    "os-networks",
    "os-tenant-networks",
    "os-virtual-interfaces",
    "/consoles",
    "/images",
    "os-volumes",
    "os-snapshots",
    "os-assisted",
    "os-baremetal",
    "os-instance_usage",
    "/shares",
    "os-console-auth",
    "os-interface",
    "os-volume_attachments",
    "/versions",
];

/// A request to send.
#[derive(Clone, PartialEq)]
pub struct Sent {
    pub service: &'static str,
    pub method: String,
    /// The path as a template, to distinguish faults.
    pub route: String,
    pub uri: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// The minor version, if it was requested in a valid form.
    pub minor: Option<u32>,
}

impl Sent {
    /// `None` if the request is not valid HTTP.
    pub fn request(&self) -> Option<Request<Body>> {
        let mut built =
            Request::builder().method(self.method.as_str()).uri(&self.uri).body(()).ok()?;
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            built.headers_mut().append(name, HeaderValue::from_bytes(value).ok()?);
        }
        Some(built.map(|()| Body::from(self.body.clone())))
    }

    /// Its body, if it is JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} {} {}", self.service, self.method, self.uri)?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {}", value.escape_ascii())?;
        }
        let shown = &self.body[..self.body.len().min(3000)];
        match std::str::from_utf8(shown) {
            Ok(text) => write!(f, "  {text}"),
            Err(_) => write!(f, "  {}", shown.escape_ascii()),
        }
    }
}

pub fn request(rng: &mut Rng, document: &Document, pool: &Identifiers) -> Sent {
    rng.calm = rng.one_in(2);
    let mut sent = match rng.below(10) {
        0..=5 => compute(rng, document, pool),
        _ => {
            let mut seed = rng.pick(SEEDS);
            for _ in 0..2 {
                if seed.3.is_empty() {
                    seed = rng.pick(SEEDS);
                }
            }
            seeded(rng, seed, pool)
        }
    };
    if matches!(sent.method.as_str(), "POST" | "PUT" | "PATCH") && rng.odd(8) {
        mutate::bytes(rng, &mut sent.body);
    }
    if rng.odd(40) {
        sent.method = (*rng
            .pick(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]))
        .into();
    }
    sent
}

fn compute(rng: &mut Rng, document: &Document, pool: &Identifiers) -> Sent {
    let all = &document.operations;
    let mut operation = rng.pick(all);
    for _ in 0..5 {
        let is_seldom = SELDOM.iter().any(|word| operation.path.contains(word));
        if is_seldom || !matches!(operation.method.as_str(), "POST" | "PUT") {
            operation = rng.pick(all);
        }
    }
    match rng.below(12) {
        0 => operation = document.find("POST", "/v2.1/servers/x/action").unwrap_or(operation),
        1 => operation = document.find("POST", "/v2.1/servers").unwrap_or(operation),
        _ => {}
    }
    let minors: Vec<u32> = operation.boundaries.iter().copied().collect();
    let minor = match rng.below(3) {
        0 => *rng.pick(&minors),
        1 => 104,
        _ => u32::try_from(1 + rng.below(104)).unwrap_or(1),
    };
    let (path, query) = uri(rng, pool, &operation.path, &operation.method, &operation.queries);
    let body = match operation.method.as_str() {
        "POST" | "PUT" => grown(rng, operation, pool, minor).to_string().into_bytes(),
        _ => Vec::new(),
    };
    let mut sent = Sent {
        service: "compute",
        method: operation.method.clone(),
        route: operation.path.clone(),
        uri: path + &query,
        headers: Vec::new(),
        body,
        minor: Some(minor),
    };
    headers(rng, &mut sent, format!("compute 2.{minor}"));
    sent
}

/// The number of mutations of a body.
fn spoilt(rng: &mut Rng, most: usize) -> usize {
    if rng.calm { usize::from(rng.one_in(3)) } else { rng.below(most) }
}

fn grown(rng: &mut Rng, operation: &Operation, pool: &Identifiers, minor: u32) -> Value {
    let actions: Vec<String> = operation.actions().into_iter().collect();
    let action = (!actions.is_empty()).then(|| rng.pick(&actions).clone());
    let schema = operation.schema(Side::Request, minor, action.as_deref());
    let mut body = match (schema, &action) {
        (Some(schema), _) => generate::value(rng, pool, schema, "", 0),
        (None, Some(action)) => json!({action: values::any(rng)}),
        (None, None) => values::any(rng),
    };
    if let Some(server) = body.get_mut("server").and_then(Value::as_object_mut)
        && operation.path == "/v2.1/servers"
        && !rng.odd(4)
    {
        plain(rng, pool, server, minor);
    }
    for _ in 0..spoilt(rng, 3) {
        mutate::value(rng, &mut body);
    }
    body
}

/// Removes settings that prevent the creation of servers here, so that some are created.
fn plain(rng: &mut Rng, pool: &Identifiers, server: &mut Map<String, Value>, minor: u32) {
    for key in ["block_device_mapping", "block_device_mapping_v2", "networks", "security_groups"] {
        server.remove(key);
    }
    match rng.below(4) {
        0 => server.insert("networks".into(), json!([{"uuid": pool.some(rng, "networks")}])),
        1 => server.insert("networks".into(), json!([{"port": pool.some(rng, "ports")}])),
        _ if minor >= 37 => server.insert("networks".into(), json!("none")),
        _ => None,
    };
    for key in ["min_count", "max_count"] {
        server.remove(key);
        if rng.one_in(8) {
            server.insert(key.into(), json!(2));
        }
    }
}

fn seeded(rng: &mut Rng, seed: &'static Seed, pool: &Identifiers) -> Sent {
    let (service, method, route, body) = *seed;
    let (path, query) = uri(rng, pool, route, method, &[]);
    let body = match serde_json::from_str::<Value>(body) {
        Ok(mut body) => {
            fill(rng, pool, &mut body);
            for _ in 0..spoilt(rng, 4) {
                mutate::value(rng, &mut body);
            }
            body.to_string().into_bytes()
        }
        Err(_) => body.as_bytes().to_vec(),
    };
    let mut sent = Sent {
        service,
        method: method.into(),
        route: route.into(),
        uri: path + &query,
        headers: Vec::new(),
        body,
        minor: None,
    };
    let minor = rng.below(41);
    let version = match service {
        "placement" => format!("placement 1.{minor}"),
        _ => format!("{service} 2.{}", minor % 5),
    };
    headers(rng, &mut sent, version);
    sent
}

fn fill(rng: &mut Rng, pool: &Identifiers, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(word) = text.strip_prefix('$') {
                *text = named(rng, pool, word);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(rng, pool, item)),
        Value::Object(map) => {
            let whole = std::mem::take(map);
            for (key, mut inner) in whole {
                fill(rng, pool, &mut inner);
                let key = match key.strip_prefix('$') {
                    Some(word) => named(rng, pool, word),
                    None => key,
                };
                map.insert(key, inner);
            }
        }
        _ => {}
    }
}

fn named(rng: &mut Rng, pool: &Identifiers, word: &str) -> String {
    if word == "uuid" {
        return format!("c0ffee00-0000-4000-8000-{:012x}", rng.below(64));
    }
    pool.some(rng, word)
}
