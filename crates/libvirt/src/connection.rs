//! The connection to libvirtd, reopened when it breaks.
//!
//! libvirtd may restart or hang while guests keep running. A call that finds the connection closed
//! waits for libvirtd and runs a second time, so every call must be idempotent. A call that gets no
//! answer in time fails with a timeout error. This module keeps no state that libvirtd does not
//! have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_hypervisor::{Error, Step};
use tokio::sync::broadcast;
use virt::connect::Connect;
use virt::error::{Error as VirtError, ErrorDomain, ErrorNumber};

use crate::pool::{Pool, TimedOut};
use crate::sys::{self, Event};

/// Limit for calls that libvirtd answers from memory.
pub(crate) const QUICK: Duration = Duration::from_secs(60);
/// Limit for calls that start or end a process, or bind a device.
pub(crate) const SLOW: Duration = Duration::from_secs(300);
/// Limit for calls that write a guest's memory or disks.
pub(crate) const LONG: Duration = Duration::from_secs(4 * 3600);
/// How long a call waits for a libvirtd that was reachable before.
const RECONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long a call waits for a libvirtd that was never reachable.
const FIRST_CONNECT_LIMIT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Keep-alive interval in seconds, and the unanswered probes after which the connection is dead.
const KEEP_ALIVE: (i32, u32) = (5, 5);
const EVENTS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Inner>,
    pool: Pool,
}

struct Inner {
    uri: String,
    /// True if a connection has ever succeeded.
    ever_connected: AtomicBool,
    connect: Mutex<Option<Arc<Open>>>,
    events: broadcast::Sender<Event>,
    connection_error: Mutex<Option<String>>,
}

impl Link {
    pub(crate) fn new(uri: &str) -> Self {
        let inner = Inner {
            uri: uri.to_owned(),
            ever_connected: AtomicBool::new(false),
            connect: Mutex::new(None),
            events: broadcast::channel(EVENTS).0,
            connection_error: Mutex::new(None),
        };
        Self { inner: Arc::new(inner), pool: Pool::new() }
    }

    /// Domain events from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// The connection error of the last call, if it failed with one.
    pub(crate) fn connection_error(&self) -> Option<String> {
        lock(&self.inner.connection_error).clone()
    }

    /// Makes a call once, on the calling thread and without a limit. Libvirt continues the
    /// operation if the connection breaks.
    pub(crate) fn call_here<T>(
        &self,
        step: Step,
        call: impl FnOnce(&Connect) -> Result<T, VirtError>,
    ) -> Result<T, Error> {
        let step_error = |error: &VirtError| Error::new(step, error_text(error));
        let connect = self.inner.connect().map_err(|failed| match failed {
            CallError::Call(error) | CallError::Connection(error) => step_error(&error),
        })?;
        call(&connect.0).map_err(|error| step_error(&error))
    }

    /// Makes a call, and repeats it once if the connection turns out to be closed.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        step: Step,
        limit: Duration,
        call: impl Fn(&Connect) -> Result<T, VirtError> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let result = self.pool.run(limit, move || inner.call(&call)).await;
        let (result, connection_error) = match result {
            Ok(Ok(value)) => (Ok(value), None),
            Ok(Err(CallError::Call(error))) => (Err(Error::new(step, error_text(&error))), None),
            Ok(Err(CallError::Connection(error))) => {
                let connection_error = format!(
                    "libvirt at {} is unreachable: {}; see `systemctl status libvirtd`",
                    self.inner.uri,
                    error_text(&error)
                );
                (Err(Error::new(step, connection_error.clone())), Some(connection_error))
            }
            Err(TimedOut) => {
                let connection_error = format!(
                    "libvirt at {} did not answer within {} s; see `systemctl status libvirtd`. \
                     Guests keep running",
                    self.inner.uri,
                    limit.as_secs()
                );
                (Err(Error::new(step, connection_error.clone())), Some(connection_error))
            }
        };
        let mut previous = lock(&self.inner.connection_error);
        match (&*previous, &connection_error) {
            (None, Some(connection_error)) => {
                tracing::error!(%connection_error, "libvirt is unavailable")
            }
            (Some(_), None) => tracing::info!(uri = %self.inner.uri, "libvirt answers again"),
            _ => {}
        }
        *previous = connection_error;
        result
    }
}

/// A connection that closes with its last user.
struct Open(Connect);

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            tracing::debug!(%error, "could not close a connection to libvirt");
        }
    }
}

enum CallError {
    /// libvirt refused the call.
    Call(VirtError),
    /// libvirt could not be reached.
    Connection(VirtError),
}

impl Inner {
    fn call<T>(&self, call: &impl Fn(&Connect) -> Result<T, VirtError>) -> Result<T, CallError> {
        let connect = self.connect()?;
        let error = match call(&connect.0) {
            Ok(value) => return Ok(value),
            Err(error) if !is_gone(&connect.0, &error) => return Err(CallError::Call(error)),
            Err(error) => error,
        };
        tracing::warn!(%error, "the connection to libvirt is closed; reopening it");
        drop(connect);
        *lock(&self.connect) = None;
        let connect = self.connect()?;
        call(&connect.0).map_err(|error| {
            if is_gone(&connect.0, &error) {
                CallError::Connection(error)
            } else {
                CallError::Call(error)
            }
        })
    }

    /// The open connection, or a new one.
    fn connect(&self) -> Result<Arc<Open>, CallError> {
        let mut current = lock(&self.connect);
        if let Some(connect) = &*current
            && connect.0.is_alive().unwrap_or(false)
        {
            return Ok(Arc::clone(connect));
        }
        *current = None;
        let ever_connected = self.ever_connected.load(Ordering::Relaxed);
        let end =
            Instant::now() + if ever_connected { RECONNECT_LIMIT } else { FIRST_CONNECT_LIMIT };
        let connect = loop {
            match self.open() {
                Ok(connect) => break Arc::new(connect),
                Err(error) if Instant::now() < end => {
                    tracing::debug!(%error, "libvirt is not reachable yet");
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => return Err(CallError::Connection(error)),
            }
        };
        self.ever_connected.store(true, Ordering::Relaxed);
        *current = Some(Arc::clone(&connect));
        Ok(connect)
    }

    fn open(&self) -> Result<Open, VirtError> {
        sys::prepare()?;
        let open = Open(Connect::open(Some(&self.uri))?);
        let connect = &open.0;
        let (interval, count) = KEEP_ALIVE;
        if let Err(error) = connect.set_keep_alive(interval, count) {
            tracing::debug!(%error, "could not enable keep-alive probes to libvirt");
        }
        let events = self.events.clone();
        let sink = move |event| {
            // Sending fails without a receiver, which is harmless.
            let _ = events.send(event);
        };
        if let Err(error) = sys::subscribe(connect, sink) {
            tracing::warn!(%error, "could not subscribe to libvirt's events; guests are polled instead");
        }
        Ok(open)
    }
}

/// True if the error means that libvirtd is unreachable rather than that it refused the call.
fn is_gone(connect: &Connect, error: &VirtError) -> bool {
    error.domain() == ErrorDomain::Rpc
        || has_code(error, ErrorNumber::NoConnect)
        || !connect.is_alive().unwrap_or(false)
}

/// True if the error has this code.
pub(crate) fn has_code(error: &VirtError, number: ErrorNumber) -> bool {
    error.code() == number
}

/// Libvirt's message, without codes.
pub(crate) fn error_text(error: &VirtError) -> String {
    error.message().trim().to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
