//! A server's page.

use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{
    address_of, head, host_address, list, moment, name, path, path_of_server, prose, size, status,
    text,
};
use super::{csrf, frame};
use crate::api::{PATH, digest};
use crate::app::actions::{Ask, Offer};
use crate::app::edit;
use crate::app::floor::product_of;
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The server as Nova shows it.
    pub server: &'a Value,
    /// Its records and the next steps; null if the user may not see them.
    pub records: &'a Value,
    /// The name of its image; empty if the user may not see the image or it is gone.
    pub image: &'a str,
    /// Its ports.
    pub ports: &'a Value,
    /// Its volumes.
    pub volumes: &'a Value,
    /// Its instance actions, the newest first.
    pub history: &'a Value,
    /// The actions that its state and the user's role allow.
    pub offers: &'a [&'static Offer],
    /// True if the user may read the console log.
    pub reads_log: bool,
    /// True if the user may open the console, and there is one.
    pub opens_console: bool,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let server = shown.server;
    let here = address_of(server);
    let stream = format!("{here}/events?shown={}", digest([server]));
    let again = match server["image"]["id"].as_str().filter(|_| !shown.image.is_empty()) {
        Some(id) => format!("{here}?image={}&named={}", escaped(id), escaped(shown.image)),
        None => here.clone(),
    };
    let main = html! {
        (path(&[("/servers", texts::SERVERS)]))
        div id="live" hx-ext="sse" sse-connect=(stream) sse-close="end" {
            span hx-get=(again) hx-trigger="sse:changed" hx-select="#server" hx-target="#server"
                hx-swap="outerHTML" {}
        }
        article id="server" {
            div class="head" {
                div class="title" {
                    h1 { (name(server)) }
                    p role="status" { (status(server)) }
                }
                @if !shown.records.is_null() {
                    a href={ (here) "/explain" } { (texts::EXPLAIN) }
                }
            }
            (fault(shown))
            (buttons(shown))
            div class="columns" {
                div {
                    (overview(shown.session, server, shown.image))
                    (devices(shown.records))
                }
                div {
                    (ports(server, shown.ports))
                    (volumes(shown.volumes))
                    (timeline(shown.history, shown.records))
                }
            }
        }
    };
    frame(name(server), Some(shown.session), &main)
}

fn fault(shown: &Shown<'_>) -> Markup {
    let fault = &shown.server["fault"];
    let next = list(&shown.records["next"]).filter_map(Value::as_str);
    let summary = text(shown.records, "summary");
    html! {
        @if fault.is_object() {
            section class="notice bad" aria-labelledby="fault" {
                h2 id="fault" { (texts::FAULT) }
                p { (text(fault, "message")) }
                @if !summary.is_empty() { p { (summary) } }
                @let steps: Vec<&str> = next.collect();
                @if !steps.is_empty() {
                    h3 { (texts::NEXT_STEPS) }
                    ul { @for step in steps { li { (prose(step)) } } }
                }
                p class="quiet" { (texts::FAULT_AT) " " (moment(text(fault, "created"))) }
            }
        }
    }
}

fn buttons(shown: &Shown<'_>) -> Markup {
    let here = address_of(shown.server);
    html! {
        section class="action-groups" aria-label=(texts::ACTIONS) {
            @if shown.opens_console || shown.reads_log {
                div class="action-group" role="group" aria-labelledby="actions-guest" {
                    span id="actions-guest" class="quiet" { (texts::ACTIONS_GUEST) }
                    div class="actions" {
                        @if shown.opens_console {
                            a id="action-console" class="button" href={ (here) "/console" } { (texts::CONSOLE) }
                        }
                        @if shown.reads_log {
                            a id="action-log" class="button" href={ (here) "/log" } { (texts::CONSOLE_LOG) }
                        }
                    }
                }
            }
            @for offers in shown.offers.chunk_by(|a, b| a.group == b.group) {
                @let label = offers.first().map(|offer| offer.group.label()).unwrap_or_default();
                @let id = format!("actions-{}", offers.first().map(|offer| offer.slug).unwrap_or_default());
                div class="action-group" role="group" aria-labelledby=(id) {
                    span id=(id) class="quiet" { (label) }
                    div class="actions" { @for offer in offers { (button(shown, &here, offer)) } }
                }
            }
            @if shown.offers.is_empty() { p class="quiet" { (texts::NO_ACTIONS) } }
        }
        // Tooltips are not available to keyboard and touch users.
        @if !shown.offers.is_empty() {
            details class="about" {
                summary id="actions-do" { (texts::ACTIONS_DO) }
                dl {
                    @for offer in shown.offers { dt { (offer.label) } dd { (offer.action.row().about) } }
                }
            }
        }
    }
}

