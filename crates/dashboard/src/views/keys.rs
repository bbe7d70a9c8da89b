//! Key pairs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{head, moment, new_button, pages, path, text};
use super::{csrf, frame};
use crate::api::{PATH, Rows};
use crate::app::session::Session;
use crate::texts;

fn address(name: &str) -> String {
    format!("{PATH}/key?name={}", escaped(name))
}

/// The list.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let main = html! {
        div class="head" {
            h1 { (texts::KEYS) }
            @if creates { (new_button("/new/key", texts::NEW_KEY)) }
        }
        p class="quiet" { (texts::KEYS_TEXT) }
        @if rows.rows.is_empty() { p class="empty" { (texts::NO_KEYS) } }
        @else {
            table class="rows" {
                (head(&[texts::NAME_OF, texts::TYPE, texts::FINGERPRINT]))
                tbody {
                    @for key in rows.rows.iter().map(|row| &row["keypair"]) {
                        tr {
                            th scope="row" data-label=(texts::NAME_OF) {
                                a href=(address(text(key, "name"))) { (text(key, "name")) }
                            }
                            td data-label=(texts::TYPE) { (text(key, "type")) }
                            td data-label=(texts::FINGERPRINT) { code { (text(key, "fingerprint")) } }
                        }
                    }
                }
            }
        }
        (pages("/keys", rows, rows.rows.last().map(|row| text(&row["keypair"], "name"))))
    };
    frame(texts::KEYS, Some(session), &main)
}

/// A key pair, with its private key right after its creation.
pub(crate) fn page(session: &Session, key: &Value, private: Option<&str>, deletes: bool) -> Markup {
    let name = text(key, "name");
    let main = html! {
        (path(&[("/keys", texts::KEYS)]))
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

/// The form of a new one.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    refused: Option<&str>,
) -> Markup {
    let kind = typed("type");
    let main = html! {
        (path(&[("/keys", texts::KEYS)]))
        section class="narrow card" {
            h1 { (texts::NEW_KEY) }
            @if let Some(why) = refused { p class="notice bad" role="alert" { (why) } }
            form method="post" action={ (PATH) "/new/key" } {
                (csrf(session))
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
                div class="buttons" {
                    button class="primary" { (texts::CREATE) }
                    a href={ (PATH) "/keys" } { (texts::CANCEL) }
                }
            }
        }
    };
    frame(texts::NEW_KEY, Some(session), &main)
}
