//! The bytes of an image, streamed in and out.

use std::fs::File;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::put;
use http_body_util::channel::{Channel, Sender};
use kilonova_wire::{Context, Fault};
use tokio::io::AsyncReadExt as _;

use super::{Answer, id_of, no_content};
use crate::{Error, ImageRecord, Images};

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const IMAGE_SIZE: HeaderName = HeaderName::from_static("x-openstack-image-size");
const CHUNK: usize = 128 * 1024;

pub(super) fn routes() -> Router<Images> {
    Router::new().route("/v2/images/{id}/file", put(upload).get(download))
}

async fn upload(
    State(images): State<Images>,
    context: Context,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let id = id_of(&id)?;
    if headers.get(header::CONTENT_TYPE) != Some(&OCTETS) {
        return Err(
            Error::Unsupported("Image data is sent as application/octet-stream.".into()).into()
        );
    }
    let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let announced = number(&header::CONTENT_LENGTH).max(number(&IMAGE_SIZE));
    images.upload_for(&context, id, announced, body).await?;
    no_content()
}

async fn download(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    match images.download_for(&context, id_of(&id)?).await? {
        (image, Some(file)) => stream(&image, file),
        (_, None) => no_content(),
    }
}

fn stream(image: &ImageRecord, file: File) -> Result<Response, Fault> {
    let (sender, body) = Channel::<Bytes, std::io::Error>::new(4);
    tokio::spawn(send(tokio::fs::File::from_std(file), sender));
    let mut response = Body::new(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, OCTETS);
    headers.insert(header::CONTENT_LENGTH, image.size.unwrap_or_default().into());
    if let Some(checksum) = &image.checksum {
        let value = HeaderValue::from_str(checksum).map_err(Fault::internal)?;
        headers.insert(CONTENT_MD5, value);
    }
    Ok(response)
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
