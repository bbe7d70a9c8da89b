//! One host: its state, its devices with their owners, its servers, and its drain.

use kilonova_compute_app::drain::{DrainedHost, Guest, HostState, HostStatus, Step};
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{head, host_address, list, moment, path, text};
use super::units::{Look, states, units};
use super::{csrf, frame};
use crate::api::{Colour, Draining, Found, PATH};
use crate::app::floor::{Card, Device, model_of, units_of};
use crate::app::session::Session;
use crate::texts;

/// Milliseconds between two rounds of a drain.
const PAUSE: usize = 1500;
/// Further ones for each guest.
const PAUSE_EACH: usize = 4;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The host.
    pub found: &'a Found,
    /// True if the user may change it.
    pub changes: bool,
    /// The drain that its page carries on.
    pub draining: Option<&'a Draining>,
}

/// The data of the part that drains a host.
pub(crate) struct Drain<'a> {
    /// The session.
    pub session: &'a Session,
    /// The host.
    pub host: &'a DrainedHost,
    /// True if the user may change it.
    pub changes: bool,
    /// The drain that the page carries on.
    pub draining: Option<&'a Draining>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let found = shown.found;
    let name = text(&found.host, "name");
    let here = host_address(name);
    let stream = format!("{here}/events?shown={}", found.digest());
    let (session, changes, draining) = (shown.session, shown.changes, shown.draining);
    let part = Drain { session, host: &found.drained, changes, draining };
    let main = html! {
        (path(&[("/floor", texts::FLOOR)]))
        div hx-ext="sse" sse-connect=(stream) sse-close="end" {
            span hx-get=(here) hx-trigger="sse:changed" hx-select="#host" hx-target="#host"
                hx-swap="outerHTML" hx-select-oob="#host-head" {}
        }
        div id="host-head" class="head" {
            h1 { (name) }
            @if let Some(host) = &found.floor { (states(host)) }
        }
        (drain(&part))
        div id="host" {
            div class="columns" {
                (overview(found))
                (guests(found))
            }
            (devices(shown, &here))
            (owners(found))
        }
    };
    frame(name, Some(shown.session), &main)
}

fn overview(found: &Found) -> Markup {
    let host = &found.host;
    let fact = |label: &str, value: Markup| html! { dt { (label) } dd { (value) } };
    let words = |label: &str, value: &str| match value {
        "" => html! {},
        value => fact(label, html! { (value) }),
    };
    let version = host["hypervisor_version"].as_i64().unwrap_or_default();
    let version = match version {
        0 => String::new(),
        // Nova's numeric form of 10.2.1 is 10002001.
        n => format!("{}.{}.{}", n / 1_000_000, n / 1000 % 1000, n % 1000),
    };
    let aggregates = found.floor.as_ref().map(|host| host.aggregates.join(", "));
    html! {
        section class="card" aria-labelledby="overview" {
            h2 id="overview" { (texts::HOST_OVERVIEW) }
            dl {
                (words(texts::DISABLED_REASON, text(host, "disabled_reason")))
                (fact(texts::LAST_HEARD, moment(text(host, "last_heard_of"))))
                (fact(texts::REGISTERED, moment(text(host, "registered_at"))))
                (fact(texts::CLOCK, html! {
                    @match host["clock_ahead_seconds"].as_f64() {
                        Some(ahead) => {
                            (texts::clock(ahead))
                            @if ahead.abs() > 2.0 { " " span class="status warn" { "! " (texts::NEEDS_ATTENTION) } }
                        }
                        None => span class="quiet" { (texts::CLOCK_UNKNOWN) },
                    }
                }))
                (fact(texts::HYPERVISOR, html! { (text(host, "hypervisor_type")) " " (version) }))
                (words(texts::ADDRESS, text(host, "address")))
                (words(texts::ZONE, text(host, "zone")))
                (words(texts::AGGREGATES, aggregates.as_deref().unwrap_or_default()))
                @if let Some(host) = &found.floor {
                    @for (class, label) in [("VCPU", texts::VCPUS), ("PCPU", texts::PCPUS)] {
                        @if let Some(one) = host.inventories.get(class) {
                            (fact(label, html! { (texts::of(one.used, one.used.saturating_add(one.free))) }))
                        }
                    }
                    @if let Some(one) = host.inventories.get("MEMORY_MB") {
                        (fact(texts::MEMORY, html! {
                            (texts::of_memory(one.used, one.used.saturating_add(one.free)))
                        }))
                    }
                }
                (fact(texts::CERTIFICATE, html! {
                    @if found.certificate.is_object() {
                        (texts::EXPIRES.to_lowercase()) " " (moment(text(&found.certificate, "expires_at")))
                    } @else {
                        span class="quiet" { (texts::NO_CERTIFICATE) }
                    }
                }))
                (fact(texts::SERVICE, html! { code { (text(host, "service_id")) } }))
            }
        }
    }
}

