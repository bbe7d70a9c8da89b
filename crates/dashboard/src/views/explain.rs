//! Explanations: of a server, and of a search for hosts.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{address_of, head, host_address, list, moment, name, path, prose, status, text};
use crate::api::{List, PATH};
use crate::app::session::Session;
use crate::texts;

/// The data of the page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The name of a server as it was typed.
    pub server: &'a str,
    /// The newest servers whose name contains it.
    pub servers: Option<&'a List>,
    /// The query as it was typed.
    pub query: &'a str,
    /// Its explanation, or why the service refused it.
    pub candidates: Option<&'a Result<Value, String>>,
}

/// The page.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let main = html! {
        h1 { (texts::EXPLAIN) }
        section class="card" aria-labelledby="of-server" {
            h2 id="of-server" { (texts::EXPLAIN_SERVER) }
            form class="filters" method="get" action={ (PATH) "/explain" } {
                div {
                    label for="server" { (texts::NAME_OR_ID) }
                    input id="server" name="server" type="search" required value=(shown.server);
                }
                button { (texts::EXPLAIN) }
            }
            @if let Some(list) = shown.servers { (servers(list)) }
        }
        section class="card" aria-labelledby="of-query" {
            h2 id="of-query" { (texts::EXPLAIN_QUERY) }
            form method="get" action={ (PATH) "/explain" } {
                label for="query" { (texts::QUERY) }
                textarea id="query" name="query" rows="4" required spellcheck="false" maxlength="4096"
                    aria-describedby="query-hint" { (shown.query) }
                p id="query-hint" class="hint" { (texts::QUERY_HINT) " " code { "resources=VCPU:1,MEMORY_MB:512,VGPU:1" } }
                button class="primary" { (texts::EXPLAIN) }
            }
            @match shown.candidates {
                None => {}
                Some(Err(why)) => p class="notice bad" role="alert" { (why) },
                Some(Ok(found)) => (candidates(found)),
            }
        }
    };
    frame(texts::EXPLAIN, Some(shown.session), &main)
}

/// The servers whose names match.
fn servers(list: &List) -> Markup {
    html! {
        @if list.servers.is_empty() { p { (texts::NO_MATCHES) } }
        @else {
            table class="rows" {
                (head(&[texts::SERVER_NAME, texts::STATUS, texts::PROJECT]))
                tbody {
                    @for server in &list.servers {
                        tr {
                            th scope="row" data-label=(texts::SERVER_NAME) {
                                a href={ (address_of(server)) "/explain" } { (name(server)) }
                            }
                            td data-label=(texts::STATUS) { (status(server)) }
                            td data-label=(texts::PROJECT) { code { (text(server, "tenant_id")) } }
                        }
                    }
                }
            }
            @if list.more { p class="quiet" { (texts::only_newest(list.servers.len())) } }
        }
    }
}

fn candidates(found: &Value) -> Markup {
    let left = found["left"].as_u64().unwrap_or_default();
    html! {
        p class={ "notice " (if left == 0 { "bad" } else { "good" }) } role="status" { (text(found, "text")) }
        (steps(&found["steps"]))
        @if found["nearest"].is_object() {
            p { (texts::NEAREST) " " strong { (text(&found["nearest"], "name")) } ": " (words(&found["nearest"]["lacks"])) }
        }
    }
}

