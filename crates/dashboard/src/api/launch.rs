//! `/launch`: the form of new servers; `/launch/room`: whether they fit now, before the user requests them.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal, forbidden};
use super::form::{Fields, Form};
use super::server::part;
use super::servers::{LAUNCH_RULE, may_launch};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::texts;
use crate::views::launch as page;

/// The limit of user data: Nova's limit is 65,535 bytes in base64.
const USER_DATA: usize = 48 * 1024;
/// Maximum number of servers in one form.
pub(crate) const MOST_SERVERS: u64 = 100;
/// Maximum number of other flavors that are counted if the requested one does not fit.
const TRIED: usize = 8;
/// Maximum number of images that the form offers.
const IMAGES: usize = 200;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/launch", get(show).post(create)).route("/launch/room", get(room))
}

/// A list in an answer; empty if the user may not read it.
pub(super) async fn listed(
    dashboard: &Dashboard,
    viewer: &Viewer,
    path: &str,
    key: &str,
) -> Result<Vec<Value>, Error> {
    let mut all = match dashboard.0.cloud.get(&viewer.caller, path).await {
        Ok(all) => all,
        // A role may lack one of the lists; the form then lacks that field.
        Err(error) if error.is(403) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(match all[key].take() {
        Value::Array(found) => found,
        _ => Vec::new(),
    })
}

/// The flavors that the user may use, the smallest first.
pub(super) async fn flavors(dashboard: &Dashboard, viewer: &Viewer) -> Result<Vec<Value>, Error> {
    let path = "/compute/v2.1/flavors/detail?sort_key=memory_mb";
    let mut flavors = listed(dashboard, viewer, path, "flavors").await?;
    flavors.sort_by_key(|flavor| {
        let number = |key: &str| flavor[key].as_i64().unwrap_or_default();
        (number("ram"), number("vcpus"), flavor["name"].as_str().unwrap_or_default().to_owned())
    });
    Ok(flavors)
}

/// The images that the form offers, and true if there are more. The image `wanted` is included if it is active.
async fn images(
    dashboard: &Dashboard,
    viewer: &Viewer,
    wanted: Option<&str>,
) -> Result<(Vec<Value>, bool), Error> {
    let ready = "/image/v2/images?status=active&sort_key=name&sort_dir=asc";
    let path = format!("{ready}&limit={}", IMAGES + 1);
    let (mut images, more) = cut(listed(dashboard, viewer, &path, "images").await?);
    let Some(id) = wanted.filter(|id| more && !images.iter().any(|image| image["id"] == *id))
    else {
        return Ok((images, more));
    };
    let image = part(dashboard, viewer, &format!("/image/v2/images/{}", escaped(id))).await?;
    if image["status"] == "active" {
        images.insert(0, image);
    }
    Ok((images, more))
}

/// The images of a form, and true if there are more.
fn cut(mut images: Vec<Value>) -> (Vec<Value>, bool) {
    let more = images.len() > IMAGES;
    images.truncate(IMAGES);
    (images, more)
}

/// The choices of the form.
async fn choices(
    dashboard: &Dashboard,
    viewer: &Viewer,
    typed: &Fields,
) -> Result<page::Choices, Error> {
    let (images, more_images) = images(dashboard, viewer, typed.text("image")).await?;
    let project = escaped(&viewer.session.project);
    let groups = format!("/network/v2.0/security-groups?project_id={project}");
    Ok(page::Choices {
        flavors: flavors(dashboard, viewer).await?,
        images,
        more_images,
        networks: networks(dashboard, viewer).await?,
        keys: listed(dashboard, viewer, "/compute/v2.1/os-keypairs", "keypairs").await?,
        groups: listed(dashboard, viewer, &groups, "security_groups").await?,
        server_groups: listed(dashboard, viewer, "/compute/v2.1/os-server-groups", "server_groups")
            .await?,
    })
}

/// The networks to which the project's servers may be connected: its own and the shared ones.
pub(super) async fn networks(dashboard: &Dashboard, viewer: &Viewer) -> Result<Vec<Value>, Error> {
    let mut all = listed(dashboard, viewer, "/network/v2.0/networks", "networks").await?;
    all.retain(|network| {
        network["project_id"] == viewer.session.project.as_str() || network["shared"] == true
    });
    Ok(all)
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refusal> {
    if !may_launch(&dashboard, &viewer) {
        return Err(forbidden(&dashboard.0.compute.policy, LAUNCH_RULE));
    }
    let typed = Fields(query);
    form(&dashboard, &viewer, &typed, StatusCode::OK, None).await
}

async fn form(
    dashboard: &Dashboard,
    viewer: &Viewer,
    typed: &Fields,
    status: StatusCode,
    refused: Option<&str>,
) -> Result<Response, Refusal> {
    let choices = choices(dashboard, viewer, typed).await?;
    let flavor = typed.text("flavor").map(str::to_owned).or_else(|| {
        choices.flavors.first().and_then(|flavor| flavor["id"].as_str()).map(str::to_owned)
    });
    let room = match &flavor {
        Some(flavor) => Some(fits(dashboard, viewer, flavor, count(typed)).await?),
        None => None,
    };
    let shown = page::Shown {
        session: &viewer.session,
        choices: &choices,
        typed: &|name| typed.raw(name).to_owned(),
        chosen: &|name, value| typed.0.all(name).any(|one| one == value),
        flavor: flavor.as_deref().unwrap_or_default(),
        room: room.as_ref(),
        refused,
    };
    Ok((status, Html(page::page(&shown))).into_response())
}

fn count(typed: &Fields) -> u64 {
    let count = typed.text("count").and_then(|count| count.parse().ok());
    count.unwrap_or(1).clamp(1, MOST_SERVERS)
}

/// How many servers of a flavor fit now, as the compute service answers; `None` if it cannot be counted.
async fn room_for(
    dashboard: &Dashboard,
    viewer: &Viewer,
    flavor: &str,
) -> Result<Option<Value>, Error> {
    let path = format!("/compute/v2.1/kilonova/room?flavor={}", escaped(flavor));
    match dashboard.0.cloud.get(&viewer.caller, &path).await {
        Ok(mut answer) => Ok(Some(answer["room"].take())),
        // The count is not allowed or too busy, or the flavor is gone; the launch itself decides.
        Err(Error::Refused { status: 403 | 404 | 503, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The room for servers of a flavor, as the form shows it.
async fn fits(
    dashboard: &Dashboard,
    viewer: &Viewer,
    flavor: &str,
    wanted: u64,
) -> Result<page::Room, Error> {
    let Some(room) = room_for(dashboard, viewer, flavor).await? else {
        return Ok(page::Room::Unknown);
    };
    let reason = room["reason"].as_str().map(str::to_owned);
    Ok(match (room["servers"].as_u64(), room["hosts"].as_u64()) {
        (Some(0), _) => {
            page::Room::None { reason, instead: instead(dashboard, viewer, flavor, wanted).await? }
        }
        (Some(servers), Some(hosts)) if servers < wanted => page::Room::Short { servers, hosts },
        (Some(servers), Some(hosts)) => page::Room::Enough { servers, hosts },
        _ => page::Room::Unknown,
    })
}

/// The resource classes of each device profile that the user may see.
async fn profiles(
    dashboard: &Dashboard,
    viewer: &Viewer,
) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let path = "/accelerator/v2/device_profiles";
    let found = match listed(dashboard, viewer, path, "device_profiles").await {
        // The service may not be in this process.
        Err(error) if error.is(404) => Vec::new(),
        found => found?,
    };
    let named = found.iter().filter_map(|profile| {
        let groups = profile["groups"].as_array().into_iter().flatten();
        let keys = groups.filter_map(Value::as_object).flat_map(serde_json::Map::keys);
        let classes = keys.filter_map(|key| key.strip_prefix("resources:"));
        Some((profile["name"].as_str()?.to_owned(), classes.map(str::to_owned).collect()))
    });
    Ok(named.collect())
}

/// The resource classes that a flavor requests beyond processors, memory and disk, directly or by its device profile.
fn special(flavor: &Value, profiles: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let plain = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"];
    let mut classes = BTreeSet::new();
    for (key, value) in flavor["extra_specs"].as_object().into_iter().flatten() {
        if key == "accel:device_profile" {
            let own = value.as_str().and_then(|name| profiles.get(name));
            classes.extend(own.into_iter().flatten().cloned());
        }
        let class = key.strip_prefix("resources").and_then(|rest| rest.rsplit_once(':'));
        let class = class.map(|(_, class)| class).filter(|class| !plain.contains(class));
        classes.extend(class.filter(|_| value != "0").map(str::to_owned));
    }
    classes
}

/// The names of flavors of the same kind with room for as many servers.
async fn instead(
    dashboard: &Dashboard,
    viewer: &Viewer,
    flavor: &str,
    wanted: u64,
) -> Result<Vec<String>, Error> {
    let all = flavors(dashboard, viewer).await?;
    let Some(own) = all.iter().find(|one| one["id"] == flavor) else { return Ok(Vec::new()) };
    let profiles = profiles(dashboard, viewer).await?;
    let own = special(own, &profiles);
    let of_kind = |one: &&Value| {
        let other = special(one, &profiles);
        one["id"] != flavor && (own.is_empty() && other.is_empty() || !own.is_disjoint(&other))
    };
    let mut names = Vec::new();
    for one in all.iter().filter(of_kind).take(TRIED) {
        let id = one["id"].as_str().unwrap_or_default();
        let room = room_for(dashboard, viewer, id).await?;
        if room.is_some_and(|room| room["servers"].as_u64() >= Some(wanted)) {
            names.push(one["name"].as_str().unwrap_or(id).to_owned());
        }
    }
    Ok(names)
}

/// The part of the form that shows whether the servers fit, for the script.
async fn room(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let typed = Fields(query);
    let room = match typed.text("flavor") {
        Some(flavor) => fits(&dashboard, &viewer, flavor, count(&typed)).await?,
        None => page::Room::Unknown,
    };
    Ok(Html(page::room(&room)))
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let body = match body(&fields) {
        Ok(body) => body,
        Err(why) => {
            return form(&dashboard, &viewer, &fields, StatusCode::BAD_REQUEST, Some(why)).await;
        }
    };
    match dashboard.0.cloud.post(&viewer.caller, "/compute/v2.1/servers", body).await {
        Ok(answer) => {
            let to = match (answer["server"]["id"].as_str(), count(&fields)) {
                (Some(id), 1) => format!("{PATH}/servers/{}", escaped(id)),
                _ => format!("{PATH}/servers"),
            };
            Ok(Redirect::to(&to).into_response())
        }
        Err(Error::Refused { status, message, .. }) if (400..500).contains(&status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::CONFLICT);
            form(&dashboard, &viewer, &fields, status, Some(&message)).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The body of `POST /servers`.
fn body(fields: &Fields) -> Result<Value, &'static str> {
    let (Some(name), Some(flavor), Some(image)) =
        (fields.text("name"), fields.text("flavor"), fields.text("image"))
    else {
        return Err(texts::LAUNCH_MISSING);
    };
    let networks: Vec<Value> =
        fields.0.all("network").filter(|id| !id.is_empty()).map(|id| json!({"uuid": id})).collect();
    let networks = if networks.is_empty() { json!("none") } else { json!(networks) };
    let count = count(fields);
    let mut server = json!({
        "name": name,
        "flavorRef": flavor,
        "imageRef": image,
        "networks": networks,
        "min_count": count,
        "max_count": count,
    });
    if let Some(key) = fields.text("key") {
        server["key_name"] = key.into();
    }
    let groups: Vec<Value> = fields
        .0
        .all("group")
        .filter(|name| !name.is_empty())
        .map(|name| json!({"name": name}))
        .collect();
    if !groups.is_empty() && server["networks"] != "none" {
        server["security_groups"] = groups.into();
    }
    let data = fields.raw("user_data");
    if data.len() > USER_DATA {
        return Err(texts::LAUNCH_TOO_MUCH);
    }
    if !data.trim().is_empty() {
        // Browsers send line breaks as CRLF, which programs in guests do not expect.
        server["user_data"] = STANDARD.encode(data.replace("\r\n", "\n")).into();
    }
    let mut body = json!({"server": server});
    if let Some(group) = fields.text("server_group") {
        body["os:scheduler_hints"] = json!({"group": group});
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: &str) -> Result<Value, &'static str> {
        body(&Fields(Query::parse(form)))
    }

    #[test]
    fn a_form_becomes_a_request() {
        let made =
            of("name=+a+&flavor=f&image=i&network=n1&network=n2&count=3&key=k&group=default&\
                       user_data=%23!%2Fbin%2Fsh%0D%0Atrue&server_group=g")
            .expect("it is complete");
        assert_eq!(
            made,
            json!({
                "server": {
                    "name": "a", "flavorRef": "f", "imageRef": "i",
                    "networks": [{"uuid": "n1"}, {"uuid": "n2"}],
                    "min_count": 3, "max_count": 3, "key_name": "k",
                    "security_groups": [{"name": "default"}],
                    "user_data": STANDARD.encode("#!/bin/sh\ntrue"),
                },
                "os:scheduler_hints": {"group": "g"},
            })
        );
    }

    #[test]
    fn flavors_of_a_kind_request_the_same_devices() {
        let profiles = BTreeMap::from([("gpu".to_owned(), vec!["VGPU".to_owned()])]);
        let of = |specs: Value| special(&json!({"extra_specs": specs}), &profiles);
        let own = json!({"resources:VGPU": "2", "resources:VCPU": "1", "hw:cpu_policy": "shared"});
        assert_eq!(of(own), BTreeSet::from(["VGPU".to_owned()]));
        assert_eq!(of(json!({"accel:device_profile": "gpu"})), of(json!({"resources1:VGPU": "1"})));
        assert!(of(json!({"resources:VGPU": "0", "accel:device_profile": "unknown"})).is_empty());
        assert!(special(&json!({}), &profiles).is_empty());
    }

    #[test]
    fn a_server_without_a_network_has_none() {
        let made =
            of("name=a&flavor=f&image=i&network=&group=default&count=999").expect("it is complete");
        assert_eq!(made["server"]["networks"], "none");
        assert!(made["server"].get("security_groups").is_none());
        assert_eq!(made["server"]["min_count"], 100);
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(of("name=&flavor=f&image=i"), Err(texts::LAUNCH_MISSING));
        assert_eq!(of("name=a&flavor=f"), Err(texts::LAUNCH_MISSING));
        let large = format!("name=a&flavor=f&image=i&user_data={}", "x".repeat(USER_DATA + 1));
        assert_eq!(of(&large), Err(texts::LAUNCH_TOO_MUCH));
    }
}
