//! `POST /servers`: read, check, resolve every name, then boot.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, StatusCode, header};
use kilonova_access::Caller;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Base, Context, Fault, JsonBody, Microversion, text};
use serde_json::{Value, json};

use super::{metadata, schema, tags};
use crate::api::input;
use crate::app::bitstreams::ImageBitstreams;
use crate::app::boot::{self, BootRequest, ProfileGroups, Profiles};
use crate::app::nics::{self, Nics};
use crate::app::{resolve, server_groups, unsupported};
use crate::db::servers::Spec;
use crate::{Compute, Error, microversions};

/// Servers that one request may ask for.
const MOST: usize = 1000;

pub(super) async fn create(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Response, Fault> {
    schema::check_create(&body, version)?;
    if context.project_id.is_empty() {
        return Err(Fault::forbidden("A server needs a project: use a project-scoped token."));
    }
    with_leave(&body["server"], &context)?;
    let wish = Wish::read(&body, &context, version)?;
    named_host_is_there(&compute, &body["server"])?;
    let service = compute.clone();
    let request = compute.store.read(move |tx| wish.resolve(tx, &service, &context)).await?;
    let by_reservation = truth(&body["server"]["return_reservation_id"]);
    let reservation_id = request.spec.reservation_id.clone();
    let ids = boot::boot(&compute, request).await?;
    if by_reservation {
        return Ok(answer(json!({"reservation_id": reservation_id}), None));
    }
    let Some(id) = ids.first() else {
        return Err(Fault::internal("a boot returned no server"));
    };
    let location = format!("{}/v2.1/servers/{id}", base.0);
    let body = json!({"server": {
        "id": id,
        "links": super::view::links(&base, id),
        "OS-DCF:diskConfig": body["server"].get("OS-DCF:diskConfig").unwrap_or(&json!("MANUAL")),
        "security_groups": shown_groups(&body["server"]),
        "adminPass": body["server"].get("adminPass").cloned().unwrap_or_else(|| password().into()),
    }});
    Ok(answer(body, Some(&location)))
}

/// Refuses what the caller may not ask of a new server.
fn with_leave(server: &Value, caller: &Caller) -> Result<(), Fault> {
    let list = |key: &str| server[key].as_array().is_some_and(|list| !list.is_empty());
    for (rule, is_asked) in [
        (
            "os_compute_api:servers:create:attach_volume",
            list("block_device_mapping") || list("block_device_mapping_v2"),
        ),
        ("os_compute_api:servers:create:attach_network", list("networks")),
        ("os_compute_api:servers:create:trusted_certs", list("trusted_image_certificates")),
    ] {
        if is_asked {
            caller.may_own(rule)?;
        }
    }
    Ok(())
}

fn shown_groups(server: &Value) -> Value {
    let mut names = groups(server);
    if names.is_empty() {
        names.push("default".into());
    }
    names.into_iter().map(|name| json!({"name": name})).collect()
}

fn answer(body: Value, location: Option<&str>) -> Response {
    let mut response = (StatusCode::ACCEPTED, axum::Json(body)).into_response();
    if let Some(value) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

pub(super) fn password() -> String {
    const LETTERS: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    (0..12).map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())])).collect()
}

fn truth(value: &Value) -> bool {
    crate::api::input::boolean(value)
}

/// The body, read and checked as far as that goes without the database.
#[derive(Clone)]
struct Wish {
    flavor: String,
    image: Option<ImageId>,
    key_name: Option<String>,
    networks: nics::Wish,
    groups: Vec<String>,
    request: BootRequest,
}

