//! Keys, images, networks, security groups, quotas and device profiles.

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::browser::{Browser, Page};
use crate::cloud::{Cloud, clouds};

const HOSTILE: &str = "<b>zebra</b>\"'&";
const ESCAPED: &str = "&lt;b&gt;zebra&lt;/b&gt;&quot;'&amp;";

/// The last part of a page's address.
fn id_of(page: &Page) -> String {
    page.at.rsplit('/').next().unwrap().to_owned()
}

/// The address of the next page of a list.
fn next(page: &Page) -> Option<String> {
    let at = page.html.find("id=\"next-page\" href=\"")? + 21;
    Some(page.html[at..].split('"').next()?.replace("&amp;", "&"))
}

/// The rows of a page's tables.
fn rows(page: &Page) -> usize {
    page.html.matches("<th scope=\"row\"").count()
}

/// The rows of all pages of a list.
async fn all_rows(browser: &mut Browser, list: &str) -> (usize, usize) {
    let (mut at, mut found, mut count) = (Some(list.to_owned()), 0, 0);
    while let Some(here) = at {
        let page = browser.get(&here).await;
        page.has_status(200);
        // A network's page lists its subnet in addition to its ports.
        assert!(rows(&page) <= 51, "{here}");
        found += rows(&page);
        count += 1;
        at = next(&page);
    }
    (found, count)
}

/// Adds ten thousand images to the database.
async fn many_images(cloud: &Cloud, like: &str) {
    let like = like.to_owned();
    let write = cloud.database.write(move |tx| {
        for _ in 0..10_000 {
            let sql = "INSERT INTO images (id, name, owner, status, visibility, min_ram, min_disk, protected, hidden,
                tags, properties, created_at, updated_at) SELECT ?1, 'many', owner, status, visibility, min_ram,
                min_disk, protected, hidden, tags, properties, created_at, updated_at FROM images WHERE id = ?2";
            let id = kilonova_ids::ImageId::new_v4().to_string();
            tx.execute(sql, kilonova_store::params![&id, &like])?;
        }
        Ok::<_, kilonova_store::Error>(())
    });
    write.await.unwrap();
}