fn button(shown: &Shown<'_>, here: &str, offer: &Offer) -> Markup {
    let target = format!("{here}/actions/{}", offer.slug);
    let class = if offer.danger { "button danger" } else { "button" };
    // The element with the focus keeps it, by its id, when a change replaces the part around it.
    let id = format!("action-{}", offer.slug);
    let about = offer.action.row().about;
    html! {
        @if offer.ask == Ask::Nothing {
            form method="post" action=(target) {
                (csrf(shown.session))
                button id=(id) title=(about) { (offer.label) }
            }
        } @else {
            a id=(id) class=(class) href=(target) title=(about) { (offer.label) "…" }
        }
    }
}

fn overview(session: &Session, server: &Value, image: &str) -> Markup {
    let flavor = &server["flavor"];
    let image = match server["image"]["id"].as_str() {
        Some(id) => html! {
            a href={ (PATH) "/images/" (escaped(id)) } {
                @if image.is_empty() { code { (id) } } @else { (image) }
            }
        },
        None => html! { (texts::VOLUME) },
    };
    let host = match text(server, "OS-EXT-SRV-ATTR:host") {
        "" => html! {},
        host if session.operates => html! {
            dt { (texts::HOST) } dd { a href=(host_address(host)) { (host) } }
        },
        host => html! { dt { (texts::HOST) } dd { (host) } },
    };
    let profile = text(&flavor["extra_specs"], "accel:device_profile");
    let groups: Vec<&str> =
        list(&server["security_groups"]).map(|group| text(group, "name")).collect();
    let fact = |label: &str, value: Markup| html! { dt { (label) } dd { (value) } };
    let text_fact = |label: &str, value: &str| match value {
        "" => html! {},
        value => fact(label, html! { (value) }),
    };
    html! {
        section class="card" aria-labelledby="overview" {
            h2 id="overview" { (texts::OVERVIEW) }
            dl {
                (text_fact(texts::DESCRIPTION, text(server, "description")))
                (fact(texts::ID, html! { code { (text(server, "id")) } }))
                (fact(texts::FLAVOR, html! {
                    (text(flavor, "original_name")) br; span class="quiet" { (size(flavor)) }
                }))
                (text_fact(texts::PROFILE, profile))
                (fact(texts::IMAGE, image))
                (text_fact(texts::KEY, text(server, "key_name")))
                (fact(texts::POWER, html! { (texts::power(server["OS-EXT-STS:power_state"].as_i64())) }))
                (host)
                (text_fact(texts::ZONE, text(server, "OS-EXT-AZ:availability_zone")))
                (text_fact(texts::SECURITY_GROUPS, &groups.join(", ")))
                (text_fact(texts::TAGS, &edit::tags_text(server)))
                @let metadata = edit::metadata_text(server);
                @if !metadata.is_empty() {
                    (fact(texts::METADATA, html! { @for line in metadata.lines() { code { (line) } br; } }))
                }
                (fact(texts::CREATED, moment(text(server, "created"))))
            }
        }
    }
}

fn devices(records: &Value) -> Markup {
    html! {
        section class="card" aria-labelledby="devices" {
            h2 id="devices" { (texts::DEVICES) }
            @if list(&records["devices"]).next().is_none() {
                p class="quiet" { (texts::NO_DEVICES) }
            } @else {
                table class="rows" {
                    (head(&[
                        texts::DEVICE_CLASS,
                        texts::DEVICE_ASKED,
                        texts::DEVICE_STATE,
                        texts::DEVICE_HANDLE,
                        texts::DEVICE_HEALTH,
                    ]))
                    tbody {
                        @for device in list(&records["devices"]) { (device_row(device)) }
                    }
                }
            }
        }
    }
}

/// An accelerator of the server. The records that an owner receives contain no addresses.
fn device_row(device: &Value) -> Markup {
    let asked = &device["asked_by"];
    let asked = asked["device_profile"].as_str().or(asked["flavor"].as_str()).unwrap_or_default();
    let handle = &device["handle"];
    let health = text(&device["device"], "health");
    html! {
        tr {
            th scope="row" data-label=(texts::DEVICE_CLASS) {
                (text(device, "resource_class"))
                @if let Some(model) = device["device"]["model"].as_str() {
                    br; span class="quiet" title=(model) { (product_of(model)) }
                }
            }
            td data-label=(texts::DEVICE_ASKED) { (asked) }
            td class="nowrap" data-label=(texts::DEVICE_STATE) { (text(device, "state")) }
            td class="nowrap" data-label=(texts::DEVICE_HANDLE) {
                @if handle.is_object() {
                    (text(handle, "type")) " " code { (text(handle, "address")) }
                } @else {
                    span class="quiet" { "–" }
                }
            }
            td class="nowrap" data-label=(texts::DEVICE_HEALTH) {
                @match health {
                    "" => span class="quiet" { "–" },
                    health => (health),
                }
            }
        }
    }
}

