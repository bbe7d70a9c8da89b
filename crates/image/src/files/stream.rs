//! A file as a response body. A pool thread is held while the file is read, not while the client
//! receives.

use std::fs::File;
use std::io::Read as _;
use std::pin::pin;

use axum::body::{Body, Bytes};
use http_body_util::channel::{Channel, Sender};
use kilonova_threads::Pool;
use tokio::time::{Instant, timeout_at};

use super::gate::Pass;
use super::pace::Pace;

/// Bytes per read. At most two chunks are buffered for the client.
const CHUNK: usize = 128 * 1024;

/// The bytes of a file as a body. With a pace, a client that is too slow loses the connection. The pass
/// is released when the last byte is sent or the client is gone.
pub(crate) fn body_of(pool: Pool, file: File, client: Option<(Pace, Pass)>) -> Body {
    let (sender, body) = Channel::<Bytes, std::io::Error>::new(1);
    tokio::spawn(send(pool, file, sender, client));
    Body::new(body)
}

async fn send(
    pool: Pool,
    mut file: File,
    mut sender: Sender<Bytes, std::io::Error>,
    client: Option<(Pace, Pass)>,
) {
    let (mut pace, _pass) = client.unzip();
    loop {
        let read = pool
            .run(move || {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk);
                read.map(|_| (file, chunk))
            })
            .await;
        let chunk = match read {
            Ok(Ok((_, chunk))) if chunk.is_empty() => return,
            Ok(Ok((same, chunk))) => {
                file = same;
                chunk
            }
            Ok(Err(error)) => return sender.abort(error),
            Err(error) => return sender.abort(std::io::Error::other(error)),
        };
        match forward(&mut sender, chunk.into(), pace.as_mut()).await {
            Forwarded::Accepted => {}
            Forwarded::Disconnected => return,
            Forwarded::TooSlow(error) => {
                tracing::info!(%error, "download aborted: the client is too slow");
                return sender.abort(error);
            }
        }
    }
}

enum Forwarded {
    Accepted,
    /// The client is gone.
    Disconnected,
    TooSlow(std::io::Error),
}

async fn forward(
    sender: &mut Sender<Bytes, std::io::Error>,
    chunk: Bytes,
    pace: Option<&mut Pace>,
) -> Forwarded {
    let bytes = chunk.len();
    let mut sending = pin!(sender.send_data(chunk));
    let sent = match pace {
        None => sending.await,
        Some(pace) => loop {
            match timeout_at(pace.end(), &mut sending).await {
                Err(_) => {
                    if let Err(slow) = pace.advance(0, Instant::now()) {
                        return Forwarded::TooSlow(std::io::Error::other(slow));
                    }
                }
                Ok(Err(gone)) => break Err(gone),
                Ok(Ok(())) => match pace.advance(bytes, Instant::now()) {
                    Ok(()) => break Ok(()),
                    Err(slow) => return Forwarded::TooSlow(std::io::Error::other(slow)),
                },
            }
        },
    };
    if sent.is_ok() { Forwarded::Accepted } else { Forwarded::Disconnected }
}
