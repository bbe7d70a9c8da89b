//! The events of open pages.

use std::time::{Duration, Instant};

use crate::browser::Browser;
use crate::cloud::clouds;

/// The path of a page's stream.
fn stream_of(html: &str) -> String {
    let at = html.find("sse-connect=\"").expect("the page has a stream") + 13;
    html[at..].split('"').next().expect("the attribute ends").replace("&amp;", "&")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_told_of_states_of_new_servers_and_of_deletions() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get("/dashboard/servers").await;
        let mut stream = ann.stream(&stream_of(&page.html)).await;
        let begun = Instant::now();
        let stop = format!("/dashboard/servers/{id}/actions/stop");
        ann.submit(&page, &stop, &[]).await.has_status(200);
        let row = stream.until("rows", "shut off").await;
        assert!(
            row.contains(&format!("<template><tr id=\"server-{id}\" hx-swap-oob=\"true\">")),
            "{row}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", cloud.store);
        let second = cloud.boot("ann", "two", "f-tiny").await;
        stream.until("list", "list").await;
        // After the page has reloaded its list, the stream also reports changes of the new server.
        ann.get("/dashboard/servers").await.shows(&second);
        cloud.becomes(&second, "ACTIVE").await;
        let pause = format!("/dashboard/servers/{second}/actions/pause");
        ann.submit(&page, &pause, &[]).await.has_status(200);
        stream.until("rows", &format!("server-{second}")).await;
        // Changes of servers of other projects are not reported.
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        let theirs = bea.get("/dashboard/servers").await;
        let mut others = bea.stream(&stream_of(&theirs.html)).await;
        let delete = format!("/dashboard/servers/{id}/actions/delete");
        ann.submit(&page, &delete, &[]).await.has_status(200);
        stream.until("rows", &format!("<tr id=\"server-{id}\" hx-swap-oob=\"delete\">")).await;
        let silence = tokio::time::timeout(Duration::from_millis(1500), others.next()).await;
        assert!(silence.is_err(), "{}: {silence:?}", cloud.store);
        // The stream of an outdated page requests a reload of the list.
        let mut late = ann.stream(&stream_of(&page.html)).await;
        late.until("list", "list").await;
        // A controller that stops ends its streams, so that browsers reconnect to another controller.
        cloud.dashboards.iter().for_each(kilonova_dashboard::Dashboard::stop);
        let mut ended = 0;
        for mut stream in [stream, others, late] {
            let end = async { while stream.next().await.is_some() {} };
            ended += usize::from(tokio::time::timeout(Duration::from_secs(2), end).await.is_ok());
        }
        assert_eq!(ended, 3, "{}", cloud.store);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_a_server_is_told_that_it_has_changed() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        let mut stream = ann.stream(&stream_of(&page.html)).await;
        ann.submit(&page, &format!("/dashboard/servers/{id}/actions/lock"), &[]).await;
        stream.until("changed", "changed").await;
        // The stream reports the end of the session once.
        ann.submit(&page, "/dashboard/logout", &[]).await;
        let mut over = ann.stream(&stream_of(&page.html)).await;
        assert_eq!(over.next().await, Some(("end".into(), "end".into())), "{}", cloud.store);
        assert_eq!(over.next().await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_viewers_of_a_list_are_told_alike_until_their_sessions_end() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        let page = ann.get("/dashboard/servers").await;
        let path = stream_of(&page.html);
        let mut streams = Vec::new();
        for _ in 0..7 {
            streams.push(ann.stream(&path).await);
            streams.push(rob.stream(&path).await);
        }
        ann.submit(&page, &format!("/dashboard/servers/{id}/actions/stop"), &[])
            .await
            .has_status(200);
        for stream in &mut streams {
            stream.until("rows", "shut off").await;
        }
        // The streams of a revoked token end, although others still follow the list.
        let form = rob.get("/dashboard/servers").await;
        rob.submit(&form, "/dashboard/logout", &[]).await;
        ann.submit(&page, &format!("/dashboard/servers/{id}/actions/start"), &[])
            .await
            .has_status(200);
        for (at, stream) in streams.iter_mut().enumerate() {
            if at % 2 == 0 {
                stream.until("rows", "active").await;
            } else {
                stream.until("end", "end").await;
                assert_eq!(stream.next().await, None, "{}", cloud.store);
            }
        }
    }
}

/// The page is notified of the end of its session even if nothing on it changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_page_is_told_of_the_end_of_its_session() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get("/dashboard/servers").await;
        let mut stream = ann.stream(&stream_of(&page.html)).await;
        let valid = tokio::time::timeout(Duration::from_millis(500), stream.next()).await;
        assert!(valid.is_err(), "{}: {valid:?}", cloud.store);
        ann.submit(&page, "/dashboard/logout", &[]).await;
        let end = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
        assert_eq!(end.expect("in time"), Some(("end".into(), "end".into())), "{}", cloud.store);
        assert_eq!(stream.next().await, None);
    }
}
