//! The form for new servers.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{path, size, text};
use super::{csrf, frame};
use crate::api::{MOST_SERVERS, PATH};
use crate::app::session::Session;
use crate::texts;

/// The choices of the form.
pub(crate) struct Choices {
    /// Flavors.
    pub flavors: Vec<Value>,
    /// Images.
    pub images: Vec<Value>,
    /// True if there are more of them.
    pub more_images: bool,
    /// Networks.
    pub networks: Vec<Value>,
    /// Key pairs, each below `keypair`.
    pub keys: Vec<Value>,
    /// Security groups.
    pub groups: Vec<Value>,
    /// Server groups.
    pub server_groups: Vec<Value>,
}

/// The result of the capacity check.
pub(crate) enum Room {
    /// All requested servers fit.
    Enough {
        /// The number of servers that fit.
        servers: u64,
        /// The number of hosts on which they fit.
        hosts: u64,
    },
    /// Fewer servers fit than requested.
    Short {
        /// The number of servers that fit.
        servers: u64,
        /// The number of hosts on which they fit.
        hosts: u64,
    },
    /// No server fits.
    None {
        /// The reason, if the service gives one.
        reason: Option<String>,
        /// Flavors of the same kind that fit.
        instead: Vec<String>,
    },
    /// The check did not complete.
    Unknown,
}

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The choices of the form.
    pub choices: &'a Choices,
    /// The text that was typed in a field.
    pub typed: &'a dyn Fn(&str) -> String,
    /// True if a field has this value.
    pub chosen: &'a dyn Fn(&str, &str) -> bool,
    /// The chosen flavor.
    pub flavor: &'a str,
    /// The answer for the chosen flavor.
    pub room: Option<&'a Room>,
    /// Why the service refused the request.
    pub refused: Option<&'a str>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let choices = shown.choices;
    let main = html! {
        (path(&[("/servers", texts::SERVERS)]))
        h1 { (texts::LAUNCH_TITLE) }
        @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
        @if choices.flavors.is_empty() { p class="notice warn" { (texts::LAUNCH_NO_FLAVORS) } }
        @if choices.images.is_empty() { p class="notice warn" { (texts::LAUNCH_NO_IMAGES) } }
        form id="launch" class="card" method="post" action={ (PATH) "/launch" } {
            (csrf(shown.session))
            div class="columns" {
                div {
                    label for="name" { (texts::LAUNCH_NAME) }
                    input id="name" name="name" required maxlength="255" value=((shown.typed)("name"));
                    label for="count" { (texts::LAUNCH_COUNT) }
                    @let count = (shown.typed)("count");
                    input id="count" name="count" type="number" min="1" max=(MOST_SERVERS) required
                        value=(if count.is_empty() { "1" } else { &count })
                        hx-get={ (PATH) "/launch/room" } hx-trigger="change" hx-include="#launch [name=flavor]"
                        hx-target="#room" hx-swap="outerHTML";
                    (flavors(shown))
                }
                div {
                    (images(shown))
                    (networks(shown))
                    (access(shown))
                }
            }
            details open[!(shown.typed)("user_data").is_empty()] {
                summary { (texts::LAUNCH_USER_DATA) }
                label for="user_data" { (texts::LAUNCH_USER_DATA) }
                textarea id="user_data" name="user_data" rows="8" spellcheck="false"
                    aria-describedby="user-data-hint" { ((shown.typed)("user_data")) }
                p id="user-data-hint" class="hint" { (texts::LAUNCH_USER_DATA_HINT) }
            }
            (room(shown.room.unwrap_or(&Room::Unknown)))
            div class="buttons" {
                button class="primary" { (texts::LAUNCH_BUTTON) }
                button formmethod="get" formaction={ (PATH) "/launch" } formnovalidate { (texts::LAUNCH_CHECK) }
                a href={ (PATH) "/servers" } { (texts::CANCEL) }
            }
        }
    };
    frame(texts::LAUNCH_TITLE, Some(shown.session), &main)
}

fn flavors(shown: &Shown<'_>) -> Markup {
    html! {
        fieldset {
            legend { (texts::FLAVOR) }
            @for flavor in &shown.choices.flavors {
                @let id = text(flavor, "id");
                @let specs = &flavor["extra_specs"];
                @let field = format!("flavor-{id}");
                div class="choice" {
                    input id=(field) type="radio" name="flavor" value=(id) required
                        checked[id == shown.flavor] hx-get={ (PATH) "/launch/room" } hx-trigger="change"
                        hx-include="#count" hx-target="#room" hx-swap="outerHTML";
                    label for=(field) {
                        span { (text(flavor, "name")) }
                        span class="quiet" { (size(flavor)) }
                        @if let Some(profile) = specs["accel:device_profile"].as_str() {
                            span class="tag" { (texts::PROFILE) " " (profile) }
                        }
                        @for (class, amount) in devices(specs) {
                            span class="tag" { (amount) " × " (class) }
                        }
                    }
                }
            }
        }
    }
}

