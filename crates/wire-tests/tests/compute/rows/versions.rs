//! The version documents.

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    api.ask("GET /", ALL, 200).await;
    api.ask("GET /versions/v2.1", ALL, 200).await;
    api.ask("GET /extensions", ALL, 200).await;
    api.ask("GET /extensions/os-keypairs", ALL, 200).await;
}
