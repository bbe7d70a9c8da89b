//! `GET /servers` and `GET /servers/detail`: filters, order and pages.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use kilonova_access::Caller;
use kilonova_compute_app::ports::{self, Connections, Networks};
use kilonova_compute_app::volumes::{self, ServerVolumes};
use kilonova_compute_app::{Compute, Error};
use kilonova_compute_db::servers::Server;
use kilonova_compute_db::servers::listing::{self, Condition, Listing};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::{Tx, Value};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Microversion, Refusal};
use serde::{Serialize, Serializer};

use super::filter::ServerFilter;
use super::sort::Sort;
use super::view::{self, Brief, Detail, Progresses, ViewContext, Visibility};
use crate::api::links::Base;

/// Number of rows read per query while filters exclude some of them.
const CHUNK: i64 = 1001;
/// Maximum number of ids in a condition of the query.
const MAX_IDS: usize = 500;

#[derive(Serialize)]
struct Answer<T> {
    servers: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers_links: Vec<Next>,
}

/// Serializes servers one by one, without building all views first.
struct ServerViews<'a, V> {
    all: &'a [Server],
    view: V,
}

impl<'a, V: Fn(&'a Server) -> T, T: Serialize> Serialize for ServerViews<'a, V> {
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
) -> Result<Response, Refusal> {
    let (servers, next, _) = page(&compute, &context, version, &query, false).await?;
    let servers_links = links(&base, "servers", next);
    let (all, view) = (&servers[..], |server| Brief::of(server, &base));
    answer(&Answer { servers: ServerViews { all, view }, servers_links }, all.len() * 400)
}

pub(super) async fn detail(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
) -> Result<Response, Refusal> {
    let (servers, next, related) = page(&compute, &context, version, &query, true).await?;
    let servers_links = links(&base, "servers/detail", next);
    let (visibility, group) = (Visibility::of(&context), None);
    let (ports, volumes, progress) = (&related.0, &related.1, &related.2);
    let (base, compute) = (&base, &compute);
    let view_context =
        ViewContext { base, version, visibility, compute, group, ports, volumes, progress };
    let (all, view) = (&servers[..], |server| Detail::of(server, &view_context));
    answer(&Answer { servers: ServerViews { all, view }, servers_links }, all.len() * 2000)
}

/// Serializes the answer into a buffer of the expected size.
fn answer(answer: &impl Serialize, expected_bytes: usize) -> Result<Response, Refusal> {
    let mut bytes = Vec::with_capacity(expected_bytes);
    serde_json::to_writer(&mut bytes, answer).map_err(Refusal::internal)?;
    Ok(([(CONTENT_TYPE, "application/json")], bytes).into_response())
}

fn links(base: &Base, path: &str, next: Option<String>) -> Vec<Next> {
    next.map(|query| Next { rel: "next", href: format!("{}/{path}?{query}", base.versioned()) })
        .into_iter()
        .collect()
}

/// The network connections and the volumes of servers, and the progress of their live migrations.
type Related = (Connections, ServerVolumes, Progresses);

/// The servers of a page, and the query for the next page.
async fn page(
    compute: &Compute,
    context: &Caller,
    version: Microversion,
    query: &Query,
    detailed: bool,
) -> Result<(Vec<Server>, Option<String>, Related), Refusal> {
    let page = Page::read(query)?;
    let request = ServerQuery {
        filter: ServerFilter::read(query, context, version, &compute.fleet, detailed)?,
        sort: Sort::read(query, context, &compute.fleet)?,
        limit: page.limit,
        marker: page.marker,
    };
    let limit = request.limit;
    let (caller, networks) = (context.clone(), Arc::clone(&compute.networks));
    let service = compute.clone();
    let (mut servers, related) = compute
        .store
        .read(move |tx| {
            let servers = request.collect(tx, &*networks, &caller)?;
            let related = if detailed {
                let ids: Vec<ServerId> = servers.iter().map(|server| server.id).collect();
                let ports = ports::connections(tx, &*networks, &servers)?;
                let volumes = volumes::of_servers(tx, &service, &ids)?;
                (ports, volumes, view::progress_of(tx, &servers)?)
            } else {
                Related::default()
            };
            Ok::<_, Error>((servers, related))
        })
        .await?;
    let more = servers.len() > limit;
    servers.truncate(limit);
    let last = servers.last().filter(|_| more && limit > 0);
    let next = last.map(|last| query.with(&[("marker", &last.id.to_string())]));
    Ok((servers, next, related))
}

