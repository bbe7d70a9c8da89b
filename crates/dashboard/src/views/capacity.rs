//! The capacity of the cloud.

use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{head, host_address, list, path, text};
use super::plot::plot;
use crate::api::{PATH, PERIODS};
use crate::app::session::Session;
use crate::texts;

/// The page: all flavors and the past `usage` of the cloud, or one flavor and the moves that make room for it.
pub(crate) fn page(session: &Session, capacity: &Value, usage: Option<&Value>) -> Markup {
    let number = |key: &str| capacity[key].as_u64().unwrap_or_default();
    let main = html! {
        @if !capacity["gains"].is_null() {
            (path(&[("/capacity", texts::CAPACITY)]))
        }
        h1 { (texts::CAPACITY) }
        p class="counts" { (texts::hosts_up(number("hosts_up"), number("hosts"))) }
        section class="card" aria-labelledby="flavors" {
            h2 id="flavors" { (texts::CAPACITY_FLAVORS) }
            @if list(&capacity["flavors"]).next().is_none() { p class="quiet" { (texts::NO_FLAVORS) } }
            @else { (flavors(capacity)) }
        }
        @if !capacity["gains"].is_null() { (gains(capacity)) }
        section class="card" aria-labelledby="kinds" {
            h2 id="kinds" { (texts::DEVICE_KINDS) }
            @if list(&capacity["devices"]).next().is_none() { p class="quiet" { (texts::NO_DEVICES) } }
            @else { (devices(capacity)) }
        }
        @if let Some(usage) = usage { (plots(usage)) }
    };
    frame(texts::CAPACITY, Some(session), &main)
}

fn plots(usage: &Value) -> Markup {
    let period = text(usage, "period");
    html! {
        section class="card" aria-labelledby="usage" {
            div class="head" {
                h2 id="usage" { (texts::USAGE) }
                nav aria-label=(texts::PERIOD) class="pages" {
                    @for one in PERIODS {
                        a href={ (PATH) "/capacity?period=" (one) "#usage" } aria-current=[(one == period).then_some("true")] {
                            (texts::period(one))
                        }
                    }
                }
            }
            @if list(&usage["classes"]).next().is_none() { p class="quiet" { (texts::NO_SAMPLES) } }
            @else {
                p class="quiet" { (texts::PLOT_LINES) }
                div class="plots" {
                    @for class in list(&usage["classes"]) { (plot(usage, class)) }
                }
            }
        }
    }
}

fn flavors(capacity: &Value) -> Markup {
    let most = list(&capacity["flavors"]).filter_map(|one| one["servers"].as_u64()).max();
    html! {
        table class="rows" {
            (head(&[texts::FLAVOR, texts::MORE_SERVERS, texts::ON_HOSTS, texts::REASON]))
            tbody {
                @for flavor in list(&capacity["flavors"]) {
                    @let servers = flavor["servers"].as_u64();
                    tr {
                        th scope="row" data-label=(texts::FLAVOR) { (text(flavor, "name")) }
                        td class="number" data-label=(texts::MORE_SERVERS) {
                            @match servers {
                                Some(0) => span class="status warn" { "0" },
                                Some(count) => {
                                    span { (count) } " "
                                    meter min="0" max=(most.unwrap_or(1).max(1)) value=(count)
                                        aria-label=(text(flavor, "name")) {}
                                }
                                None => span class="quiet" { "–" },
                            }
                        }
                        td data-label=(texts::ON_HOSTS) {
                            @match flavor["hosts"].as_u64() {
                                Some(count) => (count),
                                None => span class="quiet" { "–" },
                            }
                        }
                        td data-label=(texts::REASON) {
                            (text(flavor, "reason"))
                            @if capacity["gains"].is_null() && servers == Some(0) {
                                " " a href={ (PATH) "/capacity?flavor=" (escaped(text(flavor, "id"))) } { (texts::MAKE_ROOM) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn gains(capacity: &Value) -> Markup {
    let gains = &capacity["gains"];
    let name = list(&capacity["flavors"]).next().map_or("", |flavor| text(flavor, "name"));
    let moves = list(&gains["moves"]).count();
    let drain = &gains["drain"];
    html! {
        section class="card" aria-labelledby="gains" {
            h2 id="gains" { (texts::room_for(name)) }
            @if moves == 0 {
                p class="quiet" { (texts::NO_GAIN) }
            } @else {
                p { (texts::gain(moves, gains["gain"].as_i64().unwrap_or_default())) }
                table class="rows" {
                    (head(&[texts::MOVE_SERVER, texts::MOVE_FROM, texts::MOVE_TO, texts::MEMORY]))
                    tbody {
                        @for one in list(&gains["moves"]) {
                            tr {
                                th scope="row" data-label=(texts::MOVE_SERVER) {
                                    a href={ (PATH) "/servers/" (text(one, "server")) } { (text(one, "name")) }
                                }
                                td data-label=(texts::MOVE_FROM) { (text(one, "from")) }
                                td data-label=(texts::MOVE_TO) { (text(one, "to")) }
                                td data-label=(texts::MEMORY) { (one["memory_mb"].as_i64().unwrap_or_default()) " MiB" }
                            }
                        }
                    }
                }
            }
            @if drain.is_object() {
                p {
                    a href=(host_address(text(drain, "host"))) { (text(drain, "host")) } ": "
                    (texts::drain_gain(
                        text(drain, "host"),
                        drain["servers"].as_u64().unwrap_or_default(),
                        drain["gain"].as_i64().unwrap_or_default(),
                    ))
                }
            }
        }
    }
}

fn devices(capacity: &Value) -> Markup {
    let number = |kind: &Value, key: &str| kind[key].as_i64().unwrap_or_default();
    html! {
        table class="rows" {
            (head(&[
                texts::RESOURCE_CLASS,
                texts::DEVICES,
                texts::FREE,
                texts::PARTLY_USED,
                texts::FREE_UNITS,
                texts::DIVIDED_UNITS,
                texts::RESERVED_UNITS,
                texts::TRAITS,
            ]))
            tbody {
                @for kind in list(&capacity["devices"]) {
                    tr {
                        th scope="row" data-label=(texts::RESOURCE_CLASS) { (text(kind, "resource_class")) }
                        @for (key, label) in [
                            ("devices", texts::DEVICES),
                            ("free", texts::FREE),
                            ("partly_used", texts::PARTLY_USED),
                            ("free_units", texts::FREE_UNITS),
                            ("divided_units", texts::DIVIDED_UNITS),
                            ("reserved_units", texts::RESERVED_UNITS),
                        ] {
                            td data-label=(label) { (number(kind, key)) }
                        }
                        td data-label=(texts::TRAITS) {
                            // The owner traits are on every device.
                            @for name in list(&kind["traits"]).filter_map(Value::as_str) {
                                @if !name.starts_with("OWNER_") { code { (name) } " " }
                            }
                        }
                    }
                }
            }
        }
    }
}
