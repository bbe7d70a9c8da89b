//! The effect of an action, and the form that requests it.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{address_of, name, path_of_server, size, text};
use super::{csrf, frame};
use crate::app::actions::{Ask, Offer};
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The server.
    pub server: &'a Value,
    /// The action.
    pub offer: &'a Offer,
    /// The flavors, for an action that needs one.
    pub flavors: &'a [Value],
    /// Why the service refused it.
    pub refused: Option<&'a str>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let (server, offer) = (shown.server, shown.offer);
    let here = address_of(server);
    let title = texts::question(offer.label, name(server));
    let main = html! {
        (path_of_server(server))
        section class="narrow card" {
            h1 { (title) }
            @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
            p { (offer.action.row().about) }
            form method="post" action={ (here) "/actions/" (offer.slug) } {
                (csrf(shown.session))
                @match offer.ask {
                    Ask::Nothing => {}
                    Ask::Confirm(loses) => p class="notice warn" { (loses) },
                    Ask::ImageName => {
                        label for="name" { (texts::IMAGE_NAME) }
                        input id="name" name="name" required maxlength="255" autofocus
                            value={ (name(server)) "-image" };
                    }
                    Ask::Flavor => (flavors(shown)),
                }
                div class="buttons" {
                    button class=(if offer.danger { "danger" } else { "primary" }) { (offer.label) }
                    a href=(here) { (texts::CANCEL) }
                }
            }
        }
    };
    frame(&title, Some(shown.session), &main)
}

fn flavors(shown: &Shown<'_>) -> Markup {
    let now = text(&shown.server["flavor"], "original_name");
    html! {
        label for="flavor" { (texts::NEW_FLAVOR) }
        select id="flavor" name="flavor" required {
            @for flavor in shown.flavors {
                @if text(flavor, "name") != now {
                    option value=(text(flavor, "id")) { (text(flavor, "name")) " (" (size(flavor)) ")" }
                }
            }
        }
    }
}
