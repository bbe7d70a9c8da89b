//! Requests to Glance, their retries, and the meaning of its answers.
//!
//! The client retries at the next configured endpoint if an attempt gets no answer, or the answer
//! that the service is unavailable. A request to create an image contains its id, so a retry finds
//! the image of an earlier attempt.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use kilonova_ids::ImageId;
use kilonova_keystone::{Answer, Caller, Error as CallError, Service};
use serde_json::Value;

use crate::upload::Upload;
use crate::{Download, Error, Image, Uploaded};

/// Statuses of a Glance, or of a proxy in front of it, that is temporarily unavailable.
const TEMPORARY: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
const JSON_PATCH: &str = "application/openstack-images-v2.1-json-patch";
/// Maximum number of pages read per list.
const PAGES: usize = 200;

/// Limits and retries of the client.
#[derive(Debug, Clone)]
pub struct GlanceOptions {
    /// Attempts after the first one (`num_retries`).
    pub retries: u32,
    /// The pause before each further attempt; upstream waits a second.
    pub pause: Duration,
    /// The maximum time for all attempts of one request that carries no image data.
    pub timeout: Duration,
    /// The maximum time between two chunks of an upload.
    pub idle: Duration,
    /// The maximum time for Glance to store an image after its last byte.
    pub storing: Duration,
}

impl Default for GlanceOptions {
    fn default() -> Self {
        Self {
            retries: 3,
            pause: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            idle: Duration::from_secs(120),
            storing: Duration::from_secs(1800),
        }
    }
}

/// Filters of a list: pairs of key and value, as in the query.
pub type Query<'a> = &'a [(&'a str, &'a str)];

/// The client.
pub struct Glance {
    endpoints: Vec<Service>,
    /// The endpoint of the next request.
    next: AtomicUsize,
    options: GlanceOptions,
}

/// The caller and the id of the request, for the logs of Glance.
type As<'a> = (Caller<'a>, Option<&'a str>);

impl Glance {
    /// Creates a client of these endpoints of one Glance; sends nothing.
    pub fn new(endpoints: Vec<Service>, options: GlanceOptions) -> Self {
        Self { endpoints, next: AtomicUsize::new(0), options }
    }

    /// The client's options.
    pub fn options(&self) -> &GlanceOptions {
        &self.options
    }

    /// The URL of an endpoint; `None` while it is not known.
    pub async fn location(&self) -> Option<String> {
        self.endpoints.first()?.location().await.ok()
    }

    /// An image.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAuthorized`], [`Error::Unavailable`].
    pub async fn show(&self, by: As<'_>, image: ImageId) -> Result<Image, Error> {
        let path = format!("/v2/images/{image}");
        let answer = self.exchange(by, image, Method::GET, &path, &[], None).await?;
        self.parsed(&expect(image, answer, &[StatusCode::OK])?)
    }

    /// Creates an image without data. `body` has its id.
    ///
    /// # Errors
    /// [`Error::NotAuthorized`], [`Error::TooLarge`], [`Error::Refused`], [`Error::Unavailable`].
    pub async fn create(&self, by: As<'_>, image: ImageId, body: &Value) -> Result<Image, Error> {
        let body = Some(Bytes::from(body.to_string()));
        let created = self.exchange_noting(by, image, Method::POST, "/v2/images", &[], body).await;
        let (answer, is_repeated) = created?;
        // An earlier attempt, whose answer was lost, has created it: no other client knows the id.
        if answer.status == StatusCode::CONFLICT && is_repeated {
            return self.show(by, image).await;
        }
        self.parsed(&expect(image, answer, &[StatusCode::CREATED])?)
    }

