//! Requests to Cinder: their address, their microversion, and the meaning of the answers.
//!
//! ```text
//!   endpoint of the catalog       http://cinder:8776/v3, or with the project: http://cinder:8776/v3/<project>
//!   or `endpoint_template`        http://cinder:8776/v3/%(project_id)s
//!   URL of a request              <root>/v3[/<project of the caller>]/volumes/…
//!   URL of the list of versions   <root>/
//! ```

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_keystone::{Caller, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Refused};

const API_VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
const REQUEST_ID: &str = "x-openstack-request-id";
/// The names of a project in `endpoint_template`.
const PLACEHOLDERS: [&str; 4] =
    ["%(project_id)s", "%(tenant_id)s", "$(project_id)s", "$(tenant_id)s"];
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 1000;
/// Number of attempts of a request that upstream retries on 500 and 504.
const ATTEMPTS: usize = 5;

/// The microversion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Microversion(pub u32);

impl Microversion {
    /// 3.0.
    pub const BASE: Self = Self(0);
    /// Lists of snapshots can be filtered by metadata.
    pub const SNAPSHOT_METADATA: Self = Self(22);
    /// Attachments can be completed (`os-complete`).
    pub const COMPLETE: Self = Self(44);
    /// A volume's data can be replaced by an image's (`os-reimage`).
    pub const REIMAGE: Self = Self(68);
}

/// The identity behind a request, and the user's request that causes it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The tokens.
    pub caller: Caller<'a>,
    /// The project of a user's token, which the address may need.
    pub project: Option<&'a str>,
    /// `req-…`, for Cinder's logs.
    pub request_id: Option<&'a str>,
}

impl Call<'static> {
    /// With the service's own login.
    pub const OWN: Self = Self { caller: Caller::Own, project: None, request_id: None };
}

/// A Cinder.
pub struct Cinder {
    service: Service,
    template: Option<String>,
    /// The pause before a retry.
    pause: Duration,
    /// The newest microversion, and the root that it belongs to.
    newest: Mutex<Option<(String, Microversion)>>,
}

/// The parts of an endpoint.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    /// The URL up to the version, without a trailing slash.
    root: String,
    /// The version and, if the endpoint has it, the project.
    base: String,
}

impl Address {
    /// Splits the URL of an endpoint. `own` is the project of the login whose catalog contains it,
    /// `project` that of the caller.
    fn of(url: &str, own: Option<&str>, project: Option<&str>) -> Option<Self> {
        let mut url = url.trim_end_matches('/').to_owned();
        for placeholder in PLACEHOLDERS {
            if url.contains(placeholder) {
                url = url.replace(placeholder, project.or(own)?);
            }
        }
        let begin = url.find("://").map_or(0, |at| at + 3);
        let at = begin + url[begin..].find("/v3")?;
        let (root, rest) = url.split_at(at);
        let tail = rest.strip_prefix("/v3")?;
        let base = match (tail.strip_prefix('/'), own, project) {
            (None, ..) if tail.is_empty() => "/v3".to_owned(),
            // The catalog is the login's; the token is for another project.
            (Some(named), Some(own), Some(project)) if named == own => format!("/v3/{project}"),
            (Some(named), ..) if !named.is_empty() => format!("/v3/{named}"),
            (Some(_) | None, ..) => return None,
        };
        Some(Self { root: root.to_owned(), base })
    }
}

impl Cinder {
    /// A Cinder behind this service of the catalog; nothing is sent. `template` is a URL instead of the
    /// catalog's, in which `%(project_id)s` stands for the caller's project.
    pub fn new(service: Service, template: Option<String>) -> Self {
        let pause = Duration::from_millis(500);
        Self { service, template, pause, newest: Mutex::default() }
    }

    /// True for a URL with which [`Cinder::new`] can send requests for any project.
    pub fn accepts_template(template: &str) -> bool {
        Address::of(template, None, Some("project"))
            .is_some_and(|address| !address.base.contains(['%', '$']))
    }

    /// Sets the pause before a retry.
    #[must_use]
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    async fn address(&self, call: Call<'_>) -> Result<Address, Error> {
        let (url, own) = match &self.template {
            Some(template) if call.project.is_some() => (template.clone(), None),
            Some(template) => (template.clone(), self.service.endpoint().await?.1),
            None => self.service.endpoint().await?,
        };
        Address::of(&url, own.as_deref(), call.project).ok_or(Error::Unsupported {
            url,
            why: "its path must end with v3, or with v3 and a project".into(),
        })
    }

