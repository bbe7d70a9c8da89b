//! The login form.

use maud::{Markup, html};

use super::frame;
use crate::api::PATH;
use crate::texts;

/// The data of the form.
#[derive(Debug, Default)]
pub(crate) struct Shown<'a> {
    /// The secret of the browser.
    pub csrf: &'a str,
    /// The page after the login.
    pub next: &'a str,
    /// A sentence above the form.
    pub notice: Option<&'static str>,
    /// True if the sentence is about the user's input.
    pub wrong: bool,
    /// True for the form of an application credential.
    pub credential: bool,
    /// The user name as it was typed; a secret is never shown again.
    pub user: &'a str,
    /// The project.
    pub project: &'a str,
    /// The domain.
    pub domain: &'a str,
    /// The id of a credential.
    pub credential_id: &'a str,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let main = html! {
        section class="narrow card" {
            h1 { (texts::LOGIN) }
            @if let Some(notice) = shown.notice {
                p id="problem" class=(if shown.wrong { "notice bad" } else { "notice" }) role="alert" {
                    (notice)
                }
            }
            form method="post" action={ (PATH) "/login" } {
                input type="hidden" name="csrf" value=(shown.csrf);
                input type="hidden" name="next" value=(shown.next);
                @if shown.credential { (credential(shown)) } @else { (password(shown)) }
                button class="primary" { (texts::LOGIN) }
            }
            p class="quiet" {
                @if shown.credential {
                    a href={ (PATH) "/login" } { (texts::WITH_PASSWORD) }
                } @else {
                    a href={ (PATH) "/login?with=credential" } { (texts::WITH_CREDENTIAL) }
                }
            }
            p class="quiet" { (texts::LOGIN_HINT) }
        }
    };
    frame(texts::LOGIN, None, &main)
}

fn password(shown: &Shown<'_>) -> Markup {
    let described = shown.wrong.then_some("problem");
    html! {
        label for="user" { (texts::USER) }
        input id="user" name="user" value=(shown.user) autocomplete="username" required
            autofocus[shown.user.is_empty()] autocapitalize="none" spellcheck="false"
            aria-describedby=[described];
        label for="password" { (texts::PASSWORD) }
        input id="password" name="password" type="password" autocomplete="current-password" required
            autofocus[!shown.user.is_empty()] aria-describedby=[described];
        details open[!shown.project.is_empty()] {
            summary { (texts::MORE) }
            label for="project" { (texts::PROJECT_OPTIONAL) }
            input id="project" name="project" value=(shown.project) autocapitalize="none"
                spellcheck="false" aria-describedby="project-hint";
            p id="project-hint" class="hint" { (texts::PROJECT_HINT) }
            label for="domain" { (texts::DOMAIN) }
            input id="domain" name="domain" autocapitalize="none" spellcheck="false"
                value=(if shown.domain.is_empty() { "Default" } else { shown.domain });
        }
    }
}

fn credential(shown: &Shown<'_>) -> Markup {
    let described = shown.wrong.then_some("problem");
    html! {
        label for="credential_id" { (texts::CREDENTIAL_ID) }
        input id="credential_id" name="credential_id" value=(shown.credential_id) autocomplete="off"
            required autofocus autocapitalize="none" spellcheck="false" aria-describedby=[described];
        label for="secret" { (texts::CREDENTIAL_SECRET) }
        input id="secret" name="secret" type="password" autocomplete="off" required
            aria-describedby=[described];
    }
}
