//! `/security-groups`: the project's security groups and their rules.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::StatusCode;
use kilonova_wire::query::{Query, escaped};
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::{Fields, Form};
use super::listing::Rows;
use super::removal::Removal;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::texts;
use crate::views::groups as page;

const GROUPS: &str = "/network/v2.0/security-groups";
const RULES: &str = "/network/v2.0/security-group-rules";
const CREATE: &str = "create_security_group";
const DELETE: &str = "delete_security_group";
const ADD_RULE: &str = "create_security_group_rule";
const REMOVE_RULE: &str = "delete_security_group_rule";

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/security-groups", get(list))
        .route("/new/security-group", get(new).post(create))
        .route("/security-groups/{id}", get(show))
        .route("/security-groups/{id}/delete", get(ask).post(remove))
        .route("/security-groups/{id}/rules", post(add_rule))
        .route("/security-groups/{id}/rules/{rule}/delete", post(remove_rule))
}

/// True if the rule lets the user act on a security group of a project, or on the group's rules.
fn may(dashboard: &Dashboard, viewer: &Viewer, rule: &str, project: &str) -> bool {
    let target = [
        ("project_id", project),
        ("tenant_id", project),
        ("security_group:project_id", project),
        ("shared", "False"),
    ];
    dashboard.0.policies.network.allows(&viewer.context, rule, &target)
}

/// The project of a group.
fn owner(group: &Value) -> &str {
    group["project_id"].as_str().unwrap_or_default()
}

async fn find(dashboard: &Dashboard, viewer: &Viewer, id: &str) -> Result<Value, Error> {
    let path = format!("{GROUPS}/{}", escaped(id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(found["security_group"].take())
}

async fn list(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let project = escaped(&viewer.session.project);
    let sorted = "sort_key=name&sort_dir=asc&sort_key=id&sort_dir=asc";
    let path = format!("{GROUPS}?project_id={project}&{sorted}");
    let rows = Rows::read(&dashboard, &viewer, &path, "security_groups", &query).await?;
    let creates = may(&dashboard, &viewer, CREATE, &viewer.session.project);
    Ok(Html(page::list(&viewer.session, &rows, creates)))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    shown(&dashboard, &viewer, &id, &Fields(Query::default()), (StatusCode::OK, None)).await
}

async fn shown(
    dashboard: &Dashboard,
    viewer: &Viewer,
    id: &str,
    typed: &Fields,
    (status, refused): (StatusCode, Option<&str>),
) -> Result<Response, Refusal> {
    let group = find(dashboard, viewer, id).await?;
    let allows = |rule: &str| may(dashboard, viewer, rule, owner(&group));
    // The default group has no button: Neutron creates it again when the project next uses groups.
    let deletes = allows(DELETE) && group["name"] != "default";
    let page = page::page(&page::Shown {
        session: &viewer.session,
        group: &group,
        deletes,
        adds: allows(ADD_RULE),
        removes: allows(REMOVE_RULE),
        typed: &|name| typed.raw(name).to_owned(),
        refused,
    });
    Ok((status, Html(page)).into_response())
}

async fn new(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Response, Refusal> {
    if !may(&dashboard, &viewer, CREATE, &viewer.session.project) {
        return Err(forbidden(&dashboard.0.policies.network, CREATE));
    }
    Ok(form(&viewer, &Fields(Query::default()), (StatusCode::OK, None)))
}

fn form(
    viewer: &Viewer,
    typed: &Fields,
    (status, refused): (StatusCode, Option<&str>),
) -> Response {
    let typed = |name: &str| typed.raw(name).to_owned();
    (status, Html(page::form(&viewer.session, &typed, refused))).into_response()
}

async fn create(State(dashboard): State<Dashboard>, form_: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form_;
    let text = |name: &str| fields.text(name).unwrap_or_default();
    let body =
        json!({"security_group": {"name": text("name"), "description": text("description")}});
    match dashboard.0.cloud.post(&viewer.caller, GROUPS, body).await {
        Ok(made) => {
            let id = made["security_group"]["id"].as_str().unwrap_or_default();
            Ok(Redirect::to(&format!("{PATH}/security-groups/{}", escaped(id))).into_response())
        }
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            Ok(form(&viewer, &fields, (status, Some(&why))))
        }
    }
}

/// True for a rule whose ports are a type and a code of ICMP.
pub(crate) fn is_icmp(rule: &Value) -> bool {
    matches!(rule["protocol"].as_str(), Some("icmp" | "icmpv6" | "ipv6-icmp" | "1" | "58"))
}

/// The body of a new rule.
fn rule(group: &str, fields: &Fields) -> Result<Value, &'static str> {
    let mut rule = json!({
        "security_group_id": group,
        "direction": fields.text("direction").unwrap_or("ingress"),
        "ethertype": fields.text("ethertype").unwrap_or("IPv4"),
        "description": fields.text("description").unwrap_or_default(),
    });
    if let Some(protocol) = fields.text("protocol") {
        rule["protocol"] = protocol.into();
    }
    if let Some(ports) = fields.text("ports") {
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| texts::PORTS_WRONG);
        let (first, last) = match ports.split_once('-') {
            Some((first, last)) => (first, Some(last)),
            // A single port is a range of one, but an ICMP type without a code includes every code.
            None if is_icmp(&rule) => (ports, None),
            None => (ports, Some(ports)),
        };
        rule["port_range_min"] = number(first)?.into();
        if let Some(last) = last {
            rule["port_range_max"] = number(last)?.into();
        }
    }
    match fields.text("remote") {
        Some("self") => rule["remote_group_id"] = group.into(),
        Some(prefix) => rule["remote_ip_prefix"] = prefix.into(),
        None => {}
    }
    Ok(json!({"security_group_rule": rule}))
}

