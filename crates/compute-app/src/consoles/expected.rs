//! The consoles of this controller: the answers that it expects from hosts, and the open consoles.
//!
//! Only this process needs them, because a host answers the controller at which the client waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kilonova_ids::HostName;
use kilonova_node_api::{ConsoleRefusal, ControllerUrls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::ConsoleOptions;

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The answer from a host.
pub enum Answer {
    /// The guest has the console.
    Available,
    /// The stream of the console's bytes.
    Connected(Box<dyn Stream>),
    /// The guest has no such console, or it is not available now.
    Refused(ConsoleRefusal),
}

/// The consoles of this controller; cheap to clone.
#[derive(Clone, Default)]
pub struct Consoles(Arc<Inner>);

#[derive(Default)]
struct Inner {
    urls: OnceLock<ControllerUrls>,
    expected: Mutex<HashMap<Uuid, (HostName, oneshot::Sender<Answer>)>>,
    open: Mutex<Open>,
    stopping: watch::Sender<bool>,
}

#[derive(Default)]
struct Open {
    all: usize,
    by_user: HashMap<String, usize>,
}

impl Consoles {
    /// Sets the URLs at which hosts reach this controller, once.
    pub fn set_urls(&self, urls: ControllerUrls) {
        if self.0.urls.set(urls).is_err() {
            tracing::debug!("the controller's own URLs are already set");
        }
    }

    pub(super) fn urls(&self) -> ControllerUrls {
        self.0.urls.get().cloned().unwrap_or_default()
    }

    /// Expects an answer from a host to a request.
    pub(super) fn expect(&self, id: Uuid, host: &HostName) -> Waiting {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0.expected).insert(id, (host.clone(), sender));
        Waiting { consoles: self.clone(), id, receiver }
    }

    /// True if the answer to a request is expected here.
    pub fn expects(&self, id: Uuid) -> bool {
        lock(&self.0.expected).contains_key(&id)
    }

    /// Takes the right to answer a request. `None` if no client waits for an answer from this host.
    pub fn expected(&self, host: &HostName, id: Uuid) -> Option<Expected> {
        let mut expected = lock(&self.0.expected);
        if expected.get(&id).is_none_or(|(asked, _)| asked != host) {
            return None;
        }
        expected.remove(&id).map(|(_, sender)| Expected(sender))
    }

    /// Takes a place for a console of a user; `None` if a limit is reached.
    pub(super) fn take(&self, user: &str, options: &ConsoleOptions) -> Option<ConsolePermit> {
        let mut open = lock(&self.0.open);
        let of_user = open.by_user.get(user).copied().unwrap_or_default();
        if open.all >= options.max_consoles || of_user >= options.max_consoles_per_user {
            return None;
        }
        open.all += 1;
        open.by_user.insert(user.to_owned(), of_user + 1);
        Some(ConsolePermit { consoles: self.clone(), user: user.to_owned() })
    }

    /// The number of open consoles.
    pub fn count(&self) -> usize {
        lock(&self.0.open).all
    }

    /// Ends all consoles, including those opened later.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Returns when consoles must end.
    pub async fn stopped(&self) {
        let mut stopping = self.0.stopping.subscribe();
        // The sender lives as long as `self`.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

/// The right to answer a request.
pub struct Expected(oneshot::Sender<Answer>);

impl Expected {
    /// Sends the answer. The client may have given up.
    pub fn answer(self, answer: Answer) {
        if self.0.send(answer).is_err() {
            tracing::debug!("the client of a console gave up before its host answered");
        }
    }
}

/// An expected answer. Dropping it cancels the expectation.
pub(super) struct Waiting {
    consoles: Consoles,
    id: Uuid,
    receiver: oneshot::Receiver<Answer>,
}

impl Waiting {
    /// The answer; `None` if the host's connection was lost.
    pub(super) async fn answered(mut self) -> Option<Answer> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.consoles.0.expected).remove(&self.id);
    }
}

/// A place among the open consoles, released on drop.
pub struct ConsolePermit {
    consoles: Consoles,
    user: String,
}

impl Drop for ConsolePermit {
    fn drop(&mut self) {
        let mut open = lock(&self.consoles.0.open);
        open.all = open.all.saturating_sub(1);
        if let Some(count) = open.by_user.get_mut(&self.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.by_user.remove(&self.user);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_that_was_asked_may_answer_and_only_once() {
        let consoles = Consoles::default();
        let (one, other) = (HostName::verbatim("one"), HostName::verbatim("other"));
        let id = Uuid::new_v4();
        let waiting = consoles.expect(id, &one);
        assert!(consoles.expected(&other, id).is_none());
        assert!(consoles.expected(&one, id).is_some());
        assert!(consoles.expected(&one, id).is_none());
        drop(waiting);
        drop(consoles.expect(id, &one));
        assert!(consoles.expected(&one, id).is_none(), "the client gave up");
    }

    #[test]
    fn places_are_limited_by_user_and_in_total() {
        let consoles = Consoles::default();
        let options =
            ConsoleOptions { max_consoles: 3, max_consoles_per_user: 2, ..Default::default() };
        let first = consoles.take("ann", &options);
        let second = consoles.take("ann", &options);
        assert!(first.is_some() && second.is_some());
        assert!(consoles.take("ann", &options).is_none(), "the limit of a user");
        let third = consoles.take("bob", &options);
        assert!(third.is_some());
        assert!(consoles.take("eve", &options).is_none(), "the limit of the controller");
        drop(first);
        assert!(consoles.take("ann", &options).is_some());
        drop((second, third));
        assert_eq!(consoles.count(), 0);
        assert!(lock(&consoles.0.open).by_user.is_empty());
    }
}