    /// The newest microversion of the service, remembered after the first answer.
    async fn newest(&self, address: &Address) -> Result<Microversion, Error> {
        let known = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, newest)) = known.filter(|(root, _)| *root == address.root) {
            return Ok(newest);
        }
        let url = format!("{}/", address.root);
        let answer = self.service.send_without_token(&url).await?;
        let body = answer.json();
        let versions = body["versions"].as_array().into_iter().flatten();
        let version = versions
            .filter(|version| version["id"].as_str().is_some_and(|id| id.starts_with("v3")))
            .find_map(|version| version["version"].as_str()?.strip_prefix("3.")?.parse().ok());
        let newest = version.map(Microversion).ok_or_else(|| Error::Unsupported {
            url,
            why: format!("its list of versions ({}) has no version 3", answer.status),
        })?;
        if newest < Microversion::COMPLETE {
            return Err(Error::Unsupported {
                url: address.root.clone(),
                why: format!("its newest microversion is 3.{}, but 3.44 is needed", newest.0),
            });
        }
        let mut known = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((address.root.clone(), newest));
        Ok(newest)
    }

    /// Sends a request whose answer may have no content.
    pub(crate) async fn send(
        &self,
        call: Call<'_>,
        microversion: Microversion,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let address = self.address(call).await?;
        let url = format!("{}{}{path}", address.root, address.base);
        let request = format!("{method} {path}");
        let version = HeaderValue::from_str(&format!("volume 3.{}", microversion.0));
        let version = version.map(|version| vec![(API_VERSION, version)]).unwrap_or_default();
        let body = body.map(|body| Bytes::from(body.to_string()));
        let sent = self.service.send_to(call.caller, method, &url, &version, body, call.request_id);
        let answer = sent.await?;
        if answer.status.is_success() {
            if answer.body.is_empty() || answer.status == StatusCode::NO_CONTENT {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&answer.body)
                .map_err(|error| Error::Malformed { request, why: error.to_string() });
        }
        if answer.status == StatusCode::NOT_ACCEPTABLE {
            let why = format!("it refuses microversion 3.{}", microversion.0);
            return Err(Error::Unsupported { url: address.root, why });
        }
        let id = answer.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        Err(Error::Refused(Box::new(Refused::read(request, answer.status, &answer.json(), id))))
    }

    /// [`Cinder::send`] with upstream's retries: on 500 and 504. The request must be idempotent.
    pub(crate) async fn send_again(
        &self,
        call: Call<'_>,
        microversion: Microversion,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        for _ in 1..ATTEMPTS {
            match self.send(call, microversion, method.clone(), path, body).await {
                Err(Error::Refused(refused))
                    if matches!(
                        refused.status,
                        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::GATEWAY_TIMEOUT
                    ) =>
                {
                    tracing::debug!(request = %refused.request, status = %refused.status, "Cinder failed; repeating");
                    tokio::time::sleep(self.pause).await;
                }
                ended => return ended,
            }
        }
        self.send(call, microversion, method, path, body).await
    }

    /// Sends a request whose answer is one object under `key`.
    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        microversion: Microversion,
        request: (Method, &str, Option<&Value>),
        key: &str,
    ) -> Result<T, Error> {
        let (method, path, body) = request;
        let name = format!("{method} {path}");
        let mut answer = self.send(call, microversion, method, path, body).await?;
        read(answer.get_mut(key).map(Value::take).unwrap_or_default(), name, key)
    }

    /// All objects of a list, page by page. `query` is empty or begins with `?`.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        microversion: Microversion,
        path: &str,
        query: &str,
        key: &str,
    ) -> Result<Vec<T>, Error> {
        let malformed = |why: String| Error::Malformed { request: format!("GET {path}"), why };
        let mut query = query.to_owned();
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = format!("{path}{query}");
            let mut answer = self.send(call, microversion, Method::GET, &page, None).await?;
            let Some(Value::Array(items)) = answer.get_mut(key).map(Value::take) else {
                return Err(malformed(format!("{key} are missing")));
            };
            for item in items {
                all.push(read(item, format!("GET {path}"), key)?);
            }
            // The link contains Cinder's own view of its address, so only the query is used.
            let links = answer.get(format!("{key}_links")).and_then(Value::as_array);
            let Some(next) = links.into_iter().flatten().find(|link| link["rel"] == "next") else {
                return Ok(all);
            };
            let href = next["href"].as_str().unwrap_or_default();
            let Some((_, more)) = href.split_once('?') else {
                return Err(malformed(format!("the link to the next page is {href:?}")));
            };
            query = format!("?{more}");
        }
        Err(malformed(format!("more than {MAX_PAGES} pages of {key}")))
    }

    /// Logs in and requests the versions and one volume, as a test of the settings.
    ///
    /// # Errors
    /// The text is for the operator.
    pub async fn check(&self) -> Result<(), Error> {
        self.newest(&self.address(Call::OWN).await?).await?;
        let (call, base) = (Call::OWN, Microversion::BASE);
        self.send(call, base, Method::GET, "/volumes?limit=1", None).await.map(drop)
    }
}

/// Reads an object. The reason for a failure contains no values, because some are secret.
pub(crate) fn read<T: DeserializeOwned>(
    object: Value,
    request: String,
    key: &str,
) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| {
        let why = match error.classify() {
            serde_json::error::Category::Data => format!("{key} has a missing or invalid field"),
            _ => format!("{key} cannot be read"),
        };
        Error::Malformed { request, why }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_the_project_of_the_caller_or_none() {
        let of = |url: &str, own: Option<&str>, project: Option<&str>| {
            Address::of(url, own, project).map(|address| (address.root, address.base))
        };
        let whole = |root: &str, base: &str| Some((root.to_owned(), base.to_owned()));
        let host = "http://cinder:8776";
        assert_eq!(of(&format!("{host}/v3"), Some("s"), Some("p")), whole(host, "/v3"));
        assert_eq!(of(&format!("{host}/v3/"), None, None), whole(host, "/v3"));
        assert_eq!(of(&format!("{host}/v3/s"), Some("s"), Some("p")), whole(host, "/v3/p"));
        assert_eq!(of(&format!("{host}/v3/s"), Some("s"), None), whole(host, "/v3/s"));
        let below = "https://cloud/volume";
        assert_eq!(of(&format!("{below}/v3"), None, None), whole(below, "/v3"));
        let template = format!("{host}/v3/%(project_id)s");
        assert_eq!(of(&template, None, Some("p")), whole(host, "/v3/p"));
        assert_eq!(of(&template, Some("s"), None), whole(host, "/v3/s"));
        assert!(Cinder::accepts_template(&template));
        assert!(!Cinder::accepts_template(&format!("{host}/v3/%(user_id)s")));
        for other in ["http://cinder:8776/v2", "http://cinder:8776", "http://cinder:8776/v33", ""] {
            assert_eq!(of(other, Some("s"), Some("p")), None, "{other}");
            assert!(!Cinder::accepts_template(other), "{other}");
        }
    }
}