async fn add_rule(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let refused = match rule(&id, &fields) {
        Err(why) => (StatusCode::BAD_REQUEST, why.to_owned()),
        Ok(body) => match dashboard.0.cloud.post(&viewer.caller, RULES, body).await {
            Ok(_) => return Ok(back(&id)),
            Err(error) => refusal_for_form(error)?,
        },
    };
    let (status, why) = refused;
    shown(&dashboard, &viewer, &id, &fields, (status, Some(&why))).await
}

fn back(id: &str) -> Response {
    Redirect::to(&format!("{PATH}/security-groups/{}", escaped(id))).into_response()
}

async fn remove_rule(
    State(dashboard): State<Dashboard>,
    Path((id, rule)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let path = format!("{RULES}/{}", escaped(&rule));
    match dashboard.0.cloud.delete(&viewer.caller, &path).await {
        Ok(()) => Ok(back(&id)),
        Err(error) => {
            let (status, why) = refusal_for_form(error)?;
            shown(&dashboard, &viewer, &id, &fields, (status, Some(&why))).await
        }
    }
}

fn removal(id: &str, group: &Value) -> Removal {
    let name = group["name"].as_str().unwrap_or_default().to_owned();
    let id = escaped(id);
    Removal {
        name,
        loses: texts::GROUP_LOSES,
        path: format!("{GROUPS}/{id}"),
        here: format!("{PATH}/security-groups/{id}/delete"),
        back: format!("{PATH}/security-groups/{id}"),
        list: format!("{PATH}/security-groups"),
    }
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let group = find(&dashboard, &viewer, &id).await?;
    if !may(&dashboard, &viewer, DELETE, owner(&group)) {
        return Err(forbidden(&dashboard.0.policies.network, DELETE));
    }
    Ok(removal(&id, &group).ask(&viewer))
}

async fn remove(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    Form { viewer, .. }: Form,
) -> Result<Response, Refusal> {
    let group = find(&dashboard, &viewer, &id).await?;
    removal(&id, &group).perform(&dashboard, &viewer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_rule() {
        let of = |form: &str| rule("g", &Fields(Query::parse(form)));
        let made = of("protocol=tcp&ports=80-90&remote=192.0.2.0%2F24").expect("it is whole");
        assert_eq!(
            made["security_group_rule"],
            json!({"security_group_id": "g", "direction": "ingress", "ethertype": "IPv4",
                "description": "", "protocol": "tcp", "port_range_min": 80, "port_range_max": 90,
                "remote_ip_prefix": "192.0.2.0/24"})
        );
        let made = of("direction=egress&ports=22&protocol=tcp&remote=self").expect("it is whole");
        let made = &made["security_group_rule"];
        assert_eq!((&made["port_range_min"], &made["port_range_max"]), (&json!(22), &json!(22)));
        assert_eq!(made["remote_group_id"], "g");
        for (ports, code) in [("8", Value::Null), ("8-0", json!(0)), ("8-8", json!(8))] {
            for protocol in ["icmp", "icmpv6", "ipv6-icmp"] {
                let made = of(&format!("protocol={protocol}&ports={ports}")).expect("it is whole");
                let made = &made["security_group_rule"];
                assert_eq!((&made["port_range_min"], &made["port_range_max"]), (&json!(8), &code));
            }
        }
        for wrong in ["ports=ssh", "ports=1-", "ports=65536", "ports=-1"] {
            assert_eq!(of(wrong), Err(texts::PORTS_WRONG), "{wrong}");
        }
    }
}
