//! `/networks`: the networks that the project may use, with their subnets and ports.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use http::StatusCode;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::{Fields, Form};
use super::listing::{Rows, elements};
use super::removal::Removal;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::texts;
use crate::views::networks as page;

const NETWORK: &str = "/network/v2.0";
const CREATE: &str = "create_network";
const SHARE: &str = "create_network:shared";
const DELETE: &str = "delete_network";
const ADD_SUBNET: &str = "create_subnet";
const DELETE_SUBNET: &str = "delete_subnet";
const ADD_PORT: &str = "create_port";
const DELETE_PORT: &str = "delete_port";
/// Maximum number of subnets on a network's page.
const SUBNETS: usize = 100;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/networks", get(list))
        .route("/new/network", get(new).post(create))
        .route("/networks/{id}", get(show))
        .route("/networks/{id}/delete", deletion(&A_NETWORK))
        .route("/networks/{id}/subnets", post(add_subnet))
        .route("/networks/{id}/ports", post(add_port))
        .route("/subnets/{id}/delete", deletion(&A_SUBNET))
        .route("/ports/{id}/delete", deletion(&A_PORT))
}

/// True if the policy rule allows the user to act on an object that belongs to a project and a network.
fn may(dashboard: &Dashboard, viewer: &Viewer, rule: &str, project: &str, network: &Value) -> bool {
    may_with_device(dashboard, viewer, rule, project, network, "")
}

fn may_with_device(
    dashboard: &Dashboard,
    viewer: &Viewer,
    rule: &str,
    project: &str,
    network: &Value,
    device_owner: &str,
) -> bool {
    let flag = |key: &str| if network[key] == true { "True" } else { "False" };
    let target = [
        ("project_id", project),
        ("tenant_id", project),
        ("network:project_id", owner(network)),
        ("shared", flag("shared")),
        ("router:external", flag("router:external")),
        ("device_owner", device_owner),
    ];
    dashboard.0.policies.network.allows(&viewer.context, rule, &target)
}

/// The project of an object.
fn owner(object: &Value) -> &str {
    object["project_id"].as_str().unwrap_or_default()
}

/// A network of the user's project that does not exist yet.
fn future(viewer: &Viewer) -> Value {
    json!({"project_id": viewer.session.project, "shared": false, "router:external": false})
}

fn may_create(dashboard: &Dashboard, viewer: &Viewer, rule: &str) -> bool {
    may(dashboard, viewer, rule, &viewer.session.project, &future(viewer))
}

