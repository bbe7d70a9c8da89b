//! The pages of key pairs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::kind::Kind;
use super::parts::{moment, text};
use crate::api::{PATH, Rows};
use crate::app::session::Session;
use crate::texts;

const KIND: Kind = Kind {
    list: "/keys",
    title: texts::KEYS,
    about: texts::KEYS_TEXT,
    none: texts::NO_KEYS,
    columns: &[texts::NAME_OF, texts::TYPE, texts::FINGERPRINT],
    new: "/new/key",
    new_title: texts::NEW_KEY,
};

fn address(name: &str) -> String {
    format!("{PATH}/key?name={}", escaped(name))
}

/// The list of key pairs.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let cells = rows.rows.iter().map(|row| &row["keypair"]).map(|key| {
        html! {
            th scope="row" data-label=(texts::NAME_OF) {
                a href=(address(text(key, "name"))) { (text(key, "name")) }
            }
            td data-label=(texts::TYPE) { (text(key, "type")) }
            td data-label=(texts::FINGERPRINT) { code { (text(key, "fingerprint")) } }
        }
    });
    let last = rows.rows.last().map(|row| text(&row["keypair"], "name"));
    KIND.list(session, rows, creates, last, &cells.collect::<Vec<_>>())
}

/// The page of a key pair. Right after its creation, the page shows the private key.
pub(crate) fn page(session: &Session, key: &Value, private: Option<&str>, deletes: bool) -> Markup {
    let name = text(key, "name");
    let main = html! {
        (KIND.path())
        div class="head" {
            h1 { (name) }
            @if deletes {
                a class="button danger" href={ (PATH) "/key/delete?name=" (escaped(name)) } { (texts::DELETE) "…" }
            }
        }
        @if let Some(private) = private {
            section class="card" aria-labelledby="private" {
                h2 id="private" { (texts::PRIVATE_KEY) }
                p class="notice warn" role="alert" { (texts::PRIVATE_KEY_ONCE) }
                p {
                    a class="button primary" download={ (name) ".pem" }
                        href={ "data:application/x-pem-file;base64," (STANDARD.encode(private)) } { (texts::DOWNLOAD) }
                }
                pre class="log" tabindex="0" aria-labelledby="private" { (private) }
            }
        }
        section class="card" aria-labelledby="overview" {
            h2 id="overview" { (texts::OVERVIEW) }
            dl {
                dt { (texts::TYPE) } dd { (text(key, "type")) }
                dt { (texts::FINGERPRINT) } dd { code { (text(key, "fingerprint")) } }
                @if !text(key, "created_at").is_empty() {
                    dt { (texts::CREATED) } dd { (moment(text(key, "created_at"))) }
                }
                dt { (texts::PUBLIC_KEY) } dd { code { (text(key, "public_key")) } }
            }
        }
    };
    frame(name, Some(session), &main)
}

/// The form for a new key pair.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    refused: Option<&str>,
) -> Markup {
    let kind = typed("type");
    let fields = html! {
        label for="name" { (texts::NAME_OF) }
        input id="name" name="name" required maxlength="255" autocapitalize="none" spellcheck="false"
            value=(typed("name"));
        label for="type" { (texts::TYPE) }
        select id="type" name="type" {
            option value="ssh" { (texts::KEY_SSH) }
            option value="x509" selected[kind == "x509"] { (texts::KEY_X509) }
        }
        label for="public_key" { (texts::PUBLIC_KEY) }
        textarea id="public_key" name="public_key" rows="4" spellcheck="false" maxlength="65535"
            aria-describedby="public-hint" { (typed("public_key")) }
        p id="public-hint" class="hint" { (texts::PUBLIC_KEY_HINT) }
    };
    KIND.form(session, refused, &fields)
}
