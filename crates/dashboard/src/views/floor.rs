//! The floor: a card for each host, with its devices as blocks of units.
//!
//! A state is shown by a pattern and a sign, an owner by a letter, and both by a text; colours only repeat this.
//! Hosts that are drawn small are one SVG each, with one path for all units of a kind, so that a page of a thousand
//! hosts stays small.

use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, PreEscaped, html};

use super::frame;
use super::parts::{head, host_address, places, short};
use super::units::{Look, class_of, colour, sign_of, states, tone_of_health, units};
use crate::api::{Choices, Colour, Floor, Group, PATH, Show, Size};
use crate::app::floor::{
    Amounts, COLOURS, Card, DrawnFor, Host, Unit, Use, key_of, letters, model_of,
};
use crate::app::session::Session;
use crate::texts;

/// Maximum number of owners in a legend.
const LEGEND: usize = 24;
/// Maximum number of units of a card in a small drawing; larger cards are scaled down.
const SMALL: i64 = 64;
/// Number of units in a line of a small drawing.
const LINE: i64 = 16;

/// The page.
pub(crate) fn page(session: &Session, choices: &Choices, floor: &Floor) -> Markup {
    let small = choices.is_small(floor.hosts.len());
    let look = Look { colour: choices.colour, small, projects: &floor.projects };
    let here = choices.address(&choices.marker);
    let stream = format!("{PATH}/floor/events?shown={}&{here}", floor.digest());
    let again = format!("{PATH}/floor?{here}");
    let hosts: Vec<&Host> = floor.hosts.iter().map(AsRef::as_ref).collect();
    let main = html! {
        div class="head" {
            h1 { (texts::FLOOR) }
            a class="button" href={ (PATH) "/enrolment" } { (texts::ENROLL) }
        }
        (form(choices))
        div hx-ext="sse" sse-connect=(stream) sse-close="end" {
            span sse-swap="cards" hx-swap="none" {}
            span hx-get=(again) hx-trigger="sse:list" hx-select="#floor" hx-target="#floor"
                hx-swap="outerHTML" {}
        }
        div id="floor" {
            (sums(&hosts, &look))
            @if hosts.is_empty() {
                div class="empty" {
                    @if choices.narrow() || !choices.marker.is_empty() {
                        p { (texts::NO_HOST_MATCHES) }
                    } @else {
                        p { (texts::NO_HOSTS) }
                        p { a href={ (PATH) "/enrolment" } { (texts::ENROLL) } }
                    }
                }
            }
            @if choices.narrow() { p class="quiet" { (texts::hosts_shown(hosts.len(), floor.all)) } }
            @for (name, hosts) in groups(&hosts, choices.group) {
                section {
                    @if let Some(name) = name {
                        h2 { (name) " " span class="quiet" { (texts::hosts(hosts.len())) } }
                    }
                    div class=(if small { "floor small" } else { "floor" }) {
                        @for host in hosts { (shown(host, &look)) }
                    }
                }
            }
            nav class="pages" aria-label=(texts::FLOOR) {
                @if !choices.marker.is_empty() {
                    a href={ (PATH) "/floor?" (choices.address("")) } { (texts::FIRST_HOSTS) }
                }
                @if let Some(next) = &floor.next {
                    a href={ (PATH) "/floor?" (choices.address(next)) } { (texts::NEXT_HOSTS) }
                }
            }
        }
    };
    frame(texts::FLOOR, Some(session), &main)
}

fn form(choices: &Choices) -> Markup {
    fn select<T: Copy + PartialEq>(
        id: &str,
        label: &str,
        all: &[T],
        chosen: T,
        word: impl Fn(T) -> &'static str,
        text: impl Fn(T) -> &'static str,
    ) -> Markup {
        html! {
            div {
                label for=(id) { (label) }
                select id=(id) name=(id) {
                    @for one in all {
                        option value=(word(*one)) selected[*one == chosen] { (text(*one)) }
                    }
                }
            }
        }
    }
    html! {
        form class="filters" method="get" action={ (PATH) "/floor" } role="search" {
            div {
                label for="name" { (texts::FILTER_NAME) }
                input id="name" name="name" type="search" value=(choices.name);
            }
            (select("show", texts::SHOW, Show::ALL, choices.show, Show::word, texts::show))
            (select("group", texts::GROUP_BY, Group::ALL, choices.group, Group::word, texts::group))
            (select("colour", texts::COLOUR_BY, Colour::ALL, choices.colour, Colour::word, texts::colour))
            (select("size", texts::SIZE, Size::ALL, choices.size, Size::word, texts::size_of_hosts))
            button { (texts::APPLY) }
            @if choices.narrow() {
                a href={ (PATH) "/floor" } { (texts::CLEAR_FILTERS) }
            }
        }
    }
}

