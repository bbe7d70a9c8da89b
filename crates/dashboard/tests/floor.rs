//! The pages of operators: the floor, a host with its drain and its devices, and the capacity.

use std::time::Duration;

use http::Method;

use crate::browser::{Browser, Page};
use crate::cloud::{Cloud, clouds};

/// The path of a page's stream.
fn stream_of(html: &str) -> String {
    let at = html.find("sse-connect=\"").expect("the page has a stream") + 13;
    html[at..].split('"').next().expect("the attribute ends").replace("&amp;", "&")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_the_floor_and_nobody_else_does() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "<b>zebra</b>", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let floor = admin.get("/dashboard/floor").await;
        floor
            .has_status(200)
            .shows("/dashboard/hosts/h1")
            .shows("/dashboard/hosts/h2")
            .shows("2 hosts");
        floor.shows("1 used, 3 free").shows("4 free").shows("NUMA").shows("84:00.0");
        floor.shows(&format!("/dashboard/servers/{id}")).shows("&lt;b&gt;zebra").hides("<b>zebra");
        floor.shows("project red").shows("<th scope=\"row\" data-label=\"Resource class\">VGPU");
        // The options of the floor's form.
        let small = admin.get("/dashboard/floor?size=small&group=model&colour=health").await;
        small.has_status(200).shows("<svg").shows("7 of 8 free").hides("class=\"block ");
        let one = admin.get("/dashboard/floor?name=H2").await;
        one.shows("1 of 2 hosts").shows("hosts/h2").hides("hosts/h1\"");
        admin.get("/dashboard/floor?show=problems").await.shows("No host matches");
        let after = admin.get("/dashboard/floor?marker=h1").await;
        after.shows("hosts/h2").hides("hosts/h1\"").shows("First hosts");
        // A host.
        let page = admin.get("/dashboard/hosts/h1").await;
        page.has_status(200)
            .shows("0000:84:00.0")
            .shows("&lt;b&gt;zebra")
            .shows("Owners of the devices");
        page.shows("taken").shows("simulated").shows("actions").shows("Drain this host");
        for gone in ["nothing", "..%2F..%2Fservers", "%3Cscript%3E"] {
            let page = admin.get(&format!("/dashboard/hosts/{gone}")).await;
            page.has_status(404).hides("<script>");
            let events = format!("/dashboard/hosts/{gone}/events");
            admin.once(Method::GET, &events, None).await.has_status(404);
        }
        let capacity = admin.get("/dashboard/capacity").await;
        capacity.has_status(200).shows("2 of 2 compute hosts").shows("greedy").shows("VGPU");
        capacity.shows("There are no samples for this period yet");
        let write = cloud.database.write(move |tx| {
            use kilonova_compute_db::samples::{Usage, add};
            let begin = kilonova_wire::time::now() - jiff::SignedDuration::from_mins(95);
            for slot in 0..20 {
                let usage = |class: &str, used, capacity| Usage {
                    resource_class: class.to_owned(),
                    used,
                    capacity,
                };
                let at = begin + jiff::SignedDuration::from_mins(5 * slot);
                add(tx, at, &[usage("VGPU", slot % 8, 8), usage("<b>", 1, 2)])?;
            }
            Ok::<_, kilonova_compute_db::Error>(())
        });
        write.await.unwrap();
        let plots = admin.get("/dashboard/capacity?period=day").await;
        plots
            .has_status(200)
            .shows("VGPU: 3 of 8 in use at the last sample, at most 7")
            .hides("<b>");
        for period in ["week", "month", "%3Cscript%3E"] {
            let page = admin.get(&format!("/dashboard/capacity?period={period}")).await;
            page.has_status(200).shows("<svg").shows("aria-current=\"true\"").hides("<script>");
        }
        let greedy = admin.get("/dashboard/capacity?flavor=f-greedy").await;
        greedy.has_status(200).shows("Room for greedy").shows("One or two live migrations cannot");
        admin.get("/dashboard/capacity?flavor=no%20such").await.has_status(404);
        let every = admin.get("/dashboard/capacity?flavor=").await;
        every.has_status(200).shows("VGPU: 3 of 8 in use").hides("Room for");

        // These pages are forbidden to members and readers.
        for (user, project) in [("ann", "red"), ("rob", "red")] {
            let mut other = Browser::of(&cloud, user, project).await;
            let form = other.get("/dashboard/servers").await;
            form.hides("/dashboard/floor").hides("/dashboard/capacity");
            for path in ["floor", "hosts/h1", "hosts/h1/events", "capacity", "floor/events"] {
                let page = other.once(Method::GET, &format!("/dashboard/{path}"), None).await;
                page.has_status(403).hides("hosts/h1").hides("84:00");
            }
            for path in ["drain", "drain/stop", "enable", "disable"] {
                other
                    .submit(&form, &format!("/dashboard/hosts/h1/{path}"), &[])
                    .await
                    .has_status(403);
            }
            let device = device_of(&page, "disable");
            other.submit(&form, &device, &[]).await.has_status(403);
        }
        admin.get("/dashboard/hosts/h1").await.hides("Enable this host");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_page_of_the_floor_is_read_again_where_it_changed() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "name-0", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let mut member = Browser::of(&cloud, "ann", "red").await;
        // A new name does not mark the host as changed. A report of the host may still arrive between two requests,
        // and each of the controllers, which answer in turn, keeps its own page.
        let mut kept = false;
        for number in 1..10 {
            admin.get("/dashboard/floor").await;
            admin.get("/dashboard/floor").await;
            let body = format!(r#"{{"server": {{"name": "name-{number}"}}}}"#);
            let path = format!("/compute/v2.1/servers/{id}");
            cloud.send(Method::PUT, &path, "application/json", body.into()).await;
            let old = format!("name-{}", number - 1);
            kept = admin.get("/dashboard/floor").await.html.contains(&old);
            if kept {
                break;
            }
        }
        assert!(kept, "no page was kept");
        member.once(Method::GET, "/dashboard/floor", None).await.has_status(403).hides("name-");
        // Another server on the host marks it as changed.
        let other = cloud.boot("ann", "other", "f-vgpu").await;
        cloud.becomes(&other, "ACTIVE").await;
        admin.get("/dashboard/floor").await.shows("other").shows("2 used");
        let deleted = format!("/compute/v2.1/servers/{other}");
        cloud.send(Method::DELETE, &deleted, "application/json", String::new().into()).await;
        member.once(Method::GET, "/dashboard/floor", None).await.has_status(403).hides("name-");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_of_many_hosts_are_drawn_large_with_the_names_of_their_servers() {
    let spare = |number: usize| {
        format!("[[host]]\nname = \"spare-{number}\"\nvcpus = 1\nmemory_mb = 1024\ndisk_gb = 10\n")
    };
    let spares: String = (1..=40).map(spare).collect();
    for cloud in clouds().await {
        cloud.add_hosts(&spares).await;
        let id = cloud.boot("ann", "zebra", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        // Two requests to each controller: the second answer comes from the page that it keeps.
        for _ in 0..4 {
            let all = admin.get("/dashboard/floor").await;
            all.has_status(200)
                .shows("42 hosts")
                .shows("<svg")
                .hides("zebra")
                .hides("class=\"block ");
            let few = admin.get("/dashboard/floor?name=h1").await;
            few.shows("1 of 42 hosts").shows("class=\"block ").shows("zebra");
            let large = admin.get("/dashboard/floor?size=large").await;
            large.shows("42 hosts").shows("spare-40").shows("zebra");
        }
    }
}

/// The path of the first form that changes a device.
fn device_of(page: &Page, change: &str) -> String {
    let forms = page.html.split("action=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut found = forms.filter(|path| path.contains("/devices/") && path.ends_with(change));
    found.next().unwrap_or_else(|| panic!("no {change}: {}", page.html)).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_disabled_and_the_open_floor_shows_it() {
    for cloud in clouds().await {
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let floor = admin.get("/dashboard/floor").await;
        let mut stream = admin.stream(&stream_of(&floor.html)).await;
        let page = admin.get("/dashboard/hosts/h1").await;
        let mut of_host = admin.stream(&stream_of(&page.html)).await;
        let path = device_of(&page, "disable");
        let form = admin.submit(&page, &path, &[]).await;
        form.has_status(200).shows("‖ disabled");
        let cards = stream.until("cards", "4 disabled").await;
        assert!(cards.contains("hx-swap-oob=\"true\"") && cards.contains("hosts/h1"), "{cards}");
        assert!(!cards.contains("hosts/h2"), "the other host has not changed: {cards}");
        assert!(cards.contains("id=\"sums\""), "{cards}");
        of_host.until("changed", "changed").await;
        admin.get("/dashboard/floor?show=problems").await.shows("hosts/h1").hides("hosts/h2\"");
        let path = device_of(&form, "enable");
        admin.submit(&form, &path, &[]).await.has_status(200).hides("‖ disabled");
        stream.until("cards", "4 free").await;
        // Both pages are notified of a new server on the host.
        let id = cloud.boot("ann", "one", "f-vgpu").await;
        stream.until("cards", &id).await;
        cloud.becomes(&id, "ACTIVE").await;
        of_host.until("changed", "changed").await;
        // The host's page follows the changes of the new server.
        while tokio::time::timeout(Duration::from_secs(2), of_host.next()).await.is_ok() {}
        let path = format!("/compute/v2.1/servers/{id}");
        let name = serde_json::json!({"server": {"name": "another"}}).to_string();
        cloud.send(Method::PUT, &path, "application/json", name.into()).await;
        of_host.until("changed", "changed").await;
        // The stream of an outdated page requests a reload of the list.
        let mut late = admin.stream(&stream_of(&floor.html)).await;
        late.until("list", "list").await;
        let strange = admin.submit(&form, "/dashboard/hosts/h1/devices/x/burn", &[]).await;
        strange.has_status(404);
        admin.submit(&form, "/dashboard/hosts/h1/devices/x/enable", &[]).await.has_status(404);
    }
}

/// Waits until a host's page says that its drain has ended.
async fn until_ended(cloud: &Cloud, admin: &mut Browser, here: &str) -> Page {
    for _ in 0..400 {
        let page = admin.get(here).await;
        page.has_status(200).shows("<section id=\"drain\"");
        if page.html.contains("Drain ended") {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}: the drain does not end", cloud.store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_drained_with_progress_and_enabled_again() {
    for cloud in clouds().await {
        let (first, second) =
            (cloud.boot("ann", "one", "f-tiny").await, cloud.boot("ann", "two", "f-tiny").await);
        for id in [&first, &second] {
            cloud.becomes(id, "ACTIVE").await;
        }
        let shown = cloud.get(&format!("/compute/v2.1/servers/{first}")).await;
        let host = shown["server"]["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let here = format!("/dashboard/hosts/{host}");
        let drain = format!("{here}/drain");
        let page = admin.get(&here).await;
        page.has_status(200).shows("Drain this host").hides("id=\"drain\"");
        let mut stream = admin.stream(&stream_of(&page.html)).await;
        let page = admin.submit(&page, &drain, &[("reason", "a new <fan>")]).await;
        page.has_status(200).shows("Drain in progress").shows("a new &lt;fan&gt;").hides("<fan>");
        page.shows("Stop the drain").hides("Drain this host");
        assert_eq!(page.at, here);
        // Open pages are notified of the drain, and later pages show its progress.
        stream.until("changed", "changed").await;
        let page = until_ended(&cloud, &mut admin, &here).await;
        page.shows("The host is empty.").shows("2 of 2 servers have left");
        page.shows("Enable this host").hides("Drain again");
        for id in [&first, &second] {
            let shown = cloud.get(&format!("/compute/v2.1/servers/{id}")).await;
            assert_ne!(shown["server"]["OS-EXT-SRV-ATTR:host"], host.as_str(), "{}", cloud.store);
            assert_eq!(shown["server"]["status"], "ACTIVE", "{}", cloud.store);
        }
        let floor = admin.get("/dashboard/floor?show=disabled").await;
        floor.shows(&format!("hosts/{host}\""));
        let page = admin.submit(&page, &format!("{here}/enable"), &[]).await;
        page.has_status(200).hides("a new").shows("Drain this host");
        // Servers without another host stay, and the page reports it.
        let other = if host == "h1" { "h2" } else { "h1" };
        let away = format!("/dashboard/hosts/{host}/disable");
        admin.submit(&page, &away, &[("reason", " ")]).await.has_status(200).shows("‖ disabled");
        admin.submit(&page, &away, &[("reason", "no room")]).await.has_status(200).shows("no room");
        let there = format!("/dashboard/hosts/{other}/drain");
        admin.submit(&page, &there, &[]).await.has_status(200).shows("Drain in progress");
        let page = until_ended(&cloud, &mut admin, &format!("/dashboard/hosts/{other}")).await;
        page.shows("No other server can be moved automatically.").shows("0 of 2 servers have left");
        page.shows("No valid host was found").shows("kilonova server explain").shows("Drain again");
        // A drain can be stopped. Stopping it again changes nothing.
        let page = admin.submit(&page, &there, &[("cold", "1")]).await;
        let stopped = admin.submit(&page, &format!("{there}/stop"), &[]).await;
        stopped
            .has_status(200)
            .shows("Drain stopped")
            .shows("Drain again")
            .shows("Enable this host");
        let page = admin.submit(&stopped, &format!("{there}/stop"), &[]).await;
        page.has_status(200).shows("Drain stopped");
        let enable = format!("/dashboard/hosts/{other}/enable");
        admin.submit(&page, &enable, &[]).await.has_status(200).hides("id=\"drain\"");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_floor_forgets_hosts_that_the_page_no_longer_shows() {
    for cloud in clouds().await {
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let form = admin.get("/dashboard/hosts/h1").await;
        admin.submit(&form, "/dashboard/hosts/h1/disable", &[]).await.has_status(200);
        let page = admin.get("/dashboard/floor?show=disabled").await;
        page.shows("hosts/h1\"").hides("hosts/h2\"");
        let mut stream = admin.stream(&stream_of(&page.html)).await;
        // The card stays while the page is open, also without the property that it is filtered by.
        admin.submit(&form, "/dashboard/hosts/h1/enable", &[]).await.has_status(200);
        stream.until("cards", "hosts/h1\"").await;
        admin.submit(&form, "/dashboard/hosts/h2/disable", &[]).await.has_status(200);
        stream.until("list", "list").await;
        admin.get("/dashboard/floor?show=disabled").await.shows("hosts/h2\"").hides("hosts/h1\"");
        // The page has no place for the card of h1 now, although that host changes.
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        admin.submit(&form, "/dashboard/hosts/h2/enable", &[]).await.has_status(200);
        loop {
            let (kind, data) = stream.next().await.expect("the stream is open");
            assert!(kind != "cards" || !data.contains("hosts/h1\""), "{}: {data}", cloud.store);
            if kind == "cards" && data.contains("hosts/h2\"") {
                break;
            }
        }
    }
}
