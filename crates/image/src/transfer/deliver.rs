//! Sends the data of an image to a client, at the client's pace. A wrong or incomplete download ends
//! with an error.
//!
//! The last chunk is sent only after the hash of all data is verified. Therefore a client that receives the full size
//! of the image has received the correct data.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use kilonova_image_store::ByteStream;
use kilonova_threads::Pool;
use sha2::{Digest as _, Sha512};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::gate::Pass;
use super::pace::Pace;
use super::receiver::hex;
use super::stream::ImageData;

/// Streams the bytes of a store to a client. The stream ends with an error if the client is too slow, if the store
/// fails, or if the bytes do not match the hash. The pass is released when the last chunk is taken or the stream is
/// dropped.
pub(crate) fn deliver(
    pool: Pool,
    bytes: ByteStream,
    hash: Option<String>,
    pace: Pace,
    pass: Pass,
) -> ImageData {
    let (chunks, received) = mpsc::channel(1);
    let (abort, aborted) = oneshot::channel();
    tokio::spawn(async move {
        let mut client = Client { chunks, pace };
        let sent = send(&pool, bytes, hash, &mut client).await;
        drop(pass);
        match sent {
            Ok(()) => {}
            Err(Stopped::Disconnected) => tracing::debug!("download aborted: the client is gone"),
            Err(Stopped::Failed(error)) => {
                tracing::warn!(%error, "download aborted");
                // Fails only if the receiver is gone; the error is then not needed.
                let _ = abort.send(error);
            }
        }
    });
    ImageData::new(Delivery { chunks: received, aborted })
}

/// The receiving end of a delivery. The error has its own channel, because the chunks' channel is full when a client is
/// too slow.
struct Delivery {
    chunks: mpsc::Receiver<Bytes>,
    aborted: oneshot::Receiver<io::Error>,
}

impl Stream for Delivery {
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

/// The reason why a delivery stopped.
enum Stopped {
    /// The client is gone.
    Disconnected,
    Failed(io::Error),
}

/// Sends all bytes. Each chunk is sent only after the next one has been hashed.
async fn send(
    pool: &Pool,
    mut bytes: ByteStream,
    hash: Option<String>,
    client: &mut Client,
) -> Result<(), Stopped> {
    let failed = |error: io::Error| Stopped::Failed(error);
    let (mut digest, mut held) = (Sha512::new(), None::<Bytes>);
    loop {
        let asked = Instant::now();
        let next = poll_fn(|context| bytes.as_mut().poll_next(context)).await;
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| failed(io::Error::other(error)))?;
        if hash.is_some() {
            let hashed = chunk.clone();
            let updated = pool.run(move || digest.chain_update(&hashed)).await;
            digest = updated.map_err(|error| failed(io::Error::other(error)))?;
        }
        client.pace.extend(asked.elapsed());
        if let Some(before) = held.replace(chunk) {
            client.forward(before).await?;
        }
    }
    if let Some(hash) = hash
        && hex(&digest.finalize()) != hash
    {
        return Err(failed(io::Error::other("the store's bytes do not have the image's hash")));
    }
    match held {
        Some(last) => client.forward(last).await,
        None => Ok(()),
    }
}

struct Client {
    chunks: mpsc::Sender<Bytes>,
    pace: Pace,
}

impl Client {
    async fn forward(&mut self, chunk: Bytes) -> Result<(), Stopped> {
        let slow = |slow| Stopped::Failed(io::Error::other(slow));
        let bytes = chunk.len();
        let mut sending = pin!(self.chunks.send(chunk));
        loop {
            match timeout_at(self.pace.end(), &mut sending).await {
                Err(_) => self.pace.advance(0, Instant::now()).map_err(slow)?,
                Ok(Err(_)) => return Err(Stopped::Disconnected),
                Ok(Ok(())) => break,
            }
        }
        self.pace.advance(bytes, Instant::now()).map_err(slow)
    }
}
