//! Requests to another service of the cloud: its endpoint, retries, and the tokens that they carry.
//!
//! One [`Session`] may serve several services, so that they share one login. A request is retried
//! only if the other side cannot have carried it out, or if it is idempotent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Empty};
use serde_json::Value;

use crate::{Answer, Error, RequestBody, Session, SessionToken, Streaming};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const X_SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");
/// Maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The address of a service: keystoneauth's adapter options.
#[derive(Debug, Clone, Default)]
pub struct Endpoint {
    /// The service types to look for in the catalog, the preferred one first.
    pub service_types: Vec<String>,
    /// Its name in the catalog, if there are several of a type.
    pub service_name: Option<String>,
    /// The interfaces, the preferred one first.
    pub interfaces: Vec<String>,
    /// The region, if there are several.
    pub region: Option<String>,
    /// The URL to use instead of the catalog's.
    pub endpoint_override: Option<String>,
}

impl Endpoint {
    /// The URL in a catalog without a slash at its end. The order of interfaces takes precedence
    /// over the order of types.
    pub fn find(&self, catalog: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let services: Vec<&Value> = catalog.as_array().into_iter().flatten().collect();
        let plain = |name: &str| name.trim_end_matches("URL").to_owned();
        for interface in &self.interfaces {
            for service_type in &self.service_types {
                let mine = services.iter().filter(|service| {
                    let name = self.service_name.as_ref();
                    text(&service["type"]) == *service_type
                        && name.is_none_or(|name| text(&service["name"]) == *name)
                });
                let endpoints = mine.flat_map(|service| service["endpoints"].as_array());
                let found = endpoints.flatten().find(|endpoint| {
                    let region = |region: &String| {
                        [&endpoint["region_id"], &endpoint["region"]]
                            .iter()
                            .any(|value| value.as_str() == Some(region))
                    };
                    plain(&text(&endpoint["interface"])) == plain(interface)
                        && self.region.as_ref().is_none_or(region)
                });
                if let Some(url) = found.and_then(|endpoint| endpoint["url"].as_str()) {
                    return Some(url.trim_end_matches('/').to_owned());
                }
            }
        }
        None
    }
}

/// The number of retries and the pauses before them; the pauses double.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Retries without an answer (`connect_retries`).
    pub connect: u32,
    /// The first pause after that (`connect_retry_delay`).
    pub connect_delay: Duration,
    /// Retries after a status in `statuses` (`status_code_retries`).
    pub status: u32,
    /// The first pause after that (`status_code_retry_delay`).
    pub status_delay: Duration,
    /// `retriable_status_codes`.
    pub statuses: Vec<StatusCode>,
}

impl Default for Retries {
    /// keystoneauth's defaults: no retry, half a second, 503.
    fn default() -> Self {
        let pause = Duration::from_millis(500);
        Self {
            connect: 0,
            connect_delay: pause,
            status: 0,
            status_delay: pause,
            statuses: vec![StatusCode::SERVICE_UNAVAILABLE],
        }
    }
}

