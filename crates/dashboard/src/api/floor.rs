//! `/floor`: every host with its devices, and the changes while the page is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::response::sse::Event;
use axum::routing::get;
use kilonova_compute_app::floor::{Extent, FloorQuery};
use kilonova_ids::HostName;
use kilonova_wire::IntoRefusal;
use kilonova_wire::query::{Query, escaped};
use kilonova_wire::refusal::Kind;

use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::floor::{Host, Projects, Use};
use crate::app::recent::{Before, Page, PageKey};
use crate::error::Error;
use crate::views::floor as page;
use crate::views::units::Look;

/// Maximum number of hosts on one page.
const PAGE: usize = 1000;
/// Up to this many changed hosts are sent one by one; for more, the page requests its list again.
const SEND_SINGLY: usize = 50;
/// More hosts than this are drawn small unless the user chooses otherwise.
const CROWD: usize = 40;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/floor", get(show))
}

/// The choices of a page, as in the query of its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    /// A part of the host's name.
    pub name: String,
    /// Which hosts are shown.
    pub show: Show,
    /// The property by which they are grouped.
    pub group: Group,
    /// The meaning of colours.
    pub colour: Colour,
    /// How large they are drawn.
    pub size: Size,
    /// The host after which the page begins.
    pub marker: String,
}

/// A choice of a form.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $first:ident = $usual:literal, $($variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) enum $name { #[default] $first, $($variant,)* }

        impl $name {
            /// All choices, the default first.
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$variant,)*];

            /// The word in addresses.
            pub fn word(self) -> &'static str {
                match self { Self::$first => $usual, $(Self::$variant => $word,)* }
            }

            fn of(word: &str) -> Self {
                Self::ALL.iter().copied().find(|one| one.word() == word).unwrap_or_default()
            }
        }
    };
}

choice! {
    /// Which hosts are shown.
    Show { All = "all", Problems = "problems", Free = "free", Down = "down", Disabled = "disabled", }
}

choice! {
    /// The property by which hosts are grouped.
    Group { Zone = "zone", Aggregate = "aggregate", Model = "model", Nothing = "nothing", }
}

choice! {
    /// The meaning of a unit's colour.
    Colour { Project = "project", Server = "server", Health = "health", }
}

choice! {
    /// How large hosts are drawn.
    Size { Fitting = "fitting", Large = "large", Small = "small", }
}

impl Choices {
    fn of(query: &Query) -> Self {
        let text = |key: &str| query.get(key).unwrap_or_default().trim();
        Self {
            name: text("name").to_owned(),
            show: Show::of(text("show")),
            group: Group::of(text("group")),
            colour: Colour::of(text("colour")),
            size: Size::of(text("size")),
            marker: text("marker").to_owned(),
        }
    }

    /// The query in the address of the page that begins after the marker.
    pub(crate) fn address(&self, marker: &str) -> String {
        let all = [
            ("name", self.name.as_str()),
            ("show", self.show.word()),
            ("group", self.group.word()),
            ("colour", self.colour.word()),
            ("size", self.size.word()),
            ("marker", marker),
        ];
        let given = all.iter().filter(|(_, value)| !value.is_empty());
        given.map(|(key, value)| format!("{key}={}", escaped(value))).collect::<Vec<_>>().join("&")
    }

    /// True if filters may hide hosts.
    pub(crate) fn narrow(&self) -> bool {
        !self.name.is_empty() || self.show != Show::All
    }

    fn pass(&self, host: &Host) -> bool {
        let shown = match self.show {
            Show::All => true,
            Show::Problems => host.has_problem(),
            Show::Free => {
                host.is_up()
                    && !host.is_disabled()
                    && host.sums().states.get(&Use::Free).is_some_and(|n| *n > 0)
            }
            Show::Down => !host.is_up(),
            Show::Disabled => host.is_disabled(),
        };
        shown && host.name.to_lowercase().contains(&self.name.to_lowercase())
    }

    /// True if this many hosts are drawn small.
    pub(crate) fn is_small(&self, hosts: usize) -> bool {
        match self.size {
            Size::Fitting => hosts > CROWD,
            Size::Large => false,
            Size::Small => true,
        }
    }
}

/// The hosts of a page.
pub(crate) struct Floor {
    /// The hosts that pass the filters.
    pub hosts: Vec<Arc<Host>>,
    /// The number of hosts before the filters.
    pub all: usize,
    /// The marker of the next page.
    pub next: Option<String>,
    /// The projects of the cloud.
    pub projects: Projects,
}

