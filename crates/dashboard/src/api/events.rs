//! `/servers/events`, `/servers/{id}/events`, `/floor/events` and `/hosts/{host}/events`: the changes while a page
//! is open, as server-sent events.
//!
//! ```text
//!   rows     the rows of the servers that have changed; the page finds them by their ids and replaces them
//!   cards    the cards of the hosts that have changed, and the sums of the floor, likewise
//!   list     there are new servers or hosts: the page requests its list again
//!   changed  the server or the host of the page has changed: the page requests its parts again
//!   end      the session has ended: the page closes the stream and shows a notice
//! ```
//!
//! Each stream reads with its own user's token, or reuses the rows read for another viewer to whom the policy shows the
//! same data. It reads only after its browser has received the earlier events, at most three times a second, or once a
//! second for the floor.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{self, Stream};
use kilonova_ids::{HostName, ServerId, parse_uuid_like};
use kilonova_wire::Context;
use kilonova_wire::query::Query;
use kilonova_wire::time;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::answers::Refusal;
use super::bulk;
use super::floor::Open;
use super::host;
use super::server::find;
use super::servers::{Filters, List, May, digest};
use super::viewer::{Viewer, validated};
use crate::app::Dashboard;
use crate::app::live::{News, SharedList, Viewer as Watcher, Watched};
use crate::error::Error;
use crate::views::servers::{gone, row};

/// The pause after each answer, in which changes accumulate.
const ANSWER_PAUSE: Duration = Duration::from_millis(300);
/// The same on the floor, whose cards cost more.
const FLOOR_ANSWER_PAUSE: Duration = Duration::from_secs(1);
/// The same after the whole floor has been read again.
const FLOOR_REREAD_PAUSE: Duration = Duration::from_secs(5);
/// How often the session of a page without changes is checked: another page, or an administrator, may have ended it.
const SESSION_CHECK_EVERY: Duration = Duration::from_secs(10);
/// The pause after a failed read.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Up to this many servers are read one by one; for more, the page's list is read.
const READ_SINGLY: usize = 3;
/// A list with more viewers than this is read once for all of them.
const SHARE_ABOVE: usize = 4;
/// The rules that decide which parts of a list the compute service shows to its caller.
const VIEW_RULES: [&str; 7] = [
    "os_compute_api:servers:detail",
    "os_compute_api:servers:index:get_all_tenants",
    "os_compute_api:os-extended-server-attributes",
    "os_compute_api:servers:show:host_status",
    "os_compute_api:servers:show:host_status:unknown-only",
    "os_compute_api:servers:show:flavor-extra-specs",
    "context_is_admin",
];

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/servers/events", get(of_list))
        .route("/servers/{id}/events", get(of_server))
        .route("/floor/events", get(of_floor))
        .route("/hosts/{host}/events", get(of_host))
}

/// The page that a stream follows.
enum Shown {
    List(Filters, Arc<SharedList>),
    Floor(Box<Open>),
    Host(String),
    Server,
}

/// The reason why a stream's wait ended.
enum Woken {
    /// Something on the page has changed.
    News(News),
    /// Nothing has changed for [`SESSION_CHECK_EVERY`].
    Quiet,
    /// The session has expired.
    Expired,
}

struct Following {
    dashboard: Dashboard,
    viewer: Viewer,
    watcher: Watcher,
    shown: Shown,
    ends: Instant,
    ending: watch::Receiver<bool>,
    /// The earliest time of the next answer.
    rested: Instant,
    ready: VecDeque<Event>,
    over: bool,
}

/// The viewer of a stream.
async fn viewer(request: Request, dashboard: &Dashboard) -> Result<Viewer, Response> {
    let (parts, _) = request.into_parts();
    match Viewer::of(&parts, dashboard).await {
        Ok(Some(viewer)) => Ok(viewer),
        Ok(None) => Err(refuse(Error::NoSession)),
        Err(error) => Err(refuse(error)),
    }
}

/// Refuses a stream. Without a session, or if it ends while the stream opens, the answer is a stream that only reports
/// the end of the session, because a browser would reconnect after a refusal.
fn refuse(error: Error) -> Response {
    if matches!(error, Error::NoSession) || error.is(401) {
        let end = stream::iter([Ok::<_, Infallible>(end())]);
        return Sse::new(end).into_response();
    }
    Refusal(error).into_response()
}

fn end() -> Event {
    Event::default().event("end").data("end")
}

