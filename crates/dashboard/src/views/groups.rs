//! Security groups.

use maud::{Markup, html};
use serde_json::Value;

use super::kind::Kind;
use super::parts::{head, list as elements, name, text};
use super::{csrf, frame};
use crate::api::{PATH, Rows, is_icmp};
use crate::app::session::Session;
use crate::texts;

const KIND: Kind = Kind {
    list: "/security-groups",
    title: texts::SECURITY_GROUPS,
    about: texts::GROUPS_TEXT,
    none: texts::NO_GROUPS,
    columns: &[texts::NAME_OF, texts::RULES, texts::DESCRIPTION],
    new: "/new/security-group",
    new_title: texts::NEW_GROUP,
};

/// The protocols that the form offers; the empty one means any.
const PROTOCOLS: [&str; 7] = ["tcp", "udp", "icmp", "ipv6-icmp", "sctp", "gre", ""];

fn address(group: &Value) -> String {
    format!("{PATH}/security-groups/{}", text(group, "id"))
}

/// The list.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let cells = rows.rows.iter().map(|group| {
        html! {
            th scope="row" data-label=(texts::NAME_OF) { a href=(address(group)) { (name(group)) } }
            td class="number" data-label=(texts::RULES) { (elements(&group["security_group_rules"]).count()) }
            td data-label=(texts::DESCRIPTION) { (text(group, "description")) }
        }
    });
    let last = rows.rows.last().map(|row| text(row, "id"));
    KIND.list(session, rows, creates, last, &cells.collect::<Vec<_>>())
}

/// The data of a group's page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The group.
    pub group: &'a Value,
    /// True if the user may delete it.
    pub deletes: bool,
    /// True if the user may add rules.
    pub adds: bool,
    /// True if the user may remove rules.
    pub removes: bool,
    /// The text that was typed in a field.
    pub typed: &'a dyn Fn(&str) -> String,
    /// Why the service refused the input.
    pub refused: Option<&'a str>,
}

/// A group.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let group = shown.group;
    let here = address(group);
    let main = html! {
        (KIND.path())
        div class="head" {
            h1 { (name(group)) }
            @if shown.deletes { a class="button danger" href={ (here) "/delete" } { (texts::DELETE) "…" } }
        }
        @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
        @if !text(group, "description").is_empty() { p { (text(group, "description")) } }
        section class="card" aria-labelledby="rules" {
            h2 id="rules" { (texts::RULES) }
            @if elements(&group["security_group_rules"]).next().is_none() { p class="quiet" { (texts::NO_RULES) } }
            @else { (rules(shown, &here)) }
            @if shown.adds { (rule_form(shown, &here)) }
        }
        p class="quiet" { (texts::ID) " " code { (text(group, "id")) } }
    };
    frame(name(group), Some(shown.session), &main)
}

/// The addresses that a rule admits.
fn remote(rule: &Value, own: &str) -> String {
    match (rule["remote_ip_prefix"].as_str(), rule["remote_group_id"].as_str()) {
        (Some(prefix), _) => prefix.to_owned(),
        (None, Some(group)) if group == own => texts::THIS_GROUP.to_owned(),
        (None, Some(group)) => texts::group_named(group),
        (None, None) => texts::ANY.to_owned(),
    }
}

/// The ports of a rule, or the type and code of ICMP.
fn ports(rule: &Value) -> String {
    match (rule["port_range_min"].as_i64(), rule["port_range_max"].as_i64()) {
        (Some(kind), Some(code)) if is_icmp(rule) => format!("{kind}-{code}"),
        (Some(first), Some(last)) if first != last => format!("{first}–{last}"),
        (Some(one), _) | (None, Some(one)) => one.to_string(),
        (None, None) => texts::ANY.to_owned(),
    }
}