impl Floor {
    pub(super) async fn read(
        dashboard: &Dashboard,
        viewer: &Viewer,
        choices: &Choices,
    ) -> Result<Self, Error> {
        let (Page { mut hosts, next }, extent) = page_of(dashboard, viewer, choices).await?;
        let all = hosts.len();
        hosts.retain(|host| choices.pass(host));
        // The filters leave few hosts, which are drawn large, but hosts that were read for a small drawing lack the
        // details.
        if extent == Extent::Drawing && !choices.is_small(hosts.len()) {
            let few = hosts.iter().map(|host| HostName::verbatim(host.name.as_str())).collect();
            hosts = chosen_hosts(dashboard, few, Extent::Details)
                .await?
                .into_iter()
                .map(Arc::new)
                .collect();
        }
        Ok(Self { hosts, all, next, projects: projects(dashboard, viewer).await? })
    }

    /// A digest that differs between pages that show different states.
    pub(crate) fn digest(&self) -> String {
        let all = self.hosts.iter().map(|host| host.fingerprint());
        format!("{:016x}", all.fold(0_u64, |sum, one| sum.rotate_left(7) ^ one))
    }
}

/// The hosts of a page: those of the last read, updated with the hosts that have changed since, or all hosts read anew.
/// The second value is what was read of them.
async fn page_of(
    dashboard: &Dashboard,
    viewer: &Viewer,
    choices: &Choices,
) -> Result<(Page, Extent), Error> {
    admit(dashboard, viewer).await?;
    // Taken first, so that a change during the read counts as a change at the next read.
    dashboard.0.compute.catch_up().await;
    let before = Before { marks: dashboard.0.compute.floor_marks(), at: Instant::now() };
    let floor = &dashboard.0.recent_floor;
    let extent = extent_of(choices.is_small(before.marks.hosts()));
    let key = PageKey { marker: choices.marker.clone(), extent };
    if let Some(recent) = floor.get(&key, &before) {
        let now = chosen_hosts(dashboard, recent.changed.clone(), extent).await?;
        let recent = recent.with(now);
        if recent.page.hosts.len() <= PAGE {
            floor.update(&key, &recent, before);
            return Ok((recent.page, extent));
        }
    }
    let after = Some(key.marker.as_str()).filter(|marker| !marker.is_empty());
    let after = after.map(HostName::verbatim);
    let query = FloorQuery { hosts: Vec::new(), after, limit: PAGE, extent };
    let (hosts, more) = read(dashboard, query).await?;
    let next = hosts.last().filter(|_| more).map(|host| host.name.clone());
    let page = Page { hosts: floor.with_known(&key, hosts), next };
    floor.keep(&key, &page, before);
    Ok((page, extent))
}

/// The values that a drawing shows.
fn extent_of(is_small: bool) -> Extent {
    if is_small { Extent::Drawing } else { Extent::Details }
}

/// Lets the compute service decide whether the viewer may see the floor, by requesting zero hosts.
async fn admit(dashboard: &Dashboard, viewer: &Viewer) -> Result<(), Error> {
    let nobody = "/compute/v2.1/kilonova/floor?host=";
    dashboard.0.cloud.get(&viewer.caller, nobody).await.map(drop)
}

/// Reads hosts as the service does. The second value is true if others follow. The caller has admitted the viewer.
async fn read(dashboard: &Dashboard, query: FloorQuery) -> Result<(Vec<Host>, bool), Error> {
    let found = kilonova_compute_app::floor::floor(&dashboard.0.compute, query).await;
    let mut found = found.map_err(|error| {
        let refusal = error.into_refusal();
        match refusal.kind {
            Kind::Unavailable => Error::Refused {
                status: 503,
                message: refusal.message,
                request: None,
                retry_after: refusal.retry_after,
            },
            _ => Error::Defect(format!("the floor: {refusal:?}")),
        }
    })?;
    let hosts = std::mem::take(&mut found.hosts);
    Ok((hosts.into_iter().map(|host| Host::of(&found, host)).collect(), found.more))
}

async fn chosen_hosts(
    dashboard: &Dashboard,
    hosts: Vec<HostName>,
    extent: Extent,
) -> Result<Vec<Host>, Error> {
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    let limit = hosts.len();
    Ok(read(dashboard, FloorQuery { hosts, after: None, limit, extent }).await?.0)
}

/// The projects of the cloud; none for an operator who may not list them.
pub(super) async fn projects(dashboard: &Dashboard, viewer: &Viewer) -> Result<Projects, Error> {
    match dashboard.0.cloud.get(&viewer.caller, "/identity/v3/projects").await {
        Ok(list) => Ok(Projects::of(&list)),
        Err(error) if error.is(403) => Ok(Projects::default()),
        Err(error) => Err(error),
    }
}

