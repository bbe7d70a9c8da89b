//! The pages of the floor that were read last. A page that is opened soon afterwards reads only the hosts that have
//! changed since; a page that is read as a whole keeps the unchanged hosts of the last one, with their drawings. A
//! viewer receives a page only after the service has admitted that viewer: this file never decides who sees what.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use kilonova_compute_app::floor::{Extent, FloorMarks};
use kilonova_ids::HostName;

use super::floor::Host;

/// How long a page is used after it was read as a whole. Changes that the marks do not cover appear with this delay: a
/// new name of a server, the aggregates of a host, or the end of programming if no amount changes.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long the hosts of a page are kept for comparison with newer ones.
const COMPARED: Duration = Duration::from_secs(60);
/// Maximum number of changed hosts on a page; with more, the page is read as a whole again.
const MAX_CHANGED: usize = 200;
/// Maximum number of pages that are kept.
const PAGES: usize = 5;

/// The key of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageKey {
    /// The host after which it begins; empty for the first one.
    pub marker: String,
    /// The values that were read of its hosts.
    pub extent: Extent,
}

/// The hosts of one page of the service, in the order of their names, before filters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    pub hosts: Vec<Arc<Host>>,
    /// The marker of the next page.
    pub next: Option<String>,
}

/// The state of the cloud before a page is read.
#[derive(Debug, Clone)]
pub(crate) struct Before {
    pub marks: FloorMarks,
    pub at: Instant,
}

#[derive(Debug, Clone)]
struct Kept {
    page: Page,
    marks: FloorMarks,
    /// When the read of the whole page began.
    begun: Instant,
}

/// A page that was kept, and what has changed on it.
#[derive(Debug)]
pub(crate) struct Recent {
    pub page: Page,
    pub changed: Vec<HostName>,
    begun: Instant,
}

/// The pages that were read last.
#[derive(Debug, Default)]
pub(crate) struct RecentFloor(Mutex<BTreeMap<PageKey, Kept>>);

impl RecentFloor {
    /// A page, and the hosts on it that have changed since it was read; `None` if it has to be read as a whole.
    pub fn get(&self, key: &PageKey, now: &Before) -> Option<Recent> {
        let Kept { page, marks, begun } = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            forget_old(&mut kept, now.at);
            kept.get(key).filter(|kept| kept.age(now.at) <= MAX_AGE).cloned()?
        };
        let marker = key.marker.as_str();
        let is_here = |name: &HostName| {
            let name: &str = name;
            name > marker && page.next.as_deref().is_none_or(|next| name <= next)
        };
        let changed: Vec<HostName> =
            now.marks.changed_since(&marks).into_iter().filter(is_here).collect();
        (changed.len() <= MAX_CHANGED).then_some(Recent { page, changed, begun })
    }

    /// The hosts of a page that was read as a whole. Hosts that are unchanged since the page was last kept
    /// are shared with the kept page.
    pub fn with_known(&self, key: &PageKey, hosts: Vec<Host>) -> Vec<Arc<Host>> {
        let known = {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get(key).map(|kept| kept.page.hosts.clone()).unwrap_or_default()
        };
        let known: BTreeMap<&str, &Arc<Host>> =
            known.iter().map(|host| (host.name.as_str(), host)).collect();
        let share = |host: Host| match known.get(host.name.as_str()) {
            Some(same) if ***same == host => Arc::clone(same),
            _ => Arc::new(host),
        };
        hosts.into_iter().map(share).collect()
    }

    /// Keeps a page that was read as a whole.
    pub fn keep(self: &Arc<Self>, key: &PageKey, page: &Page, before: Before) {
        self.set(key, page, before.marks, before.at);
        let of: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(COMPARED + Duration::from_secs(1)).await;
            if let Some(recent) = of.upgrade() {
                let mut kept = recent.0.lock().unwrap_or_else(PoisonError::into_inner);
                forget_old(&mut kept, Instant::now());
            }
        });
    }

    /// Keeps a page whose changed hosts were read. Its age still counts from the read of the whole page.
    pub fn update(&self, key: &PageKey, recent: &Recent, before: Before) {
        self.set(key, &recent.page, before.marks, recent.begun);
    }

    fn set(&self, key: &PageKey, page: &Page, marks: FloorMarks, begun: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= PAGES && !kept.contains_key(key) {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.begun);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                kept.remove(&oldest);
            }
        }
        kept.insert(key.clone(), Kept { page: page.clone(), marks, begun });
    }
}