/// An object of the network service.
async fn find(
    dashboard: &Dashboard,
    viewer: &Viewer,
    kind: &str,
    id: &str,
) -> Result<Value, Error> {
    let path = format!("{NETWORK}/{kind}s/{}", escaped(id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(found[kind].take())
}

async fn list(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let path = format!("{NETWORK}/networks?sort_key=name&sort_dir=asc&sort_key=id&sort_dir=asc");
    let rows = Rows::read(&dashboard, &viewer, &path, "networks", &query).await?;
    let creates = may_create(&dashboard, &viewer, CREATE);
    Ok(Html(page::list(&viewer.session, &rows, creates)))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let typed = Fields(Query::default());
    shown(&dashboard, &viewer, &id, &query, (StatusCode::OK, None), &typed).await
}

async fn shown(
    dashboard: &Dashboard,
    viewer: &Viewer,
    id: &str,
    query: &Query,
    (status, refused): (StatusCode, Option<&str>),
    typed: &Fields,
) -> Result<Response, Refusal> {
    let network = find(dashboard, viewer, "network", id).await?;
    let at = escaped(id);
    let subnets = format!("{NETWORK}/subnets?network_id={at}&limit={}", SUBNETS + 1);
    let mut subnets = match dashboard.0.cloud.get(&viewer.caller, &subnets).await {
        Ok(mut body) => elements(&mut body["subnets"])?,
        Err(error) if error.is(403) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let more_subnets = subnets.len() > SUBNETS;
    subnets.truncate(SUBNETS);
    let ports = format!("{NETWORK}/ports?network_id={at}");
    let ports = Rows::read(dashboard, viewer, &ports, "ports", query).await?;
    let own = viewer.session.project.as_str();
    let deletes_port = |port: &Value| {
        // A detached port may still have a server's device owner, which is ignored.
        let free = port["device_id"].as_str().is_none_or(str::is_empty);
        let device = port["device_owner"].as_str().unwrap_or_default();
        let device = if free && device.starts_with("compute:") { "" } else { device };
        free && may_with_device(dashboard, viewer, DELETE_PORT, owner(port), &network, device)
    };
    let deletes_subnet =
        |subnet: &Value| may(dashboard, viewer, DELETE_SUBNET, owner(subnet), &network);
    let page = page::page(&page::Shown {
        session: &viewer.session,
        network: &network,
        subnets: &subnets,
        more_subnets,
        ports: &ports,
        deletes: may(dashboard, viewer, DELETE, owner(&network), &network),
        adds_subnet: may(dashboard, viewer, ADD_SUBNET, own, &network),
        adds_port: may(dashboard, viewer, ADD_PORT, own, &network),
        deletes_subnet: &deletes_subnet,
        deletes_port: &deletes_port,
        typed: &|name| typed.raw(name).to_owned(),
        refused,
    });
    Ok((status, Html(page)).into_response())
}

async fn new(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    if !may_create(&dashboard, &viewer, CREATE) {
        return Err(forbidden(&dashboard.0.policies.network, CREATE));
    }
    Ok(form(&dashboard, &viewer, &Fields(Query::default()), (StatusCode::OK, None)))
}

fn form(
    dashboard: &Dashboard,
    viewer: &Viewer,
    typed: &Fields,
    (status, refused): (StatusCode, Option<&str>),
) -> Response {
    let shares = may_create(dashboard, viewer, SHARE);
    let typed = |name: &str| typed.raw(name).to_owned();
    (status, Html(page::form(&viewer.session, &typed, shares, refused))).into_response()
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let mut network = json!({"name": fields.text("name").unwrap_or_default()});
    if fields.text("shared").is_some() {
        network["shared"] = true.into();
    }
    let (path, body) = (format!("{NETWORK}/networks"), json!({"network": network}));
    match dashboard.0.cloud.post(&viewer.caller, &path, body).await {
        Ok(made) => {
            let id = made["network"]["id"].as_str().unwrap_or_default();
            Ok(Redirect::to(&format!("{PATH}/networks/{}", escaped(id))).into_response())
        }
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            Ok(form(&dashboard, &viewer, &fields, (status, Some(&why))))
        }
    }
}

/// The body of a request for a subnet. If it names no gateway, the service uses the subnet's first address.
fn subnet(network: &str, fields: &Fields) -> Result<Value, &'static str> {
    let cidr = fields.text("cidr").ok_or(texts::CIDR_MISSING)?;
    let version = if cidr.contains(':') { 6 } else { 4 };
    let mut subnet = json!({
        "network_id": network,
        "ip_version": version,
        "cidr": cidr,
        "name": fields.text("name").unwrap_or_default(),
        "enable_dhcp": fields.text("dhcp").is_some(),
    });
    match fields.text("gateway") {
        Some("none") => subnet["gateway_ip"] = Value::Null,
        Some(address) => subnet["gateway_ip"] = address.into(),
        None => {}
    }
    let servers =
        fields.raw("dns").split([',', ' ']).map(str::trim).filter(|text| !text.is_empty());
    let servers: Vec<&str> = servers.collect();
    if !servers.is_empty() {
        subnet["dns_nameservers"] = json!(servers);
    }
    Ok(json!({"subnet": subnet}))
}

async fn add_subnet(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let body = match subnet(&id, &fields) {
        Ok(body) => body,
        Err(why) => {
            let refused = (StatusCode::BAD_REQUEST, Some(why));
            return shown(&dashboard, &viewer, &id, &Query::default(), refused, &fields).await;
        }
    };
    add(&dashboard, &viewer, &id, "subnets", body, &fields).await
}

async fn add_port(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let name = fields.text("port_name").unwrap_or_default();
    let body = json!({"port": {"network_id": id, "name": name}});
    add(&dashboard, &viewer, &id, "ports", body, &fields).await
}

/// Adds an object to a network, and shows the network's page afterwards.
async fn add(
    dashboard: &Dashboard,
    viewer: &Viewer,
    id: &str,
    kind: &str,
    body: Value,
    fields: &Fields,
) -> Result<Response, Refusal> {
    match dashboard.0.cloud.post(&viewer.caller, &format!("{NETWORK}/{kind}"), body).await {
        Ok(_) => Ok(Redirect::to(&format!("{PATH}/networks/{}", escaped(id))).into_response()),
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            let refused = (status, Some(why.as_str()));
            shown(dashboard, viewer, id, &Query::default(), refused, fields).await
        }
    }
}

