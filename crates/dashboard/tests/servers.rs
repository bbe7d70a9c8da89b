//! The list of servers, and the page of a server.

use std::time::Duration;

use kilonova_store::params;

use crate::browser::Browser;
use crate::cloud::clouds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_sees_its_servers_and_no_others() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        ann.get("/dashboard/servers")
            .await
            .shows("This project has no servers yet.")
            .shows("Launch");
        let id = cloud.boot("ann", "<b>zebra</b>", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let list = ann.get("/dashboard/servers").await;
        list.shows("&lt;b&gt;zebra&lt;/b&gt;").hides("<b>zebra").shows("active").shows("192.0.2.");
        list.hides("All projects").hides("h1</td>");
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        page.has_status(200)
            .shows("Devices")
            .shows("VGPU")
            .shows("private")
            .shows("Timeline")
            .shows(&format!("/dashboard/servers/{id}/explain"))
            .shows("Launch");
        page.shows("datetime=\"20").shows("1 vCPU, 128 MiB memory, 1 GiB disk");
        page.shows(&format!("/dashboard/images/{}\">hello</a>", cloud.image));
        page.hides("actions/live-migrate").hides("<dd>h1</dd>");
        page.shows("role=\"group\" aria-labelledby=\"actions-").shows("Images and flavor");
        page.shows("Removal").hides("Administration");
        // An open page sends its image's name when its script reloads it; in a plain link, the name is ignored.
        let again = format!("/dashboard/servers/{id}?image={}&named=other%3Cb%3E", cloud.image);
        let link = format!("/dashboard/images/{}\">", cloud.image);
        ann.get(&again).await.shows(&format!("{link}hello</a>"));
        ann.script = true;
        ann.get(&again).await.shows(&format!("{link}other&lt;b&gt;</a>"));
        let stale = format!("/dashboard/servers/{id}?image=another&named=other");
        ann.get(&stale).await.shows(&format!("{link}hello</a>"));
        ann.script = false;
        // A reader may read, and is offered no actions.
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        rob.get("/dashboard/servers").await.shows("zebra").hides("/dashboard/launch");
        let page = rob.get(&format!("/dashboard/servers/{id}")).await;
        page.has_status(200).shows("Your role allows no action").hides("/actions/").hides("/log\"");
        rob.get("/dashboard/launch").await.has_status(403);
        rob.get(&format!("/dashboard/servers/{id}/log")).await.has_status(403);
        let form = rob.get("/dashboard/servers").await;
        rob.submit(&form, &format!("/dashboard/servers/{id}/actions/delete"), &[])
            .await
            .has_status(403);
        // A user of another project does not find the server.
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        bea.get("/dashboard/servers").await.hides("zebra");
        let form = bea.get("/dashboard/servers").await;
        for part in ["", "/log", "/console", "/events", "/actions/stop"] {
            bea.get(&format!("/dashboard/servers/{id}{part}")).await.has_status(404).hides("zebra");
        }
        bea.submit(&form, &format!("/dashboard/servers/{id}/actions/stop"), &[])
            .await
            .has_status(404);
        for id in ["nothing", "..%2Fflavors", "00000000-0000-0000-0000-000000000000"] {
            bea.get(&format!("/dashboard/servers/{id}")).await.has_status(404);
        }
        // The administrator sees the servers of all projects, with their hosts.
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        admin.get("/dashboard/servers").await.shows("All projects").hides("zebra");
        admin.get("/dashboard/servers?all=1").await.shows("zebra").shows("h1</td>");
        bea.get("/dashboard/servers?all=1").await.has_status(200).hides("zebra");
        let page = admin.get(&format!("/dashboard/servers/{id}")).await;
        page.has_status(200)
            .shows("actions/live-migrate")
            .shows("Administration")
            .shows("hosts/h1\">h1</a>")
            .shows("MDEV");
        page.hides("actions/evacuate");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_filtered_and_paged() {
    for cloud in clouds().await {
        for number in 0..53 {
            cloud.boot("ann", &format!("s{number:02}"), "f-tiny").await;
        }
        let odd = cloud.boot("ann", "a.b", "f-tiny").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get("/dashboard/servers").await;
        assert_eq!(page.html.matches("<tr id=\"server-").count(), 50, "{}", cloud.store);
        page.shows("Older servers").hides("Newest servers").shows("s52").hides(">s00<");
        let at = page.html.find("id=\"next-page\" href=\"").unwrap() + 21;
        let next = page.html[at..].split('"').next().unwrap().replace("&amp;", "&");
        let page = ann.get(&next).await;
        assert_eq!(page.html.matches("<tr id=\"server-").count(), 4, "{}", cloud.store);
        page.shows(">s00<").hides("Older servers").shows("Newest servers");
        let page = ann.get("/dashboard/servers?name=a.b").await;
        assert_eq!(page.html.matches("<tr id=\"server-").count(), 1, "a dot is not a wildcard");
        page.shows(&odd).shows("Clear");
        ann.get("/dashboard/servers?name=((").await.has_status(200).shows("No server matches");
        ann.get("/dashboard/servers?status=PAUSED").await.shows("No server matches");
        // The filters by address and by host.
        let page = ann.get("/dashboard/servers?ip=192.0.2.").await;
        page.has_status(200).shows(">a.b<").shows("value=\"192.0.2.\"").hides("name=\"host\"");
        ann.get("/dashboard/servers?ip=203.0.113.")
            .await
            .has_status(200)
            .shows("No server matches");
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let mut found = 0;
        for host in ["h1", "h2"] {
            let page = admin.get(&format!("/dashboard/servers?all=1&host={host}&name=a.b")).await;
            page.has_status(200).shows("name=\"host\"").shows(&format!("value=\"{host}\""));
            found += usize::from(page.html.contains(&odd));
        }
        assert_eq!(found, 1, "the server is on one of the hosts");
        let page = admin.get("/dashboard/servers?all=1&host=%3Ch9%3E").await;
        page.has_status(200).shows("No server matches").hides("<h9>");
        let wrong = ann.get("/dashboard/servers?marker=nothing").await;
        assert!(wrong.status.is_client_error() && wrong.html.contains("<h1>"), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soft_deleted_servers_are_listed_and_deleted_ones_are_not() {
    for cloud in clouds().await {
        for name in ["okapi", "zebra"] {
            let id = cloud.boot("ann", name, "f-tiny").await;
            cloud.becomes(&id, "ACTIVE").await;
        }
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let list = ann.get("/dashboard/servers").await;
        list.shows("okapi").shows("zebra");
        let found = cloud.get("/compute/v2.1/servers?all_tenants=1&name=okapi").await;
        let okapi = found["servers"][0]["id"].as_str().unwrap();
        ann.submit(&list, &format!("/dashboard/servers/{okapi}/actions/delete"), &[]).await;
        let gone = format!("/dashboard/servers/{okapi}");
        for _ in 0..500 {
            if ann.get(&gone).await.status == 404 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let write = cloud.database.write(|tx| {
            let soft = "UPDATE servers SET vm_state = 'soft-delete' WHERE name = 'zebra'";
            tx.execute(soft, params![])
        });
        assert_eq!(write.await.unwrap(), 1, "{}", cloud.store);
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        for page in [
            ann.get("/dashboard/servers").await,
            ann.get("/dashboard/servers?status=SOFT_DELETED").await,
            admin.get("/dashboard/servers?all=1").await,
        ] {
            page.shows("zebra").shows("deleted, restorable").hides("okapi");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_boot_says_why() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "big", "f-greedy").await;
        cloud.becomes(&id, "ERROR").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        page.has_status(200).shows("Why it failed").shows("VGPU").shows("No ports").shows("Delete");
        page.hides("actions/stop\"");
        let log = ann.get(&format!("/dashboard/servers/{id}/log")).await;
        log.has_status(200).shows("Console log");
    }
}
