//! The page of an action: its effect, and the form that requests it.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{address_of, list, name, path_of_server, size, text};
use super::{csrf, frame};
use crate::app::actions::{Ask, Offer};
use crate::app::edit;
use crate::app::floor::key_of;
use crate::app::session::Session;
use crate::texts;

/// The types of backups. The rotation counts each type separately.
const BACKUPS: [(&str, &str); 2] = [("daily", texts::DAILY), ("weekly", texts::WEEKLY)];

/// An option of the selection in an action's form.
pub(crate) struct Choice {
    /// Its value in the form.
    value: String,
    /// The text that the user sees.
    label: String,
}

/// The option for a flavor.
pub(crate) fn flavor(flavor: &Value) -> Choice {
    let label = format!("{} ({})", text(flavor, "name"), size(flavor));
    Choice { value: text(flavor, "id").to_owned(), label }
}

/// The option for a network, on which a new port is created.
pub(crate) fn network(network: &Value) -> Choice {
    let label = texts::new_port(name(network));
    Choice { value: format!("network {}", text(network, "id")), label }
}

/// The option for a port that belongs to no server.
pub(crate) fn free_port(port: &Value) -> Choice {
    let label = texts::free_port(name(port), &addresses_of(port));
    Choice { value: format!("port {}", text(port, "id")), label }
}

/// The option for a port of the server.
pub(crate) fn port(port: &Value) -> Choice {
    let label = format!("{} ({})", addresses_of(port), text(port, "mac_addr"));
    Choice { value: text(port, "port_id").to_owned(), label }
}

/// The option for a volume of the server.
pub(crate) fn volume(volume: &Value) -> Choice {
    let label = format!("{} ({})", text(volume, "volumeId"), text(volume, "device"));
    Choice { value: text(volume, "volumeId").to_owned(), label }
}

fn addresses_of(port: &Value) -> String {
    let all: Vec<&str> = list(&port["fixed_ips"]).map(|one| text(one, "ip_address")).collect();
    all.join(", ")
}

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The server.
    pub server: &'a Value,
    /// The action.
    pub offer: &'a Offer,
    /// The options of its form; `None` for a form without a selection.
    pub choices: Option<&'a [Choice]>,
    /// Why the service refused the action, if it did.
    pub refused: Option<&'a str>,
    /// The text that was typed in a field, after a refusal.
    pub typed: &'a dyn Fn(&str) -> Option<String>,
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
            @if shown.choices.is_some_and(<[Choice]>::is_empty) {
                p class="notice" { (texts::NO_CHOICE) }
                div class="buttons" { a href=(here) { (texts::BACK) } }
            } @else {
                form method="post" action={ (here) "/actions/" (offer.slug) } {
                    (csrf(shown.session))
                    (fields(shown))
                    @if let Some(loses) = offer.ask.loses() { p class="notice warn" { (loses) } }
                    div class="buttons" {
                        button class=(if offer.danger { "danger" } else { "primary" }) { (offer.label) }
                        a href=(here) { (texts::CANCEL) }
                    }
                }
            }
        }
    };
    frame(&title, Some(shown.session), &main)
}

/// The fields of the action's form.
fn fields(shown: &Shown<'_>) -> Markup {
    let server = shown.server;
    let value = |field: &str, usual: String| (shown.typed)(field).unwrap_or(usual);
    match shown.offer.ask {
        Ask::Nothing | Ask::Confirm(_) => html! {},
        Ask::ImageName => image_name(shown, "-image"),
        Ask::Flavor => choice(shown, "flavor", texts::NEW_FLAVOR),
        Ask::Network => choice(shown, "target", texts::NETWORK_OR_PORT),
        Ask::Port => choice(shown, "port", texts::PORT),
        Ask::Attached => choice(shown, "volume", texts::ATTACHED_VOLUME),
        Ask::Name => html! {
            label for="name" { (texts::SERVER_NAME) }
            input id="name" name="name" required maxlength="255" autofocus
                value=(value("name", text(server, "name").to_owned()));
            label for="description" { (texts::DESCRIPTION) }
            input id="description" name="description" maxlength="255"
                value=(value("description", text(server, "description").to_owned()));
        },
        Ask::Backup => html! {
            (image_name(shown, "-backup"))
            label for="kind" { (texts::BACKUP_KIND) }
            select id="kind" name="kind" aria-describedby="kind-hint" {
                @let chosen = value("kind", "daily".to_owned());
                @for (kind, label) in BACKUPS { option value=(kind) selected[chosen == kind] { (label) } }
            }
            p id="kind-hint" class="quiet" { (texts::BACKUP_KIND_HINT) }
            label for="keep" { (texts::BACKUP_KEEP) }
            input id="keep" name="keep" type="number" min="1" max="1000" required
                value=(value("keep", "7".to_owned()));
        },
        Ask::Volume => html! {
            label for="volume" { (texts::VOLUME_ID) }
            input id="volume" name="volume" required maxlength="36" autofocus spellcheck="false"
                autocomplete="off" aria-describedby="volume-hint" value=(value("volume", String::new()));
            p id="volume-hint" class="quiet" { (texts::VOLUME_ID_HINT) }
        },
        Ask::Metadata => {
            let now = edit::metadata_text(server);
            html! {
                (present(shown, "metadata", &now))
                label for="metadata" { (texts::METADATA) }
                textarea id="metadata" name="metadata" rows="8" spellcheck="false" autofocus
                    // A browser drops the first line break of a field.
                    aria-describedby="metadata-hint" { "\n" (value("metadata", now)) }
                p id="metadata-hint" class="quiet" { (texts::METADATA_HINT) }
            }
        }
        Ask::Tags => {
            let now = edit::tags_text(server);
            html! {
                (present(shown, "tags", &now))
                label for="tags" { (texts::TAGS) }
                input id="tags" name="tags" autofocus aria-describedby="tags-hint" value=(value("tags", now));
                p id="tags-hint" class="quiet" { (texts::TAGS_HINT) }
            }
        }
    }
}

fn image_name(shown: &Shown<'_>, suffix: &str) -> Markup {
    let usual = || format!("{}{suffix}", name(shown.server));
    html! {
        label for="name" { (texts::IMAGE_NAME) }
        input id="name" name="name" required maxlength="255" autofocus
            value=((shown.typed)("name").unwrap_or_else(usual));
    }
}

fn choice(shown: &Shown<'_>, field: &str, label: &str) -> Markup {
    let typed = (shown.typed)(field);
    html! {
        label for=(field) { (label) }
        select id=(field) name=(field) required autofocus {
            @for one in shown.choices.unwrap_or_default() {
                option value=(one.value) selected[typed.as_ref() == Some(&one.value)] { (one.label) }
            }
        }
    }
}

/// A hidden field with the key of the current value. If the user has typed another value, which
/// happens after a refusal, the current value is shown too.
fn present(shown: &Shown<'_>, field: &str, now: &str) -> Markup {
    let differs =
        (shown.typed)(field).is_some_and(|typed| typed.replace('\r', "").trim_end() != now);
    html! {
        input type="hidden" name="shown" value=(key_of(now));
        @if differs {
            p { (texts::PRESENT) }
            pre class="log" tabindex="0" aria-label=(texts::PRESENT) { (now) }
        }
    }
}
