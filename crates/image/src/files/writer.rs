//! Writes the data of one upload: collects chunks in memory, then hashes and writes them on a pool
//! thread.
//!
//! The thread is held only while it writes, never while waiting for the client. The next chunks are
//! collected meanwhile.

use std::fs::File;
use std::io::Write as _;

use kilonova_threads::Pool;
use md5::{Digest as _, Md5};
use sha2::Sha512;
use tokio::task::JoinHandle;

use crate::Error;
use crate::db::images::ReceivedData;

/// Bytes per write. An upload buffers at most twice as many.
const GATHERED: usize = 256 * 1024;

/// The file with its running hashes and size.
struct Sink {
    file: File,
    md5: Md5,
    sha512: Sha512,
    size: i64,
    /// The last written buffer, kept for reuse.
    spare: Vec<u8>,
}

impl Sink {
    fn write(mut self: Box<Self>, bytes: Vec<u8>) -> Result<Box<Self>, Error> {
        self.file.write_all(&bytes)?;
        self.md5.update(&bytes);
        self.sha512.update(&bytes);
        self.size += bytes.len() as i64;
        self.spare = bytes;
        self.spare.clear();
        Ok(self)
    }
}

enum State {
    Idle(Box<Sink>),
    Busy(JoinHandle<Result<Box<Sink>, Error>>),
    Failed,
}

/// Accepts chunks; returns the facts about them at the end.
pub(crate) struct Writer {
    pool: Pool,
    gathered: Vec<u8>,
    state: State,
}

impl Writer {
    pub(crate) fn start(pool: Pool, file: File) -> Self {
        let (md5, sha512) = (Md5::new(), Sha512::new());
        let sink = Sink { file, md5, sha512, size: 0, spare: Vec::new() };
        Self { pool, gathered: Vec::new(), state: State::Idle(Box::new(sink)) }
    }

    /// Adds a chunk; waits for the disk when the buffer is full.
    pub(crate) async fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.gathered.extend_from_slice(chunk);
        if self.gathered.len() < GATHERED {
            return Ok(());
        }
        let mut sink = self.sink().await?;
        let bytes = std::mem::replace(&mut self.gathered, std::mem::take(&mut sink.spare));
        let pool = self.pool.clone();
        self.state =
            State::Busy(tokio::spawn(async move { pool.run(move || sink.write(bytes)).await? }));
        Ok(())
    }

    /// Writes the rest and waits until all data is durable.
    pub(crate) async fn end(mut self) -> Result<(File, ReceivedData), Error> {
        let sink = self.sink().await?;
        let rest = self.gathered;
        self.pool
            .run(move || {
                let sink = sink.write(rest)?;
                sink.file.sync_all()?;
                let received = ReceivedData {
                    size: sink.size,
                    virtual_size: sink.size,
                    format: None,
                    checksum: hex(&sink.md5.finalize()),
                    hash: hex(&sink.sha512.finalize()),
                };
                Ok((sink.file, received))
            })
            .await?
    }

    /// The sink, after the write in progress.
    async fn sink(&mut self) -> Result<Box<Sink>, Error> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(sink) => Ok(sink),
            State::Busy(task) => task.await.map_err(|e| Error::Io(std::io::Error::other(e)))?,
            State::Failed => Err(Error::Io(std::io::Error::other("an earlier write failed"))),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