    /// Changes attributes and properties of an image; `operations` is a JSON patch.
    ///
    /// # Errors
    /// Those of [`Glance::show`], and [`Error::Refused`].
    pub async fn patch(
        &self,
        by: As<'_>,
        image: ImageId,
        operations: &Value,
    ) -> Result<Image, Error> {
        let path = format!("/v2/images/{image}");
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON_PATCH))];
        let body = Some(Bytes::from(operations.to_string()));
        let answer = self.exchange(by, image, Method::PATCH, &path, &kind, body).await?;
        self.parsed(&expect(image, answer, &[StatusCode::OK])?)
    }

    /// Shares an image with a project.
    ///
    /// # Errors
    /// Those of [`Glance::patch`].
    pub async fn add_member(&self, by: As<'_>, image: ImageId, project: &str) -> Result<(), Error> {
        let path = format!("/v2/images/{image}/members");
        let body = Some(Bytes::from(serde_json::json!({"member": project}).to_string()));
        let answer = self.exchange(by, image, Method::POST, &path, &[], body).await?;
        // 409: the project is a member already.
        expect(image, answer, &[StatusCode::OK, StatusCode::CONFLICT]).map(drop)
    }

    /// Deletes an image. False if there is none.
    ///
    /// # Errors
    /// [`Error::NotAuthorized`], also for a protected image; [`Error::Conflict`] for one in use;
    /// [`Error::Unavailable`].
    pub async fn delete(&self, by: As<'_>, image: ImageId) -> Result<bool, Error> {
        let path = format!("/v2/images/{image}");
        let answer = self.exchange(by, image, Method::DELETE, &path, &[], None).await?;
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(false);
        }
        expect(image, answer, &[StatusCode::NO_CONTENT])?;
        Ok(true)
    }

    /// The images of a list, at most `most`, and whether there are more.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Refused`].
    pub async fn list(
        &self,
        by: As<'_>,
        query: Query<'_>,
        most: usize,
    ) -> Result<(Vec<Image>, bool), Error> {
        let pairs = query.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value)));
        let mut path = format!("/v2/images?{}", pairs.collect::<Vec<_>>().join("&"));
        let nobody = ImageId::nil();
        let mut images = Vec::new();
        for _ in 0..PAGES {
            let answer = self.exchange(by, nobody, Method::GET, &path, &[], None).await?;
            let body = expect(nobody, answer, &[StatusCode::OK])?.json();
            let found = body["images"].as_array().into_iter().flatten();
            images.extend(found.filter_map(Image::parse));
            let next = body["next"].as_str();
            if images.len() >= most {
                let more = images.len() > most || next.is_some();
                images.truncate(most);
                return Ok((images, more));
            }
            match next {
                Some(next) => path = next.to_owned(),
                None => return Ok((images, false)),
            }
        }
        Ok((images, true))
    }

    /// The bytes of an image from an offset on.
    ///
    /// # Errors
    /// Those of [`Glance::show`]; [`Error::Refused`] for an image without data.
    pub async fn download(
        &self,
        by: As<'_>,
        image: ImageId,
        offset: u64,
    ) -> Result<Download, Error> {
        let path = format!("/v2/images/{image}/file");
        let range = HeaderValue::from_str(&format!("bytes={offset}-"));
        let range = match range {
            Ok(range) if offset > 0 => vec![(header::RANGE, range)],
            Ok(_) | Err(_) => Vec::new(),
        };
        let mut attempts = 0;
        let begun = tokio::time::Instant::now();
        loop {
            let (service, host) = self.endpoint().await;
            let opened = service.open(by.0, Method::GET, &path, &range, None, by.1);
            let failure = match opened.await {
                Ok(answer) if TEMPORARY.contains(&answer.status) => {
                    unavailable(&host, answer.status.to_string())
                }
                Ok(answer) => match answer.status {
                    StatusCode::OK => return Download::whole(image, host, offset, answer).await,
                    StatusCode::PARTIAL_CONTENT => {
                        return Download::part(image, host, offset, answer);
                    }
                    StatusCode::NO_CONTENT => {
                        return Err(Error::Refused {
                            image,
                            status: 204,
                            why: "Image has no associated data".into(),
                        });
                    }
                    _ => {
                        let answer = answer.read().await.map_err(|e| failed(&host, e))?;
                        expect(image, answer, &[])?;
                        return Err(unavailable(&host, "no bytes".into()));
                    }
                },
                Err(error) => failed(&host, error),
            };
            self.pause(&mut attempts, begun, failure).await?;
        }
    }

    /// Sends the bytes of an image, which `bytes` yields; does not retry.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if `bytes` fails or yields nothing for too long; [`Error::Conflict`] if the image has data or
    /// another upload is in progress; [`Error::Unavailable`] without an answer.
    pub async fn upload<S>(&self, by: As<'_>, image: ImageId, bytes: S) -> Result<Uploaded, Error>
    where
        S: futures_core::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let (service, host) = self.endpoint().await;
        let path = format!("/v2/images/{image}/file");
        let octets = HeaderValue::from_static("application/octet-stream");
        let kind = [(header::CONTENT_TYPE, octets)];
        let (body, mut upload) = Upload::start(bytes, &self.options);
        let body = Some(StreamBody::new(body).boxed_unsync());
        let sent = service.open(by.0, Method::PUT, &path, &kind, body, by.1);
        let answer = tokio::select! {
            answer = sent => answer,
            why = upload.stalled() => return Err(Error::Interrupted { image, why }),
        };
        if let Some(why) = upload.source_error() {
            return Err(Error::Interrupted { image, why });
        }
        let answer = answer.map_err(|e| failed(&host, e))?;
        let answer = answer.read().await.map_err(|e| failed(&host, e))?;
        if TEMPORARY.contains(&answer.status) {
            return Err(unavailable(&host, answer.status.to_string()));
        }
        expect(image, answer, &[StatusCode::NO_CONTENT])?;
        upload.finish().ok_or_else(|| Error::Unexpected {
            host,
            what: "204 before it had received all bytes".into(),
        })
    }

    async fn exchange(
        &self,
        by: As<'_>,
        image: ImageId,
        method: Method,
        path: &str,
        more: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
    ) -> Result<Answer, Error> {
        Ok(self.exchange_noting(by, image, method, path, more, body).await?.0)
    }

    /// The answer, and whether Glance may have carried out an earlier attempt.
    async fn exchange_noting(
        &self,
        by: As<'_>,
        image: ImageId,
        method: Method,
        path: &str,
        more: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
    ) -> Result<(Answer, bool), Error> {
        let begun = tokio::time::Instant::now();
        let (mut attempts, mut was_sent) = (0, false);
        loop {
            let (service, host) = self.endpoint().await;
            let sent = service.send_with(by.0, method.clone(), path, more, body.clone(), by.1);
            let left = self.options.timeout.saturating_sub(begun.elapsed());
            let failure = match tokio::time::timeout(left, sent).await {
                Ok(Ok(answer)) if TEMPORARY.contains(&answer.status) => {
                    unavailable(&host, answer.status.to_string())
                }
                Ok(Ok(answer)) => return Ok((answer, was_sent)),
                Ok(Err(error)) => failed(&host, error),
                Err(_) => {
                    let cause = format!("no answer within {} s", self.options.timeout.as_secs());
                    return Err(Error::Unavailable { host, cause, is_sent: true });
                }
            };
            if let Error::Unavailable { is_sent, .. } = &failure {
                was_sent |= is_sent;
            }
            let failure = match failure {
                Error::Unavailable { host, cause, is_sent } => {
                    Error::Unavailable { host, cause, is_sent: is_sent || was_sent }
                }
                other => other,
            };
            tracing::debug!(%image, %failure, "no answer from Glance");
            self.pause(&mut attempts, begun, failure).await?;
        }
    }

    /// Waits before the next attempt, or returns the failure if there is none.
    async fn pause(
        &self,
        attempts: &mut u32,
        begun: tokio::time::Instant,
        failure: Error,
    ) -> Result<(), Error> {
        let is_temporary = matches!(failure, Error::Unavailable { .. });
        let spent = begun.elapsed() + self.options.pause >= self.options.timeout;
        if !is_temporary || *attempts >= self.options.retries || spent {
            return Err(failure);
        }
        *attempts += 1;
        tokio::time::sleep(self.options.pause).await;
        Ok(())
    }

    /// The endpoint of the next attempt, and its URL for messages.
    async fn endpoint(&self) -> (&Service, String) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.endpoints.len().max(1);
        let service = &self.endpoints[at];
        let host = service.location().await.unwrap_or_else(|_| "of the catalog".to_owned());
        (service, host)
    }

    fn parsed(&self, answer: &Answer) -> Result<Image, Error> {
        Image::parse(&answer.json()).ok_or_else(|| Error::Unexpected {
            host: "the image service".into(),
            what: format!("{} with a body that does not describe an image", answer.status),
        })
    }
}

