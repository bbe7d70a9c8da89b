//! An upload of image data to Glance: hashes the bytes as they pass, and ends a stalled transfer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use hyper::body::Frame;
use tokio::time::Instant;

use crate::{Digest, GlanceOptions};

/// The bytes that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// Their number.
    pub size: u64,
    /// Their SHA-512 in hex.
    pub sha512: String,
    /// Their MD5 in hex.
    pub md5: String,
}

struct State {
    size: u64,
    sha512: Option<Digest>,
    md5: Option<Digest>,
    moved: Instant,
    is_complete: bool,
    error: Option<String>,
}

/// An upload in progress.
pub(crate) struct Upload {
    state: Arc<Mutex<State>>,
    idle: Duration,
    storing: Duration,
}

impl Upload {
    /// Starts an upload: returns the stream for the request body, and the upload that observes it.
    pub fn start<S>(bytes: S, options: &GlanceOptions) -> (Watched, Self)
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let state = Arc::new(Mutex::new(State {
            size: 0,
            sha512: Digest::of("sha512"),
            md5: Digest::of("md5"),
            moved: Instant::now(),
            is_complete: false,
            error: None,
        }));
        let watched = Watched { bytes: Box::pin(bytes), state: Arc::clone(&state) };
        let (idle, storing) = (options.idle, options.storing);
        (watched, Self { state, idle, storing })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns once the transfer has stalled, with the reason.
    pub async fn stalled(&mut self) -> String {
        loop {
            let (moved, limit, what) = {
                let state = self.state();
                if state.is_complete {
                    (state.moved, self.storing, "the image service did not store it within")
                } else {
                    (state.moved, self.idle, "no data was transferred for")
                }
            };
            let end = moved + limit;
            if Instant::now() >= end {
                return format!("{what} {} s", limit.as_secs());
            }
            tokio::time::sleep_until(end).await;
        }
    }

    /// The error of the source of the bytes, if it failed.
    pub fn source_error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// The bytes that were sent; `None` if the source has more bytes.
    pub fn finish(self) -> Option<Uploaded> {
        let mut state = self.state();
        if !state.is_complete {
            return None;
        }
        let (sha512, md5) = (state.sha512.take()?, state.md5.take()?);
        Some(Uploaded { size: state.size, sha512: sha512.finish(), md5: md5.finish() })
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of an upload, observed as they are sent.
pub(crate) struct Watched {
    bytes: Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>,
    state: Arc<Mutex<State>>,
}

impl Stream for Watched {
    type Item = std::io::Result<Frame<Bytes>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.bytes.as_mut().poll_next(context));
        let mut state = lock(&self.state);
        state.moved = Instant::now();
        Poll::Ready(match next {
            None => {
                state.is_complete = true;
                None
            }
            Some(Err(error)) => {
                state.error = Some(error.to_string());
                Some(Err(error))
            }
            Some(Ok(bytes)) => {
                state.size += bytes.len() as u64;
                let state = &mut *state;
                for digest in [&mut state.sha512, &mut state.md5].into_iter().flatten() {
                    digest.update(&bytes);
                }
                Some(Ok(Frame::data(bytes)))
            }
        })
    }
}
