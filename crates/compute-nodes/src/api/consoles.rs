//! Receives a host's answer to a request for a console: a message, or a connection that carries the console's bytes
//! from then on.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use kilonova_compute_app::consoles::Answer;
use kilonova_ids::HostName;
use kilonova_node_api::{CONSOLE_PROTOCOL, ConsoleReply};
use kilonova_wire::Refusal;
use uuid::Uuid;

use super::message;
use crate::Link;

pub(super) async fn answered(
    State(link): State<Arc<Link>>,
    Path((host, id)): Path<(HostName, Uuid)>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let expected = |link: &Link| {
        link.0.consoles.expected(&host, id).ok_or_else(|| {
            Refusal::not_found("No client of this controller is waiting for this console any more.")
        })
    };
    if !asks_for(request.headers(), CONSOLE_PROTOCOL) {
        let answer = match message(request).await? {
            ConsoleReply::Available => Answer::Available,
            ConsoleReply::Refused(refusal) => Answer::Refused(refusal),
        };
        expected(&link)?.answer(answer);
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let on_upgrade = hyper::upgrade::on(&mut request);
    let waiting = expected(&link)?;
    tokio::spawn(async move {
        match on_upgrade.await {
            Ok(upgraded) => waiting.answer(Answer::Connected(Box::new(TokioIo::new(upgraded)))),
            Err(error) => {
                tracing::warn!(%host, %error, "cannot upgrade a host's connection for a console");
            }
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(CONSOLE_PROTOCOL)),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// True if a request asks to upgrade its connection to this protocol.
fn asks_for(headers: &HeaderMap, protocol: &str) -> bool {
    let asked = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    asked.is_some_and(|asked| asked.eq_ignore_ascii_case(protocol))
}
