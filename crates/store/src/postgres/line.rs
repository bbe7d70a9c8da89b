//! The socket of a connection, on which a thread waits for answers.
//!
//! This module handles requests and answers, not transactions. It must never decide which request
//! to send.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::Error;

/// The future that reads and writes the socket.
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// A request to the server, which is sent by the first poll of the future.
pub(super) type Asking<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, tokio_postgres::Error>> + 'a>>;

/// A runtime that async code may drop: dropping a [`Runtime`] itself blocks.
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self(Some(runtime))
    }

    /// Runs a future on the current thread.
    ///
    /// # Errors
    /// Those of the future.
    pub(super) fn run<T>(
        &self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let closed = || Error::Unavailable("the connection to PostgreSQL is closed".into());
        self.0.as_ref().ok_or_else(closed)?.block_on(future)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The socket.
pub(super) struct Line {
    /// `None` once the connection has ended: dropping the driver ends the requests that wait for an answer.
    driver: Option<Driver>,
    /// How long an answer may take.
    pub limit: Duration,
    /// True once the connection is unusable.
    pub broken: bool,
}

impl Line {
    pub(super) fn new(driver: Driver, limit: Duration) -> Self {
        Self { driver: Some(driver), limit, broken: false }
    }

    /// Sends requests together and drives the socket until all answers have arrived, in order. If a
    /// request cannot be sent, for example because of an invalid parameter, the requests after it are
    /// not sent either, so that no `COMMIT` follows it.
    pub(super) async fn answers<T>(
        &mut self,
        asking: Vec<Asking<'_, T>>,
    ) -> Result<Vec<Result<T, tokio_postgres::Error>>, Error> {
        let limit = self.limit;
        let (mut asking, mut sent, mut refused) = (asking, 0, None);
        let mut answers = Vec::with_capacity(asking.len());
        let all = poll_fn(|context| {
            while let Some(request) = asking.get_mut(sent) {
                if let Poll::Ready(answer) = request.as_mut().poll(context) {
                    refused = Some(answer);
                    asking.truncate(sent);
                } else {
                    sent += 1;
                }
            }
            // Driving the socket yields answers, and taking them makes room for more.
            loop {
                self.poll(context);
                let before = answers.len();
                while let Some(request) = asking.get_mut(answers.len())
                    && let Poll::Ready(answer) = request.as_mut().poll(context)
                {
                    answers.push(answer);
                }
                if answers.len() == asking.len() {
                    return Poll::Ready(());
                }
                if answers.len() == before {
                    return Poll::Pending;
                }
            }
        });
        let ended = tokio::time::timeout(limit, all).await;
        answers.extend(refused);
        match ended {
            Ok(()) => Ok(answers),
            Err(_) => {
                self.broken = true;
                Err(Error::Unavailable(format!("PostgreSQL did not answer within {limit:?}")))
            }
        }
    }

    /// Reads and writes as much as is possible without waiting.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        if self.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
            self.driver = None;
            self.broken = true;
        }
    }
}
