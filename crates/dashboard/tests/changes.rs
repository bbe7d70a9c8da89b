//! Changes of a server from its page: its name, metadata and tags, backups, ports and volumes.

use kilonova_testkit::cinder::FakeCinder;
use serde_json::json;

use crate::browser::{Browser, Page};
use crate::cloud::{Cloud, clouds, clouds_with_cinder};

impl Page {
    /// The value of the first option with this text.
    fn choice(&self, words: &str) -> String {
        let at = self.html.find(words).unwrap_or_else(|| panic!("no {words}: {}", self.html));
        let start = self.html[..at].rfind("<option value=\"").expect("the text is in an option");
        let rest = &self.html[start + "<option value=\"".len()..];
        rest[..rest.find('"').unwrap()].to_owned()
    }
}

/// Opens the form of an action, and checks that neither a reader nor another project may use it.
async fn opened(cloud: &Cloud, ann: &mut Browser, id: &str, slug: &str) -> (Page, String) {
    let path = format!("/dashboard/servers/{id}/actions/{slug}");
    let form = ann.get(&path).await;
    form.has_status(200);
    assert_eq!(form.at, path, "{}: the action is offered", cloud.store);
    // The reader's page has no button, and both users' forms are refused.
    let mut reader = Browser::of(cloud, "rob", "red").await;
    let page = reader.get(&format!("/dashboard/servers/{id}")).await;
    page.has_status(200).hides(&format!("actions/{slug}\""));
    let fields = [("name", "x"), ("kind", "daily"), ("keep", "1"), ("target", "network x")];
    let more = [("port", "x"), ("volume", "x"), ("metadata", "a=b"), ("tags", "a")];
    let shown = form.html.contains("name=\"shown\"").then(|| form.hidden("shown"));
    let mut all = [&fields[..], &more[..]].concat();
    if let Some(shown) = &shown {
        all.push(("shown", shown));
    }
    reader.submit(&page, &path, &all).await.has_status(403);
    let mut other = Browser::of(cloud, "bea", "blue").await;
    let page = other.get("/dashboard/servers").await;
    other.submit(&page, &path, &all).await.has_status(404);
    // A form with a wrong CSRF token is refused.
    all.push(("csrf", "x"));
    ann.post(&path, &all).await.has_status(403).shows("does not belong to your session");
    (form, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_renamed_and_described_by_metadata_and_tags() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let server =
            async || cloud.get(&format!("/compute/v2.1/servers/{id}")).await["server"].take();

        let (form, path) = opened(&cloud, &mut ann, &id, "rename").await;
        form.shows("Rename: one").shows("value=\"one\"");
        let refused = ann.submit(&form, &path, &[("name", " "), ("description", "kept")]).await;
        refused.shows("A field is missing.").shows("value=\"kept\"");
        let fields = [("name", "two <b>"), ("description", "of mine")];
        let page = ann.submit(&form, &path, &fields).await;
        page.has_status(200).shows("two &lt;b&gt;").shows("of mine");
        let found = server().await;
        assert_eq!((&found["name"], &found["description"]), (&json!("two <b>"), &json!("of mine")));
        ann.submit(&form, &path, &[("name", "two"), ("description", "")]).await.has_status(200);
        assert_eq!(server().await["description"], json!(null));

        let (form, path) = opened(&cloud, &mut ann, &id, "metadata").await;
        let shown = form.hidden("shown");
        let text = "role=web = 1\r\npath=C:\\\\new\r\n\r\nlines=a\\nb\r\n";
        let page = ann.submit(&form, &path, &[("shown", &shown), ("metadata", text)]).await;
        page.has_status(200).shows("<code>role=web = 1</code>");
        let wanted = json!({"role": "web = 1", "path": "C:\\new", "lines": "a\nb"});
        assert_eq!(server().await["metadata"], wanted, "{}", cloud.store);
        // The form is now outdated: it overwrites nothing, and the page shows the current values.
        let late = ann.submit(&form, &path, &[("shown", &shown), ("metadata", "mine=1")]).await;
        late.has_status(409)
            .shows("changed since this form was opened")
            .shows("mine=1")
            .shows("lines=a\\nb");
        assert_eq!(server().await["metadata"], wanted);
        let shown = late.hidden("shown");
        for (wrong, why) in [
            ("mine", "Each line must have the form"),
            ("a=1\na=2", "A key appears twice"),
            ("a/b=1", "Key a/b: it must have 1 to 255"),
        ] {
            let refused = ann.submit(&late, &path, &[("shown", &shown), ("metadata", wrong)]).await;
            refused.has_status(400).shows(why).shows(wrong.split('\n').next().unwrap());
        }
        ann.submit(&late, &path, &[("shown", &shown), ("metadata", "mine=1")])
            .await
            .has_status(200);
        assert_eq!(server().await["metadata"], json!({"mine": "1"}));

        let (form, path) = opened(&cloud, &mut ann, &id, "tags").await;
        let shown = form.hidden("shown");
        let page =
            ann.submit(&form, &path, &[("shown", &shown), ("tags", "gpu, team a,gpu")]).await;
        page.has_status(200).shows("gpu, team a");
        assert_eq!(server().await["tags"], json!(["gpu", "team a"]));
        let late = ann.submit(&form, &path, &[("shown", &shown), ("tags", "mine")]).await;
        late.has_status(409).shows("value=\"mine\"").shows("gpu, team a");
        let shown = late.hidden("shown");
        let refused = ann.submit(&late, &path, &[("shown", &shown), ("tags", "a/b")]).await;
        refused.has_status(400).shows("is invalid").shows("value=\"a/b\"");
        ann.submit(&late, &path, &[("shown", &shown), ("tags", "")]).await.has_status(200);
        assert_eq!(server().await["tags"], json!([]));

        // Metadata and tags of a shelved server cannot be changed, and the page does not offer it.
        let page = ann.get(&format!("/dashboard/servers/{id}/actions/shelve")).await;
        ann.submit(&page, &format!("/dashboard/servers/{id}/actions/shelve"), &[])
            .await
            .has_status(200);
        cloud.becomes(&id, "SHELVED_OFFLOADED").await;
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        page.hides("actions/metadata\"").hides("actions/tags\"").shows("actions/rename\"");
        let empty = ann.get(&format!("/dashboard/servers/{id}/actions/rename")).await;
        let metadata = format!("/dashboard/servers/{id}/actions/metadata");
        let shown = [("shown", &*late_key("mine=1")), ("metadata", "a=b")];
        ann.submit(&empty, &metadata, &shown)
            .await
            .has_status(409)
            .shows("Cannot 'update metadata'");
    }
}

