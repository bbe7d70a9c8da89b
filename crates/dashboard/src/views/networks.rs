//! Networks, subnets and ports.

use maud::{Markup, html};
use serde_json::Value;

use super::kind::Kind;
use super::parts::{head, list as elements, name, pages, text};
use super::{csrf, frame};
use crate::api::{PATH, Rows};
use crate::app::session::Session;
use crate::texts;

const KIND: Kind = Kind {
    list: "/networks",
    title: texts::NETWORKS,
    about: "",
    none: texts::NO_NETWORKS,
    columns: &[texts::NAME_OF, texts::KIND, texts::SUBNETS, texts::MTU],
    new: "/new/network",
    new_title: texts::NEW_NETWORK,
};

fn address(network: &Value) -> String {
    format!("{PATH}/networks/{}", text(network, "id"))
}

fn kinds(session: &Session, network: &Value) -> Markup {
    html! {
        @if network["shared"] == true { span class="tag" { (texts::SHARED) } " " }
        @if network["router:external"] == true { span class="tag" { (texts::EXTERNAL) } " " }
        @if network["admin_state_up"] == false { span class="tag" { (texts::DOWN) } " " }
        @if text(network, "project_id") == session.project { span class="tag" { (texts::OWN) } }
    }
}

/// The list.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let cells = rows.rows.iter().map(|network| {
        html! {
            th scope="row" data-label=(texts::NAME_OF) { a href=(address(network)) { (name(network)) } }
            td data-label=(texts::KIND) { (kinds(session, network)) }
            td class="number" data-label=(texts::SUBNETS) { (elements(&network["subnets"]).count()) }
            td class="number" data-label=(texts::MTU) { (network["mtu"].as_i64().unwrap_or_default()) }
        }
    });
    let last = rows.rows.last().map(|row| text(row, "id"));
    KIND.list(session, rows, creates, last, &cells.collect::<Vec<_>>())
}

/// The data of a network's page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The network.
    pub network: &'a Value,
    /// Its subnets.
    pub subnets: &'a [Value],
    /// True if it has more of them.
    pub more_subnets: bool,
    /// A page of its ports.
    pub ports: &'a Rows,
    /// True if the user may delete it.
    pub deletes: bool,
    /// True if the user may add a subnet.
    pub adds_subnet: bool,
    /// True if the user may add a port.
    pub adds_port: bool,
    /// Returns true for a subnet that the user may delete.
    pub deletes_subnet: &'a dyn Fn(&Value) -> bool,
    /// Returns true for a port that the user may delete.
    pub deletes_port: &'a dyn Fn(&Value) -> bool,
    /// The text that was typed in a field.
    pub typed: &'a dyn Fn(&str) -> String,
    /// Why the service refused the input.
    pub refused: Option<&'a str>,
}

/// A network.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let network = shown.network;
    let here = address(network);
    let main = html! {
        (KIND.path())
        div class="head" {
            div class="title" { h1 { (name(network)) } (kinds(shown.session, network)) }
            div class="actions" {
                @if shown.deletes { a class="button danger" href={ (here) "/delete" } { (texts::DELETE) "…" } }
            }
        }
        @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
        section class="card" aria-labelledby="overview" {
            h2 id="overview" { (texts::OVERVIEW) }
            dl {
                dt { (texts::ID) } dd { code { (text(network, "id")) } }
                dt { (texts::STATUS) } dd { (text(network, "status").to_lowercase()) }
                dt { (texts::MTU) } dd { (network["mtu"].as_i64().unwrap_or_default()) }
                dt { (texts::PROJECT) } dd { code { (text(network, "project_id")) } }
                @if !text(network, "description").is_empty() {
                    dt { (texts::DESCRIPTION) } dd { (text(network, "description")) }
                }
                @if let Some(kind) = network["provider:network_type"].as_str() {
                    dt { (texts::PROVIDER) }
                    dd {
                        (kind) " " (text(network, "provider:physical_network"))
                        @if let Some(vlan) = network["provider:segmentation_id"].as_i64() { " " (vlan) }
                    }
                }
            }
        }
        (subnets(shown, &here))
        (ports(shown, &here))
    };
    frame(name(network), Some(shown.session), &main)
}

