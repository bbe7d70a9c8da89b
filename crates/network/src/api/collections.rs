//! `/v2.0/<collection>` and what is below: what is managed here, and the collections that are
//! empty because it is not. Anything else is a 404.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Base, Context, Fault, JsonBody};
use serde_json::{Value, json};

use super::kinds::{Ask, Kind};
use super::{Answer, listing, ok, unmanaged};
use crate::app::{groups, may_write};
use crate::error::malformed;
use crate::record::Body;
use crate::{Error, Networks};

/// Path and what one member is called in a message, of what is not managed but looked for by every
/// client that shows servers or cleans up. Other collections do not exist, as in a Neutron without
/// their extensions.
const EMPTY: &[(&str, &str)] = &[
    ("floatingips", "Floating IP"),
    ("routers", "Router"),
    ("service-providers", "Service provider"),
];

/// Things that one request may make.
const MOST: usize = 100;

pub(super) fn routes() -> Router<Networks> {
    Router::new()
        .route("/v2.0/{collection}", get(list).post(create))
        .route("/v2.0/{collection}/{id}", get(show).put(update).patch(update).delete(delete))
        .route("/v2.0/{collection}/{id}/tags", get(tags).put(set_tags).delete(clear_tags))
        .route("/v2.0/{collection}/{id}/tags/{tag}", get(tag).put(add_tag).delete(drop_tag))
}

fn empty(collection: &str) -> Result<&'static str, Fault> {
    let known = EMPTY.iter().find(|(path, _)| *path == collection);
    known
        .map(|(_, member)| *member)
        .ok_or_else(|| Fault::not_found("The resource could not be found."))
}

async fn list(
    State(networks): State<Networks>,
    context: Context,
    base: Base,
    query: Query,
    Path(collection): Path<String>,
) -> Answer {
    let Some(kind) = Kind::of(&collection) else {
        empty(&collection)?;
        return ok(json!({collection.replace('-', "_"): []}));
    };
    let (options, caller, asked) = (networks.options.clone(), context.clone(), query.clone());
    if matches!(kind, Kind::Group | Kind::Rule) {
        let caller = context.clone();
        let there = networks.store.read(move |tx| has_default(tx, &caller)).await?;
        if !there {
            let caller = context.clone();
            networks.store.write(move |tx| groups::ensure(tx, &caller, now_micros())).await?;
        }
    }
    let views = networks
        .store
        .read(move |tx| {
            let ask = Ask { options: &options, context: &caller, now: now_micros() };
            let filter = |key: &str| {
                let mut values = asked.all(key);
                values.next().filter(|_| values.next().is_none()).map(str::to_owned)
            };
            kind.list(tx, &ask, filter)
        })
        .await?;
    listing::answer(&kind.collection(), &kind.known(), views, &query, &base)
}

fn has_default(tx: &mut kilonova_store::Tx<'_>, context: &Context) -> Result<bool, Error> {
    let project = &context.project_id;
    Ok(project.is_empty() || crate::db::groups::default_of(tx, project)?.is_some())
}

/// The one that is sent, or all of a list.
fn sent(kind: Kind, body: &Value) -> Result<(Vec<Body>, bool), Fault> {
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
    if all.len() > MOST {
        return Err(malformed(format!("At most {MOST} {collection} are made by one request.")));
    }
    Ok((all.iter().map(object).collect::<Result<_, _>>()?, true))
}

