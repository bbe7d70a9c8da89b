//! The parts that the floor and the page of a host share: the states of a host, and the units of its devices as squares.

use maud::{Markup, html};

use crate::api::{Colour, PATH};
use crate::app::floor::{COLOURS, Handle, Host, Projects, Unit, Use, letters, number_of};
use crate::texts;

/// Maximum number of equal units that are drawn individually; more are drawn as one unit with a number.
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

/// The states of a host: up or down, and whether it is disabled.
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
    let server = handle.server.map(|id| id.to_string());
    let name = handle.server_name.as_deref().filter(|name| !name.is_empty());
    let title = texts::owned(
        name.or(server.as_deref()).unwrap_or(texts::NO_SERVER),
        look.projects.name(project),
        handle.mdev_type.as_deref().unwrap_or(&unit.part.resource_class),
        handle.address.as_deref().unwrap_or_default(),
    );
    let sign = sign_of_owner(handle, look, health);
    let class = format!("unit owned c{}", colour(handle, look, health));
    html! {
        @match server {
            Some(id) => {
                a class=(class) href={ (PATH) "/servers/" (id) } title=(title) aria-label=(title) { (sign) }
            }
            None => span class=(class) title=(title) { (sign) },
        }
    }
}

/// The place of an owned unit's project among the projects.
fn place_of(handle: &Handle, look: &Look<'_>) -> usize {
    look.projects.place(handle.project_id.as_deref().unwrap_or_default())
}

/// The id of the server that owns a unit; empty without one.
fn server_of(handle: &Handle) -> String {
    handle.server.map(|id| id.to_string()).unwrap_or_default()
}

/// The sign of an owned unit.
fn sign_of_owner(handle: &Handle, look: &Look<'_>, health: &str) -> String {
    match look.colour {
        Colour::Project => letters(place_of(handle, look)),
        Colour::Server => {
            let name = handle.server_name.clone().unwrap_or_else(|| server_of(handle));
            name.chars().take(2).collect()
        }
        Colour::Health => texts::health(health).0.to_owned(),
    }
}

/// The number of the colour of an owned unit.
pub(super) fn colour(handle: &Handle, look: &Look<'_>, health: &str) -> usize {
    match look.colour {
        Colour::Project => place_of(handle, look) % COLOURS,
        Colour::Server => number_of(&server_of(handle)) % COLOURS,
        Colour::Health => match health {
            "healthy" => 2,
            "degraded" => 0,
            _ => 5,
        },
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
        Use::WithoutHandle => "elsewhere",
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
