//! The bytes of an image on their way in or out, and files as such streams. This file knows no HTTP:
//! `api` converts bodies.
//!
//! A pool thread is held while a file is read, not while the client receives.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read as _};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use kilonova_threads::Pool;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::gate::Pass;
use super::pace::Pace;

/// Bytes per read. At most two chunks are buffered for the client.
const CHUNK: usize = 128 * 1024;

/// The data of an image as a stream of chunks. An error ends it.
pub struct ImageData(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>);

impl ImageData {
    /// The data that a stream yields.
    pub fn new(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Box::pin(stream))
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

/// The bytes of a file. With a pace, the stream of a client that is too slow ends with an error. The
/// pass is released when the last chunk is taken or the stream is dropped.
pub(crate) fn data_of(pool: Pool, file: File, client: Option<(Pace, Pass)>) -> ImageData {
    let (chunks, received) = mpsc::channel(1);
    let (abort, aborted) = oneshot::channel();
    tokio::spawn(async move {
        if let Err(error) = send(pool, file, &chunks, client).await {
            // Fails only if the receiver is gone, which then needs no error.
            let _ = abort.send(error);
        }
    });
    ImageData::new(FileStream { chunks: received, aborted })
}

/// The receiving end of a file that [`send`] reads. The error has a channel of its own, because the
/// chunks' channel is full when a client is too slow.
struct FileStream {
    chunks: mpsc::Receiver<Bytes>,
    aborted: oneshot::Receiver<io::Error>,
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        match ready!(self.chunks.poll_recv(context)) {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None if self.aborted.is_terminated() => Poll::Ready(None),
            None => Pin::new(&mut self.aborted).poll(context).map(|error| error.ok().map(Err)),
        }
    }
}

/// Sends the file until its end, or until the receiver is gone.
async fn send(
    pool: Pool,
    mut file: File,
    chunks: &mpsc::Sender<Bytes>,
    client: Option<(Pace, Pass)>,
) -> io::Result<()> {
    let (mut pace, _pass) = client.unzip();
    loop {
        let read = pool
            .run(move || {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk);
                read.map(|_| (file, chunk))
            })
            .await
            .map_err(io::Error::other)?;
        let (same, chunk) = read?;
        if chunk.is_empty() {
            return Ok(());
        }
        file = same;
        match forward(chunks, chunk.into(), pace.as_mut()).await {
            Forwarded::Accepted => {}
            Forwarded::Disconnected => return Ok(()),
            Forwarded::TooSlow(error) => {
                tracing::info!(%error, "download aborted: the client is too slow");
                return Err(error);
            }
        }
    }
}

enum Forwarded {
    Accepted,
    /// The client is gone.
    Disconnected,
    TooSlow(io::Error),
}

async fn forward(chunks: &mpsc::Sender<Bytes>, chunk: Bytes, pace: Option<&mut Pace>) -> Forwarded {
    let bytes = chunk.len();
    let mut sending = pin!(chunks.send(chunk));
    let sent = match pace {
        None => sending.await,
        Some(pace) => loop {
            match timeout_at(pace.end(), &mut sending).await {
                Err(_) => {
                    if let Err(slow) = pace.advance(0, Instant::now()) {
                        return Forwarded::TooSlow(io::Error::other(slow));
                    }
                }
                Ok(Err(gone)) => break Err(gone),
                Ok(Ok(())) => match pace.advance(bytes, Instant::now()) {
                    Ok(()) => break Ok(()),
                    Err(slow) => return Forwarded::TooSlow(io::Error::other(slow)),
                },
            }
        },
    };
    if sent.is_ok() { Forwarded::Accepted } else { Forwarded::Disconnected }
}
