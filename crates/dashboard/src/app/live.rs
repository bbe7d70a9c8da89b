//! The changes of servers while pages are open: one loop per process, which runs only while a page is open.
//!
//! ```text
//!   page ── watch(servers, project) ──► Viewer ◄── dirty servers ── the loop ── marks ──► compute
//! ```
//!
//! Twice a second the loop reads the marks of the servers on all open pages together, and notifies each viewer of
//! its servers that have changed. A viewer receives no data: it reads a server again with its own user's token, so
//! it cannot see more than its user may see. Changes accumulate in the viewer until its browser takes them, so a
//! slow browser takes no more memory than the ids of its page's servers and, on the floor, the names of the cloud's
//! hosts.
//! Viewers with the same view of a list share its rows: one of them reads the list after a round.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kilonova_compute_app::Compute;
use kilonova_compute_app::floor::FloorMarks;
use kilonova_compute_app::watch::{Mark, Marks, NEWEST_COUNT};
use kilonova_ids::{HostName, ServerId};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::error::Error;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after a new viewer: others that arrive meanwhile share its round.
const SHORT: Duration = Duration::from_millis(50);
/// Maximum number of pages that a process follows.
const MAX_PAGES: usize = 4096;
/// Maximum number of pages of one user.
const MAX_PAGES_OF_USER: usize = 64;
/// The longest wait for a round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of rounds that a viewer waits for: the current round may not include its servers, but the next one does.
const ROUNDS: usize = 2;

/// Notifies the open pages of a process of changes.
#[derive(Clone)]
pub(crate) struct Live(Arc<Hub>);

struct Hub {
    compute: Compute,
    pages: Mutex<Pages>,
    /// Ends the pause early for a viewer that waits for a round.
    wake: Notify,
    /// The number of the last round that has ended.
    round: AtomicU64,
    lists: Mutex<HashMap<ListKey, Weak<SharedList>>>,
}

/// The key of a list that viewers share: the project, the address of the page, and what the policy lets them see.
pub(crate) type ListKey = (String, String, Vec<bool>);

/// The rows of a list, each with its server's id.
pub(crate) type Rows = Arc<Vec<(ServerId, String)>>;

/// A list that several viewers show: after a round, one of them reads it for all.
#[derive(Default)]
pub(crate) struct SharedList(tokio::sync::Mutex<Option<(u64, Rows)>>);

impl SharedList {
    /// The rows as of this round or a later one; `read` reads them unless another viewer has already done so.
    pub async fn since<E>(
        &self,
        live: &Live,
        round: u64,
        read: impl Future<Output = Result<Vec<(ServerId, String)>, E>>,
    ) -> Result<Rows, E> {
        let mut kept = self.0.lock().await;
        if let Some((at, rows)) = &*kept
            && *at >= round
        {
            return Ok(Arc::clone(rows));
        }
        let now = live.0.round.load(Ordering::SeqCst);
        let rows = Arc::new(read.await?);
        *kept = Some((now, Arc::clone(&rows)));
        Ok(rows)
    }
}

#[derive(Default)]
struct Pages {
    next: u64,
    open: HashMap<u64, Arc<Page>>,
    running: bool,
}

impl Pages {
    /// True if one more page of a user may be open.
    fn admit(&self, user: &str) -> bool {
        let own = self.open.values().filter(|page| page.user == user);
        self.open.len() < MAX_PAGES && own.count() < MAX_PAGES_OF_USER
    }
}

/// The contents of an open page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    /// The servers on it.
    pub servers: BTreeSet<ServerId>,
    /// The project whose new servers it shows, or all projects; the outer `None` for a page that shows no new ones.
    pub list: Option<Option<String>>,
    /// The host that it shows, or all hosts; the outer `None` for a page that shows no hosts.
    pub hosts: Option<Option<HostName>>,
}

/// An open page.
struct Page {
    /// The id of its user.
    user: String,
    servers: Mutex<BTreeSet<ServerId>>,
    list: Option<Option<String>>,
    hosts: Option<Option<HostName>>,
    news: Mutex<News>,
    wake: Notify,
    /// Wakes a viewer that waits for the next round.
    round_done: Notify,
}

/// The changes on a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Servers that have changed or are gone.
    pub servers: BTreeSet<ServerId>,
    /// True if there is a new server.
    pub list: bool,
    /// Hosts that have changed, are new or are gone.
    pub hosts: BTreeSet<HostName>,
    /// The last round that found any of them.
    pub round: u64,
}

impl News {
    fn is_empty(&self) -> bool {
        self.servers.is_empty() && !self.list && self.hosts.is_empty()
    }
}