/// The resource classes of devices, with amounts, that a flavor's extra specs request.
fn devices(specs: &Value) -> Vec<(&str, &str)> {
    let plain = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"];
    let specs = specs.as_object().into_iter().flatten();
    let named = specs.filter_map(|(key, amount)| {
        let class = key.strip_prefix("resources")?.rsplit_once(':')?.1;
        (!plain.contains(&class)).then_some((class, amount.as_str()?))
    });
    named.filter(|(_, amount)| *amount != "0").collect()
}

fn images(shown: &Shown<'_>) -> Markup {
    html! {
        label for="image" { (texts::IMAGE) }
        select id="image" name="image" required {
            @for image in &shown.choices.images {
                @let id = text(image, "id");
                option value=(id) selected[(shown.chosen)("image", id)] {
                    @match text(image, "name") { "" => (id), name => (name) }
                }
            }
        }
        @if shown.choices.more_images { p class="hint" { (texts::LAUNCH_MORE_IMAGES) } }
    }
}

fn networks(shown: &Shown<'_>) -> Markup {
    // A new form preselects the first network; a submitted form keeps its choice.
    let fresh = (shown.typed)("name").is_empty() && (shown.typed)("count").is_empty();
    html! {
        fieldset {
            legend { (texts::LAUNCH_NETWORK) }
            @if shown.choices.networks.is_empty() { p class="quiet" { (texts::LAUNCH_NO_NETWORK) } }
            @for (at, network) in shown.choices.networks.iter().enumerate() {
                @let id = text(network, "id");
                @let field = format!("network-{id}");
                div class="check" {
                    input id=(field) type="checkbox" name="network" value=(id)
                        checked[(fresh && at == 0) || (shown.chosen)("network", id)];
                    label for=(field) { (text(network, "name")) }
                }
            }
        }
    }
}

fn access(shown: &Shown<'_>) -> Markup {
    let choices = shown.choices;
    html! {
        label for="key" { (texts::LAUNCH_KEY) }
        select id="key" name="key" {
            option value="" { (texts::LAUNCH_NO_KEY) }
            @for key in &choices.keys {
                @let name = text(&key["keypair"], "name");
                option value=(name) selected[(shown.chosen)("key", name)] { (name) }
            }
        }
        @if !choices.groups.is_empty() {
            fieldset {
                legend { (texts::LAUNCH_GROUPS) }
                @for group in &choices.groups {
                    @let name = text(group, "name");
                    @let field = format!("group-{}", text(group, "id"));
                    div class="check" {
                        input id=(field) type="checkbox" name="group" value=(name)
                            checked[(shown.chosen)("group", name)];
                        label for=(field) { (name) }
                    }
                }
            }
        }
        @if !choices.server_groups.is_empty() {
            label for="server_group" { (texts::LAUNCH_SERVER_GROUP) }
            select id="server_group" name="server_group" {
                option value="" { (texts::LAUNCH_NO_SERVER_GROUP) }
                @for group in &choices.server_groups {
                    @let id = text(group, "id");
                    option value=(id) selected[(shown.chosen)("server_group", id)] { (text(group, "name")) }
                }
            }
        }
    }
}

/// The sentence about capacity.
pub(crate) fn room(room: &Room) -> Markup {
    let (tone, sign) = match room {
        Room::Enough { .. } => ("good", "✓ "),
        Room::Short { .. } => ("warn", "! "),
        Room::None { .. } => ("bad", "✕ "),
        Room::Unknown => ("", ""),
    };
    html! {
        p id="room" class={ "notice " (tone) } role="status" {
            span aria-hidden="true" { (sign) }
            @match room {
                Room::Enough { servers, hosts } => (texts::room(*servers, *hosts)),
                Room::Short { servers, hosts } => {
                    (texts::ROOM_SHORT) " " (texts::room(*servers, *hosts))
                }
                Room::None { reason, instead } => {
                    (texts::ROOM_NONE)
                    @if let Some(reason) = reason { " " (reason) }
                    @if !instead.is_empty() { " " (texts::ROOM_INSTEAD) " " (instead.join(", ")) "." }
                }
                Room::Unknown => (texts::ROOM_UNKNOWN),
            }
        }
    }
}
