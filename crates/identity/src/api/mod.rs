//! HTTP handlers: one file per resource, with its routes, requests and views.
//!
//! Upstream's rule table ([`RULES`]) controls access. All resources belong to the one domain, so
//! the domain attributes of policy targets are constant.

mod auth_request;
mod authenticator;
mod catalog;
mod credentials;
mod domains;
mod ec2;
mod endpoints;
mod grants;
mod groups;
mod implied;
mod isotime;
mod limits;
mod projects;
mod regions;
mod registered_limits;
mod role_assignments;
mod roles;
mod rules;
mod secrets;
mod services;
mod signed;
mod tags;
mod target;
mod token_view;
mod tokens;
mod trusts;
mod users;
mod versions;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Caller, Operation, Routes};
use kilonova_wire::paging;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Dialect, Fault, JsonBody, Refusal, Service};
use serde_json::{Value, json};

use crate::app::Fields;
use crate::{DOMAIN_ID, Error, Identity};

pub use rules::RULES;

/// The routes with their rules.
fn table() -> Routes<Identity> {
    Routes::new()
        .merge(versions::routes())
        .merge(tokens::routes())
        .merge(catalog::routes())
        .merge(services::routes())
        .merge(endpoints::routes())
        .merge(regions::routes())
        .merge(domains::routes())
        .merge(projects::routes())
        .merge(tags::routes())
        .merge(users::routes())
        .merge(groups::routes())
        .merge(roles::routes())
        .merge(implied::routes())
        .merge(grants::routes())
        .merge(role_assignments::routes())
        .merge(credentials::routes())
        .merge(secrets::routes())
        .merge(ec2::routes())
        .merge(signed::routes())
        .merge(trusts::routes())
        .merge(registered_limits::routes())
        .merge(limits::routes())
}

/// The routes, relative to the mount point.
pub fn routes(identity: Identity) -> Router {
    table()
        .behind(identity.policy())
        .layer(middleware::from_fn_with_state(identity.clone(), tokens::admit))
        .with_state(identity)
}

/// The operations and their rules.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// The service description for [`kilonova_wire::mount`].
pub fn service() -> Service {
    Service { name: "identity", dialect: Dialect::Identity, versions: None, public }
}

/// `/v3/auth/tokens` checks tokens itself, because a login has none. A change of one's own password needs none either.
fn public(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    matches!(path, "" | "/v3" | tokens::PATH) || users::is_password(path)
}

/// The result of every handler. A 401 has a header with the login's URL.
type Answer = Result<Response, Fault>;

fn ok(body: Value) -> Answer {
    Ok(axum::Json(body).into_response())
}

