//! Decides whether a response is acceptable, whatever the request.

use std::time::{Duration, Instant};

use axum::Router;
use http_body_util::BodyExt;
use kilonova_wire_tests::{Document, Side};
use serde_json::Value;
use tower::ServiceExt;

use crate::fuzz::compose::Sent;

/// Maximum duration of a response, on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// Violations of upstream's document that upstream has too: prefix, part and suffix of the
/// objection, and the reason.
const IMPRECISE: &[(&str, &str, &str)] = &[
    // A group created at a later version is shown with its policy at every version.
    ("Os_Server_Group", "is not one of \"affinity\" or \"anti-affinity\"", ""),
    // Actions of an operator with a system-scoped token have no project.
    ("ServersOs_Instance_Action", "\"\" is shorter than 1 character", ""),
    // The progress of a guest that has just started to migrate, or has no disk to copy, is 0
    // upstream, but the document excludes 0.
    ("ServersMigrations", "0 is less than the minimum of 1", ""),
    // A network may have no name, and servers show their addresses by network name.
    ("Server", "('' was unexpected) at /server", "/addresses"),
    // The image service accepts any name of a property, and upstream shows all properties of an
    // image as its metadata.
    ("Images", "Additional properties are not allowed", "/metadata"),
    // Upstream accepts no characters beyond U+FFFF; we do.
    ("FlavorUpdate", "does not match \"^[\\", ""),
];

/// A response.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub took: Duration,
    /// The violation, in a few words.
    pub wrong: Option<String>,
}

/// Sends a request; `None` if it cannot be sent.
pub async fn send(router: &Router, document: &Document, sent: &Sent) -> Option<Answer> {
    let request = sent.request()?;
    let begun = Instant::now();
    let router = router.clone();
    let mut task = tokio::spawn(async move {
        let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
        let (parts, body) = response.into_parts();
        (parts, body.collect().await.map(http_body_util::Collected::to_bytes))
    });
    let broken = |wrong: String, took| {
        Some(Answer { status: 0, body: Vec::new(), took, wrong: Some(wrong) })
    };
    let joined = match tokio::time::timeout(LONGEST, &mut task).await {
        Ok(joined) => joined,
        Err(_) => {
            task.abort();
            return broken("no answer in time".into(), LONGEST);
        }
    };
    let took = begun.elapsed();
    let (parts, body) = match joined {
        Ok(done) => done,
        Err(error) => return broken(format!("a panic: {error}"), took),
    };
    let Ok(body) = body else { return broken("a truncated body".into(), took) };
    let status = parts.status.as_u16();
    let is_json = parts
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let mut wrong = None;
    if !parts.headers.contains_key("x-openstack-request-id") {
        wrong = Some("no request id".to_owned());
    }
    let json = is_json.then(|| serde_json::from_slice::<Value>(&body).ok());
    match json {
        Some(None) if sent.method != "HEAD" => wrong = Some("a body that is not JSON".into()),
        Some(Some(value)) if status >= 400 && !is_fault(sent.service, status, &value) => {
            wrong = Some("a fault in another form".into());
        }
        Some(Some(value)) if status < 300 => wrong = wrong.or(objection(document, sent, &value)),
        None if status >= 400 && sent.method != "HEAD" && !is_written(sent) => {
            wrong = Some("a fault without a body".into());
        }
        _ => {}
    }
    if status >= 500 && !is_meant(sent, status, &body) {
        wrong = Some("an internal error".into());
    }
    Some(Answer { status, body: body.to_vec(), took, wrong })
}

/// Operations that upstream does not implement either, and errors of a host that is down.
fn is_meant(sent: &Sent, status: u16, body: &[u8]) -> bool {
    let silent =
        || String::from_utf8_lossy(body).contains("does not answer. Try again when it is up.");
    let absent = || sent.route.ends_with("/uptime") || sent.route.contains("/os-hosts/");
    sent.service == "compute" && (status == 501 && absent() || status == 503 && silent())
}

/// True if faults may have another form than JSON. The image service uses JSON only on request, as
/// Glance does.
fn is_written(sent: &Sent) -> bool {
    let mut accepts = sent.headers.iter().filter(|(name, _)| name == "accept");
    match sent.service {
        "placement" => accepts.next().is_some(),
        "image" => accepts.all(|(_, value)| value != b"application/json"),
        _ => false,
    }
}

/// True if the body is a fault in its service's dialect.
pub fn is_fault(service: &str, status: u16, body: &Value) -> bool {
    let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    match service {
        "compute" => body.as_object().is_some_and(|map| {
            map.len() == 1
                && map.values().all(|fault| fault["code"] == status && is_text(&fault["message"]))
        }),
        "placement" => {
            body["errors"][0]["status"] == status
                && is_text(&body["errors"][0]["detail"])
                && is_text(&body["errors"][0]["request_id"])
        }
        "accelerator" => is_text(&body["error_message"]),
        "identity" => body["error"]["code"] == status && is_text(&body["error"]["message"]),
        "network" => {
            is_text(&body["NeutronError"]["type"]) && is_text(&body["NeutronError"]["message"])
        }
        _ => is_text(&body["code"]) && is_text(&body["message"]),
    }
}

/// An answer with the scheduler hints as requests have them. Upstream shows each hint as a list (`_from_hints` of
/// `nova/objects/request_spec.py`), but the document has the form of a request, in which one value stands alone.
fn with_requested_hints(answer: &Value) -> Value {
    fn unwrap(server: &mut Value) {
        let hints = server.get_mut("scheduler_hints").and_then(Value::as_object_mut);
        for hint in hints.into_iter().flat_map(|hints| hints.values_mut()) {
            if let Some([alone]) = hint.as_array().map(Vec::as_slice) {
                *hint = alone.clone();
            }
        }
    }
    let mut answer = answer.clone();
    if let Some(server) = answer.get_mut("server") {
        unwrap(server);
    }
    answer.get_mut("servers").and_then(Value::as_array_mut).into_iter().flatten().for_each(unwrap);
    answer
}

/// The violation of upstream's document in the acceptance of this request, or in its response.
fn objection(document: &Document, sent: &Sent, answer: &Value) -> Option<String> {
    let minor = sent.minor.filter(|_| sent.service == "compute")?;
    let path = sent.uri.split('?').next()?;
    let operation = document.find(&sent.method, path)?;
    let body = sent.json();
    let action = body
        .as_ref()
        .filter(|_| operation.path == "/v2.1/servers/{id}/action")
        .and_then(Value::as_object)
        .and_then(|body| body.keys().next().cloned());
    let judge =
        |side, body: &Value| document.objection(operation, side, minor, action.as_deref(), body);
    let is_precise = |why: &String| {
        !IMPRECISE.iter().any(|(schema, how, end)| {
            why.starts_with(schema) && why.contains(how) && why.ends_with(end)
        })
    };
    if let Some(why) = judge(Side::Answer, &with_requested_hints(answer)).filter(is_precise) {
        return Some(format!("an answer that violates upstream's document: {why}"));
    }
    let body = body.filter(|_| matches!(sent.method.as_str(), "POST" | "PUT"))?;
    judge(Side::Request, &body)
        .filter(is_precise)
        .map(|why| format!("accepted, but upstream refuses: {why}"))
}
