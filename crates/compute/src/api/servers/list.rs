//! `GET /servers` and `GET /servers/detail`: filtered, sorted, in pages.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::{Tx, Value};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, Microversion};
use serde::Serialize;

use super::filter::Filter;
use super::sort::Sort;
use super::view::{Brief, Detail, Scene};
use crate::db::servers::Server;
use crate::db::servers::listing::{self, Listing};
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
    version: Microversion,
    RawQuery(raw): RawQuery,
) -> Result<Response, Fault> {
    let raw = raw.unwrap_or_default();
    let (servers, next) = page(&compute, &context, version, &raw).await?;
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
    let raw = raw.unwrap_or_default();
    let (servers, next) = page(&compute, &context, version, &raw).await?;
    let servers_links = links(&base, "servers/detail", next);
    let host_up = |host: &str| compute.host_is_up(host);
    let scene =
        Scene { base: &base, version, admin: context.is_admin(), host_up: &host_up, group: None };
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
    version: Microversion,
    raw: &str,
) -> Result<(Vec<Server>, Option<String>), Fault> {
    let query = Query::parse(raw);
    let page = Page::read(&query)?;
    let asked = Asked {
        filter: Filter::read(&query, context, version)?,
        sort: Sort::read(&query, context)?,
        limit: page.limit,
        marker: page.marker,
    };
    let limit = asked.limit;
    let caller = context.clone();
    let mut servers = compute.store.read(move |tx| asked.collect(tx, &caller)).await?;
    let more = servers.len() > limit;
    servers.truncate(limit);
    let next = servers.last().filter(|_| more && limit > 0).map(|last| {
        let kept = raw.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("marker="));
        kept.map(str::to_owned).chain([format!("marker={}", last.id)]).collect::<Vec<_>>().join("&")
    });
    Ok((servers, next))
}

/// What a query asks for.
#[derive(Clone)]
struct Asked {
    filter: Filter,
    sort: Sort,
    limit: usize,
    marker: Option<String>,
}

impl Asked {
    /// One more than the page holds, so that the caller knows whether another follows.
    fn collect(&self, tx: &mut Tx<'_>, context: &Context) -> Result<Vec<Server>, Error> {
        let marker = self.marker.as_deref().map(|marker| begin(tx, context, marker)).transpose()?;
        if self.filter.nothing {
            return Ok(Vec::new());
        }
        let order = self.sort.in_database();
        let listing = Listing {
            which: self.filter.which,
            conditions: self.filter.conditions.clone(),
            order: order.clone().unwrap_or_default(),
        };
        if order.is_some() {
            let after = marker.map(|marker| listing.place(&marker));
            return self.passing(tx, &listing, after, self.limit.saturating_add(1));
        }
        let mut all = self.passing(tx, &listing, None, usize::MAX)?;
        if let Some(marker) = marker {
            all.retain(|server| self.sort.compare(&marker, server).is_lt());
        }
        all.sort_by(|a, b| self.sort.compare(a, b));
        Ok(all)
    }

    /// Up to `most` servers that pass, in the order of the listing.
    fn passing(
        &self,
        tx: &mut Tx<'_>,
        listing: &Listing,
        mut after: Option<Vec<Value>>,
        most: usize,
    ) -> Result<Vec<Server>, Error> {
        let exact = self.filter.is_exact();
        let step = if exact { i64::try_from(most).unwrap_or(CHUNK).min(CHUNK) } else { CHUNK };
        let mut found = Vec::new();
        loop {
            let rows = listing::rows(tx, listing, after.as_deref(), step)?;
            let full = i64::try_from(rows.len()) == Ok(step);
            after = rows.last().map(|last| listing.place(last));
            for server in rows {
                if self.filter.passes(&server) {
                    found.push(server);
                    if found.len() >= most {
                        return Ok(found);
                    }
                }
            }
            if !full {
                return Ok(found);
            }
        }
    }
}

/// The server after which a page begins.
fn begin(tx: &mut Tx<'_>, context: &Context, marker: &str) -> Result<Server, Error> {
    let known = parse_uuid_like::<ServerId>(marker).map(|id| listing::find(tx, id)).transpose()?;
    let known = known.flatten().filter(|server| context.may_see(&server.project_id));
    known.ok_or_else(|| {
        Fault::bad_request(format!("marker [{}] not found", marker.escape_debug())).into()
    })
}
