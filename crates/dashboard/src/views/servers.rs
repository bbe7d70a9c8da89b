//! The list of servers.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{address_of, addresses, head, moment, name, status, text};
use crate::api::{Filters, List, May, PATH, digest};
use crate::app::actions::Offer;
use crate::app::session::Session;
use crate::texts;

/// The statuses that the filter offers.
const STATUSES: [&str; 10] = [
    "ACTIVE",
    "BUILD",
    "ERROR",
    "SHUTOFF",
    "PAUSED",
    "SUSPENDED",
    "RESCUE",
    "VERIFY_RESIZE",
    "SHELVED_OFFLOADED",
    "MIGRATING",
];

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The filters.
    pub filters: &'a Filters,
    /// The servers.
    pub list: &'a List,
    /// The filters that the user may use.
    pub may: May,
    /// True if the user may launch servers.
    pub launches: bool,
    /// The actions on several servers that the user may request.
    pub bulk: &'a [&'static Offer],
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let (filters, list) = (shown.filters, shown.list);
    let here = filters.address(&filters.marker);
    let servers = format!("{PATH}/servers");
    let stream = format!("{servers}/events?shown={}&{here}", digest(&list.servers));
    let again = format!("{servers}?{here}");
    let main = html! {
        div class="head" {
            h1 { (texts::SERVERS) }
            @if shown.launches {
                a class="button primary" href={ (PATH) "/launch" } { (texts::LAUNCH) }
            }
        }
        (filter_form(shown))
        // The event stream stays open while the list below it is replaced.
        div id="live" hx-ext="sse" sse-connect=(stream) sse-close="end" {
            span sse-swap="rows" hx-swap="none" {}
            span hx-get=(again) hx-trigger="sse:list" hx-select="#list" hx-target="#list"
                hx-swap="outerHTML" {}
        }
        section id="list" aria-label=(texts::SERVERS) {
            @if list.servers.is_empty() { (empty(shown)) } @else { (table(filters, list, shown.bulk)) }
            nav class="pages" aria-label=(texts::SERVERS) {
                @if !filters.marker.is_empty() {
                    a id="first-page" href={ (servers) "?" (filters.address("")) } { (texts::FIRST_PAGE) }
                }
                @if let (true, Some(last)) = (list.more, list.servers.last()) {
                    a id="next-page" href={ (servers) "?" (filters.address(text(last, "id"))) } {
                        (texts::NEXT_PAGE)
                    }
                }
            }
        }
    };
    frame(texts::SERVERS, Some(shown.session), &main)
}

fn filter_form(shown: &Shown<'_>) -> Markup {
    let filters = shown.filters;
    html! {
        form class="filters" method="get" action={ (PATH) "/servers" } role="search" {
            div {
                label for="name" { (texts::FILTER_NAME) }
                input id="name" name="name" type="search" value=(filters.name);
            }
            div {
                label for="status" { (texts::FILTER_STATUS) }
                select id="status" name="status" {
                    option value="" { (texts::ANY_STATUS) }
                    @for status in STATUSES {
                        option value=(status) selected[filters.status == status] {
                            (texts::status(status).1)
                        }
                    }
                }
            }
            div {
                label for="ip" { (texts::FILTER_IP) }
                input id="ip" name="ip" type="search" maxlength="45" spellcheck="false" value=(filters.ip);
            }
            @if shown.may.name_hosts {
                div {
                    label for="host" { (texts::HOST) }
                    input id="host" name="host" type="search" maxlength="255" spellcheck="false" value=(filters.host);
                }
            }
            @if shown.may.see_all {
                div class="check" {
                    input id="all" name="all" type="checkbox" value="1" checked[filters.all_projects];
                    label for="all" { (texts::ALL_PROJECTS) }
                }
            }
            button { (texts::FILTER) }
            @if filters.narrow() {
                a href={ (PATH) "/servers" } { (texts::CLEAR_FILTERS) }
            }
        }
    }
}

fn empty(shown: &Shown<'_>) -> Markup {
    html! {
        div class="empty" {
            @if shown.filters.narrow() || !shown.filters.marker.is_empty() {
                p { (texts::NO_MATCHES) }
            } @else {
                p { (texts::NO_SERVERS) }
                @if shown.launches {
                    p { a href={ (PATH) "/launch" } { (texts::LAUNCH_FIRST) } }
                }
            }
        }
    }
}

fn table(filters: &Filters, list: &List, bulk: &[&Offer]) -> Markup {
    let picks = !bulk.is_empty();
    let mut columns =
        vec![texts::SERVER_NAME, texts::STATUS, texts::ADDRESSES, texts::FLAVOR, texts::CREATED];
    if filters.all_projects {
        columns.splice(4..4, [texts::PROJECT, texts::HOST]);
    }
    if picks {
        columns.insert(0, texts::PICK);
    }
    html! {
        @if picks {
            // The checkboxes of this form are in the rows.
            form id="bulk" class="buttons" method="get" action={ (PATH) "/actions" } {
                span class="quiet" { (texts::BULK) }
                @for offer in bulk {
                    button name="do" value=(offer.slug) class=[offer.danger.then_some("danger")] { (offer.label) "…" }
                }
            }
        }
        table class="rows" {
            (head(&columns))
            tbody {
                @for server in &list.servers { (row(server, filters.all_projects, picks, false)) }
            }
        }
    }
}

/// The row of a server, with a checkbox if `picks`. With `replaces`, it replaces the row with the
/// same id in an open page.
pub(crate) fn row(server: &Value, all_projects: bool, picks: bool, replaces: bool) -> Markup {
    let id = text(server, "id");
    let row = html! {
        tr id={ "server-" (id) } hx-swap-oob=[replaces.then_some("true")] {
            @if picks {
                td data-label=(texts::PICK) {
                    // A replaced row keeps its checkbox and whether it is checked.
                    input id={ "pick-" (id) } type="checkbox" name="server" value=(id) form="bulk" hx-preserve
                        aria-label=(texts::pick(name(server)));
                }
            }
            th scope="row" data-label=(texts::SERVER_NAME) {
                a id={ "name-" (id) } href=(address_of(server)) { (name(server)) }
            }
            td data-label=(texts::STATUS) { (status(server)) }
            td data-label=(texts::ADDRESSES) {
                @for address in addresses(server) { span class="address" { (address) } " " }
            }
            td data-label=(texts::FLAVOR) { (text(&server["flavor"], "original_name")) }
            @if all_projects {
                td data-label=(texts::PROJECT) { code { (text(server, "tenant_id")) } }
                td data-label=(texts::HOST) { (text(server, "OS-EXT-SRV-ATTR:host")) }
            }
            td data-label=(texts::CREATED) { (moment(text(server, "created"))) }
        }
    };
    match replaces {
        // A row outside a table is not valid HTML, except within a template.
        true => html! { template { (row) } },
        false => row,
    }
}

/// Removes the row of a server from an open page.
pub(crate) fn gone(id: &str) -> Markup {
    html! { template { tr id={ "server-" (id) } hx-swap-oob="delete" {} } }
}
