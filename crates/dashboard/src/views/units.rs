//! The parts that the floor and the page of a host share: the states of a host, and the units of its devices as squares.

use maud::{Markup, html};

use crate::api::{Colour, PATH};
use crate::app::floor::{COLOURS, Handle, Host, Projects, Unit, Use, letters, number_of};
use crate::texts;

/// A run of more equal units than this is one unit with a number.
const RUN: i64 = 16;

/// How hosts are drawn.
pub(crate) struct Look<'a> {
    /// The meaning of colours.
    pub colour: Colour,
    /// True for small drawings.
    pub small: bool,
    /// The projects by name.
    pub projects: &'a Projects,
}

/// The states of a host; nothing for one that is up and enabled on a small card.
pub(super) fn states(host: &Host) -> Markup {
    html! {
        span class="host-states" {
            @if host.is_up() {
                @if !host.is_disabled() { span class="status good" { "● " (texts::UP) } }
            } @else {
                span class="status bad" { "✕ " (if host.forced_down { texts::FORCED_DOWN } else { texts::DOWN }) }
            }
            @if host.is_disabled() { span class="status warn" { "‖ " (texts::DISABLED) } }
        }
    }
}

/// The units of a card or a device as squares.
pub(super) fn units(units: &[Unit<'_>], look: &Look<'_>, health: &str) -> Markup {
    html! {
        div class="units" {
            @for unit in units {
                @match (unit.state, unit.handle) {
                    (Use::Owned, Some(handle)) => (owned(unit, handle, look, health)),
                    _ if unit.count > RUN => {
                        span class={ "unit many " (class_of(unit.state)) } title=(texts::unit(unit.state).1) {
                            (sign_of(unit.state)) "×" (unit.count)
                        }
                    }
                    _ => {
                        @for _ in 0..unit.count {
                            span class={ "unit " (class_of(unit.state)) } title=(texts::unit(unit.state).1) {
                                (sign_of(unit.state))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn owned(unit: &Unit<'_>, handle: &Handle, look: &Look<'_>, health: &str) -> Markup {
    let project = handle.project_id.as_deref().unwrap_or_default();
    let server = handle.server.as_deref();
    let name = handle.server_name.as_deref().filter(|name| !name.is_empty()).or(server);
    let title = texts::owned(
        name.unwrap_or(texts::NO_SERVER),
        look.projects.name(project),
        handle.mdev_type.as_deref().unwrap_or(&unit.part.resource_class),
        &handle.address,
    );
    let (sign, colour) = mark(handle, look, health);
    let class = format!("unit owned {colour}");
    html! {
        @match server {
            Some(id) => {
                a class=(class) href={ (PATH) "/servers/" (id) } title=(title) aria-label=(title) { (sign) }
            }
            None => span class=(class) title=(title) { (sign) },
        }
    }
}

/// The sign and the class of the colour of an owned unit.
pub(super) fn mark(handle: &Handle, look: &Look<'_>, health: &str) -> (String, String) {
    match look.colour {
        Colour::Project => {
            let place = look.projects.place(handle.project_id.as_deref().unwrap_or_default());
            (letters(place), format!("c{}", place % COLOURS))
        }
        Colour::Server => {
            let server = handle.server.as_deref().unwrap_or_default();
            let name = handle.server_name.as_deref().unwrap_or(server);
            (name.chars().take(2).collect(), format!("c{}", number_of(server) % COLOURS))
        }
        Colour::Health => {
            let colour = match health {
                "healthy" => "c2",
                "degraded" => "c0",
                _ => "c5",
            };
            (texts::health(health).0.to_owned(), colour.to_owned())
        }
    }
}

pub(super) fn tone_of_health(health: &str) -> &'static str {
    match health {
        "healthy" => "",
        "degraded" => "warn",
        _ => "bad",
    }
}

pub(super) fn class_of(state: Use) -> &'static str {
    match state {
        Use::Owned => "owned",
        Use::Elsewhere => "elsewhere",
        Use::Dirty | Use::Cleaning => "dirty",
        Use::Failed | Use::Unhealthy | Use::Absent => "broken",
        Use::Maintaining | Use::Programming => "paused",
        Use::Reserved => "reserved",
        Use::Free => "free",
    }
}

pub(super) fn sign_of(state: Use) -> &'static str {
    texts::unit(state).0
}
