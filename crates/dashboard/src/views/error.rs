//! A refusal as a page.

use maud::{Markup, html};

use super::frame;
use crate::api::PATH;
use crate::app::session::Session;
use crate::texts;

/// The page of a refusal; `session` is `None` if no user is known to be logged in.
pub(crate) fn page(
    title: &str,
    text: &str,
    request: Option<&str>,
    session: Option<&Session>,
) -> Markup {
    let main = html! {
        section class="narrow" {
            h1 { (title) }
            p { (text) }
            @if let Some(request) = request {
                p class="quiet" { (texts::REQUEST_ID) " " code { (request) } }
            }
            p { a href=(PATH) { (texts::BACK) } }
        }
    };
    frame(title, session, &main)
}
