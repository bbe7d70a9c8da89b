//! Adds the dashboard's pages to the services of this controller, and stops it when the controller shuts down.

use std::sync::Arc;

use axum::Router;
use kilonova_compute_app::Compute;
use kilonova_compute_nodes::{Drain, Phase};
use kilonova_dashboard::{Dashboard, Parts, Policies};
use kilonova_seal::Vault;
use kilonova_wire::Authenticator;

use super::metrics::{Traffic, watch};
use super::secrets;
use crate::failure::Failure;

/// Adds the pages to the services that they call.
pub(super) async fn add(
    services: Router,
    auth: Arc<dyn Authenticator>,
    compute: Compute,
    policies: Policies,
    vault: &Vault,
    traffic: Traffic,
    mut drain: Drain,
) -> Result<Router, Failure> {
    let key = secrets::dashboard_key(vault).await?;
    let dashboard =
        Dashboard::new(Parts { services: services.clone(), auth, compute, policies, key });
    let pages = watch(kilonova_dashboard::routes(dashboard.clone()), "dashboard", traffic);
    tokio::spawn(async move {
        // Open pages reconnect to another controller, as hosts do.
        drain.reached(Phase::Draining).await;
        dashboard.stop();
    });
    Ok(services.nest(kilonova_dashboard::PATH, pages))
}