fn subnets(shown: &Shown<'_>, here: &str) -> Markup {
    let typed = shown.typed;
    html! {
        section class="card" aria-labelledby="subnets" {
            h2 id="subnets" { (texts::SUBNETS) }
            @if shown.subnets.is_empty() { p class="quiet" { (texts::NO_SUBNETS) } }
            @else {
                table class="rows" {
                    (head(&[texts::CIDR, texts::NAME_OF, texts::GATEWAY, texts::DHCP, texts::ACTIONS]))
                    tbody {
                        @for subnet in shown.subnets {
                            tr {
                                th scope="row" data-label=(texts::CIDR) { (text(subnet, "cidr")) }
                                td data-label=(texts::NAME_OF) { (text(subnet, "name")) }
                                td data-label=(texts::GATEWAY) { (subnet["gateway_ip"].as_str().unwrap_or("–")) }
                                td data-label=(texts::DHCP) { (if subnet["enable_dhcp"] == true { texts::YES } else { texts::NO }) }
                                td data-label=(texts::ACTIONS) {
                                    @if (shown.deletes_subnet)(subnet) {
                                        a href={ (PATH) "/subnets/" (text(subnet, "id")) "/delete" }
                                            aria-label=(texts::question(texts::DELETE, text(subnet, "cidr"))) { (texts::DELETE) "…" }
                                    }
                                }
                            }
                        }
                    }
                }
                @if shown.more_subnets { p class="quiet" { (texts::only_subnets(shown.subnets.len())) } }
            }
            @if shown.adds_subnet {
                details open[!typed("cidr").is_empty()] {
                    summary { (texts::ADD_SUBNET) }
                    form method="post" action={ (here) "/subnets" } {
                        (csrf(shown.session))
                        label for="cidr" { (texts::CIDR) }
                        input id="cidr" name="cidr" required maxlength="64" placeholder="192.0.2.0/24" value=(typed("cidr"));
                        label for="subnet-name" { (texts::NAME_OF) }
                        input id="subnet-name" name="name" maxlength="255" value=(typed("name"));
                        label for="gateway" { (texts::GATEWAY) }
                        input id="gateway" name="gateway" maxlength="64" value=(typed("gateway")) aria-describedby="gateway-hint";
                        p id="gateway-hint" class="hint" { (texts::GATEWAY_HINT) }
                        label for="dns" { (texts::DNS) }
                        input id="dns" name="dns" maxlength="1024" value=(typed("dns"));
                        div class="check" {
                            input id="dhcp" name="dhcp" type="checkbox" value="1" checked;
                            label for="dhcp" { (texts::DHCP) }
                        }
                        button class="primary" { (texts::ADD_SUBNET) }
                    }
                }
            }
        }
    }
}

fn ports(shown: &Shown<'_>, here: &str) -> Markup {
    let list = &shown.ports.rows;
    html! {
        section class="card" aria-labelledby="ports" {
            h2 id="ports" { (texts::PORTS) }
            @if list.is_empty() { p class="quiet" { (texts::NO_PORTS) } }
            @else {
                table class="rows" {
                    (head(&[texts::NAME_OF, texts::ADDRESSES, texts::MAC, texts::STATUS, texts::DEVICE, texts::ACTIONS]))
                    tbody {
                        @for port in list {
                            @let device = text(port, "device_id");
                            @let owner = text(port, "device_owner");
                            tr {
                                th scope="row" data-label=(texts::NAME_OF) { (name(port)) }
                                td data-label=(texts::ADDRESSES) {
                                    @for fixed in elements(&port["fixed_ips"]) {
                                        span class="address" { (text(fixed, "ip_address")) } " "
                                    }
                                }
                                td data-label=(texts::MAC) { code { (text(port, "mac_address")) } }
                                td data-label=(texts::STATUS) { (text(port, "status").to_lowercase()) }
                                td data-label=(texts::DEVICE) {
                                    @if device.is_empty() { span class="quiet" { "–" } }
                                    @else if owner.starts_with("compute:") {
                                        a href={ (PATH) "/servers/" (device) } { (texts::SERVER) }
                                    }
                                    @else { (owner) }
                                }
                                td data-label=(texts::ACTIONS) {
                                    @if (shown.deletes_port)(port) {
                                        a href={ (PATH) "/ports/" (text(port, "id")) "/delete" }
                                            aria-label=(texts::question(texts::DELETE, name(port))) { (texts::DELETE) "…" }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            (pages(here.trim_start_matches(PATH), shown.ports, list.last().map(|row| text(row, "id"))))
            @if shown.adds_port {
                details {
                    summary { (texts::ADD_PORT) }
                    form method="post" action={ (here) "/ports" } {
                        (csrf(shown.session))
                        label for="port_name" { (texts::NAME_OF) }
                        input id="port_name" name="port_name" maxlength="255" value=((shown.typed)("port_name"));
                        button class="primary" { (texts::ADD_PORT) }
                    }
                }
            }
        }
    }
}

/// The form for a new network.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    shares: bool,
    refused: Option<&str>,
) -> Markup {
    let fields = html! {
        p { (texts::NEW_NETWORK_TEXT) }
        label for="name" { (texts::NAME_OF) }
        input id="name" name="name" required maxlength="255" value=(typed("name"));
        @if shares {
            div class="check" {
                input id="shared" name="shared" type="checkbox" value="1" checked[!typed("shared").is_empty()];
                label for="shared" { (texts::SHARED_HINT) }
            }
        }
    };
    KIND.form(session, refused, &fields)
}
