//! `/v2.0/<collection>` and below: the managed resources, and the empty collections that clients
//! expect. Any other path is a 404.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post, put};
use kilonova_ids::{SecurityGroupId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Base, JsonBody, Refusal, time};
use serde_json::{Value, json};

use super::if_match::{self, IfMatch};
use super::resource_kind::{RequestContext, ResourceKind};
use super::{Answer, listing, ok};
use crate::app::groups;
use crate::error::malformed;
use crate::record::Body;
use crate::{Error, Networks};

/// Collections that are not managed, although clients that show servers, clean up or monitor request them. Other
/// collections do not exist, as in a Neutron without these extensions.
const EMPTY: &[Empty] = &[
    Empty {
        path: "service-providers",
        member: "Service provider",
        code: None,
        guards: [Guard::Own("get_service_provider"); 3],
    },
    // Upstream filters the list by the rule, and looks a pool up before it applies one: every caller gets an empty list,
    // and 404 for a pool.
    Empty {
        path: "subnetpools",
        member: "Subnet pool",
        code: Some("SubnetPoolNotFound"),
        guards: [
            Guard::Object(&["get_subnetpool"]),
            Guard::Object(&["update_subnetpool"]),
            Guard::Object(&["delete_subnetpool"]),
        ],
    },
];

struct Empty {
    path: &'static str,
    /// The display name of a member.
    member: &'static str,
    /// The error type for a missing member, unless it is the default.
    code: Option<&'static str>,
    /// For reading, changing and deleting.
    guards: [Guard; 3],
}

/// Maximum number of resources that one request may create.
const MAX_RESOURCES: usize = 100;

pub(super) fn routes() -> Routes<Networks> {
    let mut routes = Routes::new();
    for kind in ResourceKind::ALL {
        let (path, guards) = (format!("/v2.0/{}", kind.collection().path), kind.guards());
        let one = format!("{path}/{{id}}");
        routes = routes
            .route(path.as_str(), [get(guards.get, list), post(guards.create, create)])
            .route(
                one.as_str(),
                [
                    get(guards.get, show),
                    put(guards.update, update),
                    patch(guards.update, update),
                    delete(guards.delete, remove),
                ],
            );
        if let Some(rules) = guards.tags {
            let [read, set, drop] = rules.guards;
            routes = routes
                .route(
                    format!("{one}/tags"),
                    [get(read, tags), put(set, set_tags), delete(drop, clear_tags)],
                )
                .route(
                    format!("{one}/tags/{{tag}}"),
                    [get(read, tag), put(set, add_tag), delete(drop, drop_tag)],
                );
        }
    }
    EMPTY.iter().fold(routes, |routes, empty| {
        let path = format!("/v2.0/{}", empty.path);
        let [read, update, remove] = empty.guards;
        routes.route(path.as_str(), [get(read, nothing), post(Guard::Anyone, absent)]).route(
            format!("{path}/{{id}}"),
            [get(read, missing), put(update, missing), delete(remove, missing)],
        )
    })
}

/// Refuses a new member: 404, as a collection that does not exist.
async fn absent() -> Answer {
    Err(no_such_collection())
}

fn no_such_collection() -> Refusal {
    Refusal::not_found("The resource could not be found.")
}

/// The resource kind of the path's collection.
struct PathKind(ResourceKind);

impl<S: Sync> FromRequestParts<S> for PathKind {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let kind = collection(parts.uri.path()).and_then(ResourceKind::of);
        kind.map(Self).ok_or_else(no_such_collection)
    }
}

fn collection(path: &str) -> Option<&str> {
    path.split('/').skip_while(|segment| *segment != "v2.0").nth(1)
}

async fn nothing(uri: axum::http::Uri) -> Answer {
    let key = collection(uri.path()).unwrap_or_default().replace('-', "_");
    ok(json!({key: []}))
}

async fn missing(uri: axum::http::Uri, Path(id): Path<String>) -> Answer {
    let path = collection(uri.path()).unwrap_or_default();
    let found = EMPTY.iter().find(|empty| empty.path == path);
    let member = found.map_or("Resource", |one| one.member);
    let refusal = Refusal::not_found(format!("{member} {} could not be found.", id.escape_debug()));
    Err(match found.and_then(|one| one.code) {
        Some(code) => refusal.with_code(code),
        None => refusal,
    })
}

