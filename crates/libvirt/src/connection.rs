//! The connection to libvirtd, kept or made again.
//!
//! libvirtd may be restarted under the agent, or hang. Guests run on either way: a call that finds the
//! connection gone waits a while for libvirtd and is made again, so every call must stand being made
//! twice; one that gets no answer in time fails with words that say so. Nothing is remembered here that
//! libvirtd does not know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_hypervisor::{Error, Step};
use tokio::sync::broadcast;
use virt::connect::Connect;
use virt::error::{Error as VirtError, ErrorDomain, ErrorNumber};

use crate::pool::{Late, Pool};
use crate::sys::{self, Event};

/// For what libvirtd answers from memory.
pub(crate) const QUICK: Duration = Duration::from_secs(60);
/// For what starts or ends a process, or binds a device.
pub(crate) const SLOW: Duration = Duration::from_secs(300);
/// For what writes a guest's memory or disks.
pub(crate) const LONG: Duration = Duration::from_secs(4 * 3600);
/// How long libvirtd may be away before a call fails: one that was there comes back, most likely.
const AWAY: Duration = Duration::from_secs(20);
/// The same of one that was never seen.
const ABSENT: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(250);
/// Seconds between two questions whether libvirtd is alive, and unanswered ones until it is not.
const KEEP_ALIVE: (i32, u32) = (5, 5);
const EVENTS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Inner>,
    pool: Pool,
}

struct Inner {
    uri: String,
    /// Whether it was ever there.
    known: AtomicBool,
    connect: Mutex<Option<Arc<Open>>>,
    events: broadcast::Sender<Event>,
    trouble: Mutex<Option<String>>,
}

impl Link {
    pub(crate) fn new(uri: &str) -> Self {
        let inner = Inner {
            uri: uri.to_owned(),
            known: AtomicBool::new(false),
            connect: Mutex::new(None),
            events: broadcast::channel(EVENTS).0,
            trouble: Mutex::new(None),
        };
        Self { inner: Arc::new(inner), pool: Pool::new() }
    }

    /// What happens to domains from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// What is wrong with libvirtd, as the last call saw it.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.inner.trouble).clone()
    }

    /// Makes a call on the thread of whoever calls, however long it takes, and once: what it asks for
    /// goes on in libvirtd where the connection ends.
    pub(crate) fn call_here<T>(
        &self,
        step: Step,
        call: impl FnOnce(&Connect) -> Result<T, VirtError>,
    ) -> Result<T, Error> {
        let wrong = |error: &VirtError| Error::new(step, said(error));
        let connect = self.inner.connect().map_err(|failed| match failed {
            Failed::Call(error) | Failed::Connection(error) => wrong(&error),
        })?;
        call(&connect.0).map_err(|error| wrong(&error))
    }

    /// Makes a call. It is made a second time where the connection turns out to be gone.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        step: Step,
        limit: Duration,
        call: impl Fn(&Connect) -> Result<T, VirtError> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let result = self.pool.run(limit, move || inner.call(&call)).await;
        let (result, trouble) = match result {
            Ok(Ok(value)) => (Ok(value), None),
            Ok(Err(Failed::Call(error))) => (Err(Error::new(step, said(&error))), None),
            Ok(Err(Failed::Connection(error))) => {
                let trouble = format!(
                    "libvirt at {} cannot be reached: {}; see `systemctl status libvirtd`",
                    self.inner.uri,
                    said(&error)
                );
                (Err(Error::new(step, trouble.clone())), Some(trouble))
            }
            Err(Late) => {
                let trouble = format!(
                    "libvirt at {} has not answered for {} s; see `systemctl status libvirtd`. \
                     Guests are not touched",
                    self.inner.uri,
                    limit.as_secs()
                );
                (Err(Error::new(step, trouble.clone())), Some(trouble))
            }
        };
        let mut known = lock(&self.inner.trouble);
        match (&*known, &trouble) {
            (None, Some(trouble)) => tracing::error!(%trouble, "libvirt is in trouble"),
            (Some(_), None) => tracing::info!(uri = %self.inner.uri, "libvirt answers again"),
            _ => {}
        }
        *known = trouble;
        result
    }
}

/// A connection that closes when nobody uses it any more.
struct Open(Connect);

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            tracing::debug!(%error, "a connection to libvirt could not be closed");
        }
    }
}

enum Failed {
    /// libvirt said no.
    Call(VirtError),
    /// libvirt was not there to say anything.
    Connection(VirtError),
}

impl Inner {
    fn call<T>(&self, call: &impl Fn(&Connect) -> Result<T, VirtError>) -> Result<T, Failed> {
        let connect = self.connect()?;
        let error = match call(&connect.0) {
            Ok(value) => return Ok(value),
            Err(error) if !is_gone(&connect.0, &error) => return Err(Failed::Call(error)),
            Err(error) => error,
        };
        tracing::warn!(%error, "the connection to libvirt is gone");
        drop(connect);
        *lock(&self.connect) = None;
        let connect = self.connect()?;
        call(&connect.0).map_err(|error| {
            if is_gone(&connect.0, &error) {
                Failed::Connection(error)
            } else {
                Failed::Call(error)
            }
        })
    }

    /// The connection that is open, or a new one.
    fn connect(&self) -> Result<Arc<Open>, Failed> {
        let mut current = lock(&self.connect);
        if let Some(connect) = &*current
            && connect.0.is_alive().unwrap_or(false)
        {
            return Ok(Arc::clone(connect));
        }
        *current = None;
        let known = self.known.load(Ordering::Relaxed);
        let end = Instant::now() + if known { AWAY } else { ABSENT };
        let connect = loop {
            match self.open() {
                Ok(connect) => break Arc::new(connect),
                Err(error) if Instant::now() < end => {
                    tracing::debug!(%error, "libvirt is not there yet");
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(Failed::Connection(error)),
            }
        };
        self.known.store(true, Ordering::Relaxed);
        *current = Some(Arc::clone(&connect));
        Ok(connect)
    }

    fn open(&self) -> Result<Open, VirtError> {
        sys::prepare()?;
        let open = Open(Connect::open(Some(&self.uri))?);
        let connect = &open.0;
        let (interval, count) = KEEP_ALIVE;
        if let Err(error) = connect.set_keep_alive(interval, count) {
            tracing::debug!(%error, "libvirt is not asked whether it is alive");
        }
        let events = self.events.clone();
        let sink = move |event| {
            // Nobody may be listening.
            let _ = events.send(event);
        };
        if let Err(error) = sys::subscribe(connect, sink) {
            tracing::warn!(%error, "libvirt tells of no events; guests are looked at instead");
        }
        Ok(open)
    }
}

/// Whether an error says that libvirtd is gone rather than that it refused.
fn is_gone(connect: &Connect, error: &VirtError) -> bool {
    error.domain() == ErrorDomain::Rpc
        || is(error, ErrorNumber::NoConnect)
        || !connect.is_alive().unwrap_or(false)
}

/// Whether it is that error.
pub(crate) fn is(error: &VirtError, number: ErrorNumber) -> bool {
    error.code() == number
}

/// What libvirt said, without numbers.
pub(crate) fn said(error: &VirtError) -> String {
    error.message().trim().to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
