//! The data of an upload or a download, as one type of stream. This file does not use HTTP: `api`
//! converts bodies.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use kilonova_image_store::ByteStream;

/// The data of an image as a stream of chunks. An error ends it.
pub struct ImageData(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>);

impl ImageData {
    /// The data that a stream yields.
    pub fn new(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// A stream without data.
    pub fn empty() -> Self {
        Self::new(Nothing)
    }

    /// The bytes of a file on this machine, read by the pool.
    pub fn file(pool: kilonova_threads::Pool, file: std::fs::File) -> Self {
        Self::stored(kilonova_image_store::file_bytes(pool, file, u64::MAX))
    }

    /// The data that a store yields.
    pub(crate) fn stored(bytes: ByteStream) -> Self {
        Self::new(FromStore(bytes))
    }

    /// The next chunk; `None` at the end. Cancelling the wait loses no data.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

impl Stream for ImageData {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        self.0.as_mut().poll_next(context)
    }
}

struct Nothing;

impl Stream for Nothing {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(None)
    }
}

struct FromStore(ByteStream);

impl Stream for FromStore {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        self.0.as_mut().poll_next(context).map(|item| item.map(|chunk| chunk.map_err(into_io)))
    }
}

fn into_io(error: kilonova_image_store::Error) -> io::Error {
    match error {
        kilonova_image_store::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
