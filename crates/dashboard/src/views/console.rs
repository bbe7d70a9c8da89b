//! The display of a guest within a page.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{name, path_of_server};
use crate::app::session::Session;
use crate::texts;

/// The page; `url` is that of the console, which has a token of its own. The operator's base URL may be on another
/// site, which the page's policy forbids in a frame: the console is then not `embedded`.
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