async fn post_as(cloud: &Cloud, user: &str, path: &str, body: Value) -> Value {
    let token = cloud.login(user, if user == "bea" { "blue" } else { "red" }).await;
    let body = Body::from(body.to_string());
    cloud.send_as(&token, Method::POST, path, "application/json", body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_pairs_are_generated_imported_and_deleted() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        ann.get("/dashboard/keys").await.has_status(200).shows("You have no key pairs yet.");
        let form = ann.get("/dashboard/new/key").await;
        let page = ann.submit(&form, "/dashboard/new/key", &[("name", " "), ("type", "ssh")]).await;
        page.has_status(400).shows("Type a name.");
        let page = ann.submit(&form, "/dashboard/new/key", &[("name", "mine")]).await;
        page.has_status(200).shows("BEGIN OPENSSH PRIVATE KEY").shows("download=\"mine.pem\"");
        page.shows("data:application/x-pem-file;base64,").shows("shown only once");
        let public = page.html.split("ssh-ed25519 ").nth(1).expect("a public key");
        let public = format!("ssh-ed25519 {}", public.split('<').next().unwrap());
        // The private key is shown only once.
        let page = ann.get("/dashboard/key?name=mine").await;
        page.has_status(200).shows("ssh-ed25519").hides("PRIVATE KEY");
        let page = ann.submit(&form, "/dashboard/new/key", &[("name", "mine")]).await;
        page.has_status(409).shows("role=\"alert\"").shows("value=\"mine\"");
        // A key may have a name that browsers interpret as a path.
        let fields = [("name", ".."), ("type", "ssh"), ("public_key", &*public)];
        let page = ann.submit(&form, "/dashboard/new/key", &fields).await;
        page.has_status(200).hides("PRIVATE KEY");
        ann.get("/dashboard/key?name=..").await.has_status(200).shows("<h1>..</h1>");
        let page = ann.submit(&form, "/dashboard/new/key", &[("name", HOSTILE)]).await;
        page.has_status(400).shows(ESCAPED).hides("<b>zebra");
        let wrong = [("name", "w"), ("public_key", "<i>no key</i>")];
        ann.submit(&form, "/dashboard/new/key", &wrong).await.has_status(400).hides("<i>");
        let ask = ann.get("/dashboard/key/delete?name=..").await;
        ask.has_status(200).shows("Delete: ..");
        let list = ann.submit(&ask, "/dashboard/key/delete?name=..", &[]).await;
        list.has_status(200).shows("mine").hides("name=..");
        // With such a name, the address exceeds the maximum length.
        let long = "*".repeat(30_000);
        for address in ["key?name=", "keys?marker=", "images/", "servers/"] {
            let page = ann.get(&format!("/dashboard/{address}{long}")).await;
            page.has_status(414).shows("The address is too long.");
        }
        // A key pair belongs to its user, not to the project; even an administrator does not find it.
        for (user, project) in [("bea", "blue"), ("rob", "red"), ("admin", "admin")] {
            let mut other = Browser::of(&cloud, user, project).await;
            other.get("/dashboard/key?name=mine").await.has_status(404);
            other.get("/dashboard/key/delete?name=mine").await.has_status(404);
            let form = other.get("/dashboard/keys").await;
            other.submit(&form, "/dashboard/key/delete?name=mine", &[]).await.has_status(404);
        }
        for number in 0..60 {
            let key = json!({"keypair": {"name": format!("k{number}"), "public_key": public}});
            post_as(&cloud, "ann", "/compute/v2.1/os-keypairs", key).await;
        }
        assert_eq!(all_rows(&mut ann, "/dashboard/keys").await, (61, 2), "{}", cloud.store);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_created_filled_and_deleted() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let list = ann.get("/dashboard/images").await;
        list.has_status(200).shows("hello").shows("/dashboard/new/image").shows("7 B");
        let form = ann.get("/dashboard/new/image").await;
        form.has_status(200).hides("value=\"public\"");
        let fields = [
            ("name", HOSTILE),
            ("disk_format", "raw"),
            ("visibility", "shared"),
            ("min_disk", "1"),
        ];
        let image = ann.submit(&form, "/dashboard/new/image", &fields).await;
        image
            .has_status(200)
            .shows("without data")
            .shows(ESCAPED)
            .hides("<b>zebra")
            .shows("id=\"upload\"");
        let (at, id) = (image.at.clone(), id_of(&image));
        let file = format!("{at}/file");
        let data: Vec<u8> = (0..3_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let sum: String = Sha256::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect();
        // After an upload that was cut off or had a wrong checksum, the image has no data.
        let page = ann.upload(&image, &file, "", data.clone(), false).await;
        assert!(page.status.is_client_error(), "{page:?}");
        ann.get(&at).await.shows("without data");
        let page = ann.upload(&image, &file, &"0".repeat(64), data.clone(), true).await;
        page.has_status(409)
            .shows("does not have this checksum")
            .shows("without data")
            .shows("id=\"upload\"");
        let page = ann.upload(&image, &file, "abc", data.clone(), true).await;
        page.has_status(400).shows("neither SHA-256");
        // A form of another session is refused.
        let mut bea = Browser::of(&cloud, "bea", "red").await;
        bea.upload(&image, &file, "", data.clone(), true).await.has_status(403);
        ann.get(&at).await.shows("without data");
        // Before an upload, the script asks whether the service would accept the file. This does not change the image.
        let trial = format!("{file}/trial");
        for (size, sum, status, why) in [
            ("3000000", "", 204, ""),
            ("0", &*sum, 204, ""),
            ("3000000", "abc", 400, "neither SHA-256"),
            ("9000000000000000", "", 413, "An image may have at most"),
        ] {
            let page = ann.submit(&image, &trial, &[("size", size), ("sum", sum)]).await;
            page.has_status(status).shows(why);
            if status != 204 {
                page.shows("id=\"image\"").shows("role=\"alert\"");
            }
            ann.get(&at).await.shows("without data").shows("id=\"upload\"");
        }
        bea.submit(&image, &trial, &[("size", "1")]).await.has_status(403);
        let mut nobody = Browser::new(&cloud);
        nobody.script = true;
        let page = nobody.submit(&image, &trial, &[("size", "1")]).await;
        assert_eq!(page.has_status(401).headers["hx-redirect"], "/dashboard/login");
        let page = ann.upload(&image, &file, &sum, data.clone(), true).await;
        page.has_status(200)
            .shows("active")
            .shows("2.8 MiB")
            .shows("SHA512")
            .hides("id=\"upload\"");
        assert_eq!(page.at, at);
        let token = cloud.login("ann", "red").await;
        let path = format!("/image/v2/images/{id}/file");
        let kept = cloud.raw_as(&token, &path).await;
        assert_eq!(kept, data, "{}: the image has the data of the file", cloud.store);
        ann.get(&format!("/dashboard/launch?image={id}"))
            .await
            .shows(&format!("value=\"{id}\" selected"));
        // A second upload is refused with the service's message.
        let page = ann.upload(&image, &file, "", data.clone(), true).await;
        page.has_status(409).shows("role=\"alert\"");
        ann.submit(&image, &trial, &[("size", "1")])
            .await
            .has_status(409)
            .shows("only a queued image");
        // A reader may only read, and another project does not find the image.
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        rob.get("/dashboard/images").await.shows("zebra").hides("/dashboard/new/image");
        let page = rob.get(&at).await;
        page.has_status(200).hides("/delete").hides("/launch?");
        rob.get("/dashboard/new/image").await.has_status(403);
        rob.get(&format!("{at}/delete")).await.has_status(403);
        let mut blue = Browser::of(&cloud, "bea", "blue").await;
        let form = blue.get("/dashboard/images").await;
        form.hides("zebra");
        for path in [at.clone(), format!("{at}/delete"), "/dashboard/images/..%2F..%2Fx".into()] {
            blue.get(&path).await.has_status(404).hides("zebra");
        }
        blue.submit(&form, &format!("{at}/delete"), &[]).await.has_status(404);
        let page = blue.upload(&form, &file, "", data, true).await;
        page.has_status(404);
        // Other projects can use the public image, but not delete it.
        let public = format!("/dashboard/images/{}", cloud.image);
        blue.get(&public).await.has_status(200).hides("/delete");
        blue.get(&format!("{public}/delete")).await.has_status(403);
        let ask = ann.get(&format!("{at}/delete")).await;
        ask.has_status(200).shows(ESCAPED);
        ann.submit(&ask, &format!("{at}/delete"), &[]).await.has_status(200).hides("zebra");
        ann.get(&at).await.has_status(404);
        for number in 0..55 {
            let image = json!({"name": format!("i{number}")});
            post_as(&cloud, "ann", "/image/v2/images", image).await;
        }
        assert_eq!(all_rows(&mut ann, "/dashboard/images").await, (56, 2), "{}", cloud.store);
        let image = post_as(&cloud, "ann", "/image/v2/images", json!({"name": "one"})).await;
        many_images(&cloud, image["id"].as_str().unwrap()).await;
        let found = all_rows(&mut ann, "/dashboard/images").await;
        assert_eq!(found, (10_057, 202), "{}", cloud.store);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_have_subnets_and_ports() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        ann.get("/dashboard/networks").await.has_status(200).shows("private").shows("shared");
        let form = ann.get("/dashboard/new/network").await;
        form.hides("name=\"shared\"");
        let network = ann.submit(&form, "/dashboard/new/network", &[("name", HOSTILE)]).await;
        network.has_status(200).shows(ESCAPED).hides("<b>zebra").shows("No subnets");
        let at = network.at.clone();
        let subnets = format!("{at}/subnets");
        let page = ann.submit(&network, &subnets, &[("cidr", "nothing")]).await;
        page.has_status(400).shows("role=\"alert\"").shows("value=\"nothing\"");
        let fields = [("cidr", "198.51.100.0/24"), ("name", "<i>"), ("dhcp", "1")];
        let page = ann.submit(&network, &subnets, &fields).await;
        page.has_status(200).shows("198.51.100.0/24").shows("198.51.100.1").hides("<i>");
        let page = ann.submit(&network, &format!("{at}/ports"), &[("port_name", "web")]).await;
        page.has_status(200).shows(">web<").shows("198.51.100.2");
        // The ports of servers are deleted with them.
        let server = cloud.boot("ann", "s", "f-tiny").await;
        cloud.becomes(&server, "ACTIVE").await;
        let private = format!("/dashboard/networks/{}", cloud.network);
        let shared = ann.get(&private).await;
        shared.has_status(200).shows("192.0.2.").shows(&format!("/dashboard/servers/{server}"));
        shared.hides("/ports/").hides("/delete").hides("Add a subnet");
        // A network in use cannot be deleted.
        let ask = ann.get(&format!("{at}/delete")).await;
        let page = ann.submit(&ask, &format!("{at}/delete"), &[]).await;
        page.has_status(409).shows("role=\"alert\"").shows(ESCAPED);
        let port = ann.get(&at).await;
        let port = port
            .html
            .split("/dashboard/ports/")
            .nth(1)
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let port = format!("/dashboard/ports/{port}/delete");
        // A reader may only read, and another project does not find the network.
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        let page = rob.get(&at).await;
        page.has_status(200).shows(">web<").hides("/delete").hides("Add a ");
        rob.get("/dashboard/networks").await.hides("/dashboard/new/network");
        for path in ["/dashboard/new/network", &*format!("{at}/delete"), &*port] {
            rob.get(path).await.has_status(403);
        }
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        let form = bea.get("/dashboard/networks").await;
        form.hides("zebra");
        for path in [
            &*at,
            &*format!("{at}/delete"),
            &*port,
            "/dashboard/networks/x",
            "/dashboard/subnets/x/delete",
        ] {
            bea.get(path).await.has_status(404).hides("zebra");
        }
        bea.submit(&form, &format!("{at}/delete"), &[]).await.has_status(404);
        bea.submit(&form, &port, &[]).await.has_status(404);
        bea.submit(&form, &format!("{at}/ports"), &[]).await.has_status(404);
        let ask = ann.get(&port).await;
        ann.submit(&ask, &port, &[]).await.has_status(200).hides(">web<");
        let ask = ann.get(&format!("{at}/delete")).await;
        ann.submit(&ask, &format!("{at}/delete"), &[]).await.has_status(200).hides("zebra");
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        admin.get("/dashboard/new/network").await.shows("name=\"shared\"");
        // The page reports that a list is truncated.
        let made = cloud.post("/network/v2.0/networks", json!({"network": {"name": "n"}})).await;
        let wide = made["network"]["id"].as_str().unwrap().to_owned();
        let project = made["network"]["project_id"].as_str().unwrap();
        let quota = Body::from(json!({"quota": {"subnet": -1}}).to_string());
        let path = format!("/network/v2.0/quotas/{project}");
        cloud.send(Method::PUT, &path, "application/json", quota).await;
        let page = format!("/dashboard/networks/{wide}");
        for number in 0..101 {
            if number == 100 {
                admin.get(&page).await.has_status(200).hides("subnets are shown");
            }
            let cidr = format!("10.0.{number}.0/24");
            let subnet = json!({"network_id": wide, "ip_version": 4, "cidr": cidr});
            cloud.post("/network/v2.0/subnets", json!({"subnet": subnet})).await;
        }
        let page = admin.get(&page).await;
        page.has_status(200).shows("Only 100 subnets are shown");
        assert_eq!(page.html.matches("/dashboard/subnets/").count(), 100, "{}", cloud.store);
        for number in 0..70 {
            let port = json!({"port": {"network_id": cloud.network, "name": format!("p{number}")}});
            cloud.post("/network/v2.0/ports", port).await;
        }
        // Each page also has a row for the subnet.
        let (found, pages) = all_rows(&mut admin, &private).await;
        let all = cloud.get(&format!("/network/v2.0/ports?network_id={}", cloud.network)).await;
        let all = all["ports"].as_array().unwrap().len();
        assert_eq!((found - pages, pages), (all, 2), "{}", cloud.store);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_groups_have_rules() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        ann.get("/dashboard/security-groups").await.has_status(200).shows("default");
        let form = ann.get("/dashboard/new/security-group").await;
        let fields = [("name", HOSTILE), ("description", "<i>")];
        let group = ann.submit(&form, "/dashboard/new/security-group", &fields).await;
        group
            .has_status(200)
            .shows(ESCAPED)
            .hides("<b>zebra")
            .hides("<i>")
            .shows("from the server");
        let (at, rules) = (group.at.clone(), format!("{}/rules", group.at));
        let fields = [
            ("direction", "ingress"),
            ("ethertype", "IPv4"),
            ("protocol", "tcp"),
            ("ports", "8000-8100"),
            ("remote", "192.0.2.0/24"),
        ];
        let page = ann.submit(&group, &rules, &fields).await;
        page.has_status(200).shows("8000–8100").shows("192.0.2.0/24").shows("to the server");
        ann.submit(&group, &rules, &fields)
            .await
            .has_status(409)
            .shows("already exists")
            .shows("value=\"8000-8100\"");
        let wrong = [("direction", "ingress"), ("protocol", "tcp"), ("ports", "ssh")];
        ann.submit(&group, &rules, &wrong).await.has_status(400).shows("up to 65535");
        // An ICMP type without a code covers all codes.
        let ping = [("direction", "ingress"), ("protocol", "icmp"), ("ports", "8")];
        ann.submit(&group, &rules, &ping).await.has_status(200).shows("data-label=\"Ports\">8<");
        let own = [("direction", "ingress"), ("protocol", "udp"), ("remote", "self")];
        ann.submit(&group, &rules, &own).await.has_status(200).shows("this group");
        let removal = |page: &Page| {
            let at = page.html.find("/rules/").expect("a rule can be removed");
            let id = page.html[at + 7..].split('/').next().unwrap();
            format!("{rules}/{id}/delete")
        };
        let page = ann.get(&at).await;
        let (before, removal) = (rows(&page), removal(&page));
        let mut rob = Browser::of(&cloud, "rob", "red").await;
        let read = rob.get(&at).await;
        read.has_status(200)
            .shows("8000–8100")
            .hides("Remove")
            .hides("Add a rule")
            .hides("/delete");
        rob.get("/dashboard/new/security-group").await.has_status(403);
        rob.get(&format!("{at}/delete")).await.has_status(403);
        let form = rob.get("/dashboard/servers").await;
        let page = rob.submit(&form, &removal, &[]).await;
        assert!(matches!(page.status.as_u16(), 403 | 404), "{page:?}");
        rob.submit(&form, &rules, &own).await.has_status(403);
        let mut bea = Browser::of(&cloud, "bea", "blue").await;
        let form = bea.get("/dashboard/security-groups").await;
        form.hides("zebra");
        for path in [at.clone(), format!("{at}/delete"), "/dashboard/security-groups/x".to_owned()]
        {
            bea.get(&path).await.has_status(404).hides("zebra");
        }
        bea.submit(&form, &removal, &[]).await.has_status(404);
        bea.submit(&form, &rules, &own).await.has_status(404);
        bea.submit(&form, &format!("{at}/delete"), &[]).await.has_status(404);
        let page = ann.submit(&group, &removal, &[]).await;
        assert_eq!(rows(page.has_status(200)), before - 1, "{}", cloud.store);
        let ask = ann.get(&format!("{at}/delete")).await;
        ann.submit(&ask, &format!("{at}/delete"), &[]).await.has_status(200).hides("zebra");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_show_what_is_used() {
    for cloud in clouds().await {
        let server = cloud.boot("ann", "s", "f-tiny").await;
        cloud.becomes(&server, "ACTIVE").await;
        for user in ["ann", "rob"] {
            let mut member = Browser::of(&cloud, user, "red").await;
            let page = member.get("/dashboard/quotas").await;
            page.has_status(200).shows("unlimited").shows("data-label=\"Used\">64");
            page.shows("Security group rules").hides("may not read");
            // Limits per user, group or server are shown without usage.
            let row = page.html.split("Key pairs</th>").nth(1).expect("a row of key pairs");
            let row = row.split("</tr>").next().unwrap_or_default();
            assert!(
                row.contains(">–<") && row.contains(">100<") && !row.contains("<meter"),
                "{row}"
            );
        }
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        let page = admin.get("/dashboard/quotas").await;
        page.has_status(200).shows("Security group rules").hides("may not read").shows("<meter");
        page.shows("RBAC policies").shows("Subnet pools").hides("rbac policy").hides("subnetpool");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_profiles_are_read_by_all_and_made_by_administrators() {
    for cloud in clouds().await {
        let mut admin = Browser::of(&cloud, "admin", "admin").await;
        admin.get("/dashboard/device-profiles").await.has_status(200).shows("no device profiles");
        let form = admin.get("/dashboard/new/device-profile").await;
        let groups = "resources:VGPU=1\r\ntrait:CUSTOM_M10=required\r\n\r\nresources:FPGA=2";
        let fields = [("name", "big"), ("description", HOSTILE), ("groups", groups)];
        let page = admin.submit(&form, "/dashboard/new/device-profile", &fields).await;
        page.has_status(200)
            .shows("resources:VGPU=1")
            .shows("Group 2")
            .shows(ESCAPED)
            .hides("<b>zebra");
        let at = page.at.clone();
        for (wrong, why) in [("VGPU", "form key=value"), ("resources:VGPU=0", "role=\"alert\"")] {
            let fields = [("name", "other"), ("groups", wrong)];
            let page = admin.submit(&form, "/dashboard/new/device-profile", &fields).await;
            page.has_status(400).shows(why).shows(wrong).shows("value=\"other\"");
        }
        for (user, project) in [("ann", "red"), ("rob", "red"), ("bea", "blue")] {
            let mut other = Browser::of(&cloud, user, project).await;
            let list = other.get("/dashboard/device-profiles").await;
            list.has_status(200).shows("1 × VGPU").shows("2 × FPGA").hides("/new/device-profile");
            other.get(&at).await.has_status(200).hides("/delete");
            other.get("/dashboard/new/device-profile").await.has_status(403);
            other.get(&format!("{at}/delete")).await.has_status(403);
            let refused = other.submit(&list, &format!("{at}/delete"), &[]).await;
            refused.has_status(403).shows("Delete: big");
            other.submit(&list, "/dashboard/new/device-profile", &fields).await.has_status(403);
        }
        admin.get("/dashboard/device-profiles/..%2Fdevices").await.has_status(404);
        let ask = admin.get(&format!("{at}/delete")).await;
        admin.submit(&ask, &format!("{at}/delete"), &[]).await.has_status(200).hides(">big<");
        admin.get(&at).await.has_status(404);
        for number in 0..120 {
            let profile =
                json!([{"name": format!("p{number}"), "groups": [{"resources:VGPU": "1"}]}]);
            cloud.post("/accelerator/v2/device_profiles", profile).await;
        }
        let found = all_rows(&mut admin, "/dashboard/device-profiles").await;
        assert_eq!(found, (120, 3), "{}", cloud.store);
    }
}
