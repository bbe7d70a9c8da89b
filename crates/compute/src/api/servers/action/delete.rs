//! `forceDelete`: as `DELETE`, from any state, and for good. `restore`: what a deletion that can be
//! taken back has left.

use axum::response::Response;
use kilonova_wire::Fault;

use super::Asked;
use crate::app::states;
use crate::flows;

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let restore = asked.name == "restore";
    asked
        .begin(move |tx, asked, server, now| {
            if restore {
                return flows::restore(tx, &asked.compute, &asked.context, server, now);
            }
            states::check(&asked.context, server, "delete")?;
            flows::delete(tx, &asked.compute, &asked.context, server, now)
        })
        .await
}
