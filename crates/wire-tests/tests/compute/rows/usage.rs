//! Usage and migrations of servers.

use crate::compute::api::{ALL, Api};

pub async fn row(api: Api<'_>) {
    let flavor = api.flavor("usage").await;
    let server = api.server("usage", &flavor).await;
    let span = "start=2020-01-01T00:00:00.000000&end=2100-01-01T00:00:00.000000";
    api.ask(&format!("GET /os-simple-tenant-usage?detailed=1&{span}"), ALL, 200).await;
    let project = "admin";
    api.ask(&format!("GET /os-simple-tenant-usage/{project}?{span}"), ALL, 200).await;
    if api.minor >= 40 {
        api.ask(&format!("GET /os-simple-tenant-usage?detailed=1&limit=1&{span}"), ALL, 200).await;
        api.ask(&format!("GET /os-simple-tenant-usage/{project}?limit=1&{span}"), ALL, 200).await;
    }
    migrations(api, &server).await;
    api.ask(&format!("DELETE /servers/{server}"), ALL, 204).await;
}

async fn migrations(api: Api<'_>, server: &str) {
    api.ask("GET /os-migrations", ALL, 200).await;
    if api.minor >= 59 {
        api.ask(&format!("GET /os-migrations?instance_uuid={server}&limit=5"), ALL, 200).await;
    }
}