/// The hosts by group, in the order of the groups' names; hosts without a group come last.
fn groups<'a>(hosts: &[&'a Host], by: Group) -> Vec<(Option<String>, Vec<&'a Host>)> {
    let name = |host: &Host| match by {
        Group::Zone => host.zone.clone(),
        Group::Aggregate => host.aggregates.join(", "),
        Group::Model => host.models().join(" + "),
        Group::Nothing => String::new(),
    };
    let mut groups: BTreeMap<(bool, String), Vec<&Host>> = BTreeMap::new();
    for host in hosts {
        let name = name(host);
        groups.entry((name.is_empty(), name)).or_default().push(host);
    }
    let title = |name: String| match (by, name.is_empty()) {
        (Group::Nothing, _) => None,
        (_, true) => Some(texts::NO_GROUP.to_owned()),
        (_, false) => Some(name),
    };
    groups.into_iter().map(|((_, name), hosts)| (title(name), hosts)).collect()
}

/// The id of a host's card.
fn id_of(host: &str) -> String {
    format!("host-{}", key_of(host))
}

/// The card of a host that replaces the one on an open page.
pub(crate) fn changed_card(host: &Host, look: &Look<'_>) -> Markup {
    card(host, look, true)
}

/// Removes the card of a host from an open page.
pub(crate) fn gone(host: &str) -> Markup {
    html! { article id=(id_of(host)) hx-swap-oob="delete" {} }
}

/// The sums that replace those on an open page.
pub(crate) fn changed_sums(hosts: &[&Host], look: &Look<'_>) -> Markup {
    html! { div id="sums" hx-swap-oob="true" { (sums_within(hosts, look)) } }
}

fn sums(hosts: &[&Host], look: &Look<'_>) -> Markup {
    html! { div id="sums" { (sums_within(hosts, look)) } }
}

/// The card of a host on a page. A small card is drawn again only if the host or the look changes.
fn shown(host: &Host, look: &Look<'_>) -> PreEscaped<Arc<str>> {
    let draw = || card(host, look, false).into_string();
    if !look.small {
        return PreEscaped(draw().into());
    }
    let (colour, projects) = (look.colour.word(), look.projects.digest);
    PreEscaped(host.drawing(DrawnFor { colour, projects }, draw))
}

fn card(host: &Host, look: &Look<'_>, replaces: bool) -> Markup {
    let tone = if !host.is_up() {
        "host down"
    } else if host.is_disabled() {
        "host disabled"
    } else {
        "host"
    };
    html! {
        article id=(id_of(&host.name)) class=(tone) hx-swap-oob=[replaces.then_some("true")] {
            div class="host-head" {
                h3 { a href=(host_address(&host.name)) { (host.name) } }
                (states(host))
            }
            @if look.small {
                (strip(host, look))
            } @else {
                (amounts(host))
                @for ((_, node), cards) in host.cards() {
                    @let known = cards.first().is_some_and(|card| card.device.numa_node.is_some());
                    div class="numa" {
                        span class="numa-name quiet" {
                            @if known { (texts::NUMA) " " (node) } @else { (texts::NO_NUMA) }
                        }
                        div class="blocks" {
                            @for card in &cards { (block(card, look)) }
                        }
                    }
                }
                @if host.devices.is_empty() { p class="quiet" { (texts::NO_DEVICES) } }
            }
        }
    }
}

/// The use of a host's processors and memory.
fn amounts(host: &Host) -> Markup {
    let shown = [("VCPU", texts::VCPUS), ("PCPU", texts::PCPUS), ("MEMORY_MB", texts::MEMORY)];
    let text = |class: &str, one: &Amounts| match class {
        "MEMORY_MB" => texts::of_memory(one.used, one.used.saturating_add(one.free)),
        _ => texts::of(one.used, one.used.saturating_add(one.free)),
    };
    html! {
        dl class="amounts" {
            @for (class, label) in shown {
                @if let Some(one) = host.inventories.get(class) {
                    div {
                        dt { (label) }
                        dd {
                            meter min="0" max=(one.used.saturating_add(one.free).max(1)) value=(one.used)
                                aria-label=(label) {}
                            span class="quiet" { (text(class, one)) }
                        }
                    }
                }
            }
            div { dt { (texts::SERVERS) } dd { (host.servers) } }
        }
    }
}

