//! Reads `networks` of `POST /servers`. This module must not look up networks; the application does
//! that.
//!
//! The value has already passed the schema.

use std::collections::HashSet;
use std::net::IpAddr;

use kilonova_compute_app::ports::{NetworkRequest, PortRequest, no_port};
use kilonova_ids::parse_uuid_like;
use kilonova_wire::Refusal;
use serde_json::Value;

/// Reads the field. `value` is `None` if the field was not sent; an empty list means the same.
///
/// # Errors
/// 400 with Nova's message for inconsistent input.
pub(super) fn read(value: Option<&Value>) -> Result<NetworkRequest, Refusal> {
    match value {
        None => Ok(NetworkRequest::Unspecified),
        Some(Value::String(word)) if word == "none" => Ok(NetworkRequest::None),
        Some(Value::String(_)) => Ok(NetworkRequest::Auto),
        Some(value) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if list.is_empty() {
                return Ok(NetworkRequest::Unspecified);
            }
            let ports = list.iter().map(read_port).collect::<Result<Vec<_>, _>>()?;
            let mut seen = HashSet::new();
            match ports.iter().filter_map(|one| one.port).find(|id| !seen.insert(*id)) {
                Some(twice) => Err(Refusal::bad_request(format!(
                    "Port ID '{twice}' was specified twice: you cannot attach a port multiple times."
                ))),
                None => Ok(NetworkRequest::Ports(ports)),
            }
        }
    }
}

fn read_port(value: &Value) -> Result<PortRequest, Refusal> {
    let text = |key: &str| value[key].as_str();
    let fixed_ip = text("fixed_ip").and_then(|ip| ip.parse::<IpAddr>().ok());
    let tag = text("tag").map(str::to_owned);
    if let Some(port) = text("port") {
        let id = parse_uuid_like(port).ok_or_else(|| no_port(port))?;
        if let Some(ip) = fixed_ip {
            return Err(Refusal::bad_request(format!(
                "Specified Fixed IP '{ip}' cannot be used with port '{port}': the two cannot be \
                 specified together."
            )));
        }
        return Ok(PortRequest { network: None, port: Some(id), fixed_ip: None, tag });
    }
    let network = text("uuid").unwrap_or_default();
    let id = parse_uuid_like(network).ok_or_else(|| {
        Refusal::bad_request(format!(
            "Bad networks format: network uuid is not in proper format ({})",
            network.escape_debug()
        ))
    })?;
    Ok(PortRequest { network: Some(id), port: None, fixed_ip, tag })
}
