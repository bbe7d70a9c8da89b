//! Type erasure of a unit of work, so that the pipeline behind [`crate::Store`] is compiled once.
//!
//! A caller's closure has its own type, result and error. Everything between the caller and the database (queue,
//! thread, retry, savepoint, commit hooks, crash plan) handles [`Work`], [`Answer`] and [`Failure`] instead. Only this
//! file converts between them, so a call site adds only two small functions. Nothing here may depend on a database
//! system.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Error, Tx};

/// The value that a closure returned.
pub(crate) type Answer = Box<dyn Any + Send>;

/// A unit of work, which may run more than once.
pub(crate) type Work = Box<dyn FnMut(&mut Tx<'_>) -> Outcome + Send>;

/// The result of a unit of work, or of its transaction.
pub(crate) type Outcome = Result<Answer, Failure>;

/// Why a transaction is rolled back.
pub(crate) enum Failure {
    /// The error that the closure returned.
    Work(Box<dyn Any + Send>),
    /// The store's own error.
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Erases the types of a closure.
pub(crate) fn erase<T, E, F>(mut work: F) -> Work
where
    F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    Box::new(move |tx| match work(tx) {
        Ok(value) => Ok(Box::new(value)),
        Err(error) => Err(Failure::Work(Box::new(error))),
    })
}

fn restore<T: 'static, E: From<Error> + 'static>(outcome: Outcome) -> Result<T, E> {
    let foreign = || E::from(Error::Other("the result of a transaction has a foreign type".into()));
    match outcome {
        Ok(value) => value.downcast().map_or_else(|_| Err(foreign()), |value| Ok(*value)),
        Err(Failure::Store(error)) => Err(error.into()),
        Err(Failure::Work(error)) => {
            Err(error.downcast().map_or_else(|_| foreign(), |error| *error))
        }
    }
}

/// A transaction that runs while it is awaited. Dropping it early leaves open whether the
/// transaction commits.
#[must_use = "a transaction starts when it is awaited"]
pub struct Pending<'a, T, E> {
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>,
    types: PhantomData<fn() -> Result<T, E>>,
}

impl<'a, T, E> Pending<'a, T, E> {
    pub(crate) fn new(outcome: impl Future<Output = Outcome> + Send + 'a) -> Self {
        Self { outcome: Box::pin(outcome), types: PhantomData }
    }
}

impl<T: 'static, E: From<Error> + 'static> Future for Pending<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.as_mut().poll(context).map(restore)
    }
}
