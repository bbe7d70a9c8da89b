//! A file as a body, read as it is sent: by a thread of the image files' pool, which is held while
//! the file is read and not while the client takes the bytes.

use std::fs::File;
use std::io::Read as _;
use std::pin::pin;

use axum::body::{Body, Bytes};
use http_body_util::channel::{Channel, Sender};
use kilonova_threads::Pool;
use tokio::time::{Instant, timeout_at};

use super::gate::Pass;
use super::pace::Pace;

/// Bytes that are read at once. Two such pieces wait for the client at most.
const CHUNK: usize = 128 * 1024;

/// The bytes of a file as a body. With a pace, a reader that falls behind it loses the connection;
/// the pass is given back when the last byte is sent or the reader is gone.
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
        match give(&mut sender, chunk.into(), pace.as_mut()).await {
            Given::Taken => {}
            Given::Gone => return,
            Given::TooSlow(error) => {
                tracing::info!(%error, "a download is ended");
                return sender.abort(error);
            }
        }
    }
}

enum Given {
    Taken,
    /// Nobody reads any more.
    Gone,
    TooSlow(std::io::Error),
}

async fn give(
    sender: &mut Sender<Bytes, std::io::Error>,
    chunk: Bytes,
    pace: Option<&mut Pace>,
) -> Given {
    let bytes = chunk.len();
    let mut sending = pin!(sender.send_data(chunk));
    let sent = match pace {
        None => sending.await,
        Some(pace) => loop {
            match timeout_at(pace.end(), &mut sending).await {
                Err(_) => {
                    if let Err(slow) = pace.moved(0, Instant::now()) {
                        return Given::TooSlow(std::io::Error::other(slow));
                    }
                }
                Ok(Err(gone)) => break Err(gone),
                Ok(Ok(())) => match pace.moved(bytes, Instant::now()) {
                    Ok(()) => break Ok(()),
                    Err(slow) => return Given::TooSlow(std::io::Error::other(slow)),
                },
            }
        },
    };
    if sent.is_ok() { Given::Taken } else { Given::Gone }
}
