//! `DELETE /servers/{id}`: 204 at once; the server is gone when a GET answers 404.

use axum::extract::{Path, State};
use http::StatusCode;
use kilonova_access::Caller;
use kilonova_wire::Fault;
use kilonova_wire::time::now_micros;

use crate::{Compute, flows};

pub(super) async fn delete(
    State(compute): State<Compute>,
    context: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Fault> {
    let compute_ = compute.clone();
    compute
        .store
        .write(move |tx| {
            let server = super::find::find(tx, &context, &id)?;
            flows::soft_delete(tx, &compute_, &context, &server, now_micros())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