/// The fingerprint of the text that a form shows.
fn late_key(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_are_made_and_the_oldest_go() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let (form, path) = opened(&cloud, &mut ann, &id, "backup").await;
        form.shows("Create backup: one").shows("one-backup").shows("Older ones are deleted.");
        for keep in ["", "-1", "many"] {
            let fields = [("name", "b"), ("kind", "daily"), ("keep", keep)];
            let refused = ann.submit(&form, &path, &fields).await;
            refused.has_status(200).shows("A field is missing.");
        }
        for name in ["first", "second"] {
            let fields = [("name", name), ("kind", "weekly"), ("keep", "1")];
            ann.submit(&form, &path, &fields).await.has_status(200);
            let images = format!("/image/v2/images?status=active&name={name}");
            for _ in 0..1000 {
                let idle = cloud.get(&format!("/compute/v2.1/servers/{id}")).await;
                let made =
                    cloud.get(&images).await["images"].as_array().is_some_and(|all| all.len() == 1);
                if made && idle["server"]["OS-EXT-STS:task_state"].is_null() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
        let all = cloud.get("/image/v2/images").await;
        let names: Vec<_> =
            all["images"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert!(
            names.contains(&&json!("second")) && !names.contains(&&json!("first")),
            "{names:?}"
        );
        // A shelved server cannot be backed up.
        let shelve = format!("/dashboard/servers/{id}/actions/shelve");
        ann.submit(&form, &shelve, &[]).await.has_status(200);
        cloud.becomes(&id, "SHELVED_OFFLOADED").await;
        let fields = [("name", "third"), ("kind", "weekly"), ("keep", "1")];
        ann.submit(&form, &path, &fields)
            .await
            .has_status(409)
            .shows("Cannot 'createBackup' instance");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_are_attached_and_detached() {
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let ports = async || {
            let path = format!("/compute/v2.1/servers/{id}/os-interface");
            let found = cloud.get(&path).await;
            found["interfaceAttachments"].as_array().expect("a list").clone()
        };
        let (form, path) = opened(&cloud, &mut ann, &id, "attach-port").await;
        let network = form.choice("A new port on the network private");
        assert_eq!(network, format!("network {}", cloud.network));
        ann.submit(&form, &path, &[("target", &network)]).await.has_status(200);
        assert_eq!(ports().await.len(), 2, "{}", cloud.store);
        // A port of the project that no server uses.
        let token = cloud.login("ann", "red").await;
        let port = json!({"port": {"network_id": cloud.network, "name": "spare"}}).to_string();
        let json = "application/json";
        let post = http::Method::POST;
        let made = cloud.send_as(&token, post, "/network/v2.0/ports", json, port.into()).await;
        let spare = made["port"]["id"].as_str().unwrap();
        let form = ann.get(&path).await;
        let chosen = form.choice("The port spare");
        assert_eq!(chosen, format!("port {spare}"));
        cloud.wait_until_idle(&id).await;
        ann.submit(&form, &path, &[("target", &chosen)]).await.has_status(200);
        assert_eq!(ports().await.len(), 3);
        ann.get(&path).await.hides("The port spare");
        cloud.wait_until_idle(&id).await;
        // If the id is wrong, the form shows the error.
        let nothing = format!("port {id}");
        let refused = ann.submit(&form, &path, &[("target", &nothing)]).await;
        refused.has_status(404).shows("role=\"alert\"").shows("Attach port: one");
        ann.submit(&form, &path, &[("target", "nothing")]).await.shows("A field is missing.");

        let (form, path) = opened(&cloud, &mut ann, &id, "detach-port").await;
        form.shows("The guest loses this network interface");
        ann.submit(&form, &path, &[("port", &id)])
            .await
            .has_status(404)
            .shows("could not be found");
        ann.submit(&form, &path, &[("port", spare)]).await.has_status(200);
        for _ in 0..1000 {
            if ports().await.len() == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(ports().await.len(), 2);
        let kept = cloud.get(&format!("/network/v2.0/ports/{spare}")).await;
        assert_eq!(kept["port"]["device_id"], "", "the port belongs to no server any more");
        // Ports of a suspended server cannot be attached or detached.
        let suspend = format!("/dashboard/servers/{id}/actions/suspend");
        cloud.wait_until_idle(&id).await;
        ann.submit(&form, &suspend, &[]).await.has_status(200);
        cloud.becomes(&id, "SUSPENDED").await;
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        page.hides("actions/attach-port\"").hides("actions/detach-port\"");
        let port = ports().await[0]["port_id"].as_str().unwrap().to_owned();
        let refused = ann.submit(&form, &path, &[("port", &port)]).await;
        refused.has_status(409).shows("Cannot 'detach_interface' instance");
        let attach = format!("/dashboard/servers/{id}/actions/attach-port");
        let refused = ann.submit(&form, &attach, &[("target", &network)]).await;
        refused.has_status(409).shows("Cannot 'attach_interface' instance");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_attached_and_detached() {
    for (cloud, cinder) in clouds_with_cinder().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let volume = add_volume(&cloud, &cinder).await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let here = format!("/dashboard/servers/{id}");
        ann.get(&here).await.hides("actions/detach-volume\"").hides("id=\"volumes\"");
        let (form, path) = opened(&cloud, &mut ann, &id, "attach-volume").await;
        for wrong in ["nothing", &*id] {
            let refused = ann.submit(&form, &path, &[("volume", wrong)]).await;
            refused.shows("role=\"alert\"").shows(wrong);
            assert!([400, 404].contains(&refused.status.as_u16()), "{wrong}: {}", refused.status);
        }
        ann.submit(&form, &path, &[("volume", &volume)]).await.has_status(200);
        let state = async |wanted: &str| {
            for _ in 0..1000 {
                if cinder.state().status(&volume) == wanted {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            panic!("{}: the volume is {}", cloud.store, cinder.state().status(&volume));
        };
        state("in-use").await;
        cloud.wait_until_idle(&id).await;
        ann.get(&here).await.shows("id=\"volumes\"").shows(&volume).shows("it stays");
        let again = ann.submit(&form, &path, &[("volume", &volume)]).await;
        again.shows("role=\"alert\"").shows(&volume);

        let (form, path) = opened(&cloud, &mut ann, &id, "detach-volume").await;
        form.shows("Unmount it in the guest first").shows(&volume);
        ann.submit(&form, &path, &[("volume", &id)]).await.has_status(404).shows("role=\"alert\"");
        // Volumes of a suspended server cannot be attached or detached.
        let suspend = format!("{here}/actions/suspend");
        ann.submit(&form, &suspend, &[]).await.has_status(200);
        cloud.becomes(&id, "SUSPENDED").await;
        ann.get(&here).await.hides("actions/attach-volume\"").hides("actions/detach-volume\"");
        let refused = ann.submit(&form, &path, &[("volume", &volume)]).await;
        refused.has_status(409).shows("Cannot 'detach_volume' instance");
        ann.submit(&form, &format!("{here}/actions/resume"), &[]).await.has_status(200);
        cloud.becomes(&id, "ACTIVE").await;
        ann.submit(&form, &path, &[("volume", &volume)]).await.has_status(200);
        state("available").await;
    }
    // Without Cinder, the page offers no volume actions.
    for cloud in clouds().await {
        let id = cloud.boot("ann", "one", "f-tiny").await;
        cloud.becomes(&id, "ACTIVE").await;
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let page = ann.get(&format!("/dashboard/servers/{id}")).await;
        page.hides("attach-volume").hides("detach-volume");
    }
}

/// Adds a volume to the project red, and returns its id.
async fn add_volume(cloud: &Cloud, cinder: &FakeCinder) -> String {
    let projects = cloud.get("/identity/v3/projects?name=red").await;
    let red = projects["projects"][0]["id"].as_str().unwrap();
    cinder.accept_tokens_of(red);
    cinder.state().add_volume(red, 1, json!({}))
}
