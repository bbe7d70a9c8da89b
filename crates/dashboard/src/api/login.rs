//! `/login` and `/logout`: begins and ends a session.
//!
//! The session's token is scoped to the project that the user names, else to the user's default project, else to
//! the user's first enabled project. The password is kept only in memory, and only until Keystone has answered.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{Method, StatusCode};
use kilonova_wire::query::Query;
use kilonova_wire::time;
use serde_json::{Value, json};

use super::PATH;
use super::answers::{Html, Refusal};
use super::form::{CSRF, Fields, Form};
use super::viewer::{self, LOGIN_SECRET, SESSION, Viewer, cookie, set_cookie};
use crate::app::Dashboard;
use crate::app::cloud::Caller;
use crate::app::session::{Session, is_login_secret, login_secret, random};
use crate::error::Error;
use crate::texts;
use crate::views::login::{self as page, Shown};

/// The path of tokens.
pub(super) const TOKENS: &str = "/identity/v3/auth/tokens";
/// The path of the projects of a token's user.
pub(super) const PROJECTS: &str = "/identity/v3/auth/projects";
/// The paths that list the other targets on which a token's user has roles, each with the key of its list.
const ABOVE_PROJECTS: [(&str, &str); 2] =
    [("/identity/v3/auth/system", "system"), ("/identity/v3/auth/domains", "domains")];

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/login", get(show).post(log_in)).route("/logout", post(log_out))
}

async fn show(State(dashboard): State<Dashboard>, request: Request) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let next = query.get("next").unwrap_or_default();
    // A request from another site's link lacks the session's cookie; the redirected request has it.
    if Viewer::of(&parts, &dashboard).await.is_ok_and(|viewer| viewer.is_some()) {
        return Ok(Redirect::to(local(next)).into_response());
    }
    let notice = query.get("bye").map(|bye| match bye {
        "kept" => texts::LOGGED_OUT_ONLY_HERE,
        _ => texts::LOGGED_OUT,
    });
    let had_one = cookie(&parts.headers, SESSION).is_some_and(|value| !value.is_empty());
    let notice = notice.or(had_one.then_some(texts::SESSION_ENDED));
    let shown = Shown { next, notice, credential: query.get("with").is_some(), ..Shown::default() };
    form(&dashboard, &parts, StatusCode::OK, shown)
}

/// The form, with a new secret for the browser.
fn form(
    dashboard: &Dashboard,
    parts: &Parts,
    status: StatusCode,
    shown: Shown<'_>,
) -> Result<Response, Refusal> {
    let (secret, sealed) =
        login_secret(&dashboard.0.key).ok_or_else(|| Error::Defect("no randomness".into()))?;
    let page = page::page(&Shown { csrf: &secret, ..shown });
    let mut response = (status, Html(page)).into_response();
    set_cookie(&mut response, &Caller::of(parts), LOGIN_SECRET, Some(&sealed));
    Ok(response)
}

async fn log_in(State(dashboard): State<Dashboard>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let fields = Fields::read(&parts.headers, body).await?;
    let credential = fields.text("credential_id").is_some();
    let typed = Shown {
        next: fields.raw("next"),
        user: fields.raw("user"),
        project: fields.raw("project"),
        domain: fields.raw("domain"),
        credential_id: fields.raw("credential_id"),
        credential,
        ..Shown::default()
    };
    let known = cookie(&parts.headers, LOGIN_SECRET);
    if !known.is_some_and(|sealed| is_login_secret(&dashboard.0.key, sealed, fields.raw(CSRF))) {
        let shown = Shown { notice: Some(texts::LOGIN_STALE), ..typed };
        return form(&dashboard, &parts, StatusCode::FORBIDDEN, shown);
    }
    let caller = Caller::of(&parts);
    match begin(&dashboard, &caller, &fields, credential).await {
        Ok(session) => Ok(enter(&dashboard, &caller, &session, local(fields.raw("next")))?),
        Err(Denied::Wrong(why)) => {
            let shown = Shown { notice: Some(why), wrong: true, ..typed };
            form(&dashboard, &parts, StatusCode::UNAUTHORIZED, shown)
        }
        Err(Denied::Error(error)) if error.is(503) => {
            let shown = Shown { notice: Some(texts::LOGIN_BUSY), ..typed };
            form(&dashboard, &parts, StatusCode::SERVICE_UNAVAILABLE, shown)
        }
        Err(Denied::Error(error)) => Err(error.into()),
    }
}

