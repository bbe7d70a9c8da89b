//! Explanations of servers and searches, and the findings of the doctor.

use kilonova_store::params;

use crate::browser::Browser;
use crate::cloud::clouds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_searches_are_explained() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "<b>zebra</b>", "f-vgpu").await;
        cloud.becomes(&id, "ACTIVE").await;
        let failed = cloud.boot("ann", "big", "f-greedy").await;
        cloud.becomes(&failed, "ERROR").await;
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let here = format!("/dashboard/servers/{id}/explain");
        admin.get("/dashboard/explain").await.has_status(200).shows("Allocation candidates");
        let found = admin.get("/dashboard/explain?server=zebra").await;
        found.has_status(200).shows(&here).shows("&lt;b&gt;zebra").hides("<b>zebra").hides(">big<");
        admin.get("/dashboard/explain?server=nobody").await.shows("No server matches");
        let page = admin.get(&format!("/dashboard/explain?server={id}")).await;
        assert_eq!(page.at, here);
        page.has_status(200)
            .shows("Claims")
            .shows("VGPU")
            .shows("/dashboard/hosts/h1")
            .shows("&lt;b&gt;zebra");
        let page = admin.get(&format!("/dashboard/servers/{failed}/explain")).await;
        page.has_status(200)
            .shows("Why it failed")
            .shows("Hosts with room for it now")
            .shows("VGPU");
        page.shows("data-label=\"Excluded\">1");
        // Searches.
        let ask = |query: &str| format!("/dashboard/explain?query={}", query.replace('=', "%3D"));
        let none = admin.get(&ask("resources=VGPU:99")).await;
        none.has_status(200)
            .shows("notice bad")
            .shows("data-label=\"Left\">0")
            .shows("The nearest host is");
        let some = admin.get(&ask("resources=VGPU:1%0D%0Alimit=5")).await;
        some.has_status(200).shows("notice good").shows("limit=5");
        for wrong in ["resources=NOPE:1", "nothing", "%3Cscript%3E=1", "resources="] {
            let page = admin.get(&ask(wrong)).await;
            page.has_status(400).shows("role=\"alert\"").hides("<script>");
        }
        // One invalid line makes the whole query invalid.
        let page = admin.get(&ask("resources=VGPU:1%0D%0Anothing")).await;
        page.has_status(400).shows("Each line of the query").hides("notice good");
        // Users of the project see no host; other projects see nothing.
        for user in ["ann", "rob"] {
            let mut own = Browser::of(&cloud, user, "red").await;
            own.get(&here).await.has_status(200).shows("VGPU").hides("hosts/h1").hides("0000:84");
            own.get("/dashboard/servers")
                .await
                .hides("/dashboard/explain")
                .hides("/dashboard/doctor");
            own.get(&format!("/dashboard/explain?server={id}")).await.has_status(403);
            own.get(&ask("resources=VGPU:1")).await.has_status(403);
        }
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        bea.get(&here).await.has_status(404).hides("zebra");
        bea.get("/dashboard/servers/nothing/explain").await.has_status(404);
        // An operation that a newer version has begun.
        let write = cloud.database.write(move |tx| {
            tx.execute(
                "UPDATE operations SET outcome = 'open', open_subject = subject, step = 'sleep'
                WHERE subject = ?1 AND kind = 'create'",
                params![id.as_str()],
            )
        });
        assert_eq!(write.await.unwrap(), 1, "{}", cloud.store);
        let page = admin.get(&here).await;
        page.has_status(200)
            .shows("create sleep")
            .shows("A newer version of Kilonova has begun its create");
        page.shows("unknown step &quot;sleep&quot;");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_names_findings_with_remedies() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "s", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let lost: kilonova_ids::ServerId = kilonova_ids::parse_uuid_like(&id).unwrap();
        let write = cloud.database.write(move |tx| {
            let sql = "UPDATE servers SET host = NULL WHERE id = ?1";
            tx.execute(sql, params![lost])
        });
        write.await.unwrap();
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let page = admin.get("/dashboard/doctor").await;
        page.has_status(200).shows("✕ error").shows("BROKEN by").shows(&id).shows("keep a copy");
        page.shows("2 hosts, 2 of them up").shows("see the findings");
        for (user, project) in [("ann", "red"), ("rob", "red"), ("bea", "blue")] {
            let mut other = Browser::of(&cloud, user, project).await;
            other.get("/dashboard/doctor").await.has_status(403).hides("BROKEN").hides(&id);
        }
    }
}
