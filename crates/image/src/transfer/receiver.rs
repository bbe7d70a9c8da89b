//! Receives the data of one upload: collects chunks in memory, then hashes them on a pool thread and
//! hands them to the store.
//!
//! An upload occupies a thread only for hashing, never while it waits for the client or the store. While it waits for
//! the store, it collects the next chunks.

use bytes::{Bytes, BytesMut};
use kilonova_image_store::Upload;
use kilonova_threads::Pool;
use md5::{Digest as _, Md5};
use sha2::Sha512;
use tokio::task::JoinHandle;

use super::format::HEAD;
use crate::Error;
use crate::db::uploads::ReceivedData;

/// Bytes per write. An upload buffers at most twice as many, in addition to what its store buffers.
const COLLECTED: usize = 256 * 1024;

/// The upload with its running hashes and size.
struct Sink {
    upload: Box<dyn Upload>,
    digests: Digests,
}

#[derive(Default)]
struct Digests {
    md5: Md5,
    sha512: Sha512,
    size: i64,
    /// The first bytes.
    head: Vec<u8>,
}

impl Digests {
    fn update(&mut self, bytes: &[u8]) {
        let missing = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        self.md5.update(bytes);
        self.sha512.update(bytes);
        self.size += bytes.len() as i64;
    }
}

impl Sink {
    async fn write(&mut self, pool: &Pool, bytes: Bytes) -> Result<(), Error> {
        let (mut digests, hashed) = (std::mem::take(&mut self.digests), bytes.clone());
        self.digests = pool
            .run(move || {
                digests.update(&hashed);
                digests
            })
            .await?;
        Ok(self.upload.write(bytes).await?)
    }
}

enum State {
    Idle(Box<Sink>),
    Busy(JoinHandle<(Box<Sink>, Result<(), Error>)>),
    /// The task panicked.
    Lost,
}

/// Accepts the chunks of an upload; returns their size and hashes at the end.
pub(crate) struct Receiver {
    pool: Pool,
    collected: BytesMut,
    state: State,
}

/// The size, the hashes and the first bytes of the received data.
pub(crate) struct Received {
    pub data: ReceivedData,
    /// The first bytes, for detecting the format.
    pub head: Vec<u8>,
}

impl Receiver {
    pub(crate) fn start(pool: Pool, upload: Box<dyn Upload>) -> Self {
        let sink = Box::new(Sink { upload, digests: Digests::default() });
        Self { pool, collected: BytesMut::with_capacity(COLLECTED), state: State::Idle(sink) }
    }

    /// Adds a chunk; waits for the store when the buffer is full.
    pub(crate) async fn push(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        while !chunk.is_empty() {
            // A buffer never grows: stores keep it, and its capacity, until they have sent it.
            let free = COLLECTED.saturating_sub(self.collected.len()).min(chunk.len());
            let (fits, rest) = chunk.split_at(free);
            self.collected.extend_from_slice(fits);
            chunk = rest;
            if self.collected.len() >= COLLECTED {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Hands the full buffer to the store.
    async fn flush(&mut self) -> Result<(), Error> {
        let mut sink = self.sink().await?;
        let full = std::mem::replace(&mut self.collected, BytesMut::with_capacity(COLLECTED));
        let (bytes, pool) = (full.freeze(), self.pool.clone());
        self.state = State::Busy(tokio::spawn(async move {
            let written = sink.write(&pool, bytes).await;
            (sink, written)
        }));
        Ok(())
    }

    /// Writes the rest and waits until all data is durable in the store.
    pub(crate) async fn end(&mut self) -> Result<Received, Error> {
        let mut sink = self.sink().await?;
        let rest = std::mem::take(&mut self.collected).freeze();
        let mut ended = sink.write(&self.pool, rest).await;
        if ended.is_ok() {
            ended = sink.upload.finish().await.map_err(Error::from);
        }
        let digests = std::mem::take(&mut sink.digests);
        self.state = State::Idle(sink);
        ended?;
        let data = ReceivedData {
            size: digests.size,
            virtual_size: digests.size,
            format: None,
            checksum: hex(&digests.md5.finalize()),
            hash: hex(&digests.sha512.finalize()),
        };
        Ok(Received { data, head: digests.head })
    }

    /// Deletes the data written so far.
    pub(crate) async fn abort(mut self) -> Result<(), Error> {
        // The object is deleted even if its last write failed.
        let (Ok(mut sink), _) = self.settle().await else { return Ok(()) };
        Ok(sink.upload.abort().await?)
    }

    /// The sink, once the write in progress has ended.
    async fn sink(&mut self) -> Result<Box<Sink>, Error> {
        let (sink, written) = self.settle().await;
        let sink = sink?;
        if let Err(error) = written {
            self.state = State::Idle(sink);
            return Err(error);
        }
        Ok(sink)
    }

    async fn settle(&mut self) -> (Result<Box<Sink>, Error>, Result<(), Error>) {
        let lost = |why: String| Err(Error::Io(std::io::Error::other(why)));
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Idle(sink) => (Ok(sink), Ok(())),
            State::Busy(task) => match task.await {
                Ok((sink, written)) => (Ok(sink), written),
                Err(error) => (lost(error.to_string()), Ok(())),
            },
            State::Lost => (lost("an earlier write failed".into()), Ok(())),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