/// Why there is no session.
pub(super) enum Denied {
    /// The user typed something wrong.
    Wrong(&'static str),
    /// Anything else.
    Error(Error),
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

async fn begin(
    dashboard: &Dashboard,
    caller: &Caller,
    fields: &Fields,
    credential: bool,
) -> Result<Session, Denied> {
    if credential {
        let proof =
            json!({"id": fields.raw("credential_id").trim(), "secret": fields.raw("secret")});
        let identity =
            json!({"methods": ["application_credential"], "application_credential": proof});
        let auth = json!({"auth": {"identity": identity}});
        return issue(dashboard, caller, auth, false, texts::WRONG_CREDENTIAL).await;
    }
    let domain = fields.text("domain").unwrap_or("Default");
    let user = json!({
        "name": fields.text("user").unwrap_or_default(),
        "password": fields.raw("password"),
        "domain": {"name": domain},
    });
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    let named = fields.text("project");
    // Without a requested scope, Keystone issues a token for the default project if the user has a role there.
    let auth = match named {
        Some(_) => json!({"auth": {"identity": identity, "scope": "unscoped"}}),
        None => json!({"auth": {"identity": identity}}),
    };
    let (unscoped, body) = token(dashboard, caller, auth, texts::WRONG_LOGIN).await?;
    if body["token"]["project"]["id"].is_string() {
        return session(unscoped, &body, true);
    }
    let own = caller.clone().with_token(&unscoped);
    let session = match choose(dashboard, &own, named).await {
        Ok(project) => scope(dashboard, caller, &unscoped, &project, texts::WRONG_LOGIN).await,
        Err(denied) => Err(denied),
    };
    // The session has its own token; this one is no longer needed.
    revoke(dashboard, &own, &unscoped, fields.text("user").unwrap_or_default()).await;
    session
}

/// The id of the project with this name or id, or of the user's first project.
async fn choose(
    dashboard: &Dashboard,
    own: &Caller,
    named: Option<&str>,
) -> Result<String, Denied> {
    let all = dashboard.0.cloud.get(own, PROJECTS).await?;
    let all: Vec<&Value> = all["projects"].as_array().into_iter().flatten().collect();
    let id = |project: &Value| project["id"].as_str().unwrap_or_default().to_owned();
    let enabled = |project: &&&Value| project["enabled"].as_bool() != Some(false);
    match named {
        Some(named) => {
            let by_id = all.iter().find(|project| project["id"] == named);
            let found = by_id.or_else(|| all.iter().find(|project| project["name"] == named));
            found.map(|project| id(project)).ok_or(Denied::Wrong(texts::WRONG_LOGIN))
        }
        None => match all.iter().find(enabled) {
            Some(project) => Ok(id(project)),
            None => Err(Denied::Wrong(no_project(dashboard, own).await?)),
        },
    }
}

/// Why a user without a project cannot log in. A user with a role on the system or the domain, who may be the
/// administrator, is shown which kind of role is missing, and the command that assigns it.
async fn no_project(dashboard: &Dashboard, own: &Caller) -> Result<&'static str, Error> {
    for (path, key) in ABOVE_PROJECTS {
        let found = dashboard.0.cloud.get(own, path).await?;
        if found[key].as_array().is_some_and(|all| !all.is_empty()) {
            return Ok(texts::ONLY_ABOVE_PROJECTS);
        }
    }
    Ok(texts::NO_PROJECT)
}

/// Begins a session in a project, authenticated by an existing token of the user.
pub(super) async fn scope(
    dashboard: &Dashboard,
    caller: &Caller,
    token: &str,
    project: &str,
    wrong: &'static str,
) -> Result<Session, Denied> {
    let auth = json!({"auth": {
        "identity": {"methods": ["token"], "token": {"id": token}},
        "scope": {"project": {"id": project}},
    }});
    issue(dashboard, caller, auth, true, wrong).await
}

/// Requests a token; returns it with the body of the answer.
async fn token(
    dashboard: &Dashboard,
    caller: &Caller,
    auth: Value,
    wrong: &'static str,
) -> Result<(String, Value), Denied> {
    let path = format!("{TOKENS}?nocatalog");
    let caller = caller.without_token();
    let answer = dashboard.0.cloud.send(&caller, Method::POST, &path, Some(auth)).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.is(401) || error.is(400) || error.is(403) => {
            return Err(Denied::Wrong(wrong));
        }
        Err(error) => return Err(error.into()),
    };
    let missing = || Error::Defect("Keystone answers without a token".into());
    Ok((answer.token.ok_or_else(missing)?, answer.body))
}

