//! Requests to Neutron, their answers, and paged lists.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use kilonova_keystone::{Caller, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::extensions::Extensions;
use crate::values::Query;
use crate::{Error, Refused};

/// The path of the API's only version.
const ROOT: &str = "/v2.0";
/// Maximum number of pages of a list. The page size is set by Neutron's operator; the limit guards
/// against a defective list that never ends.
const MAX_PAGES: usize = 10_000;
/// Maximum number of ids in one query, which keeps a request shorter than any proxy's limit.
pub(crate) const MAX_IDS: usize = 150;

/// The caller of a request, and the id of the API request that causes it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The login or the user whose token is sent.
    pub caller: Caller<'a>,
    /// `req-…`, for Neutron's logs.
    pub request_id: Option<&'a str>,
}

/// A client of one Neutron.
pub struct Neutron {
    service: Service,
    extensions: Extensions,
}

impl Neutron {
    /// A client of the Neutron at this service of the catalog; sends nothing. `extension_sync_interval` is the time for
    /// which a list of extensions is used.
    pub fn new(service: Service, extension_sync_interval: Duration) -> Self {
        Self { service, extensions: Extensions::new(extension_sync_interval) }
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    async fn send(
        &self,
        call: Call<'_>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Error> {
        let request = format!("{method} {path}");
        let path = format!("{ROOT}{path}");
        let body = body.map(|body| Bytes::from(body.to_string()));
        let answer = self.service.send(call.caller, method, &path, body, call.request_id).await?;
        if answer.status.is_success() {
            if answer.status == StatusCode::NO_CONTENT {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&answer.body)
                .map_err(|error| Error::Malformed { request, why: error.to_string() });
        }
        Err(Error::Refused(Box::new(Refused::read(request, answer.status, &answer.json()))))
    }

    /// Sends a request whose answer is one object under `key`.
    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        method: Method,
        path: &str,
        body: Option<Value>,
        key: &str,
    ) -> Result<T, Error> {
        let mut answer = self.send(call, method.clone(), path, body).await?;
        let object = answer.get_mut(key).map(Value::take).unwrap_or_default();
        read(object, &method, path, key)
    }

    /// [`Neutron::one`], but the object may also be the whole answer.
    pub(crate) async fn one_or_bare<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        method: Method,
        path: &str,
        key: &str,
    ) -> Result<T, Error> {
        let mut answer = self.send(call, method.clone(), path, None).await?;
        let object = match answer.get_mut(key) {
            Some(object) => object.take(),
            None => answer,
        };
        read(object, &method, path, key)
    }

    /// Sends a request whose answer has no content.
    pub(crate) async fn delete(&self, call: Call<'_>, path: &str) -> Result<(), Error> {
        self.send(call, Method::DELETE, path, None).await.map(drop)
    }

    /// All pages of a list; `key` is the name of the collection in the answer.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        path: &str,
        key: &str,
        query: &Query,
    ) -> Result<Vec<T>, Error> {
        let malformed = |why: String| Error::Malformed { request: format!("GET {path}"), why };
        let mut all = Vec::new();
        let mut query = query.text().to_owned();
        for _ in 0..MAX_PAGES {
            let mut page = self.send(call, Method::GET, &format!("{path}{query}"), None).await?;
            let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) else {
                return Err(malformed(format!("{key} are missing")));
            };
            for item in items {
                let item = serde_json::from_value(item);
                all.push(item.map_err(|error| malformed(format!("{key}: {error}")))?);
            }
            // The address in the link may differ from the endpoint's, so only the query of the link is used.
            let links = page.get(format!("{key}_links")).and_then(Value::as_array);
            let next = links.into_iter().flatten().find(|link| link["rel"] == "next");
            let Some(next) = next else { return Ok(all) };
            let href = next["href"].as_str().unwrap_or_default();
            let Some((_, more)) = href.split_once('?') else {
                return Err(malformed(format!("the link to the next page is {href:?}")));
            };
            query = format!("?{more}");
        }
        Err(malformed(format!("more than {MAX_PAGES} pages of {key}")))
    }
}

/// Reads the object that was under `key`.
fn read<T: DeserializeOwned>(
    object: Value,
    method: &Method,
    path: &str,
    key: &str,
) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| Error::Malformed {
        request: format!("{method} {path}"),
        why: format!("{key}: {error}"),
    })
}
