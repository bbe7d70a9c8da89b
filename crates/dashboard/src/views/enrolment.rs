//! The command by which a host joins, and the hosts that have joined.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{head, host_address, list, moment, path, prose, text};
use super::{csrf, frame};
use crate::api::{HOURS, PATH};
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// Certificates and tokens; `None` without a listener for hosts.
    pub enrolled: Option<&'a Value>,
    /// The token that was just created.
    pub made: Option<&'a Value>,
    /// Why the service refused to create one.
    pub refused: Option<&'a str>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let main = html! {
        (path(&[("/floor", texts::FLOOR)]))
        h1 { (texts::ENROLL) }
        @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
        @if let Some(made) = shown.made { (command(made)) }
        @match shown.enrolled {
            None => p class="notice warn" { (prose(texts::NO_LISTENER)) },
            Some(enrolled) => {
                (form(shown.session))
                div class="columns" { (certificates(enrolled)) (tokens(enrolled)) }
            }
        }
    };
    frame(texts::ENROLL, Some(shown.session), &main)
}

fn command(made: &Value) -> Markup {
    html! {
        section class="card" aria-labelledby="command" {
            h2 id="command" { (texts::ENROL_RUN) }
            pre class="log" tabindex="0" aria-labelledby="command" {
                "kilonova-agent join " (text(made, "url")) " " (text(made, "token"))
            }
            p class="quiet" { (texts::ENROL_UNTIL) " " (moment(text(made, "expires_at"))) }
        }
    }
}

fn form(session: &Session) -> Markup {
    html! {
        form class="card" method="post" action={ (PATH) "/enrolment" } {
            (csrf(session))
            p { (texts::ENROL_TEXT) }
            label for="host" { (texts::ENROL_HOST) }
            input id="host" name="host" maxlength="255" spellcheck="false" autocapitalize="none"
                aria-describedby="host-hint";
            p id="host-hint" class="hint" { (texts::ENROL_HOST_HINT) }
            label for="hours" { (texts::ENROL_VALID) }
            select id="hours" name="hours" {
                @for hours in HOURS { option value=(hours) { (texts::hours(hours)) } }
            }
            div class="check" {
                input id="replace" name="replace" type="checkbox" value="1";
                label for="replace" { (texts::ENROL_REPLACE) }
            }
            button class="primary" { (texts::ENROL_BUTTON) }
        }
    }
}

fn certificates(enrolled: &Value) -> Markup {
    html! {
        section class="card" aria-labelledby="certificates" {
            h2 id="certificates" { (texts::CERTIFICATES) }
            @if list(&enrolled["certificates"]).next().is_none() {
                p class="quiet" { "–" }
            } @else {
                table class="rows" {
                    (head(&[texts::HOST, texts::STATUS, texts::EXPIRES]))
                    tbody {
                        @for one in list(&enrolled["certificates"]) {
                            tr {
                                th scope="row" data-label=(texts::HOST) {
                                    a href=(host_address(text(one, "host"))) { (text(one, "host")) }
                                }
                                td data-label=(texts::STATUS) { (text(one, "state")) }
                                td data-label=(texts::EXPIRES) { (moment(text(one, "expires_at"))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn tokens(enrolled: &Value) -> Markup {
    html! {
        section class="card" aria-labelledby="tokens" {
            h2 id="tokens" { (texts::TOKENS) }
            @if list(&enrolled["tokens"]).next().is_none() {
                p class="quiet" { "–" }
            } @else {
                table class="rows" {
                    (head(&[texts::HOST, texts::EXPIRES]))
                    tbody {
                        @for one in list(&enrolled["tokens"]) {
                            tr {
                                th scope="row" data-label=(texts::HOST) {
                                    (one["host"].as_str().unwrap_or(texts::ANY_HOST))
                                }
                                td data-label=(texts::EXPIRES) { (moment(text(one, "expires_at"))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session() -> Session {
        Session {
            token: "t".into(),
            csrf: "c".into(),
            expires: 0,
            user: "admin".into(),
            project: "p".into(),
            project_name: "admin".into(),
            switches: true,
            operates: true,
        }
    }

    #[test]
    fn the_command_is_shown_with_the_hosts_that_have_joined() {
        let session = session();
        let enrolled = json!({
            "certificates": [{"host": "<b>gpu", "state": "valid", "expires_at": "2026-12-26T03:04:05Z"}],
            "tokens": [{"host": null, "expires_at": "2026-11-26T03:04:05Z"}],
        });
        let made = json!({"url": "https://c:8775", "token": "kt1.<x>", "host": null,
            "expires_at": "2026-11-26T03:04:05Z"});
        let shown = Shown {
            session: &session,
            enrolled: Some(&enrolled),
            made: Some(&made),
            refused: None,
        };
        let page = page(&shown).into_string();
        assert!(page.contains("kilonova-agent join https://c:8775 kt1.&lt;x&gt;"), "{page}");
        assert!(page.contains("&lt;b&gt;gpu") && page.contains("any new host"), "{page}");
    }

    #[test]
    fn a_cloud_without_a_listener_says_so() {
        let session = session();
        let shown =
            Shown { session: &session, enrolled: None, made: None, refused: Some("no <i>") };
        let page = page(&shown).into_string();
        assert!(page.contains("no listener for hosts") && !page.contains("<i>"), "{page}");
        assert!(page.contains("<code>--node-listen ADDRESS:PORT</code>"), "{page}");
        assert!(!page.contains("Create the command"), "{page}");
    }
}