/// The filters, the order and the page of a request.
#[derive(Clone)]
struct ServerQuery {
    filter: ServerFilter,
    sort: Sort,
    limit: usize,
    marker: Option<String>,
}

impl ServerQuery {
    /// The servers of the page, and at least one more if another page follows.
    fn collect(
        &self,
        tx: &mut Tx<'_>,
        networks: &dyn Networks,
        context: &Context,
    ) -> Result<Vec<Server>, Error> {
        let marker =
            self.marker.as_deref().map(|marker| find_marker(tx, context, marker)).transpose()?;
        if self.filter.nothing {
            return Ok(Vec::new());
        }
        let order = self.sort.in_database();
        let mut listing = Listing {
            which: self.filter.which,
            conditions: self.filter.conditions.clone(),
            order: order.clone().unwrap_or_default(),
            oldest_first: self.sort.oldest_first,
        };
        let at_addresses = self.at_addresses(tx, networks)?;
        if let Some(at_addresses) =
            at_addresses.as_ref().filter(|at_addresses| at_addresses.len() <= MAX_IDS)
        {
            let ids = at_addresses.iter().map(|id| Value::from(*id)).collect();
            listing.conditions.push(Condition::Among("id", ids));
        }
        let at_addresses = at_addresses.as_ref();
        if order.is_some() {
            let after = marker.map(|marker| listing.place(&marker));
            return self.matching(tx, &listing, at_addresses, after, self.limit.saturating_add(1));
        }
        let mut all = self.matching(tx, &listing, at_addresses, None, usize::MAX)?;
        if let Some(marker) = marker {
            all.retain(|server| self.sort.compare(&marker, server).is_lt());
        }
        all.sort_by(|a, b| self.sort.compare(a, b));
        Ok(all)
    }

    /// The servers with the requested addresses; `None` if the query has no filter on addresses.
    fn at_addresses(
        &self,
        tx: &mut Tx<'_>,
        networks: &dyn Networks,
    ) -> Result<Option<HashSet<ServerId>>, Error> {
        let mut found = None;
        for text in &self.filter.addresses {
            let at_addresses = networks.servers_at(tx, text)?;
            found.get_or_insert_with(HashSet::new).extend(at_addresses);
        }
        Ok(found)
    }

    /// Up to `limit` matching servers, in the order of the listing.
    fn matching(
        &self,
        tx: &mut Tx<'_>,
        listing: &Listing,
        at_addresses: Option<&HashSet<ServerId>>,
        mut after: Option<Vec<Value>>,
        limit: usize,
    ) -> Result<Vec<Server>, Error> {
        let exact = self.filter.is_exact() && at_addresses.is_none();
        let chunk = if exact { i64::try_from(limit).unwrap_or(CHUNK).min(CHUNK) } else { CHUNK };
        let mut found = Vec::new();
        loop {
            let rows = listing::rows(tx, listing, after.as_deref(), chunk)?;
            let full = i64::try_from(rows.len()) == Ok(chunk);
            after = rows.last().map(|last| listing.place(last));
            for server in rows {
                let has_address =
                    at_addresses.is_none_or(|at_addresses| at_addresses.contains(&server.id));
                if has_address && self.filter.passes(&server) {
                    found.push(server);
                    if found.len() >= limit {
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

/// The server that the marker names. The page begins after it.
fn find_marker(tx: &mut Tx<'_>, context: &Context, marker: &str) -> Result<Server, Error> {
    let known = parse_uuid_like::<ServerId>(marker).map(|id| listing::find(tx, id)).transpose()?;
    let known = known.flatten().filter(|server| context.may_see(&server.project_id));
    known.ok_or_else(|| {
        Refusal::bad_request(format!("marker [{}] not found", marker.escape_debug())).into()
    })
}
