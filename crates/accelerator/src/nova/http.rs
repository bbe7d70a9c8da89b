//! Nova's `os-server-external-events` and `servers` over HTTP, with TLS where the address requires it.

use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_ids::ServerId;
use kilonova_keystone::{Answer, Error, Http};
use serde_json::{Value, json};

use super::address::{Address, is_tls};
use super::token::{Credentials, Tokens};
use super::{Delivery, Event, Nova, NovaError, Presence, PresenceQuery};

/// Timeout of one call, from connecting to the last byte.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_BYTES: usize = 1024 * 1024;
const EVENTS: &str = "os-server-external-events";
/// The first version with `accelerator-request-bound`.
const VERSION: &str = "2.82";

/// An external Nova.
pub struct HttpNova {
    address: Address,
    http: Http,
    tokens: Tokens,
}

impl HttpNova {
    /// With `https`, the certificates of Nova and of the credentials' Keystone must be issued by an authority in
    /// `cafile` or by one of the system's.
    ///
    /// # Errors
    /// Returns an error for an invalid URL or invalid authorities.
    pub fn new(
        address: Address,
        credentials: Credentials,
        cafile: Option<&Path>,
    ) -> Result<Self, String> {
        let known = address.is_tls()?;
        let mut tls = known.unwrap_or_default();
        if let Credentials::Password(login) = &credentials {
            tls |= is_tls(&login.auth_url)?;
        }
        let plain = || Http::plain(TIMEOUT, MAX_BYTES);
        let http = match tls || cafile.is_some() {
            true => Http::new(cafile, TIMEOUT, MAX_BYTES),
            false if known.is_none() => Http::new(None, TIMEOUT, MAX_BYTES).or_else(|_| plain()),
            false => plain(),
        };
        let http = http.map_err(|error| error.to_string())?;
        let tokens = Tokens::new(credentials, &http)?;
        Ok(Self { address, http, tokens })
    }

    /// Sends a request, and repeats it once with a new token if the first token is refused.
    async fn ask(
        &self,
        method: Method,
        resource: &str,
        body: Option<String>,
    ) -> Result<Answer, NovaError> {
        let mut refused = false;
        loop {
            let mut headers = Vec::new();
            for (name, value) in [
                ("openstack-api-version", format!("compute {VERSION}")),
                ("x-openstack-nova-api-version", VERSION.to_owned()),
            ] {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    headers.push((HeaderName::from_static(name), value));
                }
            }
            let (token, held) = self.tokens.get(refused).await?;
            if let Some(token) = token {
                headers.push((HeaderName::from_static("x-auth-token"), token));
            }
            let url = self.address.url(held.as_deref(), resource)?;
            let sent = body.clone().map(Into::into);
            let answer = self.http.send(method.clone(), &url, &headers, sent).await;
            let answer = answer.map_err(later)?;
            if answer.status != StatusCode::UNAUTHORIZED || refused {
                return Ok(answer);
            }
            refused = true;
        }
    }

    async fn post_events(&self, events: &[Event]) -> Result<(), NovaError> {
        check_reply(&self.ask(Method::POST, EVENTS, Some(body(events).to_string())).await?)
    }

    /// A Nova that hides instances of other projects answers 404 for them. So a 404 counts only if a list of all
    /// projects' instances lacks the instance too. It must also have Nova's form, because a wrong URL must not look
    /// like a cloud without instances.
    async fn presence(&self, server: ServerId) -> Result<Presence, NovaError> {
        let one = self.ask(Method::GET, &format!("servers/{server}"), None).await?;
        match one.status.as_u16() {
            200 => return Ok(Presence::Exists),
            404 if one.json()["itemNotFound"].is_object() => {}
            _ => return Err(unexpected_answer(&one)),
        }
        // A soft-deleted instance can be restored: it exists.
        let all = format!("servers?all_tenants=1&soft_deleted=1&uuid={server}");
        let all = self.ask(Method::GET, &all, None).await?;
        match (all.status.as_u16(), all.json()["servers"].as_array()) {
            (200, Some(found)) if found.is_empty() => Ok(Presence::Absent),
            (200, Some(_)) => Ok(Presence::Exists),
            (403, _) => Err(NovaError::Permanent(
                "the user of [nova] may not see the servers of all projects; give it the role admin"
                    .to_owned(),
            )),
            _ => Err(unexpected_answer(&all)),
        }
    }
}

fn unexpected_answer(answer: &Answer) -> NovaError {
    NovaError::Temporary(format!("Nova answered {}: {}", answer.status, shown(&answer.body)))
}

impl std::fmt::Debug for HttpNova {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpNova").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Nova for HttpNova {
    fn has(&self, server: ServerId) -> PresenceQuery<'_> {
        Box::pin(self.presence(server))
    }

    fn deliver<'a>(&'a self, events: &'a [Event]) -> Delivery<'a> {
        Box::pin(self.post_events(events))
    }
}

fn body(events: &[Event]) -> Value {
    let events: Vec<Value> = events
        .iter()
        .map(|event| {
            json!({
                "name": "accelerator-request-bound",
                "server_uuid": event.server,
                "tag": event.arq,
                "status": event.status,
            })
        })
        .collect();
    json!({"events": events})
}

/// A 207 contains a status for each event: 422 for a server without a host, which is normal for a bind before the
/// spawn, and 404 for a deleted server.
fn check_reply(reply: &Answer) -> Result<(), NovaError> {
    let status = reply.status;
    let message = || format!("Nova answered {status}: {}", shown(&reply.body));
    match status.as_u16() {
        200 | 404 => Ok(()),
        207 => {
            let body = reply.json();
            let codes = body["events"].as_array().into_iter().flatten();
            let mut bad = codes.filter_map(|event| event["code"].as_i64());
            match bad.find(|code| ![200, 404, 422].contains(code)) {
                Some(code) if code >= 500 => Err(NovaError::Temporary(message())),
                Some(_) => Err(NovaError::Permanent(message())),
                None => Ok(()),
            }
        }
        401 | 403 | 408 | 429 => Err(NovaError::Temporary(message())),
        code if code >= 500 => Err(NovaError::Temporary(message())),
        _ => Err(NovaError::Permanent(message())),
    }
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).escape_debug().to_string()
}

/// A transport error is temporary.
pub(super) fn later(error: Error) -> NovaError {
    NovaError::Temporary(error.to_string())
}
