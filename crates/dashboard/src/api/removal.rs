//! The page that asks for confirmation before a deletion, and the deletion.

use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;

use super::answers::{Html, Refusal, refusal_for_form};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::views::removal as page;

/// A deletion.
pub(super) struct Removal {
    /// The displayed name of the object.
    pub name: String,
    /// A sentence about what is lost.
    pub loses: &'static str,
    /// The path of the object in the API of its service.
    pub path: String,
    /// The address of the page that asks.
    pub here: String,
    /// The page of the object, or of the object that contains it.
    pub back: String,
    /// The page after the deletion.
    pub list: String,
}

impl Removal {
    /// The page that asks for confirmation.
    pub fn ask(&self, viewer: &Viewer) -> Response {
        self.shown(viewer, None).into_response()
    }

    fn shown(&self, viewer: &Viewer, refused: Option<&str>) -> Html {
        Html(page::page(&page::Shown {
            session: &viewer.session,
            name: &self.name,
            loses: self.loses,
            here: &self.here,
            back: &self.back,
            refused,
        }))
    }

    /// Deletes the object.
    pub async fn perform(
        &self,
        dashboard: &Dashboard,
        viewer: &Viewer,
    ) -> Result<Response, Refusal> {
        match dashboard.0.cloud.delete(&viewer.caller, &self.path).await {
            Ok(()) => Ok(Redirect::to(&self.list).into_response()),
            Err(error) => {
                let (status, why): (StatusCode, String) = refusal_for_form(error)?;
                Ok((status, self.shown(viewer, Some(&why))).into_response())
            }
        }
    }
}