/// The answer, if its status is one of `wanted`.
fn expect(image: ImageId, answer: Answer, wanted: &[StatusCode]) -> Result<Answer, Error> {
    if wanted.contains(&answer.status) {
        return Ok(answer);
    }
    let why = || message(&answer);
    Err(match answer.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Error::NotFound(image),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::NotAuthorized(image),
        StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge(image),
        StatusCode::CONFLICT => Error::Conflict { image, why: why() },
        status if status.is_client_error() => {
            Error::Refused { image, status: status.as_u16(), why: why() }
        }
        status => Error::Unexpected {
            host: "the image service".into(),
            what: format!("{status}: {}", why()),
        },
    })
}

/// The message of a fault. Glance answers with HTML unless a client accepts JSON.
fn message(answer: &Answer) -> String {
    const MOST: usize = 500;
    let json = answer.json();
    let text = match json["message"].as_str() {
        Some(text) => text.to_owned(),
        None => String::from_utf8_lossy(&answer.body).into_owned(),
    };
    let mut plain = String::new();
    let mut is_tag = false;
    for letter in text.chars().take(8 * MOST) {
        match letter {
            '<' => is_tag = true,
            '>' => is_tag = false,
            letter if !is_tag => plain.push(letter),
            _ => {}
        }
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MOST).collect()
}

pub(crate) fn unavailable(host: &str, cause: String) -> Error {
    Error::Unavailable { host: host.to_owned(), cause, is_sent: true }
}

/// The error of a request that got no answer.
pub(crate) fn failed(host: &str, error: CallError) -> Error {
    let is_sent = matches!(&error, CallError::Unreachable { connected: true, .. });
    match error {
        CallError::Unexpected { url, what } => Error::Unexpected { host: url, what },
        other => Error::Unavailable { host: host.to_owned(), cause: other.to_string(), is_sent },
    }
}

/// Percent-encodes a value for a query string.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