/// Formats a string, or a list of strings.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The constraints of a search, in order.
fn steps(steps: &Value) -> Markup {
    html! {
        @if list(steps).next().is_some() {
            table class="rows" {
                (head(&[texts::CONSTRAINT, texts::EXCLUDED, texts::LEFT]))
                tbody {
                    @for step in list(steps) {
                        tr {
                            th scope="row" data-label=(texts::CONSTRAINT) { (text(step, "text")) }
                            td class="number" data-label=(texts::EXCLUDED) { (step["removed"].as_u64().unwrap_or_default()) }
                            td class="number" data-label=(texts::LEFT) { (step["left"].as_u64().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
    }
}

/// The explanation of a server. The answer for its owner contains no host names.
pub(crate) fn server(session: &Session, server: &Value) -> Markup {
    let deleted = !server["deleted_at"].is_null();
    let here = address_of(server);
    let title = texts::question(texts::EXPLAIN, name(server));
    let main = html! {
        (path(&[("/servers", texts::SERVERS)]))
        h1 { (title) }
        @if !deleted { p { a href=(here) { (texts::SERVER_PAGE) } } }
        section class="card" aria-labelledby="summary" {
            h2 id="summary" { (texts::SUMMARY) }
            p { (text(server, "summary")) }
            h3 { (texts::NEXT_STEPS) }
            ul { @for step in list(&server["next"]) { li { (prose(&words(step))) } } }
        }
        @if server["fault"].is_object() {
            section class="card" aria-labelledby="fault" {
                h2 id="fault" { (texts::FAULT) }
                p { (text(&server["fault"], "message")) }
                @if !text(&server["fault"], "details").is_empty() {
                    pre class="log" tabindex="0" aria-labelledby="fault" { (text(&server["fault"], "details")) }
                }
                p class="quiet" { (texts::FAULT_AT) " " (moment(text(&server["fault"], "created_at"))) }
            }
        }
        @if server["room_now"].is_object() {
            section class="card" aria-labelledby="room" {
                h2 id="room" { (texts::ROOM_NOW) }
                @if server["room_now"]["is_there"] == true { p { (texts::ROOM_IS_THERE) } }
                p { (text(&server["room_now"], "text")) }
                (steps(&server["room_now"]["steps"]))
            }
        }
        div class="columns" { (claims(server)) (held(server)) }
        (hosts(server))
        (actions(server))
    };
    frame(&title, Some(session), &main)
}

fn hosts(server: &Value) -> Markup {
    html! {
        @if list(&server["hosts"]).next().is_some() || server["operation"].is_object() {
            section class="card" aria-labelledby="hosts" {
                h2 id="hosts" { (texts::HOSTS_AND_OPERATION) }
                dl {
                    @for host in list(&server["hosts"]) {
                        dt { (texts::HOST) }
                        dd {
                            a href=(host_address(text(host, "name"))) { (text(host, "name")) } ": "
                            (text(host, "state")) ", " (text(host, "status")) " " (text(host, "disabled_reason"))
                        }
                    }
                    @let operation = &server["operation"];
                    @if operation.is_object() {
                        dt { (texts::STEP) }
                        dd {
                            (text(operation, "action")) " " (words(&operation["step"])) " "
                            span class="quiet" { (texts::SINCE) " " (moment(text(operation, "since"))) }
                            @if !operation["waits_for"].is_null() { br; (texts::WAITS_FOR) " " (words(&operation["waits_for"])) }
                            @if let Some(why) = operation["unreadable"].as_str() { br; (texts::unreadable(why)) }
                        }
                    }
                }
            }
        }
    }
}

fn claims(server: &Value) -> Markup {
    let amounts: Vec<&Value> =
        list(&server["claims"]).flat_map(|claim| list(&claim["allocations"])).collect();
    html! {
        @if !amounts.is_empty() {
            section class="card" aria-labelledby="claims" {
                h2 id="claims" { (texts::CLAIMS) }
                table class="rows" {
                    (head(&[texts::PROVIDER_NAME, texts::RESOURCE_CLASS, texts::AMOUNT]))
                    tbody {
                        @for one in amounts {
                            tr {
                                th scope="row" data-label=(texts::PROVIDER_NAME) { (text(one, "name")) }
                                td data-label=(texts::RESOURCE_CLASS) { (text(one, "class")) }
                                td class="number" data-label=(texts::AMOUNT) { (one["amount"].as_i64().unwrap_or_default()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn held(server: &Value) -> Markup {
    html! {
        @if list(&server["devices"]).next().is_some() {
            section class="card" aria-labelledby="held" {
                h2 id="held" { (texts::DEVICES) }
                table class="rows" {
                    (head(&[texts::DEVICE_CLASS, texts::ADDRESS, texts::DEVICE_STATE, texts::DEVICE_HEALTH]))
                    tbody {
                        @for one in list(&server["devices"]) {
                            tr {
                                th scope="row" data-label=(texts::DEVICE_CLASS) { (text(one, "resource_class")) }
                                td data-label=(texts::ADDRESS) { code { (text(&one["handle"], "address")) } " " (text(one, "host")) }
                                td data-label=(texts::DEVICE_STATE) {
                                    (words(&one["state"])) @if one["attached"] != true { ", " (texts::NOT_ATTACHED) }
                                }
                                td data-label=(texts::DEVICE_HEALTH) {
                                    (text(&one["device"], "health")) " " (text(&one["device"], "health_reason"))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn actions(server: &Value) -> Markup {
    html! {
        section class="card" aria-labelledby="timeline" {
            h2 id="timeline" { (texts::TIMELINE) }
            ol class="timeline" {
                @for action in list(&server["actions"]) {
                    li {
                        strong { (texts::instance_action(text(action, "action"))) } " "
                        span class="status" { (text(action, "outcome")) } br;
                        span class="quiet" { (moment(text(action, "started_at"))) " " code { (text(action, "request_id")) } }
                        @if !text(action, "message").is_empty() { p { (text(action, "message")) } }
                        @if !action["host_chosen"].is_null() { p { (texts::HOST_CHOSEN) " " (words(&action["host_chosen"])) } }
                        @if list(&action["hosts_tried"]).next().is_some() {
                            p { (texts::HOSTS_TRIED) " " (words(&action["hosts_tried"])) }
                        }
                        ul {
                            @for event in list(&action["events"]) {
                                li {
                                    (text(event, "event")) " " (text(event, "host")) ": " (text(event, "result"))
                                    @if !event["details"].is_null() { br; (words(&event["details"])) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_search_that_finds_too_many_says_so() {
        let shown = |more| {
            let found = vec![json!({"id": "1", "name": "one", "status": "ACTIVE"}); 50];
            servers(&List { servers: found, more }).into_string()
        };
        assert!(shown(true).contains("Only the newest 50 are shown"));
        assert!(!shown(false).contains("Only the newest"));
    }
}