impl Wish {
    fn read(body: &Value, context: &Caller, version: Microversion) -> Result<Self, Fault> {
        let server = &body["server"];
        let string = |key: &str| server[key].as_str().map(str::to_owned);
        let name = server["name"].as_str().unwrap_or_default().trim().to_owned();
        text::check_name("name", &name, 255)?;
        let image = image(server)?;
        let (min_count, max_count) = counts(server)?;
        let user_data = string("user_data");
        if user_data.as_ref().is_some_and(|data| BASE64_STANDARD.decode(data).is_err()) {
            return Err(Fault::bad_request(
                "Invalid input for field/attribute user_data. It is not base64.",
            ));
        }
        let items = match server.get("metadata") {
            None => Default::default(),
            Some(value) => metadata::parse(value)?,
        };
        metadata::check_count(&items)?;
        let hints = ["OS-SCH-HNT:scheduler_hints", "os:scheduler_hints"];
        let hints = hints.iter().find_map(|key| body.get(key)).cloned().unwrap_or(json!({}));
        let (zone, wanted, forced) = destination(server, context)?;
        let hostname = match string("hostname") {
            Some(hostname) => host_name_asked(hostname, version)?,
            None => host_name_of(&name),
        };
        Ok(Self {
            flavor: match &server["flavorRef"] {
                Value::String(id) => id.clone(),
                other => other.to_string(),
            },
            image,
            key_name: string("key_name"),
            networks: nics::Wish::read(server.get("networks"))?,
            groups: groups(server),
            request: BootRequest {
                project_id: context.project_id.clone(),
                user_id: context.user_id.clone(),
                request_id: context.request_id_text(),
                name,
                description: string("description"),
                spec: Spec {
                    flavor: resolve::unresolved_flavor(),
                    image,
                    image_properties: Default::default(),
                    key_name: string("key_name"),
                    key: None,
                    hostname,
                    config_drive: truth(&server["config_drive"]),
                    user_data,
                    availability_zone: zone,
                    wanted_host: wanted,
                    hints,
                    reservation_id: reservation_id(),
                    launch_index: 0,
                    access: [
                        input::address(string("accessIPv4").unwrap_or_default()),
                        input::address(string("accessIPv6").unwrap_or_default()),
                    ],
                    disk_config: string("OS-DCF:diskConfig").unwrap_or_else(|| "MANUAL".into()),
                    networked: false,
                },
                metadata: items,
                tags: server.get("tags").map(tags::parse).transpose()?.unwrap_or_default(),
                profiles: Profiles::default(),
                nics: Nics::default(),
                forced,
                min_count,
                max_count,
            },
        })
    }

    fn resolve(
        &self,
        tx: &mut Tx<'_>,
        compute: &Compute,
        context: &Context,
    ) -> Result<BootRequest, Error> {
        let mut request = self.request.clone();
        request.spec.flavor = resolve::flavor(tx, context, &self.flavor)?;
        if let Some(image) = self.image {
            request.spec.image_properties =
                resolve::image(tx, compute, context, image, &request.spec.flavor)?;
            request.spec.config_drive |=
                boot::machine::needs_config_drive(&request.spec.image_properties);
        }
        unsupported::flavor(&request.spec.flavor, &request.spec.image_properties)?;
        if let Some(image) = self.image {
            unsupported::image(image, &request.spec.image_properties)?;
        }
        if let Some(name) = &self.key_name {
            request.spec.key = Some(resolve::key_pair(tx, &context.user_id, name)?);
        }
        group(tx, context, &request.spec.hints)?;
        if let Some(name) = request.spec.flavor.extra_specs.get("accel:device_profile") {
            request.profiles.flavor = Some(profile(tx, name)?);
        }
        let count = request.max_count;
        let (networks, groups) = (&self.networks, &self.groups);
        request.nics = nics::resolve(tx, &compute.policy, context, networks, groups, count)?;
        request.profiles.ports = request.nics.profiles();
        for profile in &request.profiles.ports {
            kilonova_accelerator::ledger::orders::check(
                tx,
                Some(&ImageBitstreams),
                &profile.groups,
            )?;
        }
        Ok(request)
    }
}

/// The hint `group` must name a server group that the caller may see.
fn group(tx: &mut Tx<'_>, context: &Context, hints: &Value) -> Result<(), Error> {
    let Some(named) = hints.get("group") else { return Ok(()) };
    let id = named.as_str().unwrap_or_default();
    match server_groups::find(tx, context, id) {
        Ok(_) => Ok(()),
        Err(Error::Refused(fault)) => Err(Fault::bad_request(fault.message).into()),
        Err(error) => Err(error),
    }
}

fn profile(tx: &mut Tx<'_>, name: &str) -> Result<ProfileGroups, Error> {
    use kilonova_accelerator::ledger;
    match ledger::profile_by_name(tx, name)? {
        Some(profile) => {
            ledger::orders::check(tx, Some(&ImageBitstreams), &profile.groups)?;
            Ok(ProfileGroups { id: profile.id, groups: profile.groups, port: None })
        }
        None => Err(Fault::bad_request(format!(
            "Device profile name {name}: Expected 1 device profile but got nothing."
        ))
        .into()),
    }
}

