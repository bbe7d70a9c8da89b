//! The parts that several pages share.

use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::{PATH, Rows};
use crate::app::floor::Device;
use crate::texts;

/// The address of a host's page.
pub(super) fn host_address(host: &str) -> String {
    format!("{PATH}/hosts/{}", escaped(host))
}

/// A text field of an answer; empty if it is missing.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A text from the service, with each command in backticks shown as code.
pub(super) fn prose(text: &str) -> Markup {
    let mut pieces = text.split('`').enumerate().peekable();
    html! {
        @while let Some((at, piece)) = pieces.next() {
            @match (at % 2 == 1, pieces.peek().is_some()) {
                (true, true) => code { (piece) },
                // An unpaired backtick.
                (true, false) => { "`" (piece) },
                (false, _) => (piece),
            }
        }
    }
}

/// The elements of a list; none for anything else.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A time from an API, which the script shows in the reader's time zone.
pub(super) fn moment(at: &str) -> Markup {
    let at = at.split('.').next().unwrap_or_default().trim_end_matches('Z');
    html! {
        @if at.is_empty() {
            span class="quiet" { "–" }
        } @else {
            time datetime={ (at) "Z" } { (at.replace('T', " ")) " UTC" }
        }
    }
}

/// A server's status: a sign, a word and a colour.
pub(super) fn status(server: &Value) -> Markup {
    let status = text(server, "status");
    let (sign, word) = texts::status(status);
    let task = text(server, "OS-EXT-STS:task_state");
    html! {
        span class={ "status " (tone(status)) } {
            span aria-hidden="true" { (sign) } " " (word)
        }
        @if !task.is_empty() {
            span class="task" { (task.replace('_', " ")) "…" }
        }
        @if server["locked"] == true {
            span class="tag" { (texts::LOCKED) }
        }
    }
}

fn tone(status: &str) -> &'static str {
    match status {
        "ACTIVE" => "good",
        "ERROR" => "bad",
        "BUILD" | "REBOOT" | "HARD_REBOOT" | "REBUILD" | "RESIZE" | "REVERT_RESIZE"
        | "MIGRATING" => "busy",
        "VERIFY_RESIZE" => "warn",
        _ => "off",
    }
}

/// The addresses of a server on all its networks.
pub(super) fn addresses(server: &Value) -> Vec<&str> {
    let networks = server["addresses"].as_object().into_iter().flatten();
    networks.flat_map(|(_, all)| list(all)).map(|one| text(one, "addr")).collect()
}

/// The name of a server, or its id if the name is empty.
pub(super) fn name(server: &Value) -> &str {
    match text(server, "name") {
        "" => text(server, "id"),
        name => name,
    }
}

/// The way back from a page: addresses below [`PATH`] with their labels.
pub(super) fn path(steps: &[(&str, &str)]) -> Markup {
    html! {
        p class="path" {
            @for (at, (to, label)) in steps.iter().enumerate() {
                @if at > 0 { " / " }
                a href={ (PATH) (to) } { (label) }
            }
        }
    }
}

/// The way back from a subpage of a server.
pub(super) fn path_of_server(server: &Value) -> Markup {
    let here = format!("/servers/{}", text(server, "id"));
    path(&[("/servers", texts::SERVERS), (&here, name(server))])
}

/// The button that leads to the form for a new object.
pub(super) fn new_button(to: &str, label: &str) -> Markup {
    html! { a class="button primary" href={ (PATH) (to) } { (label) } }
}

/// The links to the other pages of a list; `last` is the marker of its last row.
pub(super) fn pages(list: &str, rows: &Rows, last: Option<&str>) -> Markup {
    let next = last.filter(|_| rows.more);
    html! {
        @if !rows.marker.is_empty() || next.is_some() {
            nav class="pages" aria-label=(texts::PAGES) {
                @if !rows.marker.is_empty() { a id="first-page" href={ (PATH) (list) } { (texts::FIRST) } }
                @if let Some(last) = next {
                    a id="next-page" href={ (PATH) (list) "?marker=" (escaped(last)) } { (texts::NEXT) }
                }
            }
        }
    }
}

/// The head of a table.
pub(super) fn head(columns: &[&str]) -> Markup {
    html! {
        thead {
            tr {
                @for column in columns { th scope="col" { (column) } }
            }
        }
    }
}

/// The address of a server's page.
pub(super) fn address_of(server: &Value) -> String {
    format!("{PATH}/servers/{}", text(server, "id"))
}

/// The size of a server's flavor, which its view contains.
pub(super) fn size(flavor: &Value) -> String {
    let number = |key: &str| flavor[key].as_i64().unwrap_or_default();
    texts::size(number("vcpus"), number("ram"), number("disk"))
}

/// The short form of a PCI address within its domain.
pub(super) fn short(address: &str) -> &str {
    address.strip_prefix("0000:").unwrap_or(address)
}

/// The places of a device within its NUMA node: the PCIe switch above it, and its NVLink island.
pub(super) fn places(device: &Device) -> Markup {
    let switch = device.pcie_switch.as_deref().map(|at| (texts::PCIE_SWITCH, at));
    let island = device.island.as_deref().map(|first| (texts::NVLINK_ISLAND, first));
    html! {
        @for (label, at) in [switch, island].into_iter().flatten() {
            div class="model quiet" { (label) " " span title=(at) { (short(at)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_in_utc_until_the_script_shows_them() {
        for at in ["2026-11-26T03:04:05Z", "2026-11-26T03:04:05.000000"] {
            let shown = moment(at).into_string();
            assert!(shown.contains(r#"datetime="2026-11-26T03:04:05Z""#), "{shown}");
            assert!(shown.contains("2026-11-26 03:04:05 UTC"), "{shown}");
        }
        assert!(!moment("").into_string().contains("time"));
    }

    #[test]
    fn a_status_is_told_by_text_too() {
        let server =
            json!({"status": "ERROR", "locked": true, "OS-EXT-STS:task_state": "powering-on"});
        let shown = status(&server).into_string();
        assert!(
            shown.contains("error") && shown.contains("locked") && shown.contains("powering-on")
        );
    }

    #[test]
    fn commands_between_backticks_are_code() {
        let shown = |text: &str| prose(text).into_string();
        assert_eq!(
            shown("Run `a <b>`, then `c`."),
            "Run <code>a &lt;b&gt;</code>, then <code>c</code>."
        );
        assert_eq!(shown("`a`"), "<code>a</code>");
        assert_eq!(shown("no command"), "no command");
        assert_eq!(shown("`a` and a ` alone"), "<code>a</code> and a ` alone");
    }

    #[test]
    fn names_of_users_are_text() {
        let server = json!({"id": "1", "name": "<script>alert(1)</script>"});
        let shown = html! { (name(&server)) }.into_string();
        assert!(!shown.contains("<script>"), "{shown}");
    }
}
