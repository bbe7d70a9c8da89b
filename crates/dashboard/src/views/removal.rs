//! The confirmation page of a deletion.

use maud::{Markup, html};

use super::{csrf, frame};
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The name of the object.
    pub name: &'a str,
    /// A sentence about what is lost.
    pub loses: &'a str,
    /// The address to which the form is sent.
    pub here: &'a str,
    /// The address to which the cancel link leads.
    pub back: &'a str,
    /// Why the service refused the deletion.
    pub refused: Option<&'a str>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let title = texts::question(texts::DELETE, shown.name);
    let main = html! {
        section class="narrow card" {
            h1 { (title) }
            @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
            p class="notice warn" { (shown.loses) }
            form method="post" action=(shown.here) {
                (csrf(shown.session))
                div class="buttons" {
                    button class="danger" { (texts::DELETE) }
                    a href=(shown.back) { (texts::CANCEL) }
                }
            }
        }
    };
    frame(&title, Some(shown.session), &main)
}