async fn create(
    State(networks): State<Networks>,
    context: Context,
    Path(collection): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let Some(kind) = Kind::of(&collection) else {
        empty(&collection)?;
        return Err(unmanaged());
    };
    may_write(&context, &format!("create_{}", kind.member()))?;
    let (all, several) = sent(kind, &body)?;
    let options = networks.options.clone();
    let mut made = networks
        .store
        .write(move |tx| {
            let ask = Ask { options: &options, context: &context, now: now_micros() };
            all.iter().map(|one| kind.create(tx, &ask, one)).collect::<Result<Vec<_>, Error>>()
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
    context: Context,
    query: Query,
    Path((collection, id)): Path<(String, String)>,
) -> Answer {
    let kind = member_kind(&collection, &id)?;
    let view = view(&networks, context, kind, id).await?;
    ok(json!({kind.member(): listing::trim(view, &query)}))
}

async fn view(
    networks: &Networks,
    context: Context,
    kind: Kind,
    id: String,
) -> Result<Body, Fault> {
    let options = networks.options.clone();
    let shown = networks.store.read(move |tx| {
        let ask = Ask { options: &options, context: &context, now: now_micros() };
        kind.show(tx, &ask, &id)
    });
    Ok(shown.await?)
}

fn member_kind(collection: &str, id: &str) -> Result<Kind, Fault> {
    match Kind::of(collection) {
        Some(kind) => Ok(kind),
        None => {
            let member = empty(collection)?;
            Err(Fault::not_found(format!("{member} {} could not be found.", id.escape_debug())))
        }
    }
}

async fn change(
    networks: &Networks,
    context: Context,
    kind: Kind,
    id: String,
    sent: Body,
) -> Result<Body, Fault> {
    may_write(&context, &format!("update_{}", kind.member()))?;
    let options = networks.options.clone();
    let changed = networks.store.write(move |tx| {
        let ask = Ask { options: &options, context: &context, now: now_micros() };
        kind.update(tx, &ask, &id, &sent)
    });
    Ok(changed.await?)
}

async fn update(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let kind = member_kind(&collection, &id)?;
    let (mut all, several) = sent(kind, &body)?;
    let one = all.pop().filter(|_| !several);
    let one = one
        .ok_or_else(|| malformed(format!("Unable to find '{}' in request body", kind.member())))?;
    let view = change(&networks, context, kind, id, one).await?;
    ok(json!({kind.member(): view}))
}

async fn delete(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id)): Path<(String, String)>,
) -> Answer {
    let kind = member_kind(&collection, &id)?;
    may_write(&context, &format!("delete_{}", kind.member()))?;
    let options = networks.options.clone();
    networks
        .store
        .write(move |tx| {
            let ask = Ask { options: &options, context: &context, now: now_micros() };
            kind.delete(tx, &ask, &id)
        })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn tagged(collection: &str, id: &str) -> Result<Kind, Fault> {
    let kind = member_kind(collection, id)?;
    let none = || Fault::not_found("The resource could not be found.");
    if kind.has_tags() { Ok(kind) } else { Err(none()) }
}

async fn tags_of(
    networks: &Networks,
    context: Context,
    kind: Kind,
    id: String,
) -> Result<Vec<String>, Fault> {
    let view = view(networks, context, kind, id).await?;
    let tags = view.get("tags").and_then(Value::as_array);
    Ok(tags.into_iter().flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect())
}

async fn put_tags(
    networks: &Networks,
    context: Context,
    kind: Kind,
    id: String,
    tags: Value,
) -> Result<Value, Fault> {
    let mut sent = Body::new();
    sent.insert("tags".into(), tags);
    let view = change(networks, context, kind, id, sent).await?;
    Ok(view.get("tags").cloned().unwrap_or(json!([])))
}

async fn tags(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id)): Path<(String, String)>,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    ok(json!({"tags": tags_of(&networks, context, kind, id).await?}))
}

async fn set_tags(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    let Some(tags) = body.get("tags") else {
        return Err(malformed("Invalid tags body"));
    };
    let tags = put_tags(&networks, context, kind, id, tags.clone()).await?;
    ok(json!({"tags": tags}))
}

async fn clear_tags(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id)): Path<(String, String)>,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    put_tags(&networks, context, kind, id, json!([])).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn no_tag(tag: &str) -> Fault {
    crate::error::refused(
        404,
        "TagNotFound",
        format!("Tag {} could not be found.", tag.escape_debug()),
    )
}

async fn tag(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id, tag)): Path<(String, String, String)>,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    if tags_of(&networks, context, kind, id).await?.contains(&tag) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(no_tag(&tag))
}

async fn add_tag(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id, tag)): Path<(String, String, String)>,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    let mut tags = tags_of(&networks, context.clone(), kind, id.clone()).await?;
    tags.push(tag);
    put_tags(&networks, context, kind, id, json!(tags)).await?;
    Ok(StatusCode::CREATED.into_response())
}

async fn drop_tag(
    State(networks): State<Networks>,
    context: Context,
    Path((collection, id, tag)): Path<(String, String, String)>,
) -> Answer {
    let kind = tagged(&collection, &id)?;
    let mut tags = tags_of(&networks, context.clone(), kind, id.clone()).await?;
    if !tags.contains(&tag) {
        return Err(no_tag(&tag));
    }
    tags.retain(|other| *other != tag);
    put_tags(&networks, context, kind, id, json!(tags)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
