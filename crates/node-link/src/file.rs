//! A file as a request body, read while it is sent.

use std::io::{Error, Read as _};
use std::path::Path;

use bytes::Bytes;
use http_body_util::channel::Channel;

const CHUNK: usize = 128 * 1024;

pub(super) fn body(path: &Path) -> Result<reqwest::Body, Error> {
    let mut file = std::fs::File::open(path)?;
    let (mut sender, body) = Channel::<Bytes, Error>::new(4);
    tokio::spawn(async move {
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let mut chunk = vec![0; CHUNK];
                let length = file.read(&mut chunk)?;
                chunk.truncate(length);
                Ok::<_, Error>((file, chunk))
            });
            let chunk = match read.await.unwrap_or_else(|error| Err(Error::other(error))) {
                Ok((rest, chunk)) => {
                    file = rest;
                    chunk
                }
                Err(error) => return sender.abort(error),
            };
            if chunk.is_empty() || sender.send_data(chunk.into()).await.is_err() {
                return;
            }
        }
    });
    Ok(reqwest::Body::wrap(body))
}
