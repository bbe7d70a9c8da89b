//! Lists of flavors: filters, order and pages.

use std::cmp::Ordering;

use axum::Json;
use axum::extract::State;
use kilonova_access::Caller;
use kilonova_compute_app::flavors::{self as app, Publicity};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::flavors::Flavor;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use regex::Regex;
use serde_json::{Value, json};

use super::view;
use crate::api::links::Base;
use crate::api::{input, links};

const KNOWN: &[&str] =
    &["limit", "marker", "is_public", "minRam", "minDisk", "sort_key", "sort_dir", "name"];
const SORT_KEYS: &[&str] = &[
    "created_at",
    "description",
    "disabled",
    "ephemeral_gb",
    "flavorid",
    "id",
    "is_public",
    "memory_mb",
    "name",
    "root_gb",
    "rxtx_factor",
    "swap",
    "updated_at",
    "vcpu_weight",
    "vcpus",
];

/// The rule for seeing extra specs.
pub(super) const EXTRA_SPECS: &str = "os_compute_api:os-flavor-extra-specs:index";

type View = fn(&Flavor, Microversion, &Base) -> Value;

pub(super) async fn brief(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    list(compute, caller, version, base, query, "flavors", view::brief).await
}

pub(super) async fn detail(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let view: View =
        if caller.allows_own(EXTRA_SPECS) { view::detail } else { view::without_extra_specs };
    list(compute, caller, version, base, query, "flavors/detail", view).await
}

async fn list(
    compute: Compute,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
    path: &str,
    view: View,
) -> Result<Json<Value>, Refusal> {
    let filter = FlavorFilter::read(&query, version, caller.is_admin())?;
    let page = Page::read(&query)?;
    let (publicity, context) = (filter.publicity, caller.context.clone());
    // The marker may be any visible flavor, even one that the filters exclude: the page begins after
    // its position in the sort order (`_flavor_get_all_from_db` in upstream's `nova/objects/flavor.py`).
    let found = compute.store.read(move |tx| {
        let marker = page.marker.as_ref().map(|id| {
            let missing = || Refusal::bad_request(format!("marker [{id}] not found"));
            app::find(tx, &context, id)?.ok_or_else(|| Error::from(missing()))
        });
        Ok::<_, Error>((marker.transpose()?, app::list(tx, &context, publicity)?))
    });
    let (marker, mut flavors) = found.await?;
    flavors.retain(|flavor| {
        let follows = |marker| filter.order(marker, flavor) == Ordering::Less;
        filter.matches(flavor) && marker.as_ref().is_none_or(follows)
    });
    flavors.sort_by(|a, b| filter.order(a, b));
    let more = flavors.len() > page.limit;
    flavors.truncate(page.limit);
    let shown: Vec<Value> = flavors.iter().map(|flavor| view(flavor, version, &base)).collect();
    let mut answer = json!({"flavors": shown});
    if let Some(last) = flavors.last().filter(|_| more) {
        answer["flavors_links"] = links::next(&base, path, &query, &last.id);
    }
    Ok(Json(answer))
}

/// The filters and the order of a list.
struct FlavorFilter {
    publicity: Publicity,
    min_ram: i64,
    min_disk: i64,
    name: Option<Regex>,
    sort_key: String,
    descending: bool,
}

impl FlavorFilter {
    fn read(query: &Query, version: Microversion, admin: bool) -> Result<Self, Refusal> {
        let by_name = version >= microversions::STRICT_QUERIES;
        let known = if by_name { KNOWN } else { &KNOWN[..KNOWN.len() - 1] };
        if version >= microversions::STRICT_REQUESTS {
            input::check_query_keys(query, known)?;
        }
        let sort_key = query.get("sort_key").unwrap_or("flavorid").to_owned();
        if !SORT_KEYS.contains(&sort_key.as_str()) || (by_name && sort_key == "rxtx_factor") {
            return Err(input::invalid_query(
                "sort_key",
                &sort_key,
                "Flavors have no such sort key.",
            ));
        }
        let descending = match query.get("sort_dir").unwrap_or("asc") {
            "asc" => false,
            "desc" => true,
            other => return Err(input::invalid_query("sort_dir", other, "It is asc or desc.")),
        };
        Ok(Self {
            publicity: if admin { publicity(query)? } else { Publicity::Public },
            min_ram: minimum(query, "minRam")?,
            min_disk: minimum(query, "minDisk")?,
            name: if by_name { query.get("name").map(expression).transpose()? } else { None },
            sort_key,
            descending,
        })
    }

    fn matches(&self, flavor: &Flavor) -> bool {
        flavor.memory_mb >= self.min_ram
            && flavor.root_gb >= self.min_disk
            && self.name.as_ref().is_none_or(|name| name.is_match(&flavor.name))
    }

    fn order(&self, a: &Flavor, b: &Flavor) -> Ordering {
        let order = match self.sort_key.as_str() {
            "created_at" => a.created_at.cmp(&b.created_at),
            "description" => a.description.cmp(&b.description),
            "ephemeral_gb" => a.ephemeral_gb.cmp(&b.ephemeral_gb),
            "flavorid" => a.id.cmp(&b.id),
            "is_public" => a.is_public.cmp(&b.is_public),
            "memory_mb" => a.memory_mb.cmp(&b.memory_mb),
            "name" => a.name.cmp(&b.name),
            "root_gb" => a.root_gb.cmp(&b.root_gb),
            "rxtx_factor" => a.rxtx_factor.total_cmp(&b.rxtx_factor),
            "swap" => a.swap.cmp(&b.swap),
            "updated_at" => a.updated_at.cmp(&b.updated_at),
            "vcpus" => a.vcpus.cmp(&b.vcpus),
            _ => Ordering::Equal,
        };
        let order = order.then(a.number.cmp(&b.number));
        if self.descending { order.reverse() } else { order }
    }
}

fn publicity(query: &Query) -> Result<Publicity, Refusal> {
    let Some(word) = query.get("is_public") else { return Ok(Publicity::Public) };
    match word.to_ascii_lowercase().as_str() {
        "none" => Ok(Publicity::Any),
        "1" | "t" | "true" | "on" | "y" | "yes" => Ok(Publicity::Public),
        "0" | "f" | "false" | "off" | "n" | "no" => Ok(Publicity::Private),
        _ => Err(Refusal::bad_request(format!("Invalid is_public filter [{word}]"))),
    }
}

fn minimum(query: &Query, key: &str) -> Result<i64, Refusal> {
    query.get(key).map_or(Ok(0), |text| {
        text.trim()
            .parse()
            .map_err(|_| Refusal::bad_request(format!("Invalid {key} filter [{text}]")))
    })
}

fn expression(text: &str) -> Result<Regex, Refusal> {
    Regex::new(text)
        .map_err(|_| input::invalid_query("name", text, "It is not a regular expression."))
}