/// Receives the changes of one page until it is dropped.
pub(crate) struct Viewer {
    hub: Arc<Hub>,
    id: u64,
    page: Arc<Page>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    pub fn new(compute: Compute) -> Self {
        Self(Arc::new(Hub {
            compute,
            pages: Mutex::default(),
            wake: Notify::new(),
            round: AtomicU64::new(0),
            lists: Mutex::default(),
        }))
    }

    /// The list that viewers with this key share.
    pub fn list(&self, key: ListKey) -> Arc<SharedList> {
        let mut lists = lock(&self.0.lists);
        if let Some(shared) = lists.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        lists.retain(|_, list| list.strong_count() > 0);
        let shared = Arc::new(SharedList::default());
        lists.insert(key, Arc::downgrade(&shared));
        shared
    }

    /// Watches servers, new servers and hosts. Returns once their current state is known: the viewer is notified of
    /// everything that is committed afterwards.
    ///
    /// # Errors
    /// Too many pages are open, either of this user or in total.
    pub async fn watch(&self, user: &str, watched: Watched) -> Result<Viewer, Error> {
        let Watched { servers, list, hosts } = watched;
        let page = Arc::new(Page {
            user: user.to_owned(),
            servers: Mutex::new(servers),
            list,
            hosts,
            news: Mutex::default(),
            wake: Notify::new(),
            round_done: Notify::new(),
        });
        let hub = Arc::clone(&self.0);
        let id = {
            let mut pages = lock(&hub.pages);
            if !pages.admit(user) {
                return Err(Error::Crowded);
            }
            let id = pages.next;
            pages.next += 1;
            pages.open.insert(id, Arc::clone(&page));
            if !pages.running {
                pages.running = true;
                tokio::spawn(run(Arc::clone(&hub)));
            }
            id
        };
        let viewer = Viewer { hub, id, page };
        viewer.settle().await;
        Ok(viewer)
    }
}

impl Viewer {
    /// Waits for changes, and takes them.
    pub async fn next(&self) -> News {
        loop {
            self.page.wake.notified().await;
            let news = std::mem::take(&mut *lock(&self.page.news));
            if !news.is_empty() {
                return news;
            }
        }
    }

    /// Watches other servers instead; returns once their current state is known.
    pub async fn show(&self, servers: BTreeSet<ServerId>) {
        *lock(&self.page.servers) = servers;
        self.settle().await;
    }

