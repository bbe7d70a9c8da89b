//! The compute API, asked as any client asks it. A token that has ended is renewed once; everything else
//! is the caller's to decide.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_keystone::{Error, Http, Session};
use serde_json::Value;

use super::Door;
use super::environment::{self, Key};
use crate::failure::Failure;

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
/// What every action is sent at.
const MICROVERSION: HeaderValue = HeaderValue::from_static("compute 2.90");
const TIMEOUT: Duration = Duration::from_secs(30);
const LARGEST: usize = 64 * 1024 * 1024;

enum Pass {
    Token(HeaderValue),
    Session(Box<Session>),
}

/// The compute API of a cloud.
pub struct Compute {
    http: Http,
    url: String,
    pass: Pass,
}

/// An answer that is not 2xx, or none at all.
#[derive(Debug, thiserror::Error)]
pub enum Asked {
    /// Nobody answered; it may be tried again.
    #[error("{0}")]
    Nothing(String),
    /// It was refused, in the cloud's words.
    #[error("{words}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// Why.
        words: String,
    },
}

impl Asked {
    /// As the end of a command.
    pub fn fatal(self) -> Failure {
        match self {
            Self::Nothing(why) => Failure::Failed(why),
            Self::Refused { words, .. } => Failure::Refused(words),
        }
    }
}

impl Compute {
    /// Logs in and finds the compute API.
    ///
    /// # Errors
    /// When nothing says how to get in, or the cloud does not let us.
    pub async fn open(door: &Door) -> Result<Self, Failure> {
        let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let found = environment::find(door, &set)?;
        let http = Http::new(found.cafile.as_deref(), TIMEOUT, LARGEST);
        let http = match (http, &found.cafile) {
            (Ok(http), _) => http,
            // Without TLS no authority is needed.
            (Err(_), None) => Http::plain(TIMEOUT, LARGEST).map_err(refused)?,
            (Err(error), Some(_)) => return Err(refused(error)),
        };
        let (pass, catalog) = match found.key {
            Key::Token(token) => {
                let mut token = HeaderValue::try_from(token).map_err(|_| {
                    Failure::Refused("the token has characters that no token has".into())
                })?;
                token.set_sensitive(true);
                (Pass::Token(token), Value::Null)
            }
            Key::Login(login) => {
                let session = Session::new(http.clone(), login);
                let catalog = session.token().await.map_err(refused)?.catalog.clone();
                (Pass::Session(Box::new(session)), catalog)
            }
        };
        let region = found.region.as_deref();
        let url = door.compute_url.clone().or_else(|| endpoint(&catalog, &found.interface, region));
        let url = url.ok_or_else(|| {
            Failure::Refused(format!(
                "the catalog has no {} compute endpoint{}; name it with --compute-url",
                found.interface,
                region.map(|name| format!(" in region {name}")).unwrap_or_default()
            ))
        })?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), pass })
    }

    /// Reads what is at a path below `/v2.1`.
    ///
    /// # Errors
    /// [`Asked`].
    pub async fn get(&self, path: &str) -> Result<Value, Asked> {
        self.ask(Method::GET, path, None).await
    }

    /// Sends a body to a path below `/v2.1`.
    ///
    /// # Errors
    /// [`Asked`].
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Asked> {
        let url = format!("{}{path}", self.url);
        let nothing = |e: Error| Asked::Nothing(e.to_string());
        let mut renewed = false;
        loop {
            let (token, held) = match &self.pass {
                Pass::Token(token) => (token.clone(), None),
                Pass::Session(session) => {
                    let held = session.token().await.map_err(nothing)?;
                    (held.text.clone(), Some((session, held)))
                }
            };
            let headers = [(X_AUTH_TOKEN, token), (VERSION, MICROVERSION)];
            let bytes = body.map(|body| body.to_string().into());
            let answer =
                self.http.send(method.clone(), &url, &headers, bytes).await.map_err(nothing)?;
            if answer.status.is_success() {
                return Ok(answer.json());
            }
            if let (StatusCode::UNAUTHORIZED, Some((session, held)), false) =
                (answer.status, held, renewed)
            {
                session.renewed(&held).await.map_err(nothing)?;
                renewed = true;
                continue;
            }
            if answer.status.is_server_error() {
                return Err(Asked::Nothing(format!("{url} answered {}", answer.status)));
            }
            return Err(Asked::Refused {
                status: answer.status,
                words: words(&url, answer.status, &answer.json()),
            });
        }
    }
}

fn refused(error: Error) -> Failure {
    Failure::Refused(error.to_string())
}

/// The sentence of a fault.
fn words(url: &str, status: StatusCode, body: &Value) -> String {
    let fault = body.as_object().and_then(|keys| keys.values().next());
    let message = fault.and_then(|fault| fault["message"].as_str());
    let said = message.map_or_else(|| format!("{url} answered {status}"), str::to_owned);
    match status {
        StatusCode::FORBIDDEN => format!("{said} This needs the credentials of an administrator."),
        StatusCode::NOT_FOUND if message.is_none() => {
            format!("{said}: it is no Kilonova, or an older one")
        }
        _ => said,
    }
}

fn endpoint(catalog: &Value, interface: &str, region: Option<&str>) -> Option<String> {
    let services = catalog.as_array()?.iter().filter(|service| service["type"] == "compute");
    let mut endpoints =
        services.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
    let fits = |endpoint: &&Value| {
        endpoint["interface"] == interface && region.is_none_or(|name| endpoint["region"] == name)
    };
    endpoints.find(fits)?["url"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_endpoint_is_that_of_the_region_and_the_interface() {
        let catalog = json!([
            {"type": "image", "endpoints": [{"interface": "public", "region": "R", "url": "i"}]},
            {"type": "compute", "endpoints": [
                {"interface": "internal", "region": "R", "url": "in"},
                {"interface": "public", "region": "S", "url": "other"},
                {"interface": "public", "region": "R", "url": "here"},
            ]},
        ]);
        assert_eq!(endpoint(&catalog, "public", Some("R")).as_deref(), Some("here"));
        assert_eq!(endpoint(&catalog, "public", None).as_deref(), Some("other"));
        assert_eq!(endpoint(&catalog, "admin", None), None);
    }

    #[test]
    fn a_refusal_is_told_in_the_clouds_words() {
        let body = json!({"conflictingRequest": {"code": 409, "message": "No."}});
        assert_eq!(words("u", StatusCode::CONFLICT, &body), "No.");
        let said = words("u", StatusCode::FORBIDDEN, &json!({"forbidden": {"message": "No."}}));
        assert!(said.contains("No. This needs"), "{said}");
        assert!(words("u", StatusCode::NOT_FOUND, &Value::Null).contains("no Kilonova"));
    }
}
