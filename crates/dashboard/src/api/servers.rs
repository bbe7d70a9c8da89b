//! `/` and `/servers`: the servers of the project, newest first, in pages.

use std::collections::BTreeSet;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use kilonova_compute_app::statuses;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::query::{Query, escaped};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::PATH;
use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::views::servers as page;

/// The policy rule for a launch.
pub(super) const LAUNCH_RULE: &str = "os_compute_api:servers:create";
/// Number of servers on a page.
const PAGE: usize = 50;
/// Makes a list contain soft-deleted servers, which can be restored. No other filter with this effect is
/// available to users whom the policy denies some filters.
const SINCE: &str = "changes-since=1970-01-01T00:00:00Z";
pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/", get(|| async { Redirect::to(&format!("{PATH}/servers")).into_response() }))
        .route("/servers", get(show))
}

/// The filters of a list, as in the query of the page's address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filters {
    /// A part of the name.
    pub name: String,
    /// Nova's status.
    pub status: String,
    /// A part of an IP address.
    pub ip: String,
    /// A host.
    pub host: String,
    /// True for the servers of all projects.
    pub all_projects: bool,
    /// The server after which the page begins.
    pub marker: String,
}

/// The filters that a user's role allows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct May {
    /// True if the user may list the servers of all projects.
    pub see_all: bool,
    /// True if the user may filter by host. The service ignores this filter for other users.
    pub name_hosts: bool,
}

impl May {
    pub(super) fn of(dashboard: &Dashboard, viewer: &Viewer) -> Self {
        let rule = "os_compute_api:servers:allow_all_filters";
        let name_hosts = dashboard.0.compute.policy.allows_own(&viewer.context, rule);
        Self { see_all: may_see_all(dashboard, viewer), name_hosts }
    }
}

impl Filters {
    pub(super) fn of(query: &Query, may: May) -> Self {
        let text = |key: &str| query.get(key).unwrap_or_default().trim().to_owned();
        Self {
            name: text("name"),
            status: text("status"),
            ip: text("ip"),
            host: if may.name_hosts { text("host") } else { String::new() },
            all_projects: may.see_all && query.get("all").is_some(),
            marker: text("marker"),
        }
    }

    /// True if filters may hide servers of the project.
    pub(crate) fn narrow(&self) -> bool {
        [&self.name, &self.status, &self.ip, &self.host].iter().any(|text| !text.is_empty())
    }

    /// The query in the address of the page that begins after the marker.
    pub(crate) fn address(&self, marker: &str) -> String {
        let mut pairs = Vec::new();
        if !self.name.is_empty() {
            pairs.push(format!("name={}", escaped(&self.name)));
        }
        for (key, text) in [("status", &self.status), ("ip", &self.ip), ("host", &self.host)] {
            if !text.is_empty() {
                pairs.push(format!("{key}={}", escaped(text)));
            }
        }
        if self.all_projects {
            pairs.push("all=1".to_owned());
        }
        if !marker.is_empty() {
            pairs.push(format!("marker={}", escaped(marker)));
        }
        pairs.join("&")
    }

    /// The path of the list at the compute service.
    fn path(&self) -> String {
        let mut path = format!("/compute/v2.1/servers/detail?limit={}&{SINCE}", PAGE + 1);
        if self.status.is_empty() {
            path.extend(statuses::OF_EXISTING.map(|status| format!("&status={status}")));
        }
        if !self.name.is_empty() {
            // The service expects a regular expression; users type literal text.
            path.push_str(&format!("&name={}", escaped(&literal(&self.name))));
        }
        for (key, text) in [("status", &self.status), ("ip", &self.ip), ("host", &self.host)] {
            if !text.is_empty() {
                path.push_str(&format!("&{key}={}", escaped(text)));
            }
        }
        if self.all_projects {
            path.push_str("&all_tenants=1");
        }
        if !self.marker.is_empty() {
            path.push_str(&format!("&marker={}", escaped(&self.marker)));
        }
        path
    }
}

/// A regular expression that matches the text literally.
fn literal(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

/// A page of servers.
pub(crate) struct List {
    /// Its servers.
    pub servers: Vec<Value>,
    /// True if there are older ones.
    pub more: bool,
}

impl List {
    pub(super) async fn read(
        dashboard: &Dashboard,
        viewer: &Viewer,
        filters: &Filters,
    ) -> Result<Self, Error> {
        let mut all = dashboard.0.cloud.get(&viewer.caller, &filters.path()).await?;
        let mut servers = match all["servers"].take() {
            Value::Array(servers) => servers,
            _ => return Err(Error::Defect("the list of servers is not an array".into())),
        };
        let more = servers.len() > PAGE;
        servers.truncate(PAGE);
        Ok(Self { servers, more })
    }

    /// The ids of the servers.
    pub(super) fn ids(&self) -> BTreeSet<ServerId> {
        let ids = self.servers.iter().filter_map(|server| server["id"].as_str());
        ids.filter_map(parse_uuid_like).collect()
    }
}

/// A digest that differs between pages that show these servers differently.
pub(crate) fn digest<'a>(servers: impl IntoIterator<Item = &'a Value>) -> String {
    const SHOWN: [&str; 5] = ["id", "updated", "status", "OS-EXT-STS:task_state", "locked"];
    let mut hash = Sha256::new();
    for server in servers {
        for key in SHOWN {
            hash.update(server[key].to_string());
            hash.update([0]);
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// True if the user may list the servers of all projects.
pub(super) fn may_see_all(dashboard: &Dashboard, viewer: &Viewer) -> bool {
    let rule = "os_compute_api:servers:index:get_all_tenants";
    dashboard.0.compute.policy.allows_own(&viewer.context, rule)
}

/// True if the user may launch servers in the project.
pub(super) fn may_launch(dashboard: &Dashboard, viewer: &Viewer) -> bool {
    dashboard.0.compute.policy.allows_own(&viewer.context, LAUNCH_RULE)
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let may = May::of(&dashboard, &viewer);
    let filters = Filters::of(&query, may);
    let list = List::read(&dashboard, &viewer, &filters).await?;
    Ok(Html(page::page(&page::Shown {
        session: &viewer.session,
        filters: &filters,
        list: &list,
        may,
        launches: may_launch(&dashboard, &viewer),
        bulk: &super::bulk::allowed(&dashboard, &viewer.context),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_page_keeps_its_filters() {
        let query = Query::parse("name=a.b&status=ACTIVE&ip=10.0&host=h1&all=1&marker=x");
        let filters = Filters::of(&query, May { see_all: true, name_hosts: true });
        let address = "name=a.b&status=ACTIVE&ip=10.0&host=h1&all=1&marker=y";
        assert_eq!(filters.address("y"), address);
        assert_eq!(
            filters.path(),
            "/compute/v2.1/servers/detail?limit=51&changes-since=1970-01-01T00:00:00Z&name=a%5C.b&status=ACTIVE&ip=10.0&host=h1&all_tenants=1&marker=x"
        );
        let others = Filters::of(&query, May::default());
        assert!(!others.all_projects && others.host.is_empty(), "not for every user");
        let none = Filters::of(&Query::default(), May::default());
        assert!(none.path().contains("Z&status=ACTIVE&status=BUILD&"), "{}", none.path());
        assert_eq!((none.address(""), none.narrow()), (String::new(), false));
    }
}
