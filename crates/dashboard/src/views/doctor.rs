//! The findings of the doctor.

use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use super::parts::{head, list, moment, prose, text};
use crate::app::session::Session;
use crate::texts;

/// The page.
pub(crate) fn page(session: &Session, found: &Value) -> Markup {
    let more = found["more_findings"].as_u64().unwrap_or_default();
    let main = html! {
        h1 { (texts::DOCTOR) }
        p class="quiet" { (texts::EXAMINED) " " (moment(text(found, "examined_at"))) ". " (texts::DOCTOR_TEXT) }
        section class="card" aria-labelledby="findings" {
            h2 id="findings" { (texts::FINDINGS) }
            @if list(&found["findings"]).next().is_none() {
                p { span class="status good" { "✓ " (texts::NO_FINDINGS) } }
            } @else {
                table class="rows" {
                    (head(&[texts::LEVEL, texts::AREA, texts::FINDING, texts::REMEDY]))
                    tbody {
                        @for one in list(&found["findings"]) {
                            tr {
                                td data-label=(texts::LEVEL) { (level(text(one, "level"))) }
                                td data-label=(texts::AREA) { (text(one, "area")) }
                                th scope="row" data-label=(texts::FINDING) { (text(one, "what")) }
                                td data-label=(texts::REMEDY) { (prose(text(one, "remedy"))) }
                            }
                        }
                    }
                }
                @if more > 0 { p class="quiet" { (texts::more_findings(more)) } }
            }
        }
        section class="card" aria-labelledby="areas" {
            h2 id="areas" { (texts::AREAS) }
            table class="rows" {
                (head(&[texts::AREA, texts::STATUS, texts::SUMMARY]))
                tbody {
                    @for area in list(&found["areas"]) {
                        @let state = text(area, "state");
                        tr {
                            th scope="row" data-label=(texts::AREA) { (text(area, "name")) }
                            td data-label=(texts::STATUS) { (level(state)) }
                            td data-label=(texts::SUMMARY) {
                                // The summary is true only if nothing is wrong.
                                @if state == "ok" { (text(area, "about")) } @else { span class="quiet" { (texts::SEE_FINDINGS) } }
                            }
                        }
                    }
                }
            }
        }
    };
    frame(texts::DOCTOR, Some(session), &main)
}

fn level(level: &str) -> Markup {
    let (tone, sign) = match level {
        "ok" => ("good", "✓"),
        "warning" => ("warn", "!"),
        "error" => ("bad", "✕"),
        _ => ("off", "·"),
    };
    html! { span class={ "status " (tone) } { (sign) " " (level) } }
}
