//! The body of `POST /servers` as a type. All checks that need no database are done here.
//!
//! The body has already passed the schema. The order of the checks is visible to clients and must not
//! change.

use std::collections::{BTreeMap, HashSet};

use kilonova_access::Caller;
use kilonova_compute_app::ports::NetworkRequest;
use kilonova_compute_app::volumes::{self, request::WantedDisks};
use kilonova_compute_app::{Compute, microversions, user_data};
use kilonova_compute_db::servers::SchedulerHints;
use kilonova_ids::HostName;
use kilonova_node_api::InjectedFile;
use kilonova_wire::{Microversion, Refusal, text};
use serde_json::Value;

use super::super::{metadata, personality, tags};
use super::{generate_password, networks};
use crate::api::input;

/// Maximum number of servers per request.
const MAX_SERVERS: usize = 1000;

/// A request for servers, with names not yet resolved.
#[derive(Debug, Clone)]
pub(super) struct CreateServer {
    /// The server's name; for several servers, the prefix of their names.
    pub name: String,
    pub description: Option<String>,
    /// The id of the flavor.
    pub flavor: String,
    /// The image of a local root disk, and the volumes.
    pub disks: WantedDisks,
    pub key_name: Option<String>,
    pub networks: NetworkRequest,
    /// The names of security groups, without duplicates.
    pub security_groups: Vec<String>,
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
    /// Base64, as sent.
    pub user_data: Option<String>,
    /// The files for the config drive, as sent.
    pub files: Vec<InjectedFile>,
    /// The host name inside the guest.
    pub hostname: String,
    pub config_drive: bool,
    pub destination: Destination,
    /// The scheduler hints.
    pub hints: SchedulerHints,
    /// `accessIPv4` and `accessIPv6` in canonical form; empty if not sent.
    pub access: [String; 2],
    /// `AUTO` or `MANUAL`.
    pub disk_config: String,
    /// The requested password, or a generated one.
    pub admin_password: String,
    pub min_count: usize,
    pub max_count: usize,
    /// True if the answer contains the reservation id instead of the server.
    pub return_reservation_id: bool,
}

/// The requested zone and host.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub zone: Option<String>,
    pub host: Option<HostName>,
    /// True if the host was named as `zone:host`, which skips the scheduler's filters.
    pub forced: bool,
    /// `host` of the body.
    named_host: Option<HostName>,
    /// `hypervisor_hostname` of the body.
    named_node: Option<HostName>,
}

impl CreateServer {
    /// Reads the body.
    ///
    /// # Errors
    /// 400 naming the field; 403 for fields that the policy does not let the caller set.
    pub(super) fn read(
        body: &Value,
        caller: &Caller,
        version: Microversion,
    ) -> Result<Self, Refusal> {
        let server = &body["server"];
        let string = |key: &str| server[key].as_str().map(str::to_owned);
        let name = server["name"].as_str().unwrap_or_default().trim().to_owned();
        text::check_name("name", &name, 255)?;
        let disks = volumes::request::read(server)?;
        let (min_count, max_count) = counts(server)?;
        let encoded = string("user_data");
        if encoded.as_ref().is_some_and(|data| user_data::decode(data).is_err()) {
            return Err(Refusal::bad_request(
                "Invalid input for field/attribute user_data. It is not base64.",
            ));
        }
        let files = personality::read(server)?;
        let metadata = server.get("metadata").map(metadata::parse).transpose()?.unwrap_or_default();
        let destination = Destination::read(server, caller)?;
        let hostname = match string("hostname") {
            Some(_) if max_count > 1 => {
                let why = "Unable to allocate a single hostname to multiple instances";
                return Err(Refusal::bad_request(why));
            }
            Some(hostname) => checked_hostname(hostname, version)?,
            None => hostname_from_name(&name),
        };
        Ok(Self {
            description: string("description"),
            flavor: match &server["flavorRef"] {
                Value::String(id) => id.clone(),
                other => other.to_string(),
            },
            disks,
            key_name: string("key_name"),
            networks: networks::read(server.get("networks"))?,
            security_groups: security_groups(server),
            metadata,
            tags: server.get("tags").map(tags::parse).transpose()?.unwrap_or_default(),
            user_data: encoded,
            files,
            hostname,
            config_drive: input::boolean(&server["config_drive"]),
            destination,
            hints: hints(body),
            access: ["accessIPv4", "accessIPv6"]
                .map(|key| input::canonical_address(string(key).unwrap_or_default())),
            disk_config: string("OS-DCF:diskConfig").unwrap_or_else(|| "MANUAL".into()),
            admin_password: string("adminPass").unwrap_or_else(generate_password),
            min_count,
            max_count,
            return_reservation_id: input::boolean(&server["return_reservation_id"]),
            name,
        })
    }
}