async fn of_list(
    State(dashboard): State<Dashboard>,
    query: Query,
    request: Request,
) -> Result<Response, Response> {
    let viewer = viewer(request, &dashboard).await?;
    let filters = Filters::of(&query, May::of(&dashboard, &viewer));
    // Pages of older servers do not show new ones.
    let project = (!filters.all_projects).then(|| viewer.session.project.clone());
    let news = filters.marker.is_empty().then_some(project);
    let list = List::read(&dashboard, &viewer, &filters).await.map_err(refuse)?;
    let user = &viewer.context.user_id;
    let watched = Watched { servers: list.ids(), list: news, ..Watched::default() };
    let watcher = dashboard.0.live.watch(user, watched).await.map_err(refuse)?;
    // The page was rendered before the watch began, so it is compared with the state read since then.
    let list = List::read(&dashboard, &viewer, &filters).await.map_err(refuse)?;
    let mut ready = VecDeque::new();
    if query.get("shown").is_some_and(|shown| shown != digest(&list.servers)) {
        ready.push_back(Event::default().event("list").data("list"));
    }
    let decisions = decisions(&dashboard, &viewer.context);
    let key = (viewer.session.project.clone(), filters.address(&filters.marker), decisions);
    let shared = dashboard.0.live.list(key);
    Ok(answer(dashboard, viewer, watcher, Shown::List(filters, shared), ready))
}

/// The policy decisions on which the view of a list depends.
fn decisions(dashboard: &Dashboard, user: &Context) -> Vec<bool> {
    let rules = VIEW_RULES.iter().map(|rule| dashboard.0.compute.policy.allows_own(user, rule));
    // Rows that can be chosen for an action have a checkbox.
    rules.chain([!bulk::allowed(dashboard, user).is_empty()]).collect()
}

