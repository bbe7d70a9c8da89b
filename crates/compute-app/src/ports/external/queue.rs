//! The servers on which this process works next. The rows contain the same information for every process; the queue
//! only saves time, and keeps the work in the process that knows the user's token.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_ids::ServerId;
use kilonova_store::Tx;
use tokio::sync::Notify;

#[derive(Default)]
struct Waiting {
    order: VecDeque<ServerId>,
    known: HashSet<ServerId>,
}

/// The queue. A server is in it at most once.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
}

impl Queue {
    pub(super) fn push(&self, server: ServerId) {
        let mut waiting = self.waiting();
        if waiting.known.insert(server) {
            waiting.order.push_back(server);
        }
        drop(waiting);
        self.news.notify_one();
    }

    pub(super) fn push_on_commit(self: &Arc<Self>, tx: &mut Tx<'_>, server: ServerId) {
        let queue = Arc::clone(self);
        tx.on_commit(move || queue.push(server));
    }

    pub(super) fn pop(&self) -> Option<ServerId> {
        let mut waiting = self.waiting();
        let server = waiting.order.pop_front()?;
        waiting.known.remove(&server);
        Some(server)
    }

    pub(super) async fn wait(&self) {
        self.news.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_waits_once() {
        let queue = Queue::default();
        let [first, second] = [ServerId::new_v4(), ServerId::new_v4()];
        for server in [first, second, first] {
            queue.push(server);
        }
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(first), Some(second), None]);
        queue.push(first);
        assert_eq!(queue.pop(), Some(first));
    }
}