    /// Waits for a round that begins after this call. Gives up after a timeout if the database does not answer:
    /// later rounds find the changes.
    async fn settle(&self) {
        for _ in 0..ROUNDS {
            let round_done = self.page.round_done.notified();
            self.hub.wake.notify_one();
            if timeout(ROUND_TIMEOUT, round_done).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        lock(&self.hub.pages).open.remove(&self.id);
    }
}

/// Runs rounds until no page is open.
async fn run(hub: Arc<Hub>) {
    let mut before: Option<Marks> = None;
    let mut floor: Option<FloorMarks> = None;
    loop {
        let open: Vec<Arc<Page>> = {
            let mut pages = lock(&hub.pages);
            pages.running = !pages.open.is_empty();
            pages.open.values().cloned().collect()
        };
        if open.is_empty() {
            return;
        }
        let (mut servers, mut lists) = (BTreeSet::new(), BTreeSet::new());
        for page in &open {
            servers.extend(lock(&page.servers).iter().copied());
            lists.extend(page.list.clone());
        }
        let asked: Vec<ServerId> = servers.into_iter().collect();
        match hub.compute.marks(asked, lists.into_iter().collect()).await {
            Ok(marks) => {
                let round = hub.round.fetch_add(1, Ordering::SeqCst) + 1;
                if let Some(before) = &before {
                    tell(&open, before, &marks, round);
                }
                before = Some(marks);
                let shown = open.iter().any(|page| page.hosts.is_some());
                let now = shown.then(|| hub.compute.floor_marks());
                if let Some((before, now)) = floor.as_ref().zip(now.as_ref()) {
                    tell_hosts(&open, &now.changed_since(before), round);
                }
                floor = now;
                open.iter().for_each(|page| page.round_done.notify_waiters());
            }
            // The next round tries again.
            Err(error) => tracing::debug!(%error, "open pages cannot be notified of changes"),
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = hub.wake.notified() => sleep(SHORT).await,
        }
    }
}

/// Notifies each page of its servers that have changed or are gone, and of new servers in its list. A server that the
/// previous round did not watch does not count as changed.
fn tell(open: &[Arc<Page>], before: &Marks, now: &Marks, round: u64) {
    let differs = |(id, old): (&ServerId, &Mark)| (now.servers.get(id) != Some(old)).then_some(*id);
    let changed: BTreeSet<ServerId> = before.servers.iter().filter_map(differs).collect();
    for page in open {
        let servers: BTreeSet<ServerId> =
            lock(&page.servers).intersection(&changed).copied().collect();
        let list = page.list.as_ref().is_some_and(|list| {
            let (old, new) = (before.newest.get(list), now.newest.get(list));
            old.zip(new).is_some_and(|(old, new)| grows(old, new))
        });
        if servers.is_empty() && !list {
            continue;
        }
        let mut news = lock(&page.news);
        news.servers.extend(servers);
        news.list |= list;
        news.round = round;
        drop(news);
        page.wake.notify_one();
    }
}

/// Notifies each page of the changed hosts that it shows.
fn tell_hosts(open: &[Arc<Page>], changed: &[HostName], round: u64) {
    for page in open {
        let Some(shown) = &page.hosts else { continue };
        let own = changed.iter().filter(|name| shown.as_ref().is_none_or(|one| one == *name));
        let own: Vec<HostName> = own.cloned().collect();
        if own.is_empty() {
            continue;
        }
        let mut news = lock(&page.news);
        news.hosts.extend(own);
        news.round = round;
        drop(news);
        page.wake.notify_one();
    }
}

/// True if a list has a new server, even one that was numbered before others but committed after them. If the old list
/// was full, a number below all of its numbers is that of an older server, which replaces a deleted one.
fn grows(old: &[i64], new: &[i64]) -> bool {
    let after = old.last().filter(|_| old.len() >= NEWEST_COUNT);
    new.iter().any(|number| !old.contains(number) && after.is_none_or(|after| number > after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(user: &str, list: &str) -> Arc<Page> {
        Arc::new(Page {
            user: user.to_owned(),
            servers: Mutex::default(),
            list: Some(Some(list.to_owned())),
            hosts: None,
            news: Mutex::default(),
            wake: Notify::new(),
            round_done: Notify::new(),
        })
    }

    #[test]
    fn the_pages_of_a_user_and_of_all_are_limited() {
        let mut pages = Pages::default();
        for id in 0..64 {
            assert!(pages.admit("ann"), "{id}");
            pages.open.insert(id, page("ann", "red"));
        }
        assert!(!pages.admit("ann") && pages.admit("bea"));
        pages.open.remove(&7);
        assert!(pages.admit("ann"));
        for id in 64..4097 {
            assert!(pages.admit("zoe"), "{id}");
            pages.open.insert(id, page(&id.to_string(), "red"));
        }
        assert_eq!(pages.open.len(), 4096);
        assert!(!pages.admit("zoe") && !pages.admit("ann"));
    }

    #[test]
    fn pages_are_told_of_the_hosts_that_they_show() {
        let names = |names: &[&str]| -> Vec<HostName> {
            names.iter().map(|name| HostName::verbatim(*name)).collect()
        };
        let showing = |hosts| {
            let Some(page) = Arc::into_inner(page("ann", "red")) else { unreachable!() };
            Arc::new(Page { hosts, ..page })
        };
        let (floor, host) = (showing(Some(None)), showing(Some(Some(HostName::verbatim("b")))));
        let list = showing(None);
        let open = [Arc::clone(&floor), Arc::clone(&host), Arc::clone(&list)];
        tell_hosts(&open, &names(&["a", "c"]), 3);
        tell_hosts(&open, &names(&["b"]), 4);
        let all = lock(&floor.news).clone();
        assert_eq!((all.hosts, all.round), (names(&["a", "b", "c"]).into_iter().collect(), 4));
        assert_eq!(lock(&host.news).hosts, names(&["b"]).into_iter().collect());
        assert!(lock(&list.news).is_empty());
    }

    #[test]
    fn a_list_is_told_of_a_server_that_commits_after_one_with_a_higher_number() {
        let full: Vec<i64> = (100..150).rev().collect();
        let mut late = full.clone();
        late.remove(3);
        let mut deleted = late.clone();
        deleted.push(99);
        for (old, new, told) in [
            (vec![11], vec![11, 10], true),
            (vec![11], vec![12, 11], true),
            (vec![], vec![1], true),
            (vec![11, 10], vec![11, 10], false),
            (vec![11, 10], vec![10], false),
            (late.clone(), full.clone(), true),
            (full.clone(), deleted.clone(), false),
            (deleted, full, true),
        ] {
            let marks = |numbers: &[i64]| Marks {
                newest: HashMap::from([(Some("red".to_owned()), numbers.to_vec())]),
                ..Marks::default()
            };
            let (red, blue) = (page("ann", "red"), page("bea", "blue"));
            tell(&[Arc::clone(&red), Arc::clone(&blue)], &marks(&old), &marks(&new), 7);
            let expected = News { list: told, round: if told { 7 } else { 0 }, ..News::default() };
            assert_eq!(*lock(&red.news), expected, "{old:?} {new:?}");
            assert_eq!(*lock(&blue.news), News::default());
        }
    }
}
