//! The orders that the agent is at, and those it has carried out, in a file: what is in it is not
//! carried out again, whatever the control plane has heard of it.
//!
//! An order is written down once it has ended. One that broke off is not in it and is begun again,
//! so the tools must bear that.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_hypervisor::write_atomically;
use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{End, Order};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Ended orders that are remembered.
const KEPT: usize = 256;

/// An order that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    order: OperationId,
    /// The server that cannot begin to exist if it failed.
    server: Option<ServerId>,
    #[serde(flatten)]
    end: End,
}

/// What the orders mean for a server that is to begin to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing stands in its way.
    Clear,
    /// An order for it has not ended.
    Wait,
    /// An order for it has failed.
    Failed(String),
}

pub(super) struct Book {
    file: PathBuf,
    pages: Mutex<Pages>,
    turned: watch::Sender<()>,
}

#[derive(Default)]
struct Pages {
    open: HashMap<OperationId, Option<ServerId>>,
    ended: VecDeque<Entry>,
}

impl Book {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        let ended = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => VecDeque::new(),
            Err(error) => return Err(error),
        };
        let pages = Mutex::new(Pages { open: HashMap::new(), ended });
        Ok(Self { file, pages, turned: watch::Sender::new(()) })
    }

    /// Takes an order down as one that the agent is at. `None` if it is at it already, its end if it
    /// has ended.
    pub(super) fn begin(&self, order: &Order) -> Option<Option<End>> {
        let mut pages = self.pages();
        if let Some(entry) = pages.ended.iter().find(|entry| entry.order == order.id) {
            return Some(Some(entry.end.clone()));
        }
        match pages.open.insert(order.id, order.server) {
            Some(_) => None,
            None => Some(None),
        }
    }

    /// An order has ended. Remembered in the file before it is said to anybody.
    pub(super) fn end(&self, order: &Order, end: &End) -> io::Result<()> {
        let mut pages = self.pages();
        let mut ended = pages.ended.clone();
        ended.push_back(Entry { order: order.id, server: order.server, end: end.clone() });
        let excess = ended.len().saturating_sub(KEPT);
        ended.drain(..excess);
        self.write(&ended)?;
        pages.ended = ended;
        pages.open.remove(&order.id);
        drop(pages);
        self.turned.send_replace(());
        Ok(())
    }

    /// What the orders mean for a server.
    pub(super) fn verdict(&self, server: ServerId) -> Verdict {
        let pages = self.pages();
        if pages.open.values().any(|of| *of == Some(server)) {
            return Verdict::Wait;
        }
        let mut failed = pages.ended.iter().rev().filter(|entry| entry.server == Some(server));
        let failed = failed.find_map(|entry| match &entry.end {
            End::Failed { message, .. } => Some(message.clone()),
            End::Done { .. } => None,
        });
        failed.map_or(Verdict::Clear, Verdict::Failed)
    }

    /// The server is gone from the host: what failed for it no longer stands in its way.
    pub(super) fn forget(&self, server: ServerId) -> io::Result<()> {
        let mut pages = self.pages();
        if !pages.ended.iter().any(|entry| entry.server == Some(server)) {
            return Ok(());
        }
        let mut ended = pages.ended.clone();
        for entry in ended.iter_mut().filter(|entry| entry.server == Some(server)) {
            entry.server = None;
        }
        self.write(&ended)?;
        pages.ended = ended;
        Ok(())
    }

    /// Told of each order that ends.
    pub(super) fn turned(&self) -> watch::Receiver<()> {
        self.turned.subscribe()
    }

    fn write(&self, ended: &VecDeque<Entry>) -> io::Result<()> {
        let bytes = serde_json::to_vec(ended)?;
        write_atomically(&self.file, &bytes)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kilonova_node_api::Task;

    use super::*;

    fn order(server: Option<ServerId>) -> Order {
        Order {
            id: OperationId::new_v4(),
            generation: 1,
            server,
            device: "0000:5e:00.0".into(),
            task: Task::Clean {
                address: "0000:5e:00.0".into(),
                resource_class: "CUSTOM_NVME".into(),
            },
        }
    }

    fn done() -> End {
        End::Done { output: "wiped".into() }
    }

    #[test]
    fn what_has_ended_is_known_to_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("orders");
        let book = Book::open(file.clone()).expect("opens");
        let one = order(None);
        assert_eq!(book.begin(&one), Some(None));
        assert_eq!(book.begin(&one), None, "it is at it");
        assert_eq!(Book::open(file.clone()).expect("opens").begin(&one), Some(None), "broken off");
        book.end(&one, &done()).expect("written");
        assert_eq!(book.begin(&one), Some(Some(done())));
        assert_eq!(Book::open(file.clone()).expect("opens").begin(&one), Some(Some(done())));
        for _ in 0..KEPT {
            book.end(&order(None), &done()).expect("written");
        }
        assert_eq!(Book::open(file).expect("opens").begin(&one), Some(None), "forgotten");
    }

    #[test]
    fn a_server_waits_for_its_orders_and_fails_with_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let book = Book::open(folder.path().join("orders")).expect("opens");
        let server = ServerId::new_v4();
        let (one, other) = (order(Some(server)), order(Some(server)));
        assert_eq!(book.verdict(server), Verdict::Clear);
        book.begin(&one);
        book.begin(&other);
        assert_eq!(book.verdict(server), Verdict::Wait);
        assert_eq!(book.verdict(ServerId::new_v4()), Verdict::Clear);
        let failed = End::Failed { message: "no card".into(), output: String::new() };
        book.end(&one, &failed).expect("written");
        assert_eq!(book.verdict(server), Verdict::Wait);
        book.end(&other, &done()).expect("written");
        assert_eq!(book.verdict(server), Verdict::Failed("no card".into()));
        book.forget(server).expect("written");
        assert_eq!(book.verdict(server), Verdict::Clear);
        assert_eq!(book.begin(&one), Some(Some(failed)), "it is still known how it ended");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("orders");
        std::fs::write(&file, b"[{").expect("written");
        assert!(Book::open(file).is_err());
    }
}
