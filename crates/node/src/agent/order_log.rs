//! The running orders, in memory, and the finished ones, in a file. A finished order is not carried
//! out again, even if the controller does not know that it is finished.
//!
//! An order is recorded when it ends. An interrupted order is not recorded and starts again, so the
//! tools must tolerate repetition.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_hypervisor::write_atomically;
use kilonova_ids::{OperationId, ServerId};
use kilonova_node_api::{End, Order};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Number of finished orders that are kept.
const KEPT: usize = 256;

/// A finished order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    order: OperationId,
    /// The server that must not be created if the order failed.
    server: Option<ServerId>,
    #[serde(flatten)]
    end: End,
}

/// The combined state of a server's orders, which determines whether the server may be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All its orders have succeeded.
    Clear,
    /// One of its orders is still running.
    Wait,
    /// One of its orders failed.
    Failed(String),
}

pub(super) struct OrderLog {
    file: PathBuf,
    entries: Mutex<Entries>,
    turned: watch::Sender<()>,
}

#[derive(Default)]
struct Entries {
    open: HashMap<OperationId, Option<ServerId>>,
    ended: VecDeque<Entry>,
}

impl OrderLog {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        let ended = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => VecDeque::new(),
            Err(error) => return Err(error),
        };
        let entries = Mutex::new(Entries { open: HashMap::new(), ended });
        Ok(Self { file, entries, turned: watch::Sender::new(()) })
    }

    /// Records that an order is running, unless it has ended. Returns `Some(None)` if the caller must start
    /// it, `None` if it was already running, and its result if it has ended.
    pub(super) fn begin(&self, order: &Order) -> Option<Option<End>> {
        let mut entries = self.entries();
        if let Some(entry) = entries.ended.iter().find(|entry| entry.order == order.id) {
            return Some(Some(entry.end.clone()));
        }
        match entries.open.insert(order.id, order.server) {
            Some(_) => None,
            None => Some(None),
        }
    }

    /// Records the result of an order. The file is written before the result is reported.
    pub(super) fn end(&self, order: &Order, end: &End) -> io::Result<()> {
        let mut entries = self.entries();
        let mut ended = entries.ended.clone();
        ended.push_back(Entry { order: order.id, server: order.server, end: end.clone() });
        let excess = ended.len().saturating_sub(KEPT);
        ended.drain(..excess);
        self.write(&ended)?;
        entries.ended = ended;
        entries.open.remove(&order.id);
        drop(entries);
        self.turned.send_replace(());
        Ok(())
    }

    /// The combined state of the server's orders.
    pub(super) fn verdict(&self, server: ServerId) -> Verdict {
        let entries = self.entries();
        if entries.open.values().any(|of| *of == Some(server)) {
            return Verdict::Wait;
        }
        let mut failed = entries.ended.iter().rev().filter(|entry| entry.server == Some(server));
        let failed = failed.find_map(|entry| match &entry.end {
            End::Failed { message, .. } => Some(message.clone()),
            End::Done { .. } => None,
        });
        failed.map_or(Verdict::Clear, Verdict::Failed)
    }

    /// Clears the failures of a server that is gone from the host.
    pub(super) fn forget(&self, server: ServerId) -> io::Result<()> {
        let mut entries = self.entries();
        if !entries.ended.iter().any(|entry| entry.server == Some(server)) {
            return Ok(());
        }
        let mut ended = entries.ended.clone();
        for entry in ended.iter_mut().filter(|entry| entry.server == Some(server)) {
            entry.server = None;
        }
        self.write(&ended)?;
        entries.ended = ended;
        Ok(())
    }

    /// Notifies when an order ends.
    pub(super) fn turned(&self) -> watch::Receiver<()> {
        self.turned.subscribe()
    }

    fn write(&self, ended: &VecDeque<Entry>) -> io::Result<()> {
        let bytes = serde_json::to_vec(ended)?;
        write_atomically(&self.file, &bytes)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
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
                resource_class: kilonova_ids::ResourceClass::verbatim("CUSTOM_NVME"),
            },
        }
    }

    fn done() -> End {
        End::Done { output: "wiped".into() }
    }

    #[test]
    fn finished_orders_survive_a_restart() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let file = folder.path().join("orders");
        let order_log = OrderLog::open(file.clone()).expect("the log is readable");
        let one = order(None);
        assert_eq!(order_log.begin(&one), Some(None));
        assert_eq!(order_log.begin(&one), None, "it is running");
        assert_eq!(
            OrderLog::open(file.clone()).expect("the log is readable").begin(&one),
            Some(None),
            "interrupted"
        );
        order_log.end(&one, &done()).expect("the file is written");
        assert_eq!(order_log.begin(&one), Some(Some(done())));
        assert_eq!(
            OrderLog::open(file.clone()).expect("the log is readable").begin(&one),
            Some(Some(done()))
        );
        for _ in 0..KEPT {
            order_log.end(&order(None), &done()).expect("the file is written");
        }
        assert_eq!(
            OrderLog::open(file).expect("the log is readable").begin(&one),
            Some(None),
            "no longer recorded"
        );
    }

    #[test]
    fn a_server_waits_for_its_orders_and_fails_with_them() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let order_log = OrderLog::open(folder.path().join("orders")).expect("the log is readable");
        let server = ServerId::new_v4();
        let (one, other) = (order(Some(server)), order(Some(server)));
        assert_eq!(order_log.verdict(server), Verdict::Clear);
        order_log.begin(&one);
        order_log.begin(&other);
        assert_eq!(order_log.verdict(server), Verdict::Wait);
        assert_eq!(order_log.verdict(ServerId::new_v4()), Verdict::Clear);
        let failed = End::Failed { message: "no card".into(), output: String::new() };
        order_log.end(&one, &failed).expect("the file is written");
        assert_eq!(order_log.verdict(server), Verdict::Wait);
        order_log.end(&other, &done()).expect("the file is written");
        assert_eq!(order_log.verdict(server), Verdict::Failed("no card".into()));
        order_log.forget(server).expect("the file is written");
        assert_eq!(order_log.verdict(server), Verdict::Clear);
        assert_eq!(order_log.begin(&one), Some(Some(failed)), "its result is still recorded");
    }

    #[test]
    fn an_unreadable_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let file = folder.path().join("orders");
        std::fs::write(&file, b"[{").expect("the file is written");
        assert!(OrderLog::open(file).is_err());
    }
}
