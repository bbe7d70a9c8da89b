//! `GET /servers` and `GET /servers/detail`: filtered, sorted, in pages.

use std::collections::HashSet;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use kilonova_access::Caller;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::{Tx, Value};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, Microversion};
use serde::{Serialize, Serializer};

use super::filter::Filter;
use super::sort::Sort;
use super::view::{Brief, Detail, Scene, Sight};
use crate::app::nics::{self, Connections};
use crate::db::servers::Server;
use crate::db::servers::listing::{self, Condition, Listing};
use crate::{Compute, Error};

/// Rows read at a time while filters throw some away.
const CHUNK: i64 = 1001;
/// Servers that the database is asked for by their ids, at most.
const MOST_BY_ID: usize = 500;

#[derive(Serialize)]
struct Answer<T> {
    servers: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers_links: Vec<Next>,
}

/// Servers of which one is seen at a time.
struct Each<'a, V> {
    all: &'a [Server],
    view: V,
}

impl<'a, V: Fn(&'a Server) -> T, T: Serialize> Serialize for Each<'a, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.all.iter().map(&self.view))
    }
}

#[derive(Serialize)]
struct Next {
    rel: &'static str,
    href: String,
}

pub(super) async fn brief(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
) -> Result<Response, Fault> {
    let (servers, next, _) = page(&compute, &context, version, &query, false).await?;
    let servers_links = links(&base, "servers", next);
    let (all, view) = (&servers[..], |server| Brief::of(server, &base));
    answer(&Answer { servers: Each { all, view }, servers_links }, all.len() * 400)
}

pub(super) async fn detail(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
) -> Result<Response, Fault> {
    let (servers, next, nics) = page(&compute, &context, version, &query, true).await?;
    let servers_links = links(&base, "servers/detail", next);
    let (sight, group) = (Sight::of(&context), None);
    let scene = Scene { base: &base, version, sight, compute: &compute, group, nics: &nics };
    let (all, view) = (&servers[..], |server| Detail::of(server, &scene));
    answer(&Answer { servers: Each { all, view }, servers_links }, all.len() * 2000)
}

/// The answer, of which it is known about how many bytes it has.
fn answer(answer: &impl Serialize, about: usize) -> Result<Response, Fault> {
    let mut bytes = Vec::with_capacity(about);
    serde_json::to_writer(&mut bytes, answer).map_err(Fault::internal)?;
    Ok(([(CONTENT_TYPE, "application/json")], bytes).into_response())
}

fn links(base: &Base, path: &str, next: Option<String>) -> Vec<Next> {
    next.map(|query| Next { rel: "next", href: format!("{}/v2.1/{path}?{query}", base.0) })
        .into_iter()
        .collect()
}

/// The page and the query of the next one.
async fn page(
    compute: &Compute,
    context: &Caller,
    version: Microversion,
    query: &Query,
    whole: bool,
) -> Result<(Vec<Server>, Option<String>, Connections), Fault> {
    let page = Page::read(query)?;
    let asked = Asked {
        filter: Filter::read(query, context, version, &compute.fleet, whole)?,
        sort: Sort::read(query, context, &compute.fleet)?,
        limit: page.limit,
        marker: page.marker,
    };
    let limit = asked.limit;
    let caller = context.clone();
    let (mut servers, nics) = compute
        .store
        .read(move |tx| {
            let servers = asked.collect(tx, &caller)?;
            let nics = if whole { nics::look(tx, &servers)? } else { Connections::default() };
            Ok::<_, Error>((servers, nics))
        })
        .await?;
    let more = servers.len() > limit;
    servers.truncate(limit);
    let last = servers.last().filter(|_| more && limit > 0);
    let next = last.map(|last| query.with(&[("marker", &last.id.to_string())]));
    Ok((servers, next, nics))
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
        let mut listing = Listing {
            which: self.filter.which,
            conditions: self.filter.conditions.clone(),
            order: order.clone().unwrap_or_default(),
        };
        let there = self.at_addresses(tx)?;
        if let Some(there) = there.as_ref().filter(|there| there.len() <= MOST_BY_ID) {
            let ids = there.iter().map(|id| Value::from(*id)).collect();
            listing.conditions.push(Condition::Among("id", ids));
        }
        let there = there.as_ref();
        if order.is_some() {
            let after = marker.map(|marker| listing.place(&marker));
            return self.passing(tx, &listing, there, after, self.limit.saturating_add(1));
        }
        let mut all = self.passing(tx, &listing, there, None, usize::MAX)?;
        if let Some(marker) = marker {
            all.retain(|server| self.sort.compare(&marker, server).is_lt());
        }
        all.sort_by(|a, b| self.sort.compare(a, b));
        Ok(all)
    }

    /// The servers at the addresses that are asked for; `None` when no address is.
    fn at_addresses(&self, tx: &mut Tx<'_>) -> Result<Option<HashSet<ServerId>>, Error> {
        let mut found = None;
        for text in &self.filter.addresses {
            let there = kilonova_network::ledger::at_address(tx, text)?;
            found.get_or_insert_with(HashSet::new).extend(there);
        }
        Ok(found)
    }

    /// Up to `most` servers that pass, in the order of the listing.
    fn passing(
        &self,
        tx: &mut Tx<'_>,
        listing: &Listing,
        there: Option<&HashSet<ServerId>>,
        mut after: Option<Vec<Value>>,
        most: usize,
    ) -> Result<Vec<Server>, Error> {
        let exact = self.filter.is_exact() && there.is_none();
        let step = if exact { i64::try_from(most).unwrap_or(CHUNK).min(CHUNK) } else { CHUNK };
        let mut found = Vec::new();
        loop {
            let rows = listing::rows(tx, listing, after.as_deref(), step)?;
            let full = i64::try_from(rows.len()) == Ok(step);
            after = rows.last().map(|last| listing.place(last));
            for server in rows {
                let is_there = there.is_none_or(|there| there.contains(&server.id));
                if is_there && self.filter.passes(&server) {
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
