//! `/projects`: the user's projects, and the switch to another one.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::PATH;
use super::answers::{Html, Refusal};
use super::form::Form;
use super::login::{Denied, PROJECTS, enter, revoke, scope};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;
use crate::{texts, views};

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/projects", get(show).post(switch))
}

async fn show(State(dashboard): State<Dashboard>, viewer: Viewer) -> Result<Html, Refusal> {
    let all = dashboard.0.cloud.get(&viewer.caller, PROJECTS).await?;
    let all: Vec<&Value> = all["projects"].as_array().into_iter().flatten().collect();
    Ok(Html(views::projects::page(&viewer.session, &all)))
}

async fn switch(State(dashboard): State<Dashboard>, form: Form) -> Result<Response, Refusal> {
    let Form { viewer, fields } = form;
    let wanted = fields.text("project").ok_or(Error::Unreadable(texts::WRONG_PROJECT))?;
    let (caller, old) = (&viewer.caller, &viewer.session.token);
    let session = match scope(&dashboard, caller, old, wanted, texts::WRONG_PROJECT).await {
        Ok(session) => session,
        Err(Denied::Error(error)) => return Err(error.into()),
        Err(Denied::Wrong(why)) => {
            return Err(Refusal(Error::Refused {
                status: 403,
                message: why.to_owned(),
                request: None,
                retry_after: None,
            }));
        }
    };
    let response = enter(&dashboard, caller, &session, PATH)?;
    revoke(&dashboard, caller, old, &session.user).await;
    Ok(response)
}
