//! One action on several servers.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{address_of, head, name, path, status, text};
use super::{csrf, frame};
use crate::api::PATH;
use crate::app::actions::Offer;
use crate::app::session::Session;
use crate::texts;

/// The data of the confirmation.
pub(crate) struct Question<'a> {
    /// The session.
    pub session: &'a Session,
    /// The action.
    pub offer: &'a Offer,
    /// The servers that it is requested for.
    pub able: &'a [Value],
    /// The chosen servers on which their state or the policy forbids it.
    pub unable: &'a [Value],
}

/// The page that asks for confirmation.
pub(crate) fn ask(shown: &Question<'_>) -> Markup {
    let offer = shown.offer;
    let title = texts::question(offer.label, &texts::servers(shown.able.len()));
    let main = html! {
        (path(&[("/servers", texts::SERVERS)]))
        section class="narrow card" {
            h1 { (title) }
            @if let Some(loses) = offer.ask.loses() { p class="notice warn" { @if shown.able.len() > 1 { (texts::EACH_SERVER) " " } (loses) } }
            @if !shown.able.is_empty() {
                form method="post" action={ (PATH) "/actions" } {
                    (csrf(shown.session))
                    input type="hidden" name="do" value=(offer.slug);
                    ul {
                        @for server in shown.able {
                            li {
                                input type="hidden" name="server" value=(text(server, "id"));
                                a href=(address_of(server)) { (name(server)) } " " (status(server))
                            }
                        }
                    }
                    div class="buttons" {
                        button class=(if offer.danger { "danger" } else { "primary" }) { (offer.label) }
                        a href={ (PATH) "/servers" } { (texts::CANCEL) }
                    }
                }
            }
            @if !shown.unable.is_empty() {
                p { (texts::BULK_UNABLE) }
                ul {
                    @for server in shown.unable {
                        li { a href=(address_of(server)) { (name(server)) } " " (status(server)) }
                    }
                }
            }
        }
    };
    frame(&title, Some(shown.session), &main)
}

/// The result for one server.
pub(crate) struct Outcome {
    /// Its name.
    pub name: String,
    /// Its page.
    pub address: String,
    /// Why the service refused the action, if it did.
    pub refused: Option<String>,
}

/// The page of the results.
pub(crate) fn results(session: &Session, offer: &Offer, results: &[Outcome]) -> Markup {
    let title = texts::question(offer.label, &texts::servers(results.len()));
    let main = html! {
        (path(&[("/servers", texts::SERVERS)]))
        h1 { (title) }
        table class="rows" {
            (head(&[texts::SERVER_NAME, texts::RESULT]))
            tbody {
                @for one in results {
                    tr {
                        th scope="row" data-label=(texts::SERVER_NAME) { a href=(one.address) { (one.name) } }
                        td data-label=(texts::RESULT) {
                            @match &one.refused {
                                None => span class="status good" { "✓ " (texts::REQUESTED) },
                                Some(why) => { span class="status bad" { "✕ " (texts::REFUSED) } " " (why) }
                            }
                        }
                    }
                }
            }
        }
        p { a class="button primary" href={ (PATH) "/servers" } { (texts::SERVERS) } }
    };
    frame(&title, Some(session), &main)
}