async fn of_server(
    State(dashboard): State<Dashboard>,
    Path(id): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Response> {
    let viewer = viewer(request, &dashboard).await?;
    let ids: BTreeSet<ServerId> = parse_uuid_like(&id).into_iter().collect();
    let user = &viewer.context.user_id;
    let watched = Watched { servers: ids, ..Watched::default() };
    let watcher = dashboard.0.live.watch(user, watched).await.map_err(refuse)?;
    let server = find(&dashboard, &viewer, &id).await.map_err(refuse)?;
    let mut ready = VecDeque::new();
    if query.get("shown").is_some_and(|shown| digest([&server]) != shown) {
        ready.push_back(Event::default().event("changed").data("changed"));
    }
    Ok(answer(dashboard, viewer, watcher, Shown::Server, ready))
}

async fn of_floor(
    State(dashboard): State<Dashboard>,
    query: Query,
    request: Request,
) -> Result<Response, Response> {
    let viewer = viewer(request, &dashboard).await?;
    // A viewer who may not see the floor is refused before the watch begins.
    if !viewer.session.operates {
        super::floor::some_hosts(&dashboard, &viewer, [""]).await.map_err(refuse)?;
    }
    let watched = Watched { hosts: Some(None), ..Watched::default() };
    let user = &viewer.context.user_id;
    let watcher = dashboard.0.live.watch(user, watched).await.map_err(refuse)?;
    let (open, digest) = Open::of(&dashboard, &viewer, &query).await.map_err(refuse)?;
    let mut ready = VecDeque::new();
    if query.get("shown").is_some_and(|shown| shown != digest) {
        ready.push_back(Event::default().event("list").data("list"));
    }
    Ok(answer(dashboard, viewer, watcher, Shown::Floor(Box::new(open)), ready))
}

async fn of_host(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Response> {
    let viewer = viewer(request, &dashboard).await?;
    let servers = host::servers(&dashboard, &viewer, &name).await.map_err(refuse)?;
    let watched = Watched {
        servers,
        hosts: Some(Some(HostName::verbatim(name.as_str()))),
        ..Watched::default()
    };
    let user = &viewer.context.user_id;
    let watcher = dashboard.0.live.watch(user, watched).await.map_err(refuse)?;
    let found = host::find(&dashboard, &viewer, &name).await.map_err(refuse)?;
    let mut ready = VecDeque::new();
    if query.get("shown").is_some_and(|shown| shown != found.digest()) {
        ready.push_back(Event::default().event("changed").data("changed"));
    }
    Ok(answer(dashboard, viewer, watcher, Shown::Host(name), ready))
}

fn answer(
    dashboard: Dashboard,
    viewer: Viewer,
    watcher: Watcher,
    shown: Shown,
    ready: VecDeque<Event>,
) -> Response {
    let left = viewer.session.expires.saturating_sub(time::now().as_second());
    let left = Duration::from_secs(u64::try_from(left).unwrap_or_default());
    let ends = Instant::now() + left;
    let ending = dashboard.0.ending.subscribe();
    let following = Following {
        dashboard,
        viewer,
        watcher,
        shown,
        ends,
        ending,
        rested: Instant::now(),
        ready,
        over: false,
    };
    Sse::new(following.stream()).keep_alive(KeepAlive::default()).into_response()
}

impl Following {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut following| async {
            let event = following.next().await?;
            Some((Ok(event), following))
        })
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            let (rested, watcher) = (self.rested, &self.watcher);
            let news = async {
                sleep_until(rested).await;
                watcher.next().await
            };
            let woken = tokio::select! {
                news = news => Woken::News(news),
                () = sleep_until(self.ends) => Woken::Expired,
                () = sleep(SESSION_CHECK_EVERY) => Woken::Quiet,
                _ = self.ending.wait_for(|ending| *ending) => return None,
            };
            let read = match woken {
                Woken::News(news) => self.read(news).await,
                Woken::Quiet => match self.check_session().await {
                    Err(end @ (Error::NoSession | Error::Changed)) => Err(end),
                    // A database that does not answer does not end the session.
                    Ok(()) | Err(_) => continue,
                },
                Woken::Expired => Err(Error::NoSession),
            };
            match read {
                Ok(pause) => self.rested = Instant::now() + pause,
                Err(Error::NoSession) => self.finish(),
                // The browser reconnects, and then receives everything.
                Err(error) => {
                    tracing::debug!(%error, "an open page cannot be notified of changes");
                    sleep(RETRY_PAUSE).await;
                    return None;
                }
            }
        }
    }

    fn finish(&mut self) {
        self.ready.push_back(end());
        self.over = true;
    }

    /// Checks the session.
    async fn check_session(&self) -> Result<(), Error> {
        let context = validated(&self.dashboard, &self.viewer.session).await?;
        let context = context.ok_or(Error::NoSession)?;
        // With other roles the list looks different, so the browser has to reconnect.
        if decisions(&self.dashboard, &context) != decisions(&self.dashboard, &self.viewer.context)
        {
            return Err(Error::Changed);
        }
        Ok(())
    }

    /// Reads what has changed, as the user sees it now. Returns the pause before the next answer.
    async fn read(&mut self, news: News) -> Result<Duration, Error> {
        self.check_session().await?;
        match &mut self.shown {
            Shown::Host(name) => {
                // Servers that have moved to the host are watched, too.
                if !news.hosts.is_empty() {
                    match host::servers(&self.dashboard, &self.viewer, name).await {
                        Ok(servers) => self.watcher.show(servers).await,
                        // The host is gone, which the page finds when it requests its parts.
                        Err(error) if error.is(404) => {}
                        Err(error) => return Err(error),
                    }
                }
                self.ready.push_back(Event::default().event("changed").data("changed"));
                Ok(ANSWER_PAUSE)
            }
            Shown::Server => {
                self.ready.push_back(Event::default().event("changed").data("changed"));
                Ok(ANSWER_PAUSE)
            }
            Shown::Floor(open) => {
                let (events, again) = open.news(&self.dashboard, &self.viewer, &news.hosts).await?;
                self.ready.extend(events);
                Ok(if again { FLOOR_REREAD_PAUSE } else { FLOOR_ANSWER_PAUSE })
            }
            Shown::List(filters, shared) => {
                let (filters, shared) = (filters.clone(), Arc::clone(shared));
                self.read_rows(&filters, &shared, news).await?;
                Ok(ANSWER_PAUSE)
            }
        }
    }

    async fn read_rows(
        &mut self,
        filters: &Filters,
        shared: &Arc<SharedList>,
        news: News,
    ) -> Result<(), Error> {
        let mut rows = String::new();
        let all = filters.all_projects;
        let picks = !bulk::allowed(&self.dashboard, &self.viewer.context).is_empty();
        if news.list || news.servers.len() > READ_SINGLY || Arc::strong_count(shared) > SHARE_ABOVE
        {
            let (dashboard, viewer) = (&self.dashboard, &self.viewer);
            let read = async {
                let list = List::read(dashboard, viewer, filters).await?;
                let row = |server: &Value| {
                    let id = server["id"].as_str().and_then(parse_uuid_like)?;
                    Some((id, row(server, all, picks, true).into_string()))
                };
                Ok::<_, Error>(list.servers.iter().filter_map(row).collect())
            };
            let list = shared.since(&dashboard.0.live, news.round, read).await?;
            let mut left = news.servers;
            for (id, row) in list.iter() {
                if left.remove(id) {
                    rows.push_str(row);
                }
            }
            // Servers that are deleted, or that the page's filters now exclude.
            for id in left {
                rows.push_str(&gone(&id.to_string()).into_string());
            }
            if news.list {
                self.watcher.show(list.iter().map(|(id, _)| *id).collect()).await;
                self.ready.push_back(Event::default().event("list").data("list"));
            }
        } else {
            for id in &news.servers {
                let id = id.to_string();
                let html = match find(&self.dashboard, &self.viewer, &id).await {
                    Ok(server) => row(&server, all, picks, true),
                    Err(error) if error.is(404) => gone(&id),
                    Err(error) => return Err(error),
                };
                rows.push_str(&html.into_string());
            }
        }
        if !rows.is_empty() {
            // The data of an event is one line; line breaks in the rows do not matter.
            let rows = rows.replace(['\r', '\n'], " ");
            self.ready.push_front(Event::default().event("rows").data(rows));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// A browser that receives a refusal reconnects, and its page reports a lost connection instead of the end of the
    /// session.
    #[test]
    fn a_session_that_ends_while_a_stream_opens_is_reported_as_its_end() {
        let refused = |status| Error::Refused {
            status,
            message: "The request you have made requires authentication.".into(),
            request: None,
            retry_after: None,
        };
        for error in [Error::NoSession, refused(401)] {
            let answer = refuse(error);
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()["content-type"], "text/event-stream");
        }
        assert_eq!(refuse(refused(403)).status(), StatusCode::FORBIDDEN);
    }
}