/// The identity behind a request.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// The service login, with the voucher's service token if there is one.
    Own,
    /// A user, with only the user's token.
    User(&'a HeaderValue),
    /// A user, with a service token of the voucher or of the service login: the user's token may
    /// have expired during an operation.
    Vouched(&'a HeaderValue),
}

/// The logins that a request uses.
#[derive(Clone, Default)]
struct Logins {
    own: Option<Arc<SessionToken>>,
    voucher: Option<Arc<SessionToken>>,
}

/// A service of the cloud.
pub struct Service {
    session: Arc<Session>,
    /// The login whose token is the service token; the service's own login if there is none.
    voucher: Option<Arc<Session>>,
    endpoint: Endpoint,
    retries: Retries,
}

impl Service {
    /// A service; this sends no request.
    pub fn new(session: Arc<Session>, endpoint: Endpoint, retries: Retries) -> Self {
        Self { session, voucher: None, endpoint, retries }
    }

    /// Sets another login for service tokens (`[service_user]`). Requests of the service's own login carry
    /// these tokens too.
    #[must_use]
    pub fn vouched_by(mut self, voucher: Arc<Session>) -> Self {
        self.voucher = Some(voucher);
        self
    }

    /// Sends a request to `path` below the endpoint and returns the answer, regardless of its
    /// status. A path begins with the version of the API, which some catalogs include in the
    /// endpoint too. `request_id` (`req-…`) is the id of the caller's own request, for the logs of
    /// the other service.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without an answer after all attempts, [`Error::NoEndpoint`] without an
    /// endpoint, and those of [`Session::token`].
    pub async fn send(
        &self,
        caller: Caller<'_>,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        request_id: Option<&str>,
    ) -> Result<Answer, Error> {
        self.send_with(caller, method, path, &[], body, request_id).await
    }

    /// Like [`Service::send`], with additional headers.
    ///
    /// # Errors
    /// Those of [`Service::send`].
    pub async fn send_with(
        &self,
        caller: Caller<'_>,
        method: Method,
        path: &str,
        more: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
        request_id: Option<&str>,
    ) -> Result<Answer, Error> {
        let held = self.login_for(caller).await?;
        let url = join(&self.url(held.own.as_deref())?, path);
        self.exchange(caller, held, method, &url, more, body, request_id).await
    }

    /// Like [`Service::send_with`], to a URL that the caller built from [`Service::location`].
    ///
    /// # Errors
    /// Those of [`Service::send`].
    pub async fn send_to(
        &self,
        caller: Caller<'_>,
        method: Method,
        url: &str,
        more: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
        request_id: Option<&str>,
    ) -> Result<Answer, Error> {
        let held = self.login_for(caller).await?;
        self.exchange(caller, held, method, url, more, body, request_id).await
    }

    #[allow(clippy::too_many_arguments)]
    async fn exchange(
        &self,
        caller: Caller<'_>,
        mut held: Logins,
        method: Method,
        url: &str,
        more: &[(HeaderName, HeaderValue)],
        body: Option<Bytes>,
        request_id: Option<&str>,
    ) -> Result<Answer, Error> {
        let mut renewed = false;
        loop {
            let mut headers = headers(caller, &held, request_id);
            headers.extend_from_slice(more);
            let answer = self.repeat(&method, url, &headers, body.as_ref()).await?;
            match self.renewal(caller, &held, answer.status, &mut renewed).await? {
                Some(new) => held = new,
                None => return Ok(answer),
            }
        }
    }

    /// Sends a request without any token to a URL below the service, once.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without an answer.
    pub async fn send_without_token(&self, url: &str) -> Result<Answer, Error> {
        self.repeat(&Method::GET, url, &[], None).await
    }

    /// The URL of the service in the catalog, and the project of the service's own login, which may
    /// be a part of that URL.
    ///
    /// # Errors
    /// [`Error::NoEndpoint`], and those of [`Session::token`].
    pub async fn endpoint(&self) -> Result<(String, Option<String>), Error> {
        let held = self.session.token().await?;
        Ok((self.url(Some(&held))?, held.project.clone()))
    }

    /// Sends a request once and returns the answer before its body arrives. Sending the request's body, if
    /// there is one, may take any time, so the caller bounds the wait.
    ///
    /// # Errors
    /// Those of [`Service::send`].
    pub async fn open(
        &self,
        caller: Caller<'_>,
        method: Method,
        path: &str,
        more: &[(HeaderName, HeaderValue)],
        mut body: Option<RequestBody>,
        request_id: Option<&str>,
    ) -> Result<Streaming, Error> {
        let is_repeatable = body.is_none();
        let mut held = self.login_for(caller).await?;
        let url = format!("{}{path}", self.url(held.own.as_deref())?);
        let mut renewed = false;
        loop {
            let mut headers = headers(caller, &held, request_id);
            headers.extend_from_slice(more);
            let body = body.take().unwrap_or_else(|| {
                Empty::new()
                    .map_err(|never: std::convert::Infallible| match never {})
                    .boxed_unsync()
            });
            let http = self.session.http();
            let answer = http.open(method.clone(), &url, &headers, body).await?;
            if !is_repeatable {
                return Ok(answer);
            }
            match self.renewal(caller, &held, answer.status, &mut renewed).await? {
                Some(new) => held = new,
                None => return Ok(answer),
            }
        }
    }

    /// The URL of the service, for messages.
    pub async fn location(&self) -> Result<String, Error> {
        let held = match &self.endpoint.endpoint_override {
            Some(_) => None,
            None => Some(self.session.token().await?),
        };
        self.url(held.as_deref())
    }

    /// Replaces the tokens of the logins after a 401, once: one may have been revoked before its
    /// expiry.
    async fn renewal(
        &self,
        caller: Caller<'_>,
        held: &Logins,
        status: StatusCode,
        renewed: &mut bool,
    ) -> Result<Option<Logins>, Error> {
        match caller {
            Caller::User(_) => return Ok(None),
            Caller::Own | Caller::Vouched(_) => {}
        }
        if status != StatusCode::UNAUTHORIZED || *renewed {
            return Ok(None);
        }
        *renewed = true;
        let mut new = Logins::default();
        if let Some(old) = &held.own {
            new.own = Some(self.session.renewed(old).await?);
        }
        if let (Some(voucher), Some(old)) = (&self.voucher, &held.voucher) {
            new.voucher = Some(voucher.renewed(old).await?);
        }
        Ok((new.own.is_some() || new.voucher.is_some()).then_some(new))
    }

    /// The logins that the request or its address needs.
    async fn login_for(&self, caller: Caller<'_>) -> Result<Logins, Error> {
        let is_located = self.endpoint.endpoint_override.is_some();
        let (needs_own, is_vouched) = match caller {
            Caller::User(_) => (!is_located, false),
            Caller::Own => (true, true),
            Caller::Vouched(_) => (!is_located || self.voucher.is_none(), true),
        };
        let mut held = Logins::default();
        if needs_own {
            held.own = Some(self.session.token().await?);
        }
        if let Some(voucher) = self.voucher.as_ref().filter(|_| is_vouched) {
            held.voucher = Some(voucher.token().await?);
        }
        Ok(held)
    }

    fn url(&self, held: Option<&SessionToken>) -> Result<String, Error> {
        if let Some(url) = &self.endpoint.endpoint_override {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        held.and_then(|held| self.endpoint.find(&held.catalog)).ok_or_else(|| {
            let region = self.endpoint.region.as_ref();
            Error::NoEndpoint {
                url: self.session.credentials().root(),
                service_type: self.endpoint.service_types.join(" or "),
                interfaces: self.endpoint.interfaces.join(" or "),
                region: region.map_or_else(String::new, |name| format!(" in region {name}")),
            }
        })
    }

    async fn repeat(
        &self,
        method: &Method,
        url: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<&Bytes>,
    ) -> Result<Answer, Error> {
        let limits = &self.retries;
        let (mut connects, mut statuses) = (limits.connect, limits.status);
        let (mut connect_pause, mut status_pause) = (limits.connect_delay, limits.status_delay);
        loop {
            let http = self.session.http();
            let (left, pause) = match http.send(method.clone(), url, headers, body.cloned()).await {
                Ok(answer) if limits.statuses.contains(&answer.status) && statuses > 0 => {
                    tracing::debug!(url, status = answer.status.as_u16(), "unavailable; retrying");
                    (&mut statuses, &mut status_pause)
                }
                Err(Error::Unreachable { connected, cause, .. })
                    if connects > 0 && (!connected || method.is_idempotent()) =>
                {
                    tracing::debug!(url, cause, "no answer; retrying");
                    (&mut connects, &mut connect_pause)
                }
                other => return other,
            };
            *left -= 1;
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The URL of a path below an endpoint. A version at the end of the endpoint and at the start of
/// the path appears once.
fn join(endpoint: &str, path: &str) -> String {
    let version = path.split('/').nth(1).filter(|first| {
        let number = first.strip_prefix('v').unwrap_or_default();
        number.starts_with(|c: char| c.is_ascii_digit())
    });
    let root = version.and_then(|version| endpoint.strip_suffix(version));
    let root = root.and_then(|root| root.strip_suffix('/')).unwrap_or(endpoint);
    format!("{root}{path}")
}

fn headers(
    caller: Caller<'_>,
    held: &Logins,
    request_id: Option<&str>,
) -> Vec<(HeaderName, HeaderValue)> {
    let text = |held: &Option<Arc<SessionToken>>| held.as_ref().map(|held| held.text.clone());
    let (own, voucher) = (text(&held.own), text(&held.voucher));
    let (user, service) = match caller {
        Caller::Own => (own, voucher),
        Caller::User(token) => (Some(token.clone()), None),
        Caller::Vouched(token) => (Some(token.clone()), voucher.or(own)),
    };
    let id = request_id.and_then(|id| HeaderValue::from_str(id).ok());
    [(X_AUTH_TOKEN, user), (X_SERVICE_TOKEN, service), (X_REQUEST_ID, id)]
        .into_iter()
        .filter_map(|(name, value)| {
            let mut value = value?;
            value.set_sensitive(name != X_REQUEST_ID);
            Some((name, value))
        })
        .collect()
}
