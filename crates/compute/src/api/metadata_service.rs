//! The metadata service behind Neutron's proxies: `GET` of any path, and `POST` of a password.
//!
//! A proxy names the guest's server and project, and signs the server's id with the secret that it
//! shares with this cloud. Without a valid signature, only the list of EC2 versions is served.
//! The proxy passes 200, 400, 403, 404, 409, 500 and 502 to 504 on to the guest. It treats every
//! other status as its own error, so this service returns no others.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use kilonova_compute_app::metadata_service::{MetadataService, PasswordSet};
use kilonova_guest_metadata::{Answer, ContentType, MAX_PASSWORD, lookup_versions, texts};
use kilonova_ids::ServerId;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use ring::hmac;

const INSTANCE: &str = "x-instance-id";
const SIGNATURE: &str = "x-instance-id-signature";
const PROJECT: &str = "x-tenant-id";
const ADDRESSES: &str = "x-forwarded-for";
/// Number of seconds after which a client may retry if the database is unavailable.
const RETRY_AFTER: &str = "5";

#[derive(Clone)]
struct Proxied {
    service: MetadataService,
    key: Arc<hmac::Key>,
}

/// The routes for proxies that sign with `secret`.
pub fn routes(service: MetadataService, secret: &str) -> Router {
    let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    Router::new().fallback(answer).with_state(Proxied { service, key })
}

/// The status and the text of an error, as a guest receives them.
struct ErrorText(StatusCode, String);

impl ErrorText {
    fn bad(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    fn not_found() -> Self {
        Self(StatusCode::NOT_FOUND, texts::NOT_FOUND.into())
    }
}

impl From<Refusal> for ErrorText {
    fn from(refusal: Refusal) -> Self {
        tracing::error!(
            error = %refusal.cause().unwrap_or(refusal.logged()),
            "cannot answer a guest's metadata request"
        );
        let status = match refusal.kind {
            Kind::Unavailable | Kind::GatewayTimeout | Kind::Timeout | Kind::NoSpace => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, texts::UNKNOWN.into())
    }
}

impl IntoResponse for ErrorText {
    fn into_response(self) -> Response {
        let Self(status, text) = self;
        let mut response = body(ContentType::Text, text.into_bytes());
        *response.status_mut() = status;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let after = HeaderValue::from_static(RETRY_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}

fn body(kind: ContentType, content: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind.header()))], content).into_response()
}

/// A guest that its proxy names in a signed request.
struct Guest {
    server: ServerId,
    project: String,
    address: Option<String>,
}

async fn answer(State(proxied): State<Proxied>, request: Request) -> Response {
    let path = request.uri().path();
    if let Some(Answer::Body(kind, content)) = lookup_versions(path) {
        return body(kind, content);
    }
    match respond(&proxied, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn respond(proxied: &Proxied, request: Request) -> Result<Response, ErrorText> {
    let guest = proxied.identify(request.headers())?;
    let service = &proxied.service;
    let path = request.uri().path();
    let found = service.lookup(guest.server, &guest.project, path, guest.address.as_deref());
    match found.await?.ok_or_else(ErrorText::not_found)? {
        Answer::Body(kind, content) => Ok(body(kind, content)),
        Answer::Password => match *request.method() {
            Method::GET => {
                let password = service.password(guest.server).await?;
                let password = password.ok_or_else(ErrorText::not_found)?;
                Ok(body(ContentType::Text, password.into_bytes()))
            }
            Method::POST => set_password(service, guest.server, request.into_body()).await,
            _ => Err(ErrorText::bad(texts::METHODS)),
        },
    }
}

async fn set_password(
    service: &MetadataService,
    server: ServerId,
    sent: Body,
) -> Result<Response, ErrorText> {
    // As in Nova, the check for a conflict precedes the check of the size.
    match service.password(server).await? {
        None => return Err(ErrorText::not_found()),
        Some(known) if !known.is_empty() => return Err(conflict()),
        Some(_) => {}
    }
    let sent = kilonova_wire::read_body(sent, MAX_PASSWORD).await.map_err(|refusal| {
        ErrorText::bad(match refusal.kind {
            Kind::TooLarge => texts::TOO_LARGE.to_owned(),
            _ => refusal.message,
        })
    })?;
    let text = std::str::from_utf8(&sent).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| ErrorText::bad(texts::NOT_TEXT))?;
    match service.set_password(server, text.to_owned()).await? {
        PasswordSet::Stored => Ok(body(ContentType::Text, Vec::new())),
        PasswordSet::Exists => Err(conflict()),
        PasswordSet::NoServer => Err(ErrorText::not_found()),
    }
}

fn conflict() -> ErrorText {
    ErrorText(StatusCode::CONFLICT, texts::CONFLICT.into())
}

impl Proxied {
    /// The guest whose request a proxy forwards.
    fn identify(&self, headers: &HeaderMap) -> Result<Guest, ErrorText> {
        let instance = sent(headers, INSTANCE);
        let signature = sent(headers, SIGNATURE);
        let project = sent(headers, PROJECT);
        let missing = |name| ErrorText::bad(format!("{name} header is missing from request."));
        let several =
            |name| ErrorText::bad(format!("Multiple {name} headers found within request."));
        let instance = instance.ok_or_else(|| missing("X-Instance-ID"))?;
        let signature = signature.ok_or_else(|| missing("X-Instance-ID-Signature"))?;
        let project = project.ok_or_else(|| missing("X-Tenant-ID"))?;
        let instance = instance.map_err(|Several| several("X-Instance-ID"))?;
        let project = project.map_err(|Several| several("X-Tenant-ID"))?;
        let signed = signature.is_ok_and(|signature| self.signed(instance, signature));
        if !signed {
            tracing::warn!(
                "a request for metadata has an invalid signature; compare [neutron] \
                 metadata_proxy_shared_secret with that of Neutron's metadata agents"
            );
            return Err(ErrorText(
                StatusCode::FORBIDDEN,
                "Invalid proxy request signature.".into(),
            ));
        }
        let server =
            text(instance).and_then(|id| id.parse().ok()).ok_or_else(ErrorText::not_found)?;
        let project = text(project).ok_or_else(ErrorText::not_found)?.to_owned();
        let address = headers.get(ADDRESSES).and_then(text).and_then(|addresses| {
            let first = addresses.split(',').next()?.trim();
            first.parse::<IpAddr>().ok().map(|address| address.to_string())
        });
        Ok(Guest { server, project, address })
    }

    /// True if the signature is the lower-case hexadecimal HMAC of the value. Compares in constant time.
    fn signed(&self, value: &HeaderValue, signature: &HeaderValue) -> bool {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let pairs = signature.as_bytes().chunks(2).map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let tag: Option<Vec<u8>> = pairs.collect();
        tag.is_some_and(|tag| hmac::verify(&self.key, value.as_bytes(), &tag).is_ok())
    }
}

/// The error for a header that was sent more than once.
struct Several;

/// The header of this name, if it was sent; an error if it was sent several times.
fn sent<'a>(headers: &'a HeaderMap, name: &str) -> Option<Result<&'a HeaderValue, Several>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    Some(if values.next().is_some() { Err(Several) } else { Ok(first) })
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim)
}