fn block(card: &Card<'_>, look: &Look<'_>) -> Markup {
    let health = card.health();
    let device = card.device;
    let label = format!("{} {}", device.kind, device.address);
    html! {
        div class={ "block " (tone_of_health(health)) } role="group" aria-label=(label) {
            div class="block-head" {
                strong { (device.kind) } " "
                span class="quiet" title=(device.address) { (short(&device.card)) }
                @if health != "healthy" {
                    " " span class={ "status " (tone_of_health(health)) } {
                        (texts::health(health).0) " " (texts::health(health).1)
                    }
                }
            }
            div class="model quiet" title=(model_of(device)) { (model_of(device)) }
            (places(device))
            (units(&card.units(), look, health))
            p class="block-sum" { (sum_of(&card.units())) }
        }
    }
}

/// The units of a card in words.
fn sum_of(units: &[Unit<'_>]) -> String {
    let mut sums: BTreeMap<Use, i64> = BTreeMap::new();
    for unit in units {
        *sums.entry(unit.state).or_default() += unit.count;
    }
    let said = Use::ALL.iter().filter_map(|state| Some((*state, *sums.get(state)?)));
    let said: Vec<String> =
        said.map(|(state, count)| format!("{count} {}", texts::unit(state).1)).collect();
    said.join(", ")
}

/// The paths of a small drawing, by the class of the units and the colour of their owner.
type Paths = BTreeMap<(&'static str, Option<usize>), String>;

/// A small drawing of a host's devices: a line for each card.
fn strip(host: &Host, look: &Look<'_>) -> Markup {
    let (mut paths, mut line, mut widest) = (Paths::new(), 0_i64, 1_i64);
    for card in host.cards().values().flatten() {
        let units = card.units();
        let total: i64 = units.iter().map(|unit| unit.count).sum();
        let (mut at, mut health) = (0_i64, card.health());
        if look.colour != Colour::Health {
            health = "healthy";
        }
        for unit in &units {
            let owner = unit.handle.filter(|_| unit.state == Use::Owned);
            let class = (class_of(unit.state), owner.map(|one| colour(one, look, health)));
            let drawn = match total > SMALL {
                true => (unit.count * SMALL / total).max(1),
                false => unit.count,
            };
            let path = paths.entry(class).or_default();
            let mut left = drawn;
            while left > 0 {
                let run = left.min(LINE - at % LINE);
                cells(path, unit.state, (at % LINE * 7, (line + at / LINE) * 10), run);
                at += run;
                left -= run;
            }
        }
        widest = widest.max(at.min(LINE));
        line += (at.max(1) + LINE - 1) / LINE;
    }
    let size = (widest * 7, (line * 10).max(1));
    let totals = &host.sums().states;
    let said = Use::ALL.iter().filter_map(|state| Some((*state, *totals.get(state)?)));
    let said: Vec<String> =
        said.map(|(state, count)| format!("{count} {}", texts::unit(state).1)).collect();
    html! {
        @if host.devices.is_empty() {
            p class="quiet" { (texts::NO_DEVICES) }
        } @else {
            svg class="strip" role="img" aria-label=(said.join(", ")) width=(size.0) height=(size.1)
                viewBox={ "0 0 " (size.0) " " (size.1) } {
                @for ((class, colour), path) in &paths {
                    @match colour {
                        Some(colour) => path class={ (class) " c" (colour) } d=(path) {},
                        None => path class=(class) d=(path) {},
                    }
                }
            }
            p class="block-sum" { (texts::free_of(totals)) }
        }
    }
}

/// Adds the shape of a run of equal units to a path: a filled or hollow bar, hatching, or a cross.
fn cells(path: &mut String, state: Use, (x, y): (i64, i64), count: i64) {
    let width = count * 7 - 1;
    let mut add = |pieces: [(&str, i64); 2], end: &str| {
        for (text, number) in pieces {
            path.push_str(text);
            digits(path, number);
        }
        path.push_str(end);
    };
    add([("M", x), (" ", y)], "");
    match state {
        Use::Owned | Use::WithoutHandle => add([("h", width), ("v9h-", width)], "z"),
        Use::Free => add([("m.5.5h", width - 1), ("v8h-", width - 1)], "z"),
        Use::Reserved => add([("m0 6h", width), ("v3h-", width)], "z"),
        Use::Dirty | Use::Cleaning => {
            path.push_str(&"m0 9l6-9m1 9".repeat(usize::try_from(count).unwrap_or(1)));
        }
        Use::Maintaining | Use::Programming => {
            add([("m0 2h", width), ("m-", width)], " 5h");
            digits(path, width);
        }
        Use::Failed | Use::Unhealthy | Use::Absent => {
            add([("m0 0l", width), (" 9m0-9l-", width)], " 9");
        }
    }
}

/// Adds a number to a path. Avoids `write!`, because a floor contains tens of thousands of numbers.
fn digits(path: &mut String, number: i64) {
    path.push_str(itoa::Buffer::new().format(number));
}

fn sums_within(hosts: &[&Host], look: &Look<'_>) -> Markup {
    let mut classes: BTreeMap<&str, BTreeMap<Use, i64>> = BTreeMap::new();
    let mut owners: BTreeMap<&str, i64> = BTreeMap::new();
    let mut states: BTreeMap<Use, i64> = BTreeMap::new();
    for sums in hosts.iter().map(|host| host.sums()) {
        for (class, uses) in &sums.classes {
            let of_class = classes.entry(class).or_default();
            uses.iter().for_each(|(state, count)| *of_class.entry(*state).or_default() += count);
        }
        sums.states.iter().for_each(|(state, count)| *states.entry(*state).or_default() += count);
        for (project, count) in &sums.owners {
            *owners.entry(project).or_default() += count;
        }
    }
    let count = |test: &dyn Fn(&Host) -> bool| hosts.iter().filter(|host| test(host)).count();
    html! {
        p class="counts" {
            strong { (texts::hosts(hosts.len())) }
            " " span { (count(&|host| host.is_up())) " " (texts::UP) }
            " " span { (count(&|host| !host.is_up())) " " (texts::DOWN) }
            " " span { (count(&Host::is_disabled)) " " (texts::DISABLED) }
            " " span { (texts::servers(hosts.iter().map(|host| host.servers).sum())) }
        }
        @if !classes.is_empty() { (classes_table(&classes)) }
        (legend(&states, &owners, look))
    }
}

fn classes_table(classes: &BTreeMap<&str, BTreeMap<Use, i64>>) -> Markup {
    html! {
        table class="rows sums" {
            (head(&[
                texts::RESOURCE_CLASS,
                texts::UNITS,
                texts::USED,
                texts::FREE,
                texts::RESERVED,
                texts::NEEDS_ATTENTION,
            ]))
            tbody {
                @for (class, uses) in classes {
                    @let of = |wanted: &dyn Fn(Use) -> bool| -> i64 {
                        uses.iter().filter(|(state, _)| wanted(**state)).map(|(_, count)| count).sum()
                    };
                    @let attention = of(&Use::is_problem);
                    tr {
                        th scope="row" data-label=(texts::RESOURCE_CLASS) { (class) }
                        td data-label=(texts::UNITS) { (of(&|_| true)) }
                        td data-label=(texts::USED) { (of(&|one| matches!(one, Use::Owned | Use::WithoutHandle))) }
                        td data-label=(texts::FREE) { (of(&|one| one == Use::Free)) }
                        td data-label=(texts::RESERVED) { (of(&|one| matches!(one, Use::Reserved | Use::Programming))) }
                        td data-label=(texts::NEEDS_ATTENTION) {
                            @if attention > 0 { span class="status warn" { "! " (attention) } } @else { "0" }
                        }
                    }
                }
            }
        }
    }
}

/// The meaning of the signs and colours that are on the page.
fn legend(states: &BTreeMap<Use, i64>, owners: &BTreeMap<&str, i64>, look: &Look<'_>) -> Markup {
    let mut owners: Vec<(&str, i64)> = owners.iter().map(|(id, count)| (*id, *count)).collect();
    owners.sort_by(|a, b| (b.1, look.projects.name(a.0)).cmp(&(a.1, look.projects.name(b.0))));
    let others = owners.len().saturating_sub(LEGEND);
    html! {
        ul class="legend" aria-label=(texts::LEGEND) {
            @match look.colour {
                Colour::Project => {
                    @for (id, count) in owners.iter().take(LEGEND) {
                        @let place = look.projects.place(id);
                        li {
                            span class={ "unit owned c" (place % COLOURS) } aria-hidden="true" { (letters(place)) }
                            " " (look.projects.name(id)) " " span class="quiet" { (count) }
                        }
                    }
                    @if others > 0 { li class="quiet" { (texts::more_projects(others)) } }
                }
                Colour::Server => li class="quiet" { (texts::SERVER_COLOURS) },
                Colour::Health => {
                    @for (health, colour) in [("healthy", 2), ("degraded", 0), ("failed", 5)] {
                        li {
                            span class={ "unit owned c" (colour) } aria-hidden="true" { (texts::health(health).0) }
                            " " (texts::health(health).1)
                        }
                    }
                }
            }
            @for state in Use::ALL.iter().filter(|state| **state != Use::Owned && states.contains_key(state)) {
                li {
                    (swatch(*state, look.small))
                    " " (texts::unit(*state).1) " "
                    span class="quiet" { (states.get(state).copied().unwrap_or_default()) }
                }
            }
        }
    }
}

fn swatch(state: Use, small: bool) -> Markup {
    if !small {
        return html! {
            span class={ "unit " (class_of(state)) } aria-hidden="true" { (sign_of(state)) }
        };
    }
    let mut path = String::new();
    cells(&mut path, state, (0, 0), 1);
    html! {
        svg class="strip" aria-hidden="true" width="12" height="18" viewBox="0 0 6 9" {
            path class=(class_of(state)) d=(path) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use kilonova_ids::ResourceClass;
    use serde_json::json;

    use super::*;
    use crate::app::floor::Projects;
    use crate::app::floor::tests::{device, handle, host, part};

    fn look(projects: &Projects, small: bool) -> Look<'_> {
        Look { colour: Colour::Project, small, projects }
    }

    fn busy(name: &str) -> Host {
        let handles = json!([handle("owned", Some("<b>one</b>")), handle("dirty", None)]);
        let mut host = host(name, vec![device("0000:84:00.0", part([16, 2, 1, 13], handles))]);
        host.inventories.insert(
            ResourceClass::verbatim("VCPU"),
            Amounts { total: 64, reserved: 0, used: 3, free: 61 },
        );
        host
    }

    #[test]
    fn names_and_servers_are_text() {
        let projects = Projects::of(&json!({"projects": [{"id": "red", "name": "<i>red</i>"}]}));
        for small in [false, true] {
            let shown = card(&busy("<script>x\"&"), &look(&projects, small), true).into_string();
            for raw in ["<script>", "<b>one", "<i>red", "style="] {
                assert!(!shown.contains(raw), "{raw}: {shown}");
            }
            assert!(shown.contains("/dashboard/hosts/%3Cscript%3Ex%22%26"), "{shown}");
        }
    }

    #[test]
    fn states_are_told_by_text_too() {
        let projects = Projects::default();
        let shown = card(&busy("a"), &look(&projects, false), false).into_string();
        for text in
            ["1 used, 13 free, 1 reserved, 1 dirty", "NUMA 1", "3 of 64", "Tesla M10", "84:00.0"]
        {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert_eq!(shown.matches("unit free").count(), 13);
        let small = card(&busy("a"), &look(&projects, true), false).into_string();
        assert!(small.contains("aria-label=\"1 used, 13 free, 1 reserved, 1 dirty\""), "{small}");
        assert_eq!(small.matches("<path").count(), 4, "one for each kind: {small}");
    }

    #[test]
    fn a_thousand_hosts_are_light() {
        let projects = Projects::default();
        let handles = json!([handle("owned", Some("s")), handle("owned", Some("t"))]);
        let devices = (0..8)
            .map(|n| device(&format!("0000:{n:02x}:00.0"), part([4, 0, 2, 2], handles.clone())));
        let devices: Vec<_> = devices.collect();
        let hosts: Vec<Host> =
            (0..1000).map(|n| host(&format!("gpu-{n:04}"), devices.clone())).collect();
        let all: usize = hosts
            .iter()
            .map(|host| card(host, &look(&projects, true), false).into_string().len())
            .sum();
        assert!(all < 1_000_000, "{all} bytes");
    }

    #[test]
    fn hosts_are_grouped() {
        let (mut a, mut b, c) = (host("a", vec![]), host("b", vec![]), busy("c"));
        (a.zone, b.zone) = ("z2".into(), "z1".into());
        b.aggregates = vec!["fast".into(), "new".into()];
        let hosts = [&a, &b, &c];
        let names = |by| -> Vec<(Option<String>, Vec<String>)> {
            let all = groups(&hosts, by).into_iter();
            all.map(|(name, hosts)| (name, hosts.iter().map(|one| one.name.clone()).collect()))
                .collect()
        };
        let zones: Vec<_> = names(Group::Zone).into_iter().map(|(name, _)| name.unwrap()).collect();
        assert_eq!(zones, ["nova", "z1", "z2"]);
        let aggregates = names(Group::Aggregate);
        assert_eq!(aggregates[0], (Some("fast, new".into()), vec!["b".into()]));
        assert_eq!(aggregates[1].1, ["a", "c"]);
        assert_eq!(names(Group::Model)[0].0.as_deref(), Some("Tesla M10"));
        assert_eq!(names(Group::Nothing).len(), 1);
    }
}
