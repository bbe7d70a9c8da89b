//! `GET /servers` and `GET /servers/detail`: filtered, newest first, in pages.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, Microversion};
use serde::Serialize;

use super::filter::Filter;
use super::view::{Brief, Detail, Scene};
use crate::db::servers::{self, Server};
use crate::{Compute, Error};

/// Rows read at a time while filters throw some away.
const CHUNK: i64 = 1001;

#[derive(Serialize)]
struct Answer<T> {
    servers: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers_links: Vec<Next>,
}

#[derive(Serialize)]
struct Next {
    rel: &'static str,
    href: String,
}

pub(super) async fn brief(
    State(compute): State<Compute>,
    context: Context,
    base: Base,
    RawQuery(raw): RawQuery,
) -> Result<Response, Fault> {
    let (servers, next) = page(&compute, &context, raw.as_deref().unwrap_or_default()).await?;
    let servers_links = links(&base, "servers", next);
    let servers = servers.iter().map(|server| Brief::of(server, &base)).collect();
    Ok(axum::Json(Answer { servers, servers_links }).into_response())
}

pub(super) async fn detail(
    State(compute): State<Compute>,
    context: Context,
    base: Base,
    version: Microversion,
    RawQuery(raw): RawQuery,
) -> Result<Response, Fault> {
    let (servers, next) = page(&compute, &context, raw.as_deref().unwrap_or_default()).await?;
    let servers_links = links(&base, "servers/detail", next);
    let host_up = |host: &str| compute.host_is_up(host);
    let scene = Scene { base: &base, version, admin: context.is_admin(), host_up: &host_up };
    let servers = servers.iter().map(|server| Detail::of(server, &scene)).collect();
    Ok(axum::Json(Answer { servers, servers_links }).into_response())
}

fn links(base: &Base, path: &str, next: Option<String>) -> Vec<Next> {
    next.map(|query| Next { rel: "next", href: format!("{}/v2.1/{path}?{query}", base.0) })
        .into_iter()
        .collect()
}

/// The page and the query of the next one.
async fn page(
    compute: &Compute,
    context: &Context,
    raw: &str,
) -> Result<(Vec<Server>, Option<String>), Fault> {
    let query = Query::parse(raw);
    let page = Page::read(&query)?;
    let filter = Filter::read(&query, context)?;
    let limit = page.limit;
    let caller = context.clone();
    let mut servers = compute.store.read(move |tx| collect(tx, &caller, &filter, &page)).await?;
    let more = servers.len() > limit;
    servers.truncate(limit);
    let next = servers.last().filter(|_| more && limit > 0).map(|last| {
        let kept = raw.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("marker="));
        kept.map(str::to_owned).chain([format!("marker={}", last.id)]).collect::<Vec<_>>().join("&")
    });
    Ok((servers, next))
}

/// One more than the page holds, so that the caller knows whether another follows.
fn collect(
    tx: &mut Tx<'_>,
    context: &Context,
    filter: &Filter,
    page: &Page,
) -> Result<Vec<Server>, Error> {
    let mut before = match &page.marker {
        None => i64::MAX,
        Some(marker) => {
            parse_uuid_like::<ServerId>(marker)
                .map(|id| servers::find(tx, id))
                .transpose()?
                .flatten()
                .filter(|server| context.may_see(&server.project_id))
                .ok_or_else(|| Fault::bad_request(format!("marker [{marker}] not found")))?
                .seq
        }
    };
    let mut found = Vec::new();
    loop {
        let rows = servers::page(tx, filter.project.as_deref(), before, CHUNK)?;
        let last = rows.last().map(|server| server.seq);
        let full = rows.len() as i64 == CHUNK;
        for server in rows {
            if filter.passes(&server) {
                found.push(server);
                if found.len() > page.limit {
                    return Ok(found);
                }
            }
        }
        match last {
            Some(seq) if full => before = seq,
            _ => return Ok(found),
        }
    }
}