/// Frees the memory of pages that are too old.
fn forget_old(kept: &mut BTreeMap<PageKey, Kept>, now: Instant) {
    kept.retain(|_, kept| kept.age(now) <= COMPARED);
}

impl Kept {
    /// The time since the read of the whole page began.
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }
}

impl Recent {
    /// Replaces the changed hosts by those in `now`; hosts that `now` lacks are gone.
    pub fn with(mut self, now: Vec<Host>) -> Self {
        if self.changed.is_empty() {
            return self;
        }
        let mut all: BTreeMap<String, Arc<Host>> =
            self.page.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        for name in &self.changed {
            all.remove(&**name);
        }
        all.extend(now.into_iter().map(|host| (host.name.clone(), Arc::new(host))));
        self.page.hosts = all.into_values().collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::floor::tests::host;

    fn before(at: Instant) -> Before {
        Before { marks: FloorMarks::default(), at }
    }

    fn page(names: &[&str], next: Option<&str>) -> Page {
        let hosts = names.iter().map(|name| Arc::new(host(name, vec![]))).collect();
        Page { hosts, next: next.map(str::to_owned) }
    }

    #[test]
    fn changed_hosts_are_replaced_in_their_places() {
        let changed = ["aa", "b", "c"].map(HostName::verbatim).to_vec();
        let page = page(&["a", "b", "c"], Some("c"));
        let recent = Recent { page, changed, begun: Instant::now() };
        let mut new = host("b", vec![]);
        new.state = "down".into();
        let page = recent.with(vec![host("aa", vec![]), new]).page;
        let names: Vec<&str> = page.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["a", "aa", "b"]);
        assert_eq!(page.hosts[2].state, "down");
        assert_eq!(page.next.as_deref(), Some("c"));
    }

    fn key(marker: &str) -> PageKey {
        PageKey { marker: marker.to_owned(), extent: Extent::Drawing }
    }

    #[tokio::test]
    async fn a_page_is_kept_for_a_while_from_the_begin_of_its_reading() {
        let recent = Arc::new(RecentFloor::default());
        let (begun, first) = (Instant::now(), key(""));
        assert!(recent.get(&first, &before(begun)).is_none());
        recent.keep(&first, &page(&["a"], None), before(begun));
        let kept = recent.get(&first, &before(begun + MAX_AGE)).expect("it is kept");
        assert_eq!((kept.page.hosts.len(), kept.changed.len()), (1, 0));
        recent.update(&first, &kept, before(begun + MAX_AGE));
        assert!(recent.get(&key("a"), &before(begun)).is_none(), "another page");
        let detailed = PageKey { extent: Extent::Details, ..first.clone() };
        assert!(recent.get(&detailed, &before(begun)).is_none(), "this one lacks the details");
        let late = begun + MAX_AGE + Duration::from_secs(1);
        assert!(recent.get(&first, &before(late)).is_none(), "a change does not make it younger");
        let late = begun + COMPARED + Duration::from_secs(1);
        assert!(recent.get(&first, &before(late)).is_none());
        assert!(recent.0.lock().expect("not poisoned").is_empty(), "its memory is free");
    }

    #[tokio::test]
    async fn equal_hosts_of_a_page_that_is_read_again_are_kept() {
        let recent = Arc::new(RecentFloor::default());
        let old = page(&["a", "b"], None);
        recent.keep(&key(""), &old, before(Instant::now()));
        let mut changed = host("b", vec![]);
        changed.aggregates = vec!["new".into()];
        let all = vec![host("a", vec![]), changed, host("c", vec![])];
        let now = recent.with_known(&key(""), all.clone());
        assert!(Arc::ptr_eq(&now[0], &old.hosts[0]) && !Arc::ptr_eq(&now[1], &old.hosts[1]));
        assert_eq!(now.iter().map(|host| (**host).clone()).collect::<Vec<_>>(), all);
    }

    #[tokio::test]
    async fn few_pages_are_kept() {
        let recent = Arc::new(RecentFloor::default());
        let begun = Instant::now();
        for number in 0..PAGES + 1 {
            let at = begun + Duration::from_millis(u64::try_from(number).expect("it is small"));
            recent.keep(&key(&format!("h{number}")), &page(&["z"], None), before(at));
        }
        assert!(recent.get(&key("h0"), &before(begun)).is_none());
        assert!(recent.get(&key("h1"), &before(begun)).is_some());
    }
}
