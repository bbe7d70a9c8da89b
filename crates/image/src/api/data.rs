//! Upload and download of image data, and its conversion from and to HTTP bodies.

use std::io;
use std::pin::Pin;
use std::task::{self, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::IntoResponse as _;
use futures_core::Stream;
use kilonova_access::{Guard, Routes, get, put};
use kilonova_wire::{Context, Refusal};

use super::{Answer, id_of, no_content};
use crate::{Error, ImageData, ImageRecord, Images};

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const IMAGE_SIZE: HeaderName = HeaderName::from_static("x-openstack-image-size");

pub(super) fn routes() -> Routes<Images> {
    Routes::new().route(
        "/v2/images/{id}/file",
        [
            put(Guard::Object(&["upload_image"]), upload),
            get(Guard::Object(&["download_image"]), download),
        ],
    )
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
        return Err(Error::Unsupported(
            "Image data must be sent as application/octet-stream.".into(),
        )
        .into());
    }
    images.upload_for(&context, id, announced(&headers)?, body.into()).await?;
    no_content()
}

/// The size that the client announces, as in Glance: `X-OpenStack-Image-Size` takes precedence over
/// `Content-Length`, and 0 stands for an unknown size.
fn announced(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let value = headers.get(IMAGE_SIZE).or_else(|| headers.get(header::CONTENT_LENGTH));
    let Some(value) = value else { return Ok(None) };
    let size = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    let wrong = || Error::Invalid("Invalid or missing image size in request headers.".into());
    size.map(|size| (size > 0).then_some(size)).ok_or_else(wrong)
}

async fn download(
    State(images): State<Images>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    match images.download_for(&context, id_of(&id)?).await? {
        (image, Some(data)) => respond(&image, data),
        (_, None) => no_content(),
    }
}

fn respond(image: &ImageRecord, data: ImageData) -> Answer {
    let mut response = Body::from(data).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, OCTETS);
    headers.insert(header::CONTENT_LENGTH, image.size.unwrap_or_default().into());
    if let Some(checksum) = &image.checksum {
        let value = HeaderValue::from_str(checksum).map_err(Refusal::internal)?;
        headers.insert(CONTENT_MD5, value);
    }
    Ok(response)
}

/// The data of a body, without its trailers.
struct BodyData(BodyDataStream);

impl Stream for BodyData {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let next = Pin::new(&mut self.0).poll_next(context);
        next.map(|chunk| chunk.map(|chunk| chunk.map_err(io::Error::other)))
    }
}

impl From<Body> for ImageData {
    fn from(body: Body) -> Self {
        Self::new(BodyData(body.into_data_stream()))
    }
}

impl From<ImageData> for Body {
    fn from(data: ImageData) -> Self {
        Self::from_stream(data)
    }
}