impl Destination {
    /// Reads `availability_zone` (`zone`, or `zone:host` for administrators), `host` and
    /// `hypervisor_hostname`.
    fn read(server: &Value, caller: &Caller) -> Result<Self, Refusal> {
        let named = |key: &str| server[key].as_str().map(HostName::verbatim);
        let (named_host, named_node) = (named("host"), named("hypervisor_hostname"));
        let mut forced = false;
        let mut zone = server["availability_zone"].as_str().map(str::to_owned);
        let mut host = named_host.clone().or(named_node.clone());
        if let Some((name, rest)) = zone.clone().as_deref().and_then(|zone| zone.split_once(':')) {
            let in_zone = rest.split(':').find(|part| !part.is_empty()).map(HostName::verbatim);
            forced = in_zone.is_some();
            host = in_zone.or(host);
            zone = Some(name.to_owned()).filter(|name| !name.is_empty());
        }
        if forced {
            caller.may_own("os_compute_api:servers:create:forced_host")?;
        } else if host.is_some() {
            caller.may_own("compute:servers:create:requested_destination")?;
        }
        Ok(Self { zone, host, forced, named_host, named_node })
    }

    /// Refuses an unknown `host` or `hypervisor_hostname`, and a pair that differs. The scheduler
    /// checks the host of `zone:host`.
    ///
    /// # Errors
    /// 400 naming the host.
    pub(super) fn check(&self, compute: &Compute) -> Result<(), Refusal> {
        let node = self.named_node.as_ref();
        let Some(name) = self.named_host.as_ref().or(node) else { return Ok(()) };
        if compute.fleet.by_name(name).is_some() && node.is_none_or(|node| node == name) {
            return Ok(());
        }
        let name = name.escape_debug();
        Err(Refusal::bad_request(format!("Compute host {name} could not be found.")))
    }
}

/// The scheduler hints under either of their two keys.
fn hints(body: &Value) -> SchedulerHints {
    let keys = ["OS-SCH-HNT:scheduler_hints", "os:scheduler_hints"];
    let sent = keys.iter().find_map(|key| body.get(key)).and_then(Value::as_object);
    sent.cloned().unwrap_or_default().into()
}

/// The names of security groups, without duplicates.
fn security_groups(server: &Value) -> Vec<String> {
    let list = server["security_groups"].as_array().into_iter().flatten();
    let mut seen = HashSet::new();
    let names = list.filter_map(|group| group["name"].as_str());
    names.filter(|name| seen.insert(*name)).map(str::to_owned).collect()
}

/// The minimum and the maximum number of servers.
fn counts(server: &Value) -> Result<(usize, usize), Refusal> {
    let read = |key: &str| -> Result<Option<usize>, Refusal> {
        let value = match &server[key] {
            Value::Null => return Ok(None),
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        match value.and_then(|n| usize::try_from(n).ok()) {
            Some(n) if (1..=MAX_SERVERS).contains(&n) => Ok(Some(n)),
            _ => Err(Refusal::bad_request(format!(
                "Invalid input for field/attribute {key}. Value: {}. It must be 1 to {MAX_SERVERS}.",
                server[key]
            ))),
        }
    };
    let min = read("min_count")?.unwrap_or(1);
    let max = read("max_count")?.unwrap_or(min);
    if min > max {
        return Err(Refusal::bad_request("min_count must be <= max_count"));
    }
    Ok((min, max))
}

fn checked_hostname(name: String, version: Microversion) -> Result<String, Refusal> {
    let dots = version >= microversions::FQDN_HOSTNAME;
    let is_valid = name.len() <= if dots { 255 } else { 63 }
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || (dots && c == '.'))
        && !name.starts_with(['-', '.']);
    if is_valid {
        return Ok(name);
    }
    Err(Refusal::bad_request(format!(
        "Invalid input for field/attribute hostname. Value: {}. It is not a host name.",
        name.escape_debug()
    )))
}

/// The host name that Nova derives from the display name (`utils.sanitize_hostname`); empty if the
/// name contains no character that is valid in a host name.
fn hostname_from_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if matches!(c, ' ' | '_' | '.') { '-' } else { c.to_ascii_lowercase() })
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(63)
        .collect();
    plain.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_maximum_count_defaults_to_the_minimum() {
        assert_eq!(counts(&json!({})).ok(), Some((1, 1)));
        assert_eq!(counts(&json!({"min_count": "3"})).ok(), Some((3, 3)));
        assert_eq!(counts(&json!({"max_count": 2})).ok(), Some((1, 2)));
        for server in [json!({"min_count": 0}), json!({"min_count": 3, "max_count": 2})] {
            assert!(counts(&server).is_err(), "{server} is refused");
        }
    }

    #[test]
    fn a_derived_hostname_has_only_valid_characters() {
        for (name, hostname) in [("Web 1", "web-1"), ("_a.b_", "a-b"), ("é", ""), ("  ", "")] {
            assert_eq!(hostname_from_name(name), hostname);
        }
    }
}
