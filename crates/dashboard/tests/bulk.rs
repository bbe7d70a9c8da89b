//! One action on several servers.

use crate::browser::Browser;
use crate::cloud::clouds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_servers_are_operated_at_once() {
    for cloud in clouds().await {
        let mut ids = Vec::new();
        for name in ["<b>one</b>", "two", "three"] {
            let id = cloud.boot("ann", name, "f-tiny").await;
            cloud.becomes(&id, "ACTIVE").await;
            ids.push(id);
        }
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let list = ann.get("/dashboard/servers").await;
        list.shows("With the chosen servers").shows(&format!("id=\"pick-{}\"", ids[0]));
        list.shows("Choose &lt;b&gt;one").hides("<b>one");
        let ask = |what: &str, ids: &[&str]| {
            let ids = ids.iter().map(|id| format!("&server={id}")).collect::<String>();
            format!("/dashboard/actions?do={what}{ids}")
        };
        // The confirmation names the existing servers of the request, once each, and no others.
        let page = ann.get(&ask("stop", &[&ids[0], &ids[1], "nothing", &ids[1]])).await;
        page.has_status(200)
            .shows("Shut off: 2 servers")
            .shows("the contents of its memory are lost");
        page.shows("For each server:");
        page.shows("&lt;b&gt;one")
            .shows(">two<")
            .hides(">three<")
            .hides("does not allow the action");
        let fields = [("do", "stop"), ("server", &*ids[0]), ("server", &*ids[1])];
        let done = ann.submit(&page, "/dashboard/actions", &fields).await;
        done.has_status(200).shows("requested").hides("✕");
        assert_eq!(done.html.matches("✓").count(), 2, "{}", cloud.store);
        for id in &ids[..2] {
            cloud.becomes(id, "SHUTOFF").await;
        }
        let page = ann.get(&ask("stop", &[&ids[0], &ids[2]])).await;
        page.shows("Shut off: 1 server").shows("does not allow the action").shows("&lt;b&gt;one");
        page.hides("For each server");
        // A refusal for one server does not affect the others.
        let fields =
            [("do", "stop"), ("server", &*ids[0]), ("server", "gone"), ("server", &*ids[2])];
        let done = ann.submit(&page, "/dashboard/actions", &fields).await;
        done.has_status(200).shows("vm_state stopped").shows("The server no longer exists");
        assert_eq!((done.html.matches("✓").count(), done.html.matches("✕").count()), (1, 2));
        cloud.becomes(&ids[2], "SHUTOFF").await;
        ann.get(&ask("start", &["gone"])).await.has_status(200).shows("<h1>Servers</h1>");
        ann.get(&ask("rebuild", &[&ids[0]])).await.has_status(404);
        let many: Vec<String> = (0..51).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        ann.get(&ask("stop", &many)).await.has_status(400);
        // A reader cannot choose servers, and another project does not find them.
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        let list = rob.get("/dashboard/servers").await;
        list.shows(">two<").hides("With the chosen").hides("pick-");
        rob.get(&ask("delete", &[&ids[0]]))
            .await
            .shows("Delete: 0 servers")
            .shows("does not allow the action");
        let fields = [("do", "delete"), ("server", &*ids[0])];
        let done = rob.submit(&list, "/dashboard/actions", &fields).await;
        done.has_status(200).shows("✕").hides("✓");
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        let form = bea.get(&ask("delete", &[&ids[0]])).await;
        form.shows("<h1>Servers</h1>").hides("b&gt;one").hides(&ids[0]);
        let done = bea.submit(&form, "/dashboard/actions", &fields).await;
        done.has_status(200).shows("The server no longer exists").hides("b&gt;one").hides("✓");
        cloud.becomes(&ids[0], "SHUTOFF").await;
        let page = ann.get(&ask("delete", &[&ids[0], &ids[1]])).await;
        page.shows("class=\"danger\"");
        let fields = [("do", "delete"), ("server", &*ids[0]), ("server", &*ids[1])];
        ann.submit(&page, "/dashboard/actions", &fields).await.has_status(200).hides("✕");
        for _ in 0..500 {
            let list = ann.get("/dashboard/servers").await;
            if !list.html.contains(">two<") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        ann.get("/dashboard/servers").await.hides(">two<").shows(">three<");
    }
}
