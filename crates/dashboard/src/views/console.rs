//! The display of a guest within a page.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{name, path_of_server};
use crate::app::session::Session;
use crate::texts;

/// The page. `url` is the address of the console and contains a token of its own. If the operator's base URL is on
/// another site, the page's policy forbids it in a frame, and the console is not `embedded`.
pub(crate) fn page(session: &Session, server: &Value, url: &str, embedded: bool) -> Markup {
    let main = html! {
        (path_of_server(server))
        h1 { (texts::CONSOLE) }
        @if embedded { p class="quiet" { (texts::CONSOLE_HINT) } }
        p { a href=(url) target="_blank" rel="noreferrer" { (texts::OPEN_CONSOLE) } }
        @if embedded {
            iframe class="console" title={ (texts::CONSOLE) " " (name(server)) } src=(url) {}
        }
    };
    frame(texts::CONSOLE, Some(session), &main)
}