/// Names of security groups, each once.
fn groups(server: &Value) -> Vec<String> {
    let list = server["security_groups"].as_array().into_iter().flatten();
    let mut names: Vec<String> = Vec::new();
    for name in list.filter_map(|group| group["name"].as_str()) {
        if !names.iter().any(|have| have == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The image, named by `imageRef`, by one boot entry of `block_device_mapping_v2`, or by both.
fn image(server: &Value) -> Result<Option<ImageId>, Fault> {
    let parse = |text: &str| {
        parse_uuid_like(text).ok_or_else(|| {
            Fault::bad_request(format!(
                "Invalid imageRef provided: {} is not a uuid.",
                text.escape_debug()
            ))
        })
    };
    let named = match server["imageRef"].as_str() {
        None | Some("") => None,
        Some(text) => Some(parse(text)?),
    };
    if server.get("block_device_mapping").and_then(Value::as_array).is_some_and(|m| !m.is_empty()) {
        return Err(Fault::bad_request(
            "block_device_mapping is not supported: there are no volumes here. Boot from an image.",
        ));
    }
    let mut found = named;
    for entry in server["block_device_mapping_v2"].as_array().into_iter().flatten() {
        if entry["source_type"] != "image" || entry["destination_type"] != "local" {
            return Err(Fault::bad_request(format!(
                "Block Device Mapping is Invalid: source {} to destination {} is not supported, there \
                 are no volumes here. Boot from an image to a local disk.",
                entry["source_type"], entry["destination_type"]
            )));
        }
        let image = parse(entry["uuid"].as_str().unwrap_or_default())?;
        if found.is_some_and(|have| have != image) {
            return Err(Fault::bad_request(
                "Block Device Mapping is Invalid: The image of the boot device is not imageRef.",
            ));
        }
        found = Some(image);
    }
    if found.is_none() {
        return Err(Fault::bad_request("Invalid imageRef provided: a server boots from an image."));
    }
    Ok(found)
}

fn counts(server: &Value) -> Result<(usize, usize), Fault> {
    let read = |key: &str| -> Result<Option<usize>, Fault> {
        let value = match &server[key] {
            Value::Null => return Ok(None),
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        match value.and_then(|n| usize::try_from(n).ok()) {
            Some(n) if (1..=MOST).contains(&n) => Ok(Some(n)),
            _ => Err(Fault::bad_request(format!(
                "Invalid input for field/attribute {key}. Value: {}. It must be 1 to {MOST}.",
                server[key]
            ))),
        }
    };
    let min = read("min_count")?.unwrap_or(1);
    let max = read("max_count")?.unwrap_or(min);
    if min > max {
        return Err(Fault::bad_request("min_count must be <= max_count"));
    }
    Ok((min, max))
}

/// `zone`, or for admins `zone:host`, which filters do not keep out; `host` and
/// `hypervisor_hostname` for admins.
fn destination(
    server: &Value,
    caller: &Caller,
) -> Result<(Option<String>, Option<String>, bool), Fault> {
    let mut forced = false;
    let mut zone = server["availability_zone"].as_str().map(str::to_owned);
    let mut host =
        server["host"].as_str().or(server["hypervisor_hostname"].as_str()).map(str::to_owned);
    if let Some((name, rest)) = zone.clone().as_deref().and_then(|zone| zone.split_once(':')) {
        let named = rest.split(':').find(|part| !part.is_empty()).map(str::to_owned);
        forced = named.is_some();
        host = named.or(host);
        zone = Some(name.to_owned()).filter(|name| !name.is_empty());
    }
    if forced {
        caller.may_own("os_compute_api:servers:create:forced_host")?;
    } else if host.is_some() {
        caller.may_own("compute:servers:create:requested_destination")?;
    }
    Ok((zone, host, forced))
}

/// Refuses a `host` or `hypervisor_hostname` that is not there, or two that are not one. A host after a
/// zone's name is the scheduler's business.
fn named_host_is_there(compute: &Compute, server: &Value) -> Result<(), Fault> {
    let (host, node) = (server["host"].as_str(), server["hypervisor_hostname"].as_str());
    let Some(name) = host.or(node) else { return Ok(()) };
    if compute.fleet.by_name(name).is_some() && node.is_none_or(|node| node == name) {
        return Ok(());
    }
    let name = name.escape_debug();
    Err(Fault::bad_request(format!("Compute host {name} could not be found.")))
}

fn host_name_asked(name: String, version: Microversion) -> Result<String, Fault> {
    let dots = version >= microversions::FQDN_HOSTNAME;
    let good = name.len() <= if dots { 255 } else { 63 }
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || (dots && c == '.'))
        && !name.starts_with(['-', '.']);
    if good {
        return Ok(name);
    }
    Err(Fault::bad_request(format!(
        "Invalid input for field/attribute hostname. Value: {}. It is no host name.",
        name.escape_debug()
    )))
}

/// Nova makes the host name from the display name (`utils.sanitize_hostname`).
fn host_name_of(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if matches!(c, ' ' | '_' | '.') { '-' } else { c.to_ascii_lowercase() })
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(63)
        .collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "server".into() } else { plain.to_owned() }
}

fn reservation_id() -> String {
    const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let tail: String =
        (0..8).map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())])).collect();
    format!("r-{tail}")
}