/// The name of a guest with a link to its server.
fn called(guest: &Guest) -> Markup {
    let name = guest.name.as_deref().filter(|name| !name.is_empty());
    html! { a href={ (PATH) "/servers/" (guest.id) } { (name.unwrap_or(&guest.id)) } }
}

fn guests(found: &Found) -> Markup {
    html! {
        section class="card" aria-labelledby="guests" {
            h2 id="guests" { (texts::GUESTS) }
            @if found.drained.guests.is_empty() {
                p class="quiet" { (texts::NO_GUESTS) }
            } @else {
                table class="rows" {
                    (head(&[texts::SERVER_NAME, texts::STATUS, texts::STEP]))
                    tbody {
                        @for guest in &found.drained.guests {
                            tr {
                                th scope="row" data-label=(texts::SERVER_NAME) { (called(guest)) }
                                td class="nowrap" data-label=(texts::STATUS) {
                                    @let status = guest.status.as_deref().unwrap_or_default();
                                    (texts::status(status).0) " " (texts::status(status).1)
                                }
                                td data-label=(texts::STEP) {
                                    @match &guest.operation {
                                        Some(one) => {
                                            (one.action) " "
                                            span class="quiet" { (one.waits_for.as_deref().unwrap_or_default()) }
                                        }
                                        None => span class="quiet" { "–" },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn devices(shown: &Shown<'_>, here: &str) -> Markup {
    let found = shown.found;
    let look = Look { colour: Colour::Project, small: false, projects: &found.projects };
    html! {
        section class="card" aria-labelledby="devices" {
            h2 id="devices" { (texts::DEVICES) }
            @match found.floor.as_ref().filter(|host| !host.devices.is_empty()) {
                None => p class="quiet" { (texts::NO_HOST_DEVICES) },
                Some(host) => {
                    @for ((_, node), cards) in host.cards() {
                        @let known = cards.first().is_some_and(|card| card.device.numa_node.is_some());
                        h3 { @if known { (texts::NUMA) " " (node) } @else { (texts::NO_NUMA) } }
                        table class="rows devices" {
                            (head(&[texts::CARD, texts::UNITS_OF_DEVICE, texts::DEVICE_HEALTH, texts::ACTIONS]))
                            tbody {
                                @for card in &cards {
                                    @for device in &card.functions { (device_row(shown, here, card, device, &look)) }
                                }
                            }
                        }
                    }
                    @if shown.changes { p class="hint" { (texts::DEVICE_HINT) } }
                }
            }
        }
    }
}

fn device_row(
    shown: &Shown<'_>,
    here: &str,
    card: &Card<'_>,
    device: &Device,
    look: &Look<'_>,
) -> Markup {
    let units_of_it: Vec<_> = units_of(device).collect();
    let maintaining = device.status == "maintaining";
    let button = |change: &str, label: &str| {
        html! {
            form method="post" action={ (here) "/devices/" (device.uuid) "/" (change) } {
                (csrf(shown.session))
                button aria-label={ (label) " " (device.address) } { (label) }
            }
        }
    };
    html! {
        tr {
            th scope="row" data-label=(texts::CARD) {
                @if device.address != card.device.card { span class="quiet" aria-hidden="true" { "└ " } }
                (device.kind) " " code { (device.address) }
                br; span class="quiet" { (model_of(device)) }
            }
            td data-label=(texts::UNITS_OF_DEVICE) { (units(&units_of_it, look, &device.health)) }
            td data-label=(texts::DEVICE_HEALTH) {
                @let (sign, word) = texts::health(&device.health);
                @let tone = match device.health.as_str() { "healthy" => "good", "degraded" => "warn", _ => "bad" };
                span class={ "status " (tone) } { (sign) " " (word) }
                @if maintaining { " " span class="status warn" { "‖ " (texts::MAINTAINING) } }
                @if !device.present { " " span class="status bad" { "∅ " (texts::ABSENT) } }
                @if device.programming { " " span class="status busy" { "… " (texts::PROGRAMMED) } }
                @if let Some(reason) = &device.health_reason {
                    br; span class="quiet" {
                        (reason) " "
                        @if let Some(since) = &device.health_since { (moment(since)) }
                    }
                }
            }
            td data-label=(texts::ACTIONS) {
                @if shown.changes {
                    div class="actions" {
                        @let waits = units_of_it.iter().any(|unit| unit.state.is_problem());
                        @if maintaining || device.health != "healthy" || waits {
                            (button("enable", texts::DEVICE_ENABLE))
                        }
                        @if !maintaining { (button("disable", texts::DEVICE_DISABLE)) }
                    }
                }
            }
        }
    }
}

fn owners(found: &Found) -> Markup {
    let name_of = |id: &str| {
        let guest = found.drained.guests.iter().find(|guest| guest.id == id);
        guest.and_then(|guest| guest.name.clone()).unwrap_or_else(|| id.to_owned())
    };
    html! {
        section class="card" aria-labelledby="owners" {
            h2 id="owners" { (texts::OWNERS) }
            @if list(&found.changes).next().is_none() {
                p class="quiet" { (texts::NO_OWNERS) }
            } @else {
                table class="rows" {
                    (head(&[texts::WHEN, texts::CHANGE, texts::DEVICE_HANDLE, texts::SERVER_NAME, texts::PROJECT]))
                    tbody {
                        @for change in list(&found.changes) { (owner_row(found, change, &name_of)) }
                    }
                }
            }
        }
    }
}

fn owner_row(found: &Found, change: &Value, name_of: &dyn Fn(&str) -> String) -> Markup {
    let server = text(change, "instance_uuid");
    html! {
        tr {
            td data-label=(texts::WHEN) { (moment(text(change, "at"))) }
            td data-label=(texts::CHANGE) {
                @match text(change, "change") {
                    "taken" => (texts::TAKEN),
                    "freed" => (texts::FREED),
                    other => (other),
                }
            }
            td data-label=(texts::DEVICE_HANDLE) {
                code { (text(change, "address")) } " " span class="quiet" { (text(change, "mdev_type")) }
            }
            td data-label=(texts::SERVER_NAME) {
                @if server.is_empty() { span class="quiet" { "–" } } @else {
                    a href={ (PATH) "/servers/" (server) } { (name_of(server)) }
                }
            }
            td data-label=(texts::PROJECT) { (found.projects.name(text(change, "project_id"))) }
        }
    }
}

/// The part that drains a host, which a round replaces.
pub(crate) fn drain(part: &Drain<'_>) -> Markup {
    let here = host_address(&part.host.name);
    html! {
        section id="drain" {
            @match part.draining {
                Some(draining) => (progress(part, draining, &here)),
                None if part.changes => (offer(part, &here)),
                None => {}
            }
        }
    }
}

/// The forms that drain, disable or enable a host.
fn offer(part: &Drain<'_>, here: &str) -> Markup {
    let enabled = part.host.status == HostStatus::Enabled;
    let reason = |id: &str| {
        html! {
            label for=(id) { (texts::DRAIN_REASON) }
            input id=(id) name="reason" maxlength="255";
        }
    };
    let guests = part.host.guests.len();
    let target = format!("{here}/drain");
    html! {
        div class="actions" {
            @if !enabled { (enable(part, here)) }
        }
        @if enabled || guests > 0 {
            details class="card drain" {
                summary { (texts::DRAIN) "…" }
                p { (texts::DRAIN_TEXT) }
                // With script the page keeps its own address, which a reload only reads.
                form method="post" action=(target) hx-post=(target) hx-select="#drain" hx-target="#drain"
                    hx-swap="outerHTML" {
                    (csrf(part.session))
                    @if enabled { (reason("drain-reason")) }
                    div class="check" {
                        input id="cold" name="cold" type="checkbox" value="1";
                        label for="cold" { (texts::DRAIN_COLD) }
                    }
                    button class="primary" { (texts::DRAIN_BEGIN) }
                }
                @if enabled {
                    h3 { (texts::DISABLE_HOST) }
                    p { (texts::DISABLE_TEXT) }
                    form method="post" action={ (here) "/disable" } {
                        (csrf(part.session))
                        (reason("disable-reason"))
                        div class="buttons" { button { (texts::DISABLE_HOST) } }
                    }
                }
            }
        }
    }
}

fn enable(part: &Drain<'_>, here: &str) -> Markup {
    html! {
        form method="post" action={ (here) "/enable" } {
            (csrf(part.session))
            button { (texts::UNDRAIN) }
        }
    }
}

/// A drain that the page carries on by itself until nothing more can move.
fn progress(part: &Drain<'_>, draining: &Draining, here: &str) -> Markup {
    let host = part.host;
    let goes_on = draining.goes_on(host);
    let gone = draining.total.saturating_sub(host.guests.len());
    // The page asks again after a while, a large host less often; without script the button does.
    let pause = PAUSE + PAUSE_EACH * host.guests.len().min(1000);
    let trigger = goes_on.then(|| format!("load delay:{pause}ms, submit"));
    let target = format!("{here}/drain");
    html! {
        div class="card" {
            h2 { (texts::DRAIN_PROGRESS) }
            progress max=(draining.total.max(1)) value=(if draining.total == 0 { 1 } else { gone })
                aria-label=(texts::DRAIN_PROGRESS) {}
            p id="drain-state" role="status" {
                strong { (texts::drained(gone, draining.total)) } " "
                @if host.guests.is_empty() { (texts::DRAIN_EMPTY) }
                @else if goes_on { (texts::DRAIN_HINT) }
                @else { (texts::DRAIN_STAYS) }
            }
            @if !host.guests.is_empty() { (steps(draining, part)) }
            div class="actions" {
                @if goes_on {
                    form method="post" action=(target) hx-post=(target) hx-trigger=[trigger] hx-select="#drain"
                        hx-target="#drain" hx-swap="outerHTML" {
                        (csrf(part.session))
                        @for (name, value) in draining.fields() { input type="hidden" name=(name) value=(value); }
                        button class="primary" { (texts::DRAIN_CONTINUE) }
                    }
                    a class="button" href=(here) { (texts::DRAIN_STOP) }
                } @else {
                    a class="button" href=(here) { (texts::BACK) }
                    (enable(part, here))
                }
            }
        }
    }
}

fn steps(draining: &Draining, part: &Drain<'_>) -> Markup {
    let host = part.host;
    let reason = |id: &str, failed: bool| {
        let of = if failed { &draining.refused } else { &draining.unanswered };
        of.get(id).filter(|why| !why.is_empty())
    };
    html! {
        table class="rows" {
            (head(&[texts::SERVER_NAME, texts::STEP, texts::WHY, texts::REMEDY]))
            tbody {
                @for (guest, (step, failed)) in host.guests.iter().zip(draining.steps(host)) {
                    tr {
                        th scope="row" data-label=(texts::SERVER_NAME) { (called(guest)) }
                        td data-label=(texts::STEP) {
                            @if failed { "✕ " (texts::FAILED) } @else { (texts::drain_step(&step)) }
                        }
                        td data-label=(texts::WHY) {
                            @match (&step, reason(&guest.id, failed)) {
                                (_, Some(why)) => (why),
                                (_, None) if failed => (texts::DRAIN_FAILED),
                                (Step::Wait(what), _) => (what),
                                (Step::Stays(why), _) => (why.why),
                                _ => (texts::DRAIN_LATER),
                            }
                        }
                        td data-label=(texts::REMEDY) {
                            @if let Step::Stays(why) = &step { code { (why.remedy) } }
                        }
                    }
                }
            }
        }
        @if host.state == HostState::Down { p class="notice bad" { (texts::DOWN) } }
    }
}
