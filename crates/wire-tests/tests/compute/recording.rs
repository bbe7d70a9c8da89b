//! The recording of a stock client and a real Nova, if it is next to the repository.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/peers/nova/wire/recorded.jsonl.xz");

/// A recorded request.
pub struct Recorded {
    pub method: String,
    pub path: String,
    pub minor: u32,
    pub body: Option<Value>,
    pub status: u16,
    pub answer: Value,
    pub command: String,
}

/// The requests to Nova's port; `None` with a message if the recording cannot be read.
pub fn recording() -> Option<Vec<Recorded>> {
    if !Path::new(RECORDING).exists() {
        kilonova_testkit::skip("the recording is not next to the repository");
        return None;
    }
    let output = match Command::new("xz").args(["-dc", RECORDING]).output() {
        Ok(output) if output.status.success() => output,
        _ => {
            kilonova_testkit::skip("xz cannot read the recording");
            return None;
        }
    };
    let text = String::from_utf8(output.stdout).expect("the recording is UTF-8");
    Some(text.lines().flat_map(requests).collect())
}

fn requests(line: &str) -> Vec<Recorded> {
    let command: Value = serde_json::from_str(line).expect("the line is JSON");
    let message = command["cmd"].as_str().unwrap_or_default().to_owned();
    let all = command["reqs"].as_array().cloned().unwrap_or_default();
    let mut found: Vec<Recorded> = Vec::new();
    for one in all {
        let url = one["url"].as_str().unwrap_or_default();
        let Some(path) = url.strip_prefix("http://127.0.0.1:18784") else { continue };
        if !path.starts_with("/v2.1/") {
            continue;
        }
        let header = |name: &str| {
            let headers = one["headers"].as_object()?;
            let (_, value) = headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
            value.as_str()
        };
        let version = header("openstack-api-version").or(header("x-openstack-nova-api-version"));
        let minor = version.and_then(|text| text.rsplit('.').next()?.parse().ok()).unwrap_or(1);
        let read = |key: &str| serde_json::from_str(one[key].as_str().unwrap_or_default()).ok();
        let recorded = Recorded {
            method: one["method"].as_str().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            minor,
            body: read("body"),
            status: one["status"].as_u64().and_then(|s| u16::try_from(s).ok()).unwrap_or(0),
            answer: read("response").unwrap_or(Value::Null),
            command: message.clone(),
        };
        // The client polls, and the recorder captured some requests twice.
        let is_again = found.last().is_some_and(|last| {
            last.method == recorded.method
                && last.path == recorded.path
                && last.body == recorded.body
        });
        if is_again {
            found.pop();
        }
        found.push(recorded);
    }
    found
}