async fn list(
    State(networks): State<Networks>,
    caller: Caller,
    base: Base,
    query: Query,
    PathKind(kind): PathKind,
) -> Answer {
    let options = networks.options.clone();
    if matches!(kind, ResourceKind::Group | ResourceKind::Rule) {
        default_group(&networks, &caller, &query).await?;
    }
    // The answer is built here too: a long list takes a while, which must not delay other requests.
    let answer = networks.store.read(move |tx| {
        let request = RequestContext { options: &options, caller: &caller, now: time::now() };
        let filter = |key: &str| {
            let mut values = query.all(key);
            values.next().filter(|_| values.next().is_none()).map(str::to_owned)
        };
        let mut views = kind.list(tx, &request, filter)?;
        if listing::lacks_marker(&views, &query) {
            views = kind.list(tx, &request, |_| None)?;
        }
        Ok::<_, Error>(listing::answer(&kind.collection(), &kind.known(), views, &query, &base)?)
    });
    Ok(answer.await?)
}

/// The project whose default group a list shows: the project that the filter names, or else the caller's. Only
/// administrators may name another project, as in `get_security_groups` of `neutron/db/securitygroups_db.py`. The
/// filter's value must look like an id, so that a misspelled filter creates no group.
fn listed_project<'a>(caller: &'a Caller, query: &'a Query) -> Option<&'a str> {
    let named = query.all("project_id").chain(query.all("tenant_id")).find(|id| !id.is_empty());
    let is_id = |id: &str| id.len() <= 36 && parse_uuid_like::<SecurityGroupId>(id).is_some();
    let project = match named {
        Some(id) if id != caller.project_id => Some(id).filter(|id| caller.is_admin() && is_id(id)),
        _ => Some(caller.project_id.as_str()),
    };
    project.filter(|id| !id.is_empty())
}

/// Creates the default group of [`listed_project`], unless the caller may not see groups.
async fn default_group(networks: &Networks, caller: &Caller, query: &Query) -> Result<(), Refusal> {
    let project = listed_project(caller, query).filter(|_| caller.allows_own("get_security_group"));
    let Some(project) = project.map(str::to_owned) else { return Ok(()) };
    let own = project.clone();
    let there = networks
        .store
        .read(move |tx| Ok::<_, Error>(crate::db::groups::default_of(tx, &own)?.is_some()))
        .await?;
    if !there {
        networks.store.write(move |tx| groups::ensure(tx, &project, time::now())).await?;
    }
    Ok(())
}

/// The resources in the body, and true for a bulk request.
fn sent(kind: ResourceKind, body: &Value) -> Result<(Vec<Body>, bool), Refusal> {
    let object = |value: &Value| {
        let why = || malformed("Body contains invalid data");
        value.as_object().cloned().ok_or_else(why)
    };
    let (member, collection) = (kind.member(), kind.collection().key);
    if let Some(one) = body.get(member) {
        return Ok((vec![object(one)?], false));
    }
    let missing = || malformed(format!("Unable to find '{member}' in request body"));
    let all = body.get(collection).and_then(Value::as_array).ok_or_else(missing)?;
    if all.is_empty() {
        return Err(malformed("Resources required"));
    }
    if all.len() > MAX_RESOURCES {
        return Err(malformed(format!(
            "One request may create at most {MAX_RESOURCES} {collection}."
        )));
    }
    Ok((all.iter().map(object).collect::<Result<_, _>>()?, true))
}

