//! A file as a body, read as it is sent.

use std::fs::File;

use axum::body::{Body, Bytes};
use http_body_util::channel::{Channel, Sender};
use tokio::io::AsyncReadExt as _;

const CHUNK: usize = 128 * 1024;

/// The bytes of a file as a body.
pub fn body_of(file: File) -> Body {
    let (sender, body) = Channel::<Bytes, std::io::Error>::new(4);
    tokio::spawn(send(tokio::fs::File::from_std(file), sender));
    Body::new(body)
}

/// Ends when the file does or when nobody reads any more.
async fn send(mut file: tokio::fs::File, mut sender: Sender<Bytes, std::io::Error>) {
    loop {
        let mut chunk = bytes::BytesMut::with_capacity(CHUNK);
        match file.read_buf(&mut chunk).await {
            Ok(0) => return,
            Ok(_) if sender.send_data(chunk.freeze()).await.is_err() => return,
            Ok(_) => {}
            Err(error) => return sender.abort(error),
        }
    }
}