fn rules(shown: &Shown<'_>, here: &str) -> Markup {
    let own = text(shown.group, "id");
    html! {
        table class="rows" {
            (head(&[texts::DIRECTION, texts::ETHERTYPE, texts::PROTOCOL, texts::PORT_RANGE, texts::REMOTE, texts::DESCRIPTION, texts::ACTIONS]))
            tbody {
                @for rule in elements(&shown.group["security_group_rules"]) {
                    tr {
                        th scope="row" data-label=(texts::DIRECTION) { (texts::direction(text(rule, "direction"))) }
                        td data-label=(texts::ETHERTYPE) { (text(rule, "ethertype")) }
                        td data-label=(texts::PROTOCOL) { (rule["protocol"].as_str().unwrap_or(texts::ANY)) }
                        td data-label=(texts::PORT_RANGE) { (ports(rule)) }
                        td data-label=(texts::REMOTE) { (remote(rule, own)) }
                        td data-label=(texts::DESCRIPTION) { (text(rule, "description")) }
                        td data-label=(texts::ACTIONS) {
                            @if shown.removes {
                                form method="post" action={ (here) "/rules/" (text(rule, "id")) "/delete" } {
                                    (csrf(shown.session))
                                    button class="link" aria-label={ (texts::REMOVE) " " (texts::direction(text(rule, "direction"))) " "
                                        (rule["protocol"].as_str().unwrap_or(texts::ANY)) " " (ports(rule)) } { (texts::REMOVE) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn rule_form(shown: &Shown<'_>, here: &str) -> Markup {
    let typed = shown.typed;
    let (direction, family, protocol) = (typed("direction"), typed("ethertype"), typed("protocol"));
    let sent = !direction.is_empty();
    html! {
        details open[sent] {
            summary { (texts::ADD_RULE) }
            form method="post" action={ (here) "/rules" } {
                (csrf(shown.session))
                label for="direction" { (texts::DIRECTION) }
                select id="direction" name="direction" {
                    @for one in ["ingress", "egress"] {
                        option value=(one) selected[one == direction] { (texts::direction(one)) }
                    }
                }
                label for="ethertype" { (texts::ETHERTYPE) }
                select id="ethertype" name="ethertype" {
                    @for one in ["IPv4", "IPv6"] { option value=(one) selected[one == family] { (one) } }
                }
                label for="protocol" { (texts::PROTOCOL) }
                select id="protocol" name="protocol" {
                    @for one in PROTOCOLS {
                        option value=(one) selected[sent && one == protocol] { (if one.is_empty() { texts::ANY } else { one }) }
                    }
                }
                label for="ports" { (texts::PORT_RANGE) }
                input id="ports" name="ports" maxlength="11" placeholder="22" value=(typed("ports")) aria-describedby="ports-hint";
                p id="ports-hint" class="hint" { (texts::PORTS_HINT) }
                label for="remote" { (texts::REMOTE) }
                input id="remote" name="remote" maxlength="64" placeholder="192.0.2.0/24" value=(typed("remote"))
                    aria-describedby="remote-hint";
                p id="remote-hint" class="hint" { (texts::REMOTE_HINT) }
                label for="description" { (texts::DESCRIPTION) }
                input id="description" name="description" maxlength="255" value=(typed("description"));
                button class="primary" { (texts::ADD_RULE) }
            }
        }
    }
}

/// The form for a new group.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    refused: Option<&str>,
) -> Markup {
    let fields = html! {
        label for="name" { (texts::NAME_OF) }
        input id="name" name="name" required maxlength="255" value=(typed("name"));
        label for="description" { (texts::DESCRIPTION) }
        input id="description" name="description" maxlength="255" value=(typed("description"));
    };
    KIND.form(session, refused, &fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_ends_are_one_port_but_not_of_icmp() {
        let shown = |protocol: &str, first: Option<u16>, last: Option<u16>| {
            ports(&json!({"protocol": protocol, "port_range_min": first, "port_range_max": last}))
        };
        for protocol in ["icmp", "ipv6-icmp"] {
            assert_eq!(shown(protocol, Some(8), None), "8");
            assert_eq!(shown(protocol, Some(8), Some(0)), "8-0");
            assert_eq!(shown(protocol, Some(8), Some(8)), "8-8");
        }
        assert_eq!(shown("tcp", Some(22), Some(22)), "22");
        assert_eq!(shown("tcp", Some(80), Some(90)), "80–90");
        assert_eq!(shown("tcp", None, None), texts::ANY);
    }
}
