//! Actions: which of them a server's state allows, their confirmations, and their effects.

use crate::browser::Browser;
use crate::cloud::clouds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_operated_from_its_page() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let here = format!("/dashboard/servers/{id}");
        let page = ann.get(&here).await;
        page.shows("actions/pause\"").hides("actions/start\"").hides("actions/unlock\"");
        page.shows("actions/lock\"");
        // An action that loses no data is a button without a confirmation.
        ann.submit(&page, &format!("{here}/actions/pause"), &[]).await.has_status(200);
        cloud.becomes(&id, "PAUSED").await;
        let page = ann.get(&here).await;
        page.shows("actions/unpause\"").hides("actions/pause\"").hides("actions/stop\"");
        ann.submit(&page, &format!("{here}/actions/unpause"), &[]).await;
        cloud.becomes(&id, "ACTIVE").await;
        // An action that loses data requires a confirmation.
        let ask = ann.get(&format!("{here}/actions/stop")).await;
        ask.has_status(200).shows("the contents of its memory are lost").shows("Shut off: one");
        cloud.becomes(&id, "ACTIVE").await;
        ann.submit(&ask, &format!("{here}/actions/stop"), &[]).await;
        cloud.becomes(&id, "SHUTOFF").await;
        // The service refuses the action of an outdated page, and the page shows the message.
        let late = ann.submit(&ask, &format!("{here}/actions/stop"), &[]).await;
        late.has_status(409).shows("Cannot 'stop' instance").shows("Shut off: one");
        // The state no longer allows the action, so its page redirects to the server's.
        let page = ann.get(&format!("{here}/actions/stop")).await;
        assert_eq!(page.at, here, "{}", cloud.store);
        ann.get(&format!("{here}/actions/burn")).await.has_status(404);
        // A snapshot requires a name, and a resize requires a flavor.
        let ask = ann.get(&format!("{here}/actions/snapshot")).await;
        ask.shows("Name of the image").shows("one-image");
        ann.submit(&ask, &format!("{here}/actions/snapshot"), &[("name", "")])
            .await
            .has_status(200);
        let ask = ann.get(&format!("{here}/actions/resize")).await;
        ask.shows("f-tiny").hides("value=\"f-vgpu\"");
        ann.submit(&ask, &format!("{here}/actions/resize"), &[("flavor", "f-tiny")])
            .await
            .has_status(200);
        cloud.becomes(&id, "VERIFY_RESIZE").await;
        let page = ann.get(&here).await;
        page.shows("actions/confirm-resize\"").shows("actions/revert-resize\"");
        ann.submit(&page, &format!("{here}/actions/revert-resize"), &[]).await.has_status(200);
        cloud.becomes(&id, "SHUTOFF").await;
        let page = ann.get(&here).await;
        ann.submit(&page, &format!("{here}/actions/lock"), &[]).await;
        let page = ann.get(&here).await;
        page.shows(">locked<").shows("actions/unlock\"").hides("actions/start\"");
        ann.submit(&page, &format!("{here}/actions/unlock"), &[]).await;
        let done = ann.submit(&page, &format!("{here}/actions/delete"), &[]).await;
        done.has_status(200).shows("<h1>Servers</h1>");
        for _ in 0..500 {
            if ann.get(&here).await.status == 404 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        ann.get(&here).await.has_status(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_moves_a_server() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let host = |page: &str| page.contains(r#"<a href="/dashboard/hosts/h1">"#);
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let here = format!("/dashboard/servers/{id}");
        let page = admin.get(&here).await;
        let before = host(&page.html);
        admin.submit(&page, &format!("{here}/actions/live-migrate"), &[]).await.has_status(200);
        // Its status is MIGRATING until the migration has ended; its host changes before.
        cloud.becomes(&id, "ACTIVE").await;
        let page = admin.get(&here).await;
        assert_ne!(host(&page.html), before, "{}", cloud.store);
        // Without a migration in progress, an abort is refused.
        let abort = format!("{here}/actions/abort-migration");
        page.hides("abort-migration").hides("reset-state").hides("force-delete");
        let refused = admin.submit(&page, &abort, &[]).await;
        refused.has_status(409).shows("has no live migration in progress");
        let reset = format!("{here}/actions/reset-state");
        let failed = admin.submit(&page, &reset, &[]).await;
        failed.has_status(200).shows("error").shows("Reset the state").shows("About these actions");
        admin.submit(&failed, &reset, &[]).await.has_status(200).hides("reset-state");
        cloud.becomes(&id, "ACTIVE").await;
        // The same policy forbids these actions to the owner.
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get(&here).await;
        ann.submit(&page, &format!("{here}/actions/live-migrate"), &[]).await.has_status(403);
        ann.submit(&page, &reset, &[]).await.has_status(403);
        ann.submit(&page, &abort, &[]).await.has_status(403);
    }
}
