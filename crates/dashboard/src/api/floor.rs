//! `/floor`: every host with its devices; and what changes on it while its page is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::response::sse::Event;
use axum::routing::get;
use kilonova_ids::HostName;
use kilonova_wire::query::{Query, escaped};

use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::floor::{Answer, Host, Projects, Use};
use crate::app::recent::{Before, Page};
use crate::error::Error;
use crate::views::floor as page;
use crate::views::units::Look;

/// Maximum number of hosts on one page.
const PAGE: usize = 1000;
/// Hosts in one answer of the service. A host with 256 vGPUs takes about 100 KB, and an answer may have 16 MiB: so each may
/// take three times as much.
const READ: usize = 50;
/// Up to so many hosts are told one by one; for more, the page reads itself again.
const FEW: usize = 50;
/// From this number of hosts on, they are drawn small unless the reader chooses otherwise.
const CROWD: usize = 40;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/floor", get(show))
}

/// The choices of a page, as its address has them.
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
            /// All of them, the usual one first.
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

    /// The query of a page's address, with another first host.
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

    /// True if the page may lack hosts.
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
                    && host.totals().get(&Use::Free).is_some_and(|n| *n > 0)
            }
            Show::Down => !host.is_up(),
            Show::Disabled => host.is_disabled(),
        };
        shown && host.name.to_lowercase().contains(&self.name.to_lowercase())
    }

    /// True if so many hosts are drawn small.
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
    /// Those that pass its filters.
    pub hosts: Vec<Arc<Host>>,
    /// The count before the filters.
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
        let Page { mut hosts, next } = page_of(dashboard, viewer, &choices.marker).await?;
        let all = hosts.len();
        hosts.retain(|host| choices.pass(host));
        Ok(Self { hosts, all, next, projects: projects(dashboard, viewer).await? })
    }

    /// Differs between two pages that show something else.
    pub(crate) fn digest(&self) -> String {
        let all = self.hosts.iter().map(|host| host.fingerprint());
        format!("{:016x}", all.fold(0_u64, |sum, one| sum.rotate_left(7) ^ one))
    }
}

/// The hosts after a marker: those that were read last, with what has changed since, or all of them.
async fn page_of(dashboard: &Dashboard, viewer: &Viewer, marker: &str) -> Result<Page, Error> {
    // Taken first: whatever changes while the hosts are read counts as changed at the next reading.
    dashboard.0.compute.catch_up().await;
    let before = Before { marks: dashboard.0.compute.floor_marks(), at: Instant::now() };
    let floor = &dashboard.0.recent_floor;
    if let Some(recent) = floor.get(marker, &before) {
        let mut now = Vec::new();
        let names: Vec<&str> = recent.changed.iter().map(|name| &**name).collect();
        // The service answers each viewer itself, also when nothing has changed.
        let none: &[&str] = &[""];
        let asked = names.chunks(READ).chain(names.is_empty().then_some(none));
        for some in asked {
            now.extend(some_hosts(dashboard, viewer, some.iter().copied()).await?);
        }
        let recent = recent.with(now);
        if recent.page.hosts.len() <= PAGE {
            floor.update(marker, &recent, before);
            return Ok(recent.page);
        }
    }
    let (mut hosts, mut next) = (Vec::new(), Some(marker.to_owned()));
    while let Some(marker) = next.take_if(|_| hosts.len() < PAGE) {
        let mut path = format!("/compute/v2.1/kilonova/floor?limit={READ}");
        if !marker.is_empty() {
            path.push_str(&format!("&marker={}", escaped(&marker)));
        }
        let answer: Answer = dashboard.0.cloud.read(&viewer.caller, &path).await?;
        hosts.extend(answer.floor.hosts.into_iter().map(Arc::new));
        next = answer.floor.next_marker;
    }
    let page = Page { hosts, next };
    floor.keep(marker, &page, before);
    Ok(page)
}

/// The projects of the cloud; none for an operator who may not list them.
pub(super) async fn projects(dashboard: &Dashboard, viewer: &Viewer) -> Result<Projects, Error> {
    match dashboard.0.cloud.get(&viewer.caller, "/identity/v3/projects").await {
        Ok(list) => Ok(Projects::of(&list)),
        Err(error) if error.is(403) => Ok(Projects::default()),
        Err(error) => Err(error),
    }
}

/// Some hosts by their names, as far as they exist.
pub(super) async fn some_hosts(
    dashboard: &Dashboard,
    viewer: &Viewer,
    names: impl IntoIterator<Item = &str>,
) -> Result<Vec<Host>, Error> {
    let names: Vec<String> =
        names.into_iter().map(|name| format!("host={}", escaped(name))).collect();
    let path = format!("/compute/v2.1/kilonova/floor?{}", names.join("&"));
    let Answer { floor } = dashboard.0.cloud.read(&viewer.caller, &path).await?;
    Ok(floor.hosts)
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
    /// The state at the begin of a stream, and the digest of its page.
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

    /// The news for the page after some hosts have changed: their cards and the sums, or to read itself again. The
    /// second value is true in the latter case.
    pub(super) async fn news(
        &mut self,
        dashboard: &Dashboard,
        viewer: &Viewer,
        names: &BTreeSet<HostName>,
    ) -> Result<(Vec<Event>, bool), Error> {
        let again = || Event::default().event("list").data("list");
        if names.len() > FEW {
            let floor = Floor::read(dashboard, viewer, &self.choices).await?;
            self.hosts = floor.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
            self.small = self.choices.is_small(self.hosts.len());
            return Ok((vec![again()], true));
        }
        let changed = some_hosts(dashboard, viewer, names.iter().map(|name| &**name)).await?;
        let mut changed: BTreeMap<String, Host> =
            changed.into_iter().map(|host| (host.name.clone(), host)).collect();
        let projects = projects(dashboard, viewer).await?;
        let look = Look { colour: self.choices.colour, small: self.small, projects: &projects };
        let (mut cards, mut new) = (String::new(), false);
        for name in names {
            let name: &str = name;
            let shown = self.hosts.contains_key(name);
            match changed.remove(name) {
                // A card stays while its page is open, even if the filters would leave it out now.
                Some(host) if shown => {
                    let known = self.hosts.get(name).map(|host| host.fingerprint());
                    if known != Some(host.fingerprint()) {
                        cards.push_str(&page::changed_card(&host, &look).into_string());
                    }
                    self.hosts.insert(name.to_owned(), Arc::new(host));
                }
                Some(host) if self.choices.pass(&host) => {
                    let first = self.choices.marker.as_str() < name;
                    new |= first && self.hosts.len() < PAGE;
                    if new {
                        self.hosts.insert(name.to_owned(), Arc::new(host));
                    }
                }
                Some(_) => {}
                None if shown => {
                    self.hosts.remove(name);
                    cards.push_str(&page::gone(name).into_string());
                }
                None => {}
            }
        }
        if new {
            self.small = self.choices.is_small(self.hosts.len());
            return Ok((vec![again()], true));
        }
        if cards.is_empty() {
            return Ok((Vec::new(), false));
        }
        let hosts: Vec<&Host> = self.hosts.values().map(AsRef::as_ref).collect();
        cards.push_str(&page::changed_sums(&hosts, &look).into_string());
        let cards = cards.replace(['\r', '\n'], " ");
        Ok((vec![Event::default().event("cards").data(cards)], false))
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