/// A kind of object that is deleted on a page of its own.
struct Kind {
    name: &'static str,
    rule: &'static str,
    loses: &'static str,
}

const A_NETWORK: Kind = Kind { name: "network", rule: DELETE, loses: texts::NETWORK_LOSES };
const A_SUBNET: Kind = Kind { name: "subnet", rule: DELETE_SUBNET, loses: texts::SUBNET_LOSES };
const A_PORT: Kind = Kind { name: "port", rule: DELETE_PORT, loses: texts::PORT_LOSES };

/// The page that asks for confirmation before an object is deleted, and the deletion.
fn deletion(kind: &'static Kind) -> MethodRouter<Dashboard> {
    let ask = async |State(dashboard): State<Dashboard>, viewer: Viewer, Path(id): Path<String>| {
        ask(&dashboard, &viewer, kind, &id).await
    };
    let remove = async |State(dashboard): State<Dashboard>, Path(id): Path<String>, form: Form| {
        remove(&dashboard, &form.viewer, kind, &id).await
    };
    get(ask).post(remove)
}

/// The deletion of an object. After the deletion of a subnet or a port, the user returns to its network.
fn removal(kind: &Kind, id: &str, object: &Value) -> Removal {
    let Kind { name: kind, loses, .. } = kind;
    let name = object["name"].as_str().filter(|name| !name.is_empty());
    let name = name.or(object["cidr"].as_str()).unwrap_or(id).to_owned();
    let id = escaped(id);
    let network = object["network_id"].as_str().map(escaped);
    let back = format!("{PATH}/networks/{}", network.as_ref().unwrap_or(&id));
    let list = if network.is_some() { back.clone() } else { format!("{PATH}/networks") };
    let path = format!("{NETWORK}/{kind}s/{id}");
    Removal { name, loses, path, here: format!("{PATH}/{kind}s/{id}/delete"), back, list }
}

async fn ask(
    dashboard: &Dashboard,
    viewer: &Viewer,
    kind: &Kind,
    id: &str,
) -> Result<Response, Refusal> {
    let object = find(dashboard, viewer, kind.name, id).await?;
    // The policy also considers the network of a subnet or a port.
    let network = match object["network_id"].as_str() {
        Some(network) => &find(dashboard, viewer, "network", network).await?,
        None => &object,
    };
    if !may(dashboard, viewer, kind.rule, owner(&object), network) {
        return Err(forbidden(&dashboard.0.policies.network, kind.rule));
    }
    Ok(removal(kind, id, &object).ask(viewer))
}

async fn remove(
    dashboard: &Dashboard,
    viewer: &Viewer,
    kind: &Kind,
    id: &str,
) -> Result<Response, Refusal> {
    let object = find(dashboard, viewer, kind.name, id).await?;
    removal(kind, id, &object).perform(dashboard, viewer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_subnet() {
        let of = |form: &str| subnet("n", &Fields(Query::parse(form)));
        let made = of("cidr=192.0.2.0%2F24&dhcp=1&dns=192.0.2.2,+192.0.2.3").expect("it is whole");
        assert_eq!(
            made["subnet"],
            json!({"network_id": "n", "ip_version": 4, "cidr": "192.0.2.0/24", "name": "",
                "enable_dhcp": true, "dns_nameservers": ["192.0.2.2", "192.0.2.3"]})
        );
        let made = of("cidr=2001:db8::/64&gateway=none").expect("it is whole");
        assert_eq!(made["subnet"]["ip_version"], 6);
        assert_eq!(made["subnet"].get("gateway_ip"), Some(&Value::Null));
        assert_eq!(of("name=x"), Err(texts::CIDR_MISSING));
    }
}
