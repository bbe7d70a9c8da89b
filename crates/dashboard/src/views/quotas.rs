//! Quotas with their usage.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::head;
use crate::app::session::Session;
use crate::texts;

/// Limits per user, server or group, for which upstream reports no usage.
const WITHOUT_USE: [&str; 3] = ["key_pairs", "metadata_items", "server_group_members"];

/// The page. `compute` or `network` is null if the user's role may not read it.
pub(crate) fn page(session: &Session, compute: &Value, network: &Value) -> Markup {
    let main = html! {
        h1 { (texts::QUOTAS) }
        p class="quiet" { (texts::PROJECT) " " (session.project_name) }
        div class="columns" {
            (section("compute", texts::QUOTAS_COMPUTE, compute, "in_use"))
            (section("network", texts::QUOTAS_NETWORK, network, "used"))
        }
    };
    frame(texts::QUOTAS, Some(session), &main)
}

fn section(id: &str, title: &str, quotas: &Value, used: &str) -> Markup {
    html! {
        section class="card" aria-labelledby=(id) {
            h2 id=(id) { (title) }
            @match quotas.as_object() {
                None => p class="quiet" { (texts::QUOTAS_HIDDEN) },
                Some(quotas) => {
                    table class="rows" {
                        (head(&[texts::RESOURCE, texts::USED, texts::LIMIT]))
                        tbody {
                            @for (name, quota) in quotas {
                                @if let Some(limit) = quota["limit"].as_i64() {
                                    (row(name, quota[used].as_i64().filter(|_| !WITHOUT_USE.contains(&name.as_str())), limit))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(name: &str, used: Option<i64>, limit: i64) -> Markup {
    let label = texts::quota(name);
    html! {
        tr {
            th scope="row" data-label=(texts::RESOURCE) { (label) }
            td class="number" data-label=(texts::USED) {
                @match used {
                    None => span class="quiet" { "–" }
                    Some(used) => {
                        @if limit >= 0 && used >= limit && used > 0 { span class="status warn" { (used) } } @else { (used) }
                        @if limit > 0 {
                            " " meter min="0" max=(limit) value=(used.clamp(0, limit)) aria-label=(label) {}
                        }
                    }
                }
            }
            td class="number" data-label=(texts::LIMIT) {
                @if limit < 0 { (texts::UNLIMITED) } @else { (limit) }
            }
        }
    }
}
