//! The floor as it was last read, so that pages that are opened soon after read what has changed since. A viewer gets
//! it only after the service has answered that viewer itself: this file never decides who sees what.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use kilonova_compute_app::floor::FloorMarks;
use kilonova_ids::HostName;

use super::floor::Host;

/// How long it is kept, and so how late a page may learn what the marks do not cover, such as the new name of a server.
const KEPT: Duration = Duration::from_secs(60);
/// A page with more changes is read again.
const MOST: usize = 200;

/// The hosts of one page of the service, in the order of their names, before filters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    pub hosts: Vec<Arc<Host>>,
    /// The marker of the next page.
    pub next: Option<String>,
}

/// A page, and the state of the cloud from before it was read.
#[derive(Debug)]
struct Kept {
    marker: String,
    page: Page,
    marks: FloorMarks,
    read_at: Instant,
}

/// The page that was read last.
#[derive(Debug, Default)]
pub(crate) struct RecentFloor(Mutex<Option<Kept>>);

impl RecentFloor {
    /// The page after a marker, and the hosts on it that have changed since; `None` if it has to be read.
    pub fn get(&self, marker: &str, now: &FloorMarks) -> Option<(Page, Vec<HostName>)> {
        self.forget_old(Instant::now());
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.as_ref().filter(|kept| kept.marker == marker)?;
        let last = kept.page.hosts.last().map(|host| host.name.as_str()).unwrap_or_default();
        let is_here = |name: &HostName| {
            let name: &str = name;
            name > marker && (kept.page.next.is_none() || name <= last)
        };
        let changed: Vec<HostName> =
            now.changed_since(&kept.marks).into_iter().filter(is_here).collect();
        (changed.len() <= MOST).then(|| (kept.page.clone(), changed))
    }

    /// Keeps a page that was read as a whole after the marks were taken, until it is too old.
    pub fn keep(self: &Arc<Self>, marker: &str, page: &Page, marks: FloorMarks) {
        self.set(marker, page, marks, Instant::now());
        let of: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT + Duration::from_secs(1)).await;
            if let Some(recent) = of.upgrade() {
                recent.forget_old(Instant::now());
            }
        });
    }

    /// Frees the memory of a page that is too old.
    fn forget_old(&self, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take_if(|kept| now.duration_since(kept.read_at) > KEPT);
    }

    /// Keeps a page with its changed hosts replaced. Its age stays that of its last complete reading.
    pub fn update(&self, marker: &str, page: &Page, marks: FloorMarks) {
        let read_at = {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.as_ref().filter(|kept| kept.marker == marker).map(|kept| kept.read_at)
        };
        if let Some(read_at) = read_at {
            self.set(marker, page, marks, read_at);
        }
    }

    fn set(&self, marker: &str, page: &Page, marks: FloorMarks, read_at: Instant) {
        let kept = Kept { marker: marker.to_owned(), page: page.clone(), marks, read_at };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }
}

impl Page {
    /// The page with some of its hosts as they are now; those that `now` lacks are gone.
    pub fn with(mut self, changed: &[HostName], now: Vec<Host>) -> Self {
        if changed.is_empty() {
            return self;
        }
        let mut all: BTreeMap<String, Arc<Host>> =
            self.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        for name in changed {
            all.remove(&**name);
        }
        all.extend(now.into_iter().map(|host| (host.name.clone(), Arc::new(host))));
        self.hosts = all.into_values().collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::floor::tests::host;

    #[test]
    fn changed_hosts_are_replaced_in_their_places() {
        let hosts = ["a", "b", "c"].map(|name| Arc::new(host(name, vec![])));
        let page = Page { hosts: hosts.to_vec(), next: Some("c".into()) };
        let changed = ["aa", "b", "c"].map(HostName::verbatim);
        let mut new = host("b", vec![]);
        new.state = "down".into();
        let page = page.with(&changed, vec![host("aa", vec![]), new]);
        let names: Vec<&str> = page.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["a", "aa", "b"]);
        assert_eq!(page.hosts[2].state, "down");
        assert_eq!(page.next.as_deref(), Some("c"));
    }

    #[tokio::test]
    async fn a_page_is_kept_for_a_while() {
        let recent = Arc::new(RecentFloor::default());
        let page = Page { hosts: vec![Arc::new(host("a", vec![]))], next: None };
        let marks = FloorMarks::default();
        assert!(recent.get("", &marks).is_none());
        recent.keep("", &page, marks.clone());
        let (kept, changed) = recent.get("", &marks).expect("it is kept");
        assert_eq!((kept.hosts.len(), changed.len()), (1, 0));
        assert!(recent.get("a", &marks).is_none(), "another page");
        let begun = Instant::now();
        recent.update("", &kept, marks.clone());
        recent.forget_old(begun + KEPT / 2);
        assert!(recent.get("", &marks).is_some());
        recent.forget_old(begun + KEPT + Duration::from_secs(1));
        assert!(recent.get("", &marks).is_none(), "a change does not make it younger");
    }
}
