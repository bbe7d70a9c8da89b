//! The parsed `networks` of a request, before any lookup.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, parse_uuid_like};
use kilonova_wire::Refusal;
use serde_json::Value;

/// The requested networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkRequest {
    /// `auto`, or nothing specified.
    #[default]
    Auto,
    /// `none`.
    None,
    /// Specific connections.
    Nics(Vec<NicRequest>),
}

/// One requested connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicRequest {
    /// A new port on this network.
    pub network: Option<NetworkId>,
    /// An existing port.
    pub port: Option<PortId>,
    /// A fixed address.
    pub fixed_ip: Option<IpAddr>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
}

impl NetworkRequest {
    /// Reads `networks` of `POST /servers`.
    ///
    /// # Errors
    /// 400 with Nova's message for inconsistent input.
    pub fn read(value: Option<&Value>) -> Result<Self, Refusal> {
        match value {
            None => Ok(Self::Auto),
            Some(Value::String(word)) if word == "none" => Ok(Self::None),
            Some(Value::String(_)) => Ok(Self::Auto),
            Some(value) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                if list.is_empty() {
                    return Ok(Self::Auto);
                }
                Ok(Self::Nics(list.iter().map(NicRequest::read).collect::<Result<_, _>>()?))
            }
        }
    }
}

impl NicRequest {
    fn read(value: &Value) -> Result<Self, Refusal> {
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
            return Ok(Self { network: None, port: Some(id), fixed_ip: None, tag });
        }
        let network = text("uuid").unwrap_or_default();
        let id = parse_uuid_like(network).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Bad networks format: network uuid is not in proper format ({})",
                network.escape_debug()
            ))
        })?;
        Ok(Self { network: Some(id), port: None, fixed_ip, tag })
    }
}

pub(super) fn no_port(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Port id {id} could not be found."))
}

pub(super) fn no_network(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Network {id} could not be found."))
}