fn created(body: Value) -> Answer {
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Domain attributes of every policy target.
const DOMAIN_ATTRIBUTES: [(&str, &str); 6] = [
    ("target.domain_id", DOMAIN_ID),
    ("target.domain.id", DOMAIN_ID),
    ("target.user.domain_id", DOMAIN_ID),
    ("target.group.domain_id", DOMAIN_ID),
    ("target.project.domain_id", DOMAIN_ID),
    ("target.role.domain_id", "None"),
];

/// Enforces a rule. Handlers call this before they report a missing object, so that a refusal does not
/// reveal whether the target exists.
fn may(caller: &Caller, rule: &str, target: &[(&str, &str)]) -> Result<(), Refusal> {
    let target: Vec<(&str, &str)> = DOMAIN_ATTRIBUTES.iter().chain(target).copied().collect();
    caller.may(rule, &target)
}

/// True if a rule allows the caller to act on the target.
fn allows(caller: &Caller, rule: &str, target: &[(&str, &str)]) -> bool {
    let target: Vec<(&str, &str)> = DOMAIN_ATTRIBUTES.iter().chain(target).copied().collect();
    caller.allows(rule, &target)
}

/// The object under `key` in a body.
fn fields(body: JsonBody, key: &str) -> Result<Fields, Refusal> {
    match body.0 {
        Value::Object(mut outer) => match outer.remove(key) {
            Some(Value::Object(fields)) => Ok(fields),
            _ => Err(Refusal::bad_request(format!("Expecting to find {key} in request body."))),
        },
        _ => Err(Refusal::bad_request("The request body must be an object.")),
    }
}

/// The object under `key` in the body of an update, whose id cannot change (`_require_matching_id` of
/// `keystone/server/flask/common.py`).
fn changes(body: JsonBody, key: &str, id: &str) -> Result<Fields, Refusal> {
    let fields = fields(body, key)?;
    match fields.get("id") {
        Some(other) if !other.is_null() && other != id => {
            Err(Refusal::bad_request("Cannot change ID"))
        }
        _ => Ok(fields),
    }
}

/// Refuses a path segment that cannot be an id: ids have no control characters.
fn id_of(kind: &'static str, segment: &str) -> Result<(), Refusal> {
    if segment.chars().any(char::is_control) {
        return Err(Error::NotFound(kind, segment.escape_debug().to_string()).into());
    }
    Ok(())
}

/// The filters common to all lists.
struct ListFilter {
    name: Option<String>,
    enabled: Option<bool>,
    /// True if the filter excludes everything.
    matches_nothing: bool,
}

impl ListFilter {
    fn read(query: &Query) -> Self {
        let name = query.get("name").map(str::to_owned);
        let enabled = query.get("enabled").map(as_boolean);
        let other_domain = query.get("domain_id").is_some_and(|id| id != DOMAIN_ID);
        let invalid_name = name.as_ref().is_some_and(|name| name.chars().any(char::is_control));
        Self { name, enabled, matches_nothing: other_domain || invalid_name }
    }
}

/// The boolean that a filter's text means, as in `attr_as_boolean` of `keystone/common/utils.py`: every text is true
/// except for these words.
fn as_boolean(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    !["0", "f", "false", "n", "no", "off"].contains(&text.as_str())
}

/// True if a view passes the filters `ATTRIBUTE__COMPARATOR` of a query for these attributes, as in
/// `build_driver_hints` and `filter_by_attributes` of `keystone/server/flask/common.py`. A
/// comparator with a leading `i` ignores case. Unknown comparators have no effect, as in
/// upstream. Booleans support only `equals`.
fn resembles(query: &Query, attributes: &[&str], view: &Value) -> bool {
    query.0.iter().all(|(key, wanted)| {
        let Some((attribute, comparator)) = key.split_once("__") else { return true };
        if !attributes.contains(&attribute) {
            return true;
        }
        let (comparator, ignore_case) = match comparator.strip_prefix('i') {
            Some(rest) => (rest, true),
            None => (comparator, false),
        };
        let matches: fn(&str, &str) -> bool = match comparator {
            "contains" => |have, wanted| have.contains(wanted),
            "startswith" => |have, wanted| have.starts_with(wanted),
            "endswith" => |have, wanted| have.ends_with(wanted),
            "equals" => |have, wanted| have == wanted,
            _ => return true,
        };
        let have = match &view[attribute] {
            Value::String(text) => text,
            Value::Bool(value) if comparator == "equals" => return *value == as_boolean(wanted),
            _ => return false,
        };
        match ignore_case {
            true => matches(&have.to_lowercase(), &wanted.to_lowercase()),
            false => matches(have, wanted),
        }
    })
}

/// True if a view has the values that a query requests for these attributes, exactly or by
/// [`resembles`].
fn fits(query: &Query, attributes: &[&str], view: &Value) -> bool {
    attributes.iter().all(|key| query.get(key).is_none_or(|value| view[key] == value))
        && resembles(query, attributes, view)
}

/// True if a query flag is set: present without a value, or with any value but `false` and `0`.
fn flag(query: &Query, key: &str) -> bool {
    query.get(key).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
}

/// `{key: [...], "links": {...}}` for the list at this address. As upstream, the list's link has the query as it was sent
/// (`full_url` in `keystone/server/flask/common.py`).
fn listing(base: &Base, uri: &Uri, key: &str, items: Vec<Value>) -> Answer {
    ok(json!({
        key: items,
        "links": {"next": null, "previous": null, "self": full_url(base, uri)},
    }))
}

fn full_url(base: &Base, uri: &Uri) -> String {
    let (Base(base), path) = (base, uri.path());
    match uri.query().filter(|query| !query.is_empty()) {
        Some(query) => format!("{base}{path}?{query}"),
        None => format!("{base}{path}"),
    }
}

/// The page of a list that `limit` and `marker` request, as in `build_driver_hints` and
/// `wrap_collection` of `keystone/server/flask/common.py`. Without both, the list is complete.
///
/// Upstream applies no marker to the lists below a user or a group, so that a client that pages
/// through them never ends. Here they have pages too.
#[derive(Debug)]
struct Page {
    limit: Option<usize>,
    marker: Option<String>,
}

impl Page {
    fn read(query: &Query) -> Result<Self, Refusal> {
        let limit = match query.get("limit") {
            None | Some("") => None,
            Some(_) => Some(paging::Page::read(query)?.limit),
        };
        let marker = query.get("marker").filter(|marker| !marker.is_empty()).map(str::to_owned);
        if let Some(marker) = marker.iter().find(|marker| marker.chars().any(char::is_control)) {
            return Err(Error::NoMarker(marker.escape_debug().to_string()).into());
        }
        Ok(Self { limit, marker })
    }

    /// [`listing`] of one page. The items of pages are in the order of their ids, so that a marker
    /// need not pass the list's filters. As in upstream, a full page has a link to the next one, which
    /// may be empty.
    fn listing(
        &self,
        query: &Query,
        base: &Base,
        uri: &Uri,
        key: &str,
        mut items: Vec<Value>,
    ) -> Answer {
        if self.limit.is_none() && self.marker.is_none() {
            return listing(base, uri, key, items);
        }
        items.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
        if let Some(marker) = &self.marker {
            items.retain(|item| item["id"].as_str() > Some(marker));
        }
        let mut next = Value::Null;
        let mut truncated = false;
        if let Some(limit) = self.limit {
            truncated = items.len() >= limit;
            items.truncate(limit);
            if let Some(last) =
                items.last().filter(|_| truncated).and_then(|last| last["id"].as_str())
            {
                let pairs = [("marker", last), ("limit", &limit.to_string())];
                next = json!(format!("{}{}?{}", base.0, uri.path(), query.with(&pairs)));
            }
        }
        let mut body = json!({
            key: items,
            "links": {"next": next, "previous": null, "self": full_url(base, uri)},
        });
        if truncated {
            body["truncated"] = json!(true);
        }
        ok(body)
    }
}

/// The attributes of a resource: those that the service stores without interpreting them, and its
/// own.
fn with_extra<const N: usize>(extra: &Fields, own: [(&str, Value); N]) -> Fields {
    let mut view = extra.clone();
    view.extend(own.map(|(key, value)| (key.to_owned(), value)));
    view
}

/// The options of a project or a role.
fn options(immutable: bool) -> Value {
    if immutable { json!({"immutable": true}) } else { json!({}) }
}

fn self_link(base: &Base, collection: &str, id: &str) -> Value {
    json!({"self": format!("{}/v3/{collection}/{id}", base.0)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logins_and_changes_of_passwords_need_no_token() {
        for path in ["/v3/", "/v3/auth/tokens", "/v3/users/u/password", "/v3/users/u/password/"] {
            assert!(public(path), "{path}");
        }
        for path in [
            "/v3/users",
            "/v3/users/u",
            "/v3/users/password",
            "/v3/users//password",
            "/v3/users/u/v/password",
            "/v3/groups/u/password",
        ] {
            assert!(!public(path), "{path}");
        }
    }

    #[test]
    fn every_rule_of_a_route_is_in_the_table() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
