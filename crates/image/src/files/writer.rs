//! Writing the bytes of one upload: hashed on the way, on a thread of its own.

use std::fs::File;
use std::io::Write as _;

use axum::body::Bytes;
use md5::{Digest as _, Md5};
use sha2::Sha512;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Error;
use crate::db::images::Arrived;

/// Chunks that may wait for the disk.
const WAITING: usize = 16;

/// Takes chunks and ends with what is known of them.
pub(crate) struct Writer {
    chunks: mpsc::Sender<Bytes>,
    thread: JoinHandle<Result<(File, Arrived), Error>>,
}

impl Writer {
    pub(crate) fn start(file: File) -> Self {
        let (chunks, receiver) = mpsc::channel(WAITING);
        Self { chunks, thread: tokio::task::spawn_blocking(move || write(file, receiver)) }
    }

    /// Takes a chunk; `false` when the thread has given up, which [`Writer::end`] then explains.
    pub(crate) async fn push(&self, chunk: Bytes) -> bool {
        self.chunks.send(chunk).await.is_ok()
    }

    /// Waits until everything is on the disk.
    pub(crate) async fn end(self) -> Result<(File, Arrived), Error> {
        drop(self.chunks);
        self.thread.await.map_err(|e| Error::Io(std::io::Error::other(e)))?
    }
}

fn write(mut file: File, mut chunks: mpsc::Receiver<Bytes>) -> Result<(File, Arrived), Error> {
    let (mut md5, mut sha512, mut size) = (Md5::new(), Sha512::new(), 0);
    while let Some(chunk) = chunks.blocking_recv() {
        file.write_all(&chunk)?;
        md5.update(&chunk);
        sha512.update(&chunk);
        size += chunk.len() as i64;
    }
    file.sync_all()?;
    let arrived = Arrived {
        size,
        virtual_size: size,
        format: None,
        checksum: hex(&md5.finalize()),
        hash: hex(&sha512.finalize()),
    };
    Ok((file, arrived))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