async fn issue(
    dashboard: &Dashboard,
    caller: &Caller,
    auth: Value,
    switches: bool,
    wrong: &'static str,
) -> Result<Session, Denied> {
    let (token, body) = token(dashboard, caller, auth, wrong).await?;
    session(token, &body, switches)
}

/// The session of a token.
fn session(token: String, body: &Value, switches: bool) -> Result<Session, Denied> {
    let token_view = &body["token"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let expires = token_view["expires_at"].as_str().and_then(time::parse);
    let expires = expires.ok_or_else(|| Error::Defect("a token has no expiry".into()))?;
    if !token_view["project"]["id"].is_string() {
        return Err(Denied::Wrong(texts::NO_PROJECT));
    }
    Ok(Session {
        token,
        csrf: random(),
        expires: expires.as_second(),
        user: text(&token_view["user"]["name"]),
        project: text(&token_view["project"]["id"]),
        project_name: text(&token_view["project"]["name"]),
        switches,
        operates: false,
    })
}

/// Begins a session in the browser, and redirects the browser to a page.
pub(super) fn enter(
    dashboard: &Dashboard,
    caller: &Caller,
    session: &Session,
    to: &str,
) -> Result<Response, Error> {
    let sealed = session.sealed(&dashboard.0.key).ok_or_else(|| Error::Refused {
        status: 413,
        message: texts::SESSION_TOO_LARGE.to_owned(),
        request: None,
        retry_after: None,
    })?;
    tracing::info!(user = session.user, project = session.project, "logged in to the dashboard");
    let mut response = Redirect::to(to).into_response();
    set_cookie(&mut response, caller, SESSION, Some(&sealed));
    set_cookie(&mut response, caller, LOGIN_SECRET, None);
    Ok(response)
}

/// Revokes a user's token; returns false if that fails. The token then stays valid until it expires.
pub(super) async fn revoke(
    dashboard: &Dashboard,
    caller: &Caller,
    token: &str,
    user: &str,
) -> bool {
    let revoked = dashboard.0.cloud.revoke(caller, TOKENS, token).await;
    if let Err(error) = &revoked {
        tracing::warn!(user, %error, "cannot revoke a token of the dashboard; it stays valid until it expires");
    }
    revoked.is_ok()
}

async fn log_out(State(dashboard): State<Dashboard>, form: Form) -> Response {
    let Viewer { session, caller, .. } = form.viewer;
    let revoked = revoke(&dashboard, &caller, &session.token, &session.user).await;
    let bye = if revoked { "1" } else { "kept" };
    let mut response = Redirect::to(&format!("{PATH}/login?bye={bye}")).into_response();
    set_cookie(&mut response, &caller, viewer::SESSION, None);
    response
}

/// A page of the dashboard to which a login leads; never another site.
fn local(next: &str) -> &str {
    let inside = next
        .strip_prefix(PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with('?'));
    let fine = inside && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let away = next.contains("/logout") || next.contains("/login") || next.contains("/events");
    if fine && !away { next } else { PATH }
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn a_login_leads_only_to_pages() {
        for page in ["/dashboard", "/dashboard/servers/1", "/dashboard?status=ACTIVE&marker=x"] {
            assert_eq!(local(page), page);
        }
        for other in [
            "",
            "https://evil.example",
            "//evil.example",
            "/dashboardx",
            "/dashboard\\evil",
            "/dashboard/\r\nSet-Cookie: a=b",
            "/dashboard/logout",
            "/compute",
        ] {
            assert_eq!(local(other), "/dashboard", "{other}");
        }
    }
}
