//! Byte streams, including those that read a file.
//!
//! A file's stream occupies a pool thread only while it reads, not while the receiver is busy.

use std::fs::File;
use std::io::Read as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use kilonova_threads::Pool;

use crate::Error;

/// Bytes per read of a file.
const CHUNK: u64 = 128 * 1024;

/// Chunks of bytes. An error is the last item.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

type Reading = Pin<Box<dyn Future<Output = Result<(File, Vec<u8>), Error>> + Send>>;

/// The next `most` bytes of a file.
pub fn file_bytes(pool: Pool, file: File, most: u64) -> ByteStream {
    Box::pin(FileStream { pool, left: most, state: State::Idle(file) })
}

struct FileStream {
    pool: Pool,
    left: u64,
    state: State,
}

enum State {
    Idle(File),
    Reading(Reading),
    Ended,
}

fn read(pool: Pool, mut file: File, most: u64) -> Reading {
    Box::pin(async move {
        pool.run(move || {
            let mut chunk = Vec::with_capacity(usize::try_from(most).unwrap_or_default());
            (&mut file).take(most).read_to_end(&mut chunk)?;
            Ok((file, chunk))
        })
        .await?
    })
}

impl Stream for FileStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut reading = match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => return Poll::Ready(None),
            State::Idle(_) if self.left == 0 => return Poll::Ready(None),
            State::Idle(file) => read(self.pool.clone(), file, self.left.min(CHUNK)),
            State::Reading(reading) => reading,
        };
        let Poll::Ready(read) = reading.as_mut().poll(context) else {
            self.state = State::Reading(reading);
            return Poll::Pending;
        };
        Poll::Ready(match read {
            Ok((_, chunk)) if chunk.is_empty() => None,
            Ok((file, chunk)) => {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                self.state = State::Idle(file);
                Some(Ok(chunk.into()))
            }
            Err(error) => Some(Err(error)),
        })
    }
}

/// Passes a stream on; it ends with an error unless it yields exactly `expected` bytes.
pub(crate) fn exactly(bytes: ByteStream, expected: u64) -> ByteStream {
    Box::pin(Exactly { bytes, left: expected, ended: false })
}

/// The stream of [`exactly`].
struct Exactly {
    bytes: ByteStream,
    left: u64,
    ended: bool,
}

impl Stream for Exactly {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.bytes.as_mut().poll_next(context));
        let item = match next {
            Some(Ok(chunk)) if chunk.len() as u64 <= self.left => {
                self.left -= chunk.len() as u64;
                Some(Ok(chunk))
            }
            Some(Ok(_)) => Some(Err(Error::Unavailable("the store sent too many bytes".into()))),
            None if self.left > 0 => {
                Some(Err(Error::Unavailable(format!("the object ended {} bytes early", self.left))))
            }
            other => other,
        };
        self.ended = !matches!(item, Some(Ok(_)));
        Poll::Ready(item)
    }
}
