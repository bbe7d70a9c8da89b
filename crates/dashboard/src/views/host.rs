//! One host: its state, its devices with their owners, its servers, and its drain.

use kilonova_compute_app::drain::{
    Allowed, DrainState, DrainedHost, Guest, HostDrain, HostState, HostStatus, Next, Progress, next,
};
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{head, host_address, list, moment, path, places, text};
use super::units::{Look, states, units};
use super::{csrf, frame};
use crate::api::{Colour, Found, PATH};
use crate::app::floor::{Card, Device, model_of, units_of};
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The host.
    pub found: &'a Found,
    /// True if the user may enable and disable it.
    pub changes: bool,
    /// True if the user may drain it.
    pub drains: bool,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let found = shown.found;
    let name = text(&found.host, "name");
    let here = host_address(name);
    let stream = format!("{here}/events?shown={}", found.digest());
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
        (begin(shown, &here))
        div id="host" {
            (drain(shown, &here))
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
    let text_fact = |label: &str, value: &str| match value {
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
                (text_fact(texts::DISABLED_REASON, text(host, "disabled_reason")))
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
                (text_fact(texts::AGENT_VERSION, text(host, "agent_version")))
                (text_fact(texts::ADDRESS, text(host, "address")))
                (text_fact(texts::ZONE, text(host, "zone")))
                (text_fact(texts::AGGREGATES, aggregates.as_deref().unwrap_or_default()))
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
fn guest_link(guest: &Guest) -> Markup {
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
                                th scope="row" data-label=(texts::SERVER_NAME) { (guest_link(guest)) }
                                td class="nowrap" data-label=(texts::STATUS) {
                                    @let status = guest.status.as_deref().unwrap_or_default();
                                    (texts::status(status).0) " " (texts::status(status).1)
                                }
                                td data-label=(texts::STEP) {
                                    @match &guest.operation {
                                        Some(one) => {
                                            (one.action) " "
                                            span class="quiet" {
                                                @match one.unread() {
                                                    Some(why) => (why),
                                                    None => (one.waits_for.as_deref().unwrap_or_default()),
                                                }
                                            }
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
            @if let Some(uuid) = device.uuid {
                form method="post" action={ (here) "/devices/" (uuid) "/" (change) } {
                    (csrf(shown.session))
                    button aria-label={ (label) " " (device.address) } { (label) }
                }
            }
        }
    };
    html! {
        tr {
            th scope="row" data-label=(texts::CARD) {
                @if device.address != card.device.card { span class="quiet" aria-hidden="true" { "└ " } }
                (device.kind) " " code { (device.address) }
                br; span class="quiet" { (model_of(device)) }
                (places(device))
            }
            td data-label=(texts::UNITS_OF_DEVICE) { (units(&units_of_it, look, &device.health)) }
            td data-label=(texts::DEVICE_HEALTH) {
                @let (sign, word) = texts::health(&device.health);
                @let tone = match &*device.health { "healthy" => "good", "degraded" => "warn", _ => "bad" };
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
                        @let has_problem = units_of_it.iter().any(|unit| unit.state.is_problem());
                        @if maintaining || device.health != "healthy" || has_problem {
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

/// The forms that begin a drain, or disable the host. An update of an open page does not replace them,
/// because the user may be typing.
fn begin(shown: &Shown<'_>, here: &str) -> Markup {
    let host = &shown.found.drained;
    let enabled = host.status == HostStatus::Enabled;
    let drains = shown.drains && host.drain.is_none() && (enabled || !host.guests.is_empty());
    let disables = shown.changes && enabled;
    let reason = |id: &str| {
        html! {
            label for=(id) { (texts::DRAIN_REASON) }
            input id=(id) name="reason" maxlength="255";
        }
    };
    html! {
        @if drains || disables {
            details class="card drain" {
                summary { (texts::DRAIN) "…" }
                @if drains {
                    p { (texts::DRAIN_TEXT) }
                    form method="post" action={ (here) "/drain" } {
                        (csrf(shown.session))
                        @if enabled { (reason("drain-reason")) }
                        div class="check" {
                            input id="cold" name="cold" type="checkbox" value="1";
                            label for="cold" { (texts::DRAIN_COLD) }
                        }
                        button class="primary" { (texts::DRAIN_BEGIN) }
                    }
                }
                @if disables {
                    h3 { (texts::DISABLE_HOST) }
                    p { (texts::DISABLE_TEXT) }
                    form method="post" action={ (here) "/disable" } {
                        (csrf(shown.session))
                        (reason("disable-reason"))
                        div class="buttons" { button { (texts::DISABLE_HOST) } }
                    }
                }
            }
        }
    }
}

/// The drain of the host with its progress. Without a drain, the button that enables a disabled host.
fn drain(shown: &Shown<'_>, here: &str) -> Markup {
    let host = &shown.found.drained;
    let enables = shown.changes && host.status == HostStatus::Disabled;
    html! {
        @match &host.drain {
            Some(drain) => (progress(shown, drain, here)),
            None if enables => div class="actions" { (button(shown, here, "enable", texts::UNDRAIN)) },
            None => {}
        }
    }
}

/// A form that consists of a button.
fn button(shown: &Shown<'_>, here: &str, verb: &str, label: &str) -> Markup {
    html! {
        form method="post" action={ (here) "/" (verb) } {
            (csrf(shown.session))
            button { (label) }
        }
    }
}

fn progress(shown: &Shown<'_>, drain: &HostDrain, here: &str) -> Markup {
    let host = &shown.found.drained;
    let runs = drain.state == DrainState::Running;
    let total = drain.total.max(host.guests.len());
    let gone = total - host.guests.len();
    html! {
        section id="drain" class="card" aria-labelledby="drain-head" {
            h2 id="drain-head" {
                @match drain.state {
                    DrainState::Running => (texts::DRAIN_RUNS),
                    DrainState::Ended => (texts::DRAIN_ENDED),
                    DrainState::Stopped => (texts::DRAIN_STOPPED),
                }
            }
            progress max=(total.max(1)) value=(if total == 0 { 1 } else { gone }) aria-label=(texts::DRAIN_PROGRESS) {}
            p id="drain-state" role="status" {
                strong { (texts::drained(gone, total)) } " "
                @if host.guests.is_empty() { (texts::DRAIN_EMPTY) }
                @else {
                    @match drain.state {
                        DrainState::Running => (texts::DRAIN_HINT),
                        DrainState::Ended => (texts::DRAIN_STAYS),
                        DrainState::Stopped => (texts::DRAIN_HALTED),
                    }
                }
            }
            p class="quiet" {
                (texts::DRAIN_BEGUN) " " (moment(&drain.begun_at))
                @if let Some(ended) = &drain.ended_at { ", " (texts::DRAIN_OVER) " " (moment(ended)) }
            }
            @if !host.guests.is_empty() { (steps(drain, host)) }
            @if host.state == HostState::Down { p class="notice bad" { (texts::DOWN) } }
            div class="actions" {
                @if runs && shown.drains { (button(shown, here, "drain/stop", texts::DRAIN_STOP)) }
                @if !runs && shown.drains && !host.guests.is_empty() {
                    form method="post" action={ (here) "/drain" } {
                        (csrf(shown.session))
                        div class="check" {
                            input id="again-cold" name="cold" type="checkbox" value="1" checked[drain.cold];
                            label for="again-cold" { (texts::DRAIN_COLD) }
                        }
                        button class="primary" { (texts::DRAIN_AGAIN) }
                    }
                }
                @if shown.changes { (button(shown, here, "enable", texts::UNDRAIN)) }
            }
        }
    }
}

/// The time at which a refused request to move a server is repeated.
fn next_try<'a>(drain: &'a HostDrain, server: &str) -> Option<&'a str> {
    drain.move_of(server)?.next_try_at.as_deref()
}

/// The guests that are still on the host, each with its next step.
fn steps(drain: &HostDrain, host: &DrainedHost) -> Markup {
    let up = host.state == HostState::Up;
    let allowed = Allowed { cold: drain.cold };
    let runs = drain.state == DrainState::Running;
    html! {
        table class="rows" {
            (head(&[texts::SERVER_NAME, texts::STEP, texts::WHY, texts::REMEDY]))
            tbody {
                @for guest in &host.guests {
                    @let progress = drain.progress(&guest.id);
                    tr {
                        th scope="row" data-label=(texts::SERVER_NAME) { (guest_link(guest)) }
                        @match next(&host.name, up, guest, allowed, progress.as_ref()) {
                            Next::Wait(what) => {
                                td data-label=(texts::STEP) { (texts::DRAIN_WAITS) }
                                td data-label=(texts::WHY) { (what) }
                                td data-label=(texts::REMEDY) {}
                            }
                            Next::Stays(why) => {
                                td data-label=(texts::STEP) {
                                    @match progress {
                                        Some(Progress::Failed(_)) => { "✕ " (texts::FAILED) }
                                        Some(Progress::Requested | Progress::Refused(_)) | None => (texts::DRAIN_STAY),
                                    }
                                }
                                td data-label=(texts::WHY) { (why.why) }
                                td data-label=(texts::REMEDY) { code { (why.remedy) } }
                            }
                            Next::Failed => {
                                td data-label=(texts::STEP) { "✕ " (texts::FAILED) }
                                td data-label=(texts::WHY) { (texts::DRAIN_FAILED) }
                                td data-label=(texts::REMEDY) {}
                            }
                            Next::Request(step) => {
                                td data-label=(texts::STEP) {
                                    @if runs { (texts::drain_step(&step)) } @else { (texts::DRAIN_STAY) }
                                }
                                td data-label=(texts::WHY) {
                                    @match progress {
                                        Some(Progress::Refused(why)) => {
                                            (why)
                                            @if let Some(next) = next_try(drain, &guest.id).filter(|_| runs) {
                                                " " (texts::DRAIN_NEXT_TRY) " " (moment(next))
                                            }
                                        }
                                        _ if runs => (texts::DRAIN_LATER),
                                        _ => (texts::DRAIN_NOT_MOVED),
                                    }
                                }
                                td data-label=(texts::REMEDY) {}
                            }
                        }
                    }
                }
            }
        }
    }
}
