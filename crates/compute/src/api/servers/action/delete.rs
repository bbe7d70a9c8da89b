//! `forceDelete`: as `DELETE`, from any state.

use axum::response::Response;
use kilonova_wire::Fault;

use super::Asked;
use crate::app::states;
use crate::flows;

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    asked
        .begin(|tx, asked, server, now| {
            states::check(&asked.context, server, "delete")?;
            flows::delete(tx, &asked.compute, &asked.context, server, now)
        })
        .await
}
