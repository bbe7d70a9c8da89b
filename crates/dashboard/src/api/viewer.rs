//! The user who looks at a page, from the session's cookie; and the cookies themselves.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Redirect, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kilonova_wire::query::escaped;
use kilonova_wire::{Context, time};

use super::PATH;
use super::answers::Refusal;
use crate::app::Dashboard;
use crate::app::cloud::Caller;
use crate::app::session::Session;
use crate::error::Error;

/// The cookie of the session.
pub(super) const SESSION: &str = "kilonova-session";
/// The cookie that binds a login form to its browser.
pub(super) const LOGIN_SECRET: &str = "kilonova-login";

/// The policy rule for the operators' pages.
pub(super) const OPERATES: &str = "kilonova:floor:show";

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// Sets a cookie that lasts until the browser is closed; `None` deletes it.
pub(super) fn set_cookie(
    response: &mut Response,
    caller: &Caller,
    name: &str,
    value: Option<&str>,
) {
    let secure = if caller.is_encrypted() { "; Secure" } else { "" };
    let age = if value.is_none() { "; Max-Age=0" } else { "" };
    let value = value.unwrap_or_default();
    let line = format!("{name}={value}; Path={PATH}; HttpOnly; SameSite=Strict{secure}{age}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
}

/// A user with a session whose token is valid now.
#[derive(Clone)]
pub(super) struct Viewer {
    /// The session.
    pub session: Session,
    /// The user as the services see it.
    pub context: Context,
    /// The caller of requests to the services.
    pub caller: Caller,
}

impl Viewer {
    /// The viewer of a request; `None` without a valid session.
    ///
    /// # Errors
    /// When the token cannot be validated now.
    pub(super) async fn of(parts: &Parts, dashboard: &Dashboard) -> Result<Option<Self>, Error> {
        let now = time::now().as_second();
        let sealed = cookie(&parts.headers, SESSION);
        let opened = sealed.and_then(|sealed| Session::open(&dashboard.0.key, sealed, now));
        let Some(mut session) = opened else { return Ok(None) };
        let Some(context) = validated(dashboard, &session).await? else { return Ok(None) };
        session.operates = dashboard.0.compute.policy.allows_own(&context, OPERATES);
        let caller = Caller::of(parts).with_token(&session.token);
        super::remember(&session);
        Ok(Some(Self { session, context, caller }))
    }
}

/// The user of a session; `None` once its token is no longer valid.
///
/// # Errors
/// When the token cannot be validated now.
pub(super) async fn validated(
    dashboard: &Dashboard,
    session: &Session,
) -> Result<Option<Context>, Error> {
    let mut headers = HeaderMap::new();
    let Ok(mut token) = HeaderValue::from_str(&session.token) else { return Ok(None) };
    token.set_sensitive(true);
    headers.insert("x-auth-token", token);
    match dashboard.0.auth.authenticate(&headers).await {
        Ok(context) => Ok(Some(context)),
        Err(fault) if fault.status() == StatusCode::UNAUTHORIZED => Ok(None),
        Err(fault) => Err(Error::Refused {
            status: fault.status().as_u16(),
            message: fault.refusal.message.clone(),
            request: None,
            retry_after: fault.refusal.retry_after,
        }),
    }
}

/// True for a request from the script of an open page.
fn is_part(parts: &Parts) -> bool {
    parts.headers.contains_key("hx-request")
}

/// The page that a browser requests or has open.
fn page_of(parts: &Parts) -> Option<String> {
    if is_part(parts) {
        let open: http::Uri = parts.headers.get("hx-current-url")?.to_str().ok()?.parse().ok()?;
        return open.path_and_query().map(ToString::to_string);
    }
    let here = parts.uri.path_and_query().filter(|_| parts.method == http::Method::GET);
    here.map(|here| format!("{PATH}{here}"))
}

/// Sends a browser without a session to the login, which leads back to the page.
pub(super) fn to_login(parts: &Parts) -> Response {
    let next = page_of(parts).map(|page| format!("?next={}", escaped(&page)));
    let target = format!("{PATH}/login{}", next.unwrap_or_default());
    if is_part(parts) {
        // The script of the page follows this header; it would insert the target of a redirect into the page.
        let mut response = StatusCode::UNAUTHORIZED.into_response();
        if let Ok(target) = HeaderValue::from_str(&target) {
            response.headers_mut().insert("hx-redirect", target);
        }
        return response;
    }
    Redirect::to(&target).into_response()
}

impl FromRequestParts<Dashboard> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &Dashboard) -> Result<Self, Response> {
        match Self::of(parts, state).await {
            Ok(Some(viewer)) => Ok(viewer),
            Ok(None) => Err(to_login(parts)),
            Err(error) => Err(Refusal(error).into_response()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kilonova_wire::Origin;

    use super::*;

    /// The caller of a request that reached the listener at this origin.
    fn caller(origin: Option<&str>) -> Caller {
        let mut request = http::Request::new(());
        if let Some(origin) = origin {
            request.extensions_mut().insert(Origin(origin.into()));
        }
        Caller::of(&request.into_parts().0)
    }

    #[test]
    fn a_cookie_is_secure_where_the_connection_is_encrypted() {
        for (origin, secure) in
            [(Some("https://c.example"), true), (Some("http://c.example"), false), (None, false)]
        {
            for value in [Some("kns1:x:y"), None] {
                let mut response = Response::default();
                set_cookie(&mut response, &caller(origin), SESSION, value);
                let line = response.headers()[header::SET_COOKIE].to_str().unwrap();
                assert_eq!(line.contains("; Secure"), secure, "{origin:?}: {line}");
                assert!(line.contains("; HttpOnly; SameSite=Strict"), "{line}");
            }
        }
    }

    /// The login to which a request without a session is sent.
    fn login_for(method: &str, path: &str, open: Option<&str>) -> String {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(open) = open {
            request = request.header("hx-request", "true").header("hx-current-url", open);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        let headers = to_login(&parts).headers().clone();
        let target = headers.get("hx-redirect").or(headers.get(header::LOCATION)).unwrap();
        assert_eq!(headers.contains_key("hx-redirect"), open.is_some());
        target.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_login_leads_back_to_the_page() {
        let login = |next: &str| format!("/dashboard/login?next={}", escaped(next));
        assert_eq!(login_for("GET", "/servers?all=1", None), login("/dashboard/servers?all=1"));
        assert_eq!(login_for("POST", "/launch", None), "/dashboard/login");
        // A part is not a page: the login leads back to the open page.
        let open = "https://c.example:8443/dashboard/launch?flavor=f#name";
        for method in ["GET", "POST"] {
            let to = login_for(method, "/launch/room", Some(open));
            assert_eq!(to, login("/dashboard/launch?flavor=f"));
        }
        assert_eq!(login_for("GET", "/launch/room", Some("")), "/dashboard/login");
    }

    #[test]
    fn only_urls_of_the_site_are_its_own() {
        let own = caller(Some("https://c"));
        assert!(own.is_own("https://c/") && own.is_own("https://c/console/?token=x"));
        for other in [
            "https://c.evil",
            "https://c.evil/",
            "https://c",
            "https://c:8/",
            "http://c/",
            "//c/",
            "/",
        ] {
            assert!(!own.is_own(other), "{other}");
        }
        assert!(!caller(None).is_own("https://c/"));
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = HeaderMap::from_iter([
            (header::COOKIE, HeaderValue::from_static("a=1; kilonova-session=kns1:x:y; b=2")),
            (header::COOKIE, HeaderValue::from_static("kilonova-login=z=z")),
        ]);
        assert_eq!(cookie(&headers, SESSION), Some("kns1:x:y"));
        assert_eq!(cookie(&headers, LOGIN_SECRET), Some("z=z"));
        assert_eq!(cookie(&headers, "c"), None);
        assert_eq!(cookie(&HeaderMap::new(), "a"), None);
    }
}