/// The named hosts that exist.
pub(super) async fn some_hosts(
    dashboard: &Dashboard,
    viewer: &Viewer,
    names: impl IntoIterator<Item = &str>,
) -> Result<Vec<Host>, Error> {
    admit(dashboard, viewer).await?;
    chosen_hosts(dashboard, names.into_iter().map(HostName::verbatim).collect(), Extent::Details)
        .await
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let choices = Choices::of(&query);
    let floor = Floor::read(&dashboard, &viewer, &choices).await?;
    Ok(Html(page::page(&viewer.session, &choices, &floor)))
}

/// The hosts on an open page.
pub(super) struct Open {
    choices: Choices,
    /// True if they are drawn small.
    small: bool,
    hosts: BTreeMap<String, Arc<Host>>,
}

impl Open {
    /// The state at the beginning of a stream, and the digest of its page.
    pub(super) async fn of(
        dashboard: &Dashboard,
        viewer: &Viewer,
        query: &Query,
    ) -> Result<(Self, String), Error> {
        let choices = Choices::of(query);
        let floor = Floor::read(dashboard, viewer, &choices).await?;
        let digest = floor.digest();
        let small = choices.is_small(floor.hosts.len());
        let hosts = floor.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        Ok((Self { choices, small, hosts }, digest))
    }

    /// The events for the page after some hosts have changed: their cards and the sums, or a request to read its list
    /// again. The second value is true in the latter case.
    pub(super) async fn news(
        &mut self,
        dashboard: &Dashboard,
        viewer: &Viewer,
        names: &BTreeSet<HostName>,
    ) -> Result<(Vec<Event>, bool), Error> {
        if names.len() > SEND_SINGLY {
            return self.again(dashboard, viewer).await;
        }
        admit(dashboard, viewer).await?;
        let changed = names.iter().cloned().collect();
        let changed = chosen_hosts(dashboard, changed, extent_of(self.small)).await?;
        let mut changed: BTreeMap<String, Host> =
            changed.into_iter().map(|host| (host.name.clone(), host)).collect();
        let projects = projects(dashboard, viewer).await?;
        let look = Look { colour: self.choices.colour, small: self.small, projects: &projects };
        let mut cards = String::new();
        for name in names {
            let name: &str = name;
            let shown = self.hosts.contains_key(name);
            match changed.remove(name) {
                // A card stays while its page is open, even if the filters would now exclude it.
                Some(host) if shown => {
                    let known = self.hosts.get(name).map(|host| host.fingerprint());
                    if known != Some(host.fingerprint()) {
                        cards.push_str(&page::changed_card(&host, &look).into_string());
                    }
                    self.hosts.insert(name.to_owned(), Arc::new(host));
                }
                Some(host)
                    if self.choices.pass(&host)
                        && self.choices.marker.as_str() < name
                        && self.hosts.len() < PAGE =>
                {
                    return self.again(dashboard, viewer).await;
                }
                Some(_) => {}
                None if shown => {
                    self.hosts.remove(name);
                    cards.push_str(&page::gone(name).into_string());
                }
                None => {}
            }
        }
        if cards.is_empty() {
            return Ok((Vec::new(), false));
        }
        let hosts: Vec<&Host> = self.hosts.values().map(AsRef::as_ref).collect();
        cards.push_str(&page::changed_sums(&hosts, &look).into_string());
        let cards = cards.replace(['\r', '\n'], " ");
        Ok((vec![Event::default().event("cards").data(cards)], false))
    }

    /// Makes the page request its list again, and remembers the hosts that the page then shows.
    async fn again(
        &mut self,
        dashboard: &Dashboard,
        viewer: &Viewer,
    ) -> Result<(Vec<Event>, bool), Error> {
        let floor = Floor::read(dashboard, viewer, &self.choices).await?;
        self.small = self.choices.is_small(floor.hosts.len());
        self.hosts = floor.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        Ok((vec![Event::default().event("list").data("list")], true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::floor::tests::host;

    #[test]
    fn the_address_of_a_page_keeps_its_choices() {
        let query =
            Query::parse("name=gpu&show=problems&group=model&colour=health&size=small&marker=a");
        let choices = Choices::of(&query);
        assert_eq!(
            choices.address("b/c"),
            "name=gpu&show=problems&group=model&colour=health&size=small&marker=b%2Fc"
        );
        assert_eq!(Choices::of(&Query::parse("show=x&group=")), Choices::default());
        assert!(choices.narrow() && !Choices::default().narrow());
    }

    #[test]
    fn hosts_are_chosen_by_name_and_state() {
        let mut one = host("GPU-1", vec![]);
        let choices = |text: &str| Choices::of(&Query::parse(text));
        assert!(choices("name=gpu").pass(&one) && !choices("name=fpga").pass(&one));
        assert!(!choices("show=problems").pass(&one) && !choices("show=free").pass(&one));
        one.state = "down".into();
        assert!(choices("show=problems").pass(&one) && choices("show=down").pass(&one));
        one.status = "disabled".into();
        assert!(choices("show=disabled").pass(&one));
    }
}
