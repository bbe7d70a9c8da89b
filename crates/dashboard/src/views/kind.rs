//! The list of a kind of object, and the form for a new one.

use maud::{Markup, html};

use super::parts::{head, new_button, pages, path};
use super::{csrf, frame};
use crate::api::{PATH, Rows};
use crate::app::session::Session;
use crate::texts;

/// A kind of object with a list and a form.
pub(super) struct Kind {
    /// The address of the list, below [`PATH`].
    pub list: &'static str,
    /// Its title.
    pub title: &'static str,
    /// A sentence about the kind; empty without one.
    pub about: &'static str,
    /// The text shown for an empty list.
    pub none: &'static str,
    /// The columns of the list.
    pub columns: &'static [&'static str],
    /// The address of the form, below [`PATH`].
    pub new: &'static str,
    /// Its title.
    pub new_title: &'static str,
}

impl Kind {
    /// The page of the list, from the cells of each row.
    pub fn list(
        &self,
        session: &Session,
        rows: &Rows,
        creates: bool,
        last: Option<&str>,
        cells: &[Markup],
    ) -> Markup {
        let main = html! {
            div class="head" {
                h1 { (self.title) }
                @if creates { (new_button(self.new, self.new_title)) }
            }
            @if !self.about.is_empty() { p class="quiet" { (self.about) } }
            @if cells.is_empty() { p class="empty" { (self.none) } }
            @else {
                table class="rows" {
                    (head(self.columns))
                    tbody { @for row in cells { tr { (row) } } }
                }
            }
            (pages(self.list, rows, last))
        };
        frame(self.title, Some(session), &main)
    }

    /// The way back to the list.
    pub fn path(&self) -> Markup {
        path(&[(self.list, self.title)])
    }

    /// The page of the form with these fields.
    pub fn form(&self, session: &Session, refused: Option<&str>, fields: &Markup) -> Markup {
        let main = html! {
            (self.path())
            section class="narrow card" {
                h1 { (self.new_title) }
                @if let Some(why) = refused { p class="notice bad" role="alert" { (why) } }
                form method="post" action={ (PATH) (self.new) } {
                    (csrf(session))
                    (fields)
                    div class="buttons" {
                        button class="primary" { (texts::CREATE) }
                        a href={ (PATH) (self.list) } { (texts::CANCEL) }
                    }
                }
            }
        };
        frame(self.new_title, Some(session), &main)
    }
}
