//! `DELETE /servers/{id}`: answers 204 immediately. The deletion is complete when `GET` answers 404.

use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, flows};
use kilonova_wire::{Refusal, time};

pub(super) async fn delete(
    State(compute): State<Compute>,
    context: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find_with(tx, &context, &id, flows::expect_delete)?;
            flows::soft_delete(tx, &compute_, &context, &server, time::now())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