fn ports(server: &Value, ports: &Value) -> Markup {
    // A port names its network by id; the server's addresses name networks by name.
    let network = |mac: &str| {
        let named = server["addresses"].as_object().into_iter().flatten();
        let mut named = named
            .filter(|(_, all)| list(all).any(|one| text(one, "OS-EXT-IPS-MAC:mac_addr") == mac));
        named.next().map(|(name, _)| name.as_str())
    };
    html! {
        section class="card" aria-labelledby="ports" {
            h2 id="ports" { (texts::PORTS) }
            @if list(ports).next().is_none() {
                p class="quiet" { (texts::NO_PORTS) }
            } @else {
                table class="rows" {
                    (head(&[
                        texts::NETWORK,
                        texts::ADDRESSES,
                        texts::MAC,
                        texts::PORT_STATE,
                    ]))
                    tbody {
                        @for port in list(ports) {
                            @let mac = text(port, "mac_addr");
                            tr {
                                th scope="row" data-label=(texts::NETWORK) {
                                    (network(mac).unwrap_or(text(port, "net_id")))
                                }
                                td data-label=(texts::ADDRESSES) {
                                    @for fixed in list(&port["fixed_ips"]) {
                                        span class="address" { (text(fixed, "ip_address")) } " "
                                    }
                                }
                                td data-label=(texts::MAC) { code { (mac) } }
                                td data-label=(texts::PORT_STATE) { (text(port, "port_state").to_lowercase()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The volumes; nothing for a server without volumes, as in a cloud without Cinder.
fn volumes(volumes: &Value) -> Markup {
    html! {
        @if list(volumes).next().is_some() {
            section class="card" aria-labelledby="volumes" {
                h2 id="volumes" { (texts::VOLUMES) }
                table class="rows" {
                    (head(&[texts::VOLUME_ID, texts::VOLUME_DEVICE, texts::VOLUME_FATE]))
                    tbody {
                        @for volume in list(volumes) {
                            tr {
                                th scope="row" data-label=(texts::VOLUME_ID) { code { (text(volume, "volumeId")) } }
                                td data-label=(texts::VOLUME_DEVICE) { (text(volume, "device")) }
                                td data-label=(texts::VOLUME_FATE) {
                                    @if volume["delete_on_termination"] == true { (texts::VOLUME_GOES) }
                                    @else { (texts::VOLUME_STAYS) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn timeline(history: &Value, records: &Value) -> Markup {
    // Only the records show which actions are still in progress; Nova's history does not.
    let outcome = |action: &Value| {
        let same = list(&records["actions"])
            .find(|record| record["request_id"] == action["request_id"])
            .map(|record| text(record, "outcome"));
        same.unwrap_or(if action["message"] == "Error" { "failed" } else { "done" })
    };
    html! {
        section class="card" aria-labelledby="timeline" {
            h2 id="timeline" { (texts::TIMELINE) }
            @if list(history).next().is_none() {
                p class="quiet" { (texts::NO_TIMELINE) }
            } @else {
                ol class="timeline" {
                    @for action in list(history) {
                        li {
                            strong { (texts::instance_action(text(action, "action"))) } " "
                            @match outcome(action) {
                                "failed" => span class="status bad" { "✕ " (texts::FAILED) },
                                "in progress" => span class="status busy" { "◌ " (texts::IN_PROGRESS) },
                                "cancelled" => span class="status off" { "□ " (texts::CANCELLED) },
                                _ => {}
                            }
                            br;
                            span class="quiet" { (moment(text(action, "start_time"))) }
                        }
                    }
                }
            }
        }
    }
}

/// The page of the console log; `Err` contains the reason why there is none.
pub(crate) fn log(session: &Session, server: &Value, log: &Result<String, String>) -> Markup {
    let main = html! {
        (path_of_server(server))
        h1 { (texts::CONSOLE_LOG) }
        @match log {
            Ok(text) if text.is_empty() => p class="quiet" { (texts::CONSOLE_LOG_EMPTY) },
            Ok(text) => {
                p class="quiet" { (texts::CONSOLE_LOG_LINES) }
                pre class="log" tabindex="0" aria-label=(texts::CONSOLE_LOG) { (text) }
            }
            Err(why) => p class="notice" { (why) },
        }
    };
    frame(texts::CONSOLE_LOG, Some(session), &main)
}
