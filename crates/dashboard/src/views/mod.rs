//! The pages as HTML. A view receives values from the services' answers and decides nothing.
//!
//! Text from users and services is escaped by the template engine; no view writes raw HTML.

pub(crate) mod action;
pub(crate) mod bulk;
pub(crate) mod capacity;
pub(crate) mod console;
pub(crate) mod doctor;
pub(crate) mod enrolment;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod floor;
pub(crate) mod groups;
pub(crate) mod host;
pub(crate) mod images;
pub(crate) mod keys;
mod kind;
pub(crate) mod launch;
pub(crate) mod login;
pub(crate) mod networks;
mod parts;
mod plot;
pub(crate) mod profiles;
pub(crate) mod projects;
pub(crate) mod quotas;
pub(crate) mod removal;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod units;

use maud::{DOCTYPE, Markup, html};

use crate::api::PATH;
use crate::app::session::Session;
use crate::{assets, texts};

/// The pages for all users.
const PAGES: [(&str, &str); 7] = [
    ("/servers", texts::SERVERS),
    ("/images", texts::IMAGES),
    ("/networks", texts::NETWORKS),
    ("/security-groups", texts::SECURITY_GROUPS),
    ("/keys", texts::KEYS),
    ("/device-profiles", texts::PROFILES),
    ("/quotas", texts::QUOTAS),
];

/// The pages for operators.
const OPERATORS_PAGES: [(&str, &str); 4] = [
    ("/floor", texts::FLOOR),
    ("/capacity", texts::CAPACITY),
    ("/explain", texts::EXPLAIN),
    ("/doctor", texts::DOCTOR),
];

/// The frame of every page; `session` is `None` if no user is logged in.
fn frame(title: &str, session: Option<&Session>, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // htmx must not add styles or evaluate text as script.
                meta name="htmx-config"
                    content=r#"{"allowEval":false,"includeIndicatorStyles":false,"historyCacheSize":0,"selfRequestsOnly":true}"#;
                @if let Some(session) = session {
                    meta name="session-ends" content=(session.expires);
                }
                title { (texts::title(title)) }
                link rel="icon" type="image/svg+xml" href=(asset(&assets::ICON.name));
                link rel="stylesheet" href=(asset(&assets::STYLE.name));
                script defer src=(asset(&assets::HTMX.name)) {}
                script defer src=(asset(&assets::HTMX_SSE.name)) {}
                script defer src=(asset(&assets::SCRIPT.name)) {}
            }
            body {
                a class="skip" href="#main" { (texts::SKIP) }
                (header(title, session))
                div id="notices" role="status" aria-live="polite" {
                    @if session.is_some() {
                        p id="session-soon" class="notice warn" hidden { (texts::SESSION_ENDS) }
                        p id="session-over" class="notice bad" hidden {
                            (texts::SESSION_ENDED) " "
                            a href={ (PATH) "/login" } { (texts::LOG_IN_AGAIN) }
                        }
                    }
                    p id="live-lost" class="notice warn" hidden { (texts::LIVE_LOST) }
                }
                main id="main" tabindex="-1" { (main) }
            }
        }
    }
}

fn asset(name: &str) -> String {
    format!("{PATH}/assets/{name}")
}

fn header(title: &str, session: Option<&Session>) -> Markup {
    html! {
        header class="bar" {
            a class="brand" href=(PATH) {
                img src=(asset(&assets::ICON.name)) alt="" width="24" height="24";
                span { (texts::NAME) }
            }
            @if let Some(session) = session {
                nav aria-label=(texts::NAVIGATION) {
                    @let operators: &[_] = if session.operates { &OPERATORS_PAGES } else { &[] };
                    @for (at, label) in PAGES.iter().chain(operators) {
                        a href={ (PATH) (at) } aria-current=[(*label == title).then_some("page")] { (label) }
                    }
                }
                div class="who" {
                    span { (session.user) }
                    @if session.switches {
                        a href={ (PATH) "/projects" } title=(texts::SWITCH_PROJECT) {
                            span class="quiet" { (texts::PROJECT) " " } (session.project_name)
                        }
                    } @else {
                        span { span class="quiet" { (texts::PROJECT) " " } (session.project_name) }
                    }
                    form method="post" action={ (PATH) "/logout" } {
                        (csrf(session))
                        button class="link" { (texts::LOG_OUT) }
                    }
                }
            }
        }
    }
}

/// The hidden field that ties a form to its session.
fn csrf(session: &Session) -> Markup {
    html! { input type="hidden" name="csrf" value=(session.csrf); }
}