async fn create(
    State(networks): State<Networks>,
    caller: Caller,
    PathKind(kind): PathKind,
    JsonBody(body): JsonBody,
) -> Answer {
    let (all, several) = sent(kind, &body)?;
    // A malformed resource is refused before a transaction begins.
    for one in &all {
        kind.check_new(&caller, one)?;
    }
    let options = networks.options.clone();
    let mut made = networks
        .store
        .write(move |tx| {
            let request = RequestContext { options: &options, caller: &caller, now: time::now() };
            all.iter().map(|one| kind.create(tx, &request, one)).collect::<Result<Vec<_>, Error>>()
        })
        .await?;
    let body = if several {
        json!({kind.collection().key: made})
    } else {
        json!({kind.member(): made.pop()})
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

async fn show(
    State(networks): State<Networks>,
    caller: Caller,
    query: Query,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
) -> Answer {
    let options = networks.options.clone();
    let view = networks.store.read(move |tx| {
        let request = RequestContext { options: &options, caller: &caller, now: time::now() };
        kind.show(tx, &request, &id)
    });
    ok(json!({kind.member(): listing::trim(view.await?, &query)}))
}

/// Applies a change if the resource has the required revision. The change runs first, because upstream enforces the
/// policy before it compares revisions; a wrong revision then rolls back the transaction.
fn constrained<T>(
    tx: &mut Tx<'_>,
    kind: ResourceKind,
    request: &RequestContext<'_>,
    id: &str,
    IfMatch(required): IfMatch,
    change: impl FnOnce(&mut Tx<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(required) = required else { return change(tx) };
    let view = kind.show(tx, request, id)?;
    let done = change(tx)?;
    if_match::check(&view, required)?;
    Ok(done)
}

async fn update(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let (mut all, several) = sent(kind, &body)?;
    let one = all.pop().filter(|_| !several);
    let one = one
        .ok_or_else(|| malformed(format!("Unable to find '{}' in request body", kind.member())))?;
    let options = networks.options.clone();
    let changed = networks.store.write(move |tx| {
        let request = RequestContext { options: &options, caller: &caller, now: time::now() };
        constrained(tx, kind, &request, &id, revision, |tx| kind.update(tx, &request, &id, &one))
    });
    ok(json!({kind.member(): changed.await?}))
}

async fn remove(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
) -> Answer {
    let options = networks.options.clone();
    networks
        .store
        .write(move |tx| {
            let request = RequestContext { options: &options, caller: &caller, now: time::now() };
            constrained(tx, kind, &request, &id, revision, |tx| kind.delete(tx, &request, &id))
        })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The tags of a resource that is visible to the caller.
async fn tags_of(
    networks: &Networks,
    caller: Caller,
    kind: ResourceKind,
    id: String,
) -> Result<Vec<String>, Refusal> {
    let options = networks.options.clone();
    let rule = kind.guards().tags.map_or("", |rules| rules.get);
    let read = networks.store.read(move |tx| {
        let request = RequestContext { options: &options, caller: &caller, now: time::now() };
        kind.may(tx, &request, &id, rule)?;
        Ok::<_, Error>(tags_in(&kind.show(tx, &request, &id)?))
    });
    Ok(read.await?)
}

fn tags_in(view: &Body) -> Vec<String> {
    let tags = view.get("tags").and_then(Value::as_array);
    tags.into_iter().flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}

/// Computes new tags from the current ones and stores them, in one transaction.
async fn change_tags(
    networks: &Networks,
    (caller, revision): (Caller, IfMatch),
    kind: ResourceKind,
    id: String,
    rule: &'static str,
    change: impl Fn(Vec<String>) -> Result<Value, Refusal> + Send + Sync + 'static,
) -> Result<Value, Refusal> {
    let options = networks.options.clone();
    let changed = networks.store.write(move |tx| {
        let request = RequestContext { options: &options, caller: &caller, now: time::now() };
        kind.may(tx, &request, &id, rule)?;
        let mut sent = Body::new();
        sent.insert("tags".into(), change(tags_in(&kind.show(tx, &request, &id)?))?);
        let update = |tx: &mut Tx<'_>| kind.update(tx, &request, &id, &sent);
        let view = constrained(tx, kind, &request, &id, revision, update)?;
        Ok::<_, Error>(view.get("tags").cloned().unwrap_or(json!([])))
    });
    Ok(changed.await?)
}

/// The policy rules for setting and deleting tags.
fn rules(kind: ResourceKind) -> (&'static str, &'static str) {
    kind.guards().tags.map_or(("", ""), |rules| (rules.set, rules.drop))
}

async fn tags(
    State(networks): State<Networks>,
    caller: Caller,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
) -> Answer {
    ok(json!({"tags": tags_of(&networks, caller, kind, id).await?}))
}

async fn set_tags(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let Some(tags) = body.get("tags").cloned() else {
        return Err(malformed("Invalid tags body"));
    };
    let set = move |_| Ok(tags.clone());
    let tags = change_tags(&networks, (caller, revision), kind, id, rules(kind).0, set).await?;
    ok(json!({"tags": tags}))
}

async fn clear_tags(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path(id): Path<String>,
) -> Answer {
    change_tags(&networks, (caller, revision), kind, id, rules(kind).1, |_| Ok(json!([]))).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn no_tag(tag: &str) -> Refusal {
    crate::error::refused(
        Kind::NotFound,
        "TagNotFound",
        format!("Tag {} could not be found.", tag.escape_debug()),
    )
}

async fn tag(
    State(networks): State<Networks>,
    caller: Caller,
    PathKind(kind): PathKind,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    if tags_of(&networks, caller, kind, id).await?.contains(&tag) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(no_tag(&tag))
}

async fn add_tag(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    let add = move |mut tags: Vec<String>| {
        tags.push(tag.clone());
        Ok(json!(tags))
    };
    change_tags(&networks, (caller, revision), kind, id, rules(kind).0, add).await?;
    Ok(StatusCode::CREATED.into_response())
}

async fn drop_tag(
    State(networks): State<Networks>,
    caller: Caller,
    revision: IfMatch,
    PathKind(kind): PathKind,
    Path((id, tag)): Path<(String, String)>,
) -> Answer {
    let drop = move |mut tags: Vec<String>| {
        let before = tags.len();
        tags.retain(|other| *other != tag);
        if tags.len() == before { Err(no_tag(&tag)) } else { Ok(json!(tags)) }
    };
    change_tags(&networks, (caller, revision), kind, id, rules(kind).1, drop).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
