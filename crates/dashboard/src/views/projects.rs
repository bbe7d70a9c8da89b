//! The projects of the user.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::text;
use super::{csrf, frame};
use crate::api::PATH;
use crate::app::session::Session;
use crate::texts;

/// The page.
pub(crate) fn page(session: &Session, projects: &[&Value]) -> Markup {
    let main = html! {
        section class="narrow card" {
            h1 { (texts::CHOOSE_PROJECT) }
            ul class="choices" {
                @for project in projects {
                    @let id = text(project, "id");
                    li {
                        div {
                            strong { (text(project, "name")) }
                            @if !text(project, "description").is_empty() {
                                p class="quiet" { (text(project, "description")) }
                            }
                        }
                        @if id == session.project {
                            span class="tag" { (texts::CURRENT_PROJECT) }
                        } @else {
                            form method="post" action={ (PATH) "/projects" } {
                                (csrf(session))
                                button name="project" value=(id)
                                    aria-label={ (texts::USE_PROJECT) " " (text(project, "name")) } {
                                    (texts::USE_PROJECT)
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    frame(texts::CHOOSE_PROJECT, Some(session), &main)
}
