//! The pages of device profiles.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::kind::Kind;
use super::parts::{list as elements, text};
use crate::api::{PATH, Rows};
use crate::app::session::Session;
use crate::texts;

const KIND: Kind = Kind {
    list: "/device-profiles",
    title: texts::PROFILES,
    about: texts::PROFILES_TEXT,
    none: texts::NO_PROFILES,
    columns: &[texts::NAME_OF, texts::GROUPS, texts::DESCRIPTION],
    new: "/new/device-profile",
    new_title: texts::NEW_PROFILE,
};

/// The page with the list of device profiles.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let cells = rows.rows.iter().map(|profile| {
        html! {
            th scope="row" data-label=(texts::NAME_OF) {
                a href={ (PATH) "/device-profiles/" (text(profile, "uuid")) } { (text(profile, "name")) }
            }
            td data-label=(texts::GROUPS) {
                @for group in elements(&profile["groups"]) {
                    @for (key, value) in group.as_object().into_iter().flatten() {
                        @if let Some(class) = key.strip_prefix("resources:") {
                            span class="tag" { (value.as_str().unwrap_or_default()) " × " (class) } " "
                        }
                    }
                }
            }
            td data-label=(texts::DESCRIPTION) { (text(profile, "description")) }
        }
    });
    let last = rows.rows.last().map(|row| text(row, "uuid"));
    KIND.list(session, rows, creates, last, &cells.collect::<Vec<_>>())
}

/// The page of one device profile.
pub(crate) fn page(session: &Session, profile: &Value, deletes: bool) -> Markup {
    let (name, id) = (text(profile, "name"), text(profile, "uuid"));
    let main = html! {
        (KIND.path())
        div class="head" {
            h1 { (name) }
            @if deletes {
                a class="button danger" href={ (PATH) "/device-profiles/" (id) "/delete" } { (texts::DELETE) "…" }
            }
        }
        section class="card" aria-labelledby="overview" {
            h2 id="overview" { (texts::OVERVIEW) }
            dl {
                dt { (texts::ID) } dd { code { (id) } }
                @if !text(profile, "description").is_empty() {
                    dt { (texts::DESCRIPTION) } dd { (text(profile, "description")) }
                }
                @for (at, group) in elements(&profile["groups"]).enumerate() {
                    dt { (texts::group_of_profile(at)) }
                    dd {
                        @for (key, value) in group.as_object().into_iter().flatten() {
                            code { (key) "=" (value.as_str().unwrap_or_default()) } br;
                        }
                    }
                }
            }
        }
        p class="quiet" { (texts::PROFILE_USE) " " code { "accel:device_profile=" (name) } }
    };
    frame(name, Some(session), &main)
}

/// The form for a new device profile.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    refused: Option<&str>,
) -> Markup {
    let fields = html! {
        label for="name" { (texts::NAME_OF) }
        input id="name" name="name" required maxlength="255" autocapitalize="none" spellcheck="false"
            value=(typed("name"));
        label for="description" { (texts::DESCRIPTION) }
        input id="description" name="description" value=(typed("description"));
        label for="groups" { (texts::GROUPS) }
        textarea id="groups" name="groups" rows="6" spellcheck="false" required
            aria-describedby="groups-hint" { (typed("groups")) }
        p id="groups-hint" class="hint" { (texts::GROUPS_HINT) " " code { "resources:VGPU=1" } }
    };
    KIND.form(session, refused, &fields)
}
