//! Routers on gateway hosts: placed, moved when their host is down or disabled, and realized from rows after
//! a crash at each write. Floating IPs of servers.

use kilonova_compute_app::attention::{self, Bounds};
use kilonova_compute_app::reconcile::{networks, routers};
use kilonova_compute_nodes::Link;
use kilonova_network::ledger::ROUTERS_PAGE;
use kilonova_node_api::{ControlPlane, Registration};
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_store::{Error, Tx, params};
use kilonova_testkit::shared;
use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, GPU, RunningCloud, hosts, wait_until};
use crate::servers::networks::active_server_with_networks;

/// The routers that a host received last.
fn realized(cloud: &Cloud, host: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(cloud.nodes().join(host).join("network"));
    let told: Value =
        text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("the text is JSON"));
    told["routers"].as_array().cloned().unwrap_or_default()
}

/// Delivers recorded changes, then places and moves routers.
async fn settle(running: &RunningCloud) {
    networks::run(running.compute.clone()).await.expect("the loop succeeds");
    place(running, &routers::Page::default()).await;
}

/// Places and moves the routers of one page.
async fn place(running: &RunningCloud, page: &routers::Page) {
    routers::run(running.compute.clone(), page.clone()).await.expect("the loop succeeds");
}

fn text(value: &Value) -> String {
    value.as_str().expect("the value is a text").to_owned()
}

/// A router between a project's network and an external network.
struct Scene {
    net: String,
    subnet: String,
    outside: String,
    router: String,
}

impl Scene {
    async fn new(running: &RunningCloud) -> Self {
        let body = json!({"network": {"name": "outside", "router:external": true}});
        let made = running.neutron("admin", "POST /networks", Some(body)).await.expect(201);
        let outside = text(&made["network"]["id"]);
        let body = json!({"subnet": {"network_id": outside, "cidr": "198.51.100.0/24",
            "ip_version": 4, "enable_dhcp": false}});
        running.neutron("admin", "POST /subnets", Some(body)).await.expect(201);
        let net = running.network_with_subnet(ANN, "private", "10.0.0.0/24").await;
        let list = format!("GET /subnets?network_id={net}");
        let list = running.neutron(ANN, &list, None).await.expect(200);
        let subnet = text(&list["subnets"][0]["id"]);
        let body = json!({"router": {"external_gateway_info": {"network_id": outside}}});
        let made = running.neutron(ANN, "POST /routers", Some(body)).await.expect(201);
        let router = text(&made["router"]["id"]);
        let scene = Self { net, subnet, outside, router };
        scene.interface(running, "add").await;
        scene
    }

    async fn interface(&self, running: &RunningCloud, verb: &str) {
        let what = format!("PUT /routers/{}/{verb}_router_interface", self.router);
        running.neutron(ANN, &what, Some(json!({"subnet_id": self.subnet}))).await.expect(200);
    }

    /// The hosts of the router's ports.
    async fn hosts(&self, running: &RunningCloud) -> Vec<String> {
        let what = format!("GET /ports?device_id={}", self.router);
        let list = running.neutron("admin", &what, None).await.expect(200);
        let ports = list["ports"].as_array().expect("the answer has a list");
        let mut hosts: Vec<String> =
            ports.iter().map(|port| text(&port["binding:host_id"])).collect();
        hosts.dedup();
        hosts
    }

    /// Waits until exactly these hosts realize the router.
    async fn wait_for(&self, cloud: &Cloud, on: Option<&str>) {
        let id = json!(self.router);
        wait_until(&format!("{on:?} realizes the router"), async || {
            ["a", "b"].into_iter().all(|host| {
                let has = realized(cloud, host).iter().any(|router| router["id"] == id);
                has == (Some(host) == on)
            })
        })
        .await;
    }

    /// Removes everything.
    async fn end(&self, running: &RunningCloud) {
        self.interface(running, "remove").await;
        for path in
            [format!("DELETE /routers/{}", self.router), format!("DELETE /networks/{}", self.net)]
        {
            running.neutron(ANN, &path, None).await.expect(204);
        }
        let path = format!("DELETE /networks/{}", self.outside);
        running.neutron("admin", &path, None).await.expect(204);
    }
}

/// The routers that are reported to an operator.
async fn waiting(cloud: &Cloud) -> Vec<String> {
    let all = attention::collect(&cloud.store, &Bounds::default()).await;
    let all = all.expect("the findings are read").into_iter();
    all.filter(|finding| finding.area == "routers").map(|finding| finding.what).collect()
}

async fn disable(running: &RunningCloud, host: &str, disabled: bool) {
    let body = json!({"host": host, "binary": "nova-compute"});
    let verb = if disabled { "disable" } else { "enable" };
    running.admin("2.11", &format!("PUT /os-services/{verb}"), body).await.expect(200);
}

#[tokio::test]
async fn a_router_is_on_one_host_and_leaves_a_lost_or_disabled_one() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let scene = Scene::new(&running).await;
        assert_eq!(scene.hosts(&running).await, [""]);
        assert_eq!(waiting(&cloud).await.len(), 1, "an operator sees that it waits");
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["a"], "the first of equals");
        assert_eq!(waiting(&cloud).await, Vec::<String>::new());
        scene.wait_for(&cloud, Some("a")).await;
        let told = realized(&cloud, "a");
        assert_eq!(told[0]["interfaces"].as_array().map(Vec::len), Some(2));
        assert_eq!(told[0]["snat"], true);
        cloud.audit("placed").await;

        disable(&running, "a", true).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["b"]);
        scene.wait_for(&cloud, Some("b")).await;
        // No other host is left: the router stays.
        disable(&running, "b", true).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["b"]);
        disable(&running, "a", false).await;
        settle(&running).await;
        scene.wait_for(&cloud, Some("a")).await;
        disable(&running, "b", false).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["a"], "a router does not move back");

        running.nodes.kill("a").await;
        running.force_down("a", true).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["b"]);
        cloud.audit("moved").await;
        running.start_node(&cloud, "a").await;
        scene.wait_for(&cloud, Some("b")).await;
        running.force_down("a", false).await;

        // A change reaches the host; a router without ports is on no host.
        let path = format!("PUT /routers/{}", scene.router);
        let down = json!({"router": {"admin_state_up": false}});
        running.neutron(ANN, &path, Some(down)).await.expect(200);
        settle(&running).await;
        scene.wait_for(&cloud, None).await;
        let up = json!({"router": {"admin_state_up": true}});
        running.neutron(ANN, &path, Some(up)).await.expect(200);
        settle(&running).await;
        scene.wait_for(&cloud, Some("b")).await;
        scene.end(&running).await;
        settle(&running).await;
        scene.wait_for(&cloud, None).await;
        let places = cloud.column("SELECT host FROM router_places").await;
        assert_eq!(places, Vec::<String>::new(), "nothing is left of the router");
        cloud.teardown(&running, "routers").await;
    }
}

#[tokio::test]
async fn a_host_that_is_silent_loses_its_routers_and_a_deleted_one_too() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let scene = Scene::new(&running).await;
        settle(&running).await;
        scene.wait_for(&cloud, Some("a")).await;
        running.nodes.kill("a").await;
        // Only the row is old: the host polled this controller a moment ago.
        cloud.execute("UPDATE hosts SET last_seen = last_seen - 61000000 WHERE host = 'a'").await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["a"]);
        // A controller that starts now has only the row.
        running.replace_services(&cloud, CrashPlan::default()).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["b"]);
        running.start_node(&cloud, "a").await;
        scene.wait_for(&cloud, Some("b")).await;

        running.nodes.kill("b").await;
        running.force_down("b", true).await;
        let list = running.call("admin", "2.53", "GET /os-services?host=b", None).await.expect(200);
        let id = text(&list["services"][0]["id"]);
        running.call("admin", "2.53", &format!("DELETE /os-services/{id}"), None).await.expect(204);
        assert_eq!(scene.hosts(&running).await, [""]);
        cloud.audit("the host is deleted").await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["a"]);
        scene.end(&running).await;
        settle(&running).await;
        cloud.audit("the end").await;
        running.kill().await;
    }
}

/// Registers a host as an agent with these physical networks does when it starts.
async fn register(cloud: &Cloud, running: &RunningCloud, host: &str, routes: Option<&[&str]>) {
    let named = cloud.host(host);
    let registration = Registration {
        host: named.name.clone(),
        machine_id: named.machine_id.clone(),
        hypervisor_type: "simulated".into(),
        hypervisor_version: 1000,
        host_ip: "127.0.0.1".into(),
        vcpus: 4,
        memory_mb: 4096,
        disk_gb: 10,
        ratios: [1.0; 3],
        initial_ratios: [false; 3],
        reserved_memory_mb: 0,
        reserved_cpus: 0,
        reserved_disk_gb: 0,
        traits: Vec::new(),
        devices: Vec::new(),
        agent_version: None,
        attempt: None,
        connector: None,
        routes: routes.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        cells: None,
        numa_in_placement: false,
    };
    Link(running.compute.clone()).register(registration).await.expect("the host registers");
}

#[tokio::test]
async fn a_host_that_no_longer_maps_a_network_loses_its_routers() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[""]), ("b", &[""])])).await {
        let scene = Scene::new(&running).await;
        settle(&running).await;
        scene.wait_for(&cloud, Some("a")).await;
        running.nodes.kill("a").await;
        register(&cloud, &running, "a", Some(&["elsewhere"])).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, ["b"], "host a maps other networks");
        running.nodes.kill("b").await;
        register(&cloud, &running, "b", None).await;
        settle(&running).await;
        assert_eq!(scene.hosts(&running).await, [""], "host b does not realize routers");
        assert_eq!(waiting(&cloud).await.len(), 1);
        cloud.audit("no host reaches its networks").await;
        running.start_node(&cloud, "b").await;
        settle(&running).await;
        running.start_node(&cloud, "a").await;
        scene.wait_for(&cloud, Some("b")).await;
        scene.end(&running).await;
        settle(&running).await;
        running.kill().await;
    }
}

#[tokio::test]
async fn routers_that_cannot_be_placed_do_not_keep_others_waiting() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[""]), ("b", &[""])])).await {
        let fill = |tx: &mut Tx<'_>| {
            for n in 0..ROUTERS_PAGE {
                let id = format!("00000000-0000-4000-8000-{n:012}");
                let sql = "INSERT INTO router_places (router_id, host) VALUES (?1, '')";
                tx.execute(sql, params![id])?;
            }
            Ok::<_, Error>(())
        };
        cloud.store.write(fill).await.expect("the rows are written");
        let scene = Scene::new(&running).await;
        networks::run(running.compute.clone()).await.expect("the loop succeeds");
        let page = routers::Page::default();
        place(&running, &page).await;
        assert_eq!(scene.hosts(&running).await, [""], "the first page has other routers");
        place(&running, &page).await;
        assert_eq!(scene.hosts(&running).await, ["a"]);
        // The page after the last one is the first.
        disable(&running, "a", true).await;
        place(&running, &page).await;
        place(&running, &page).await;
        assert_eq!(scene.hosts(&running).await, ["b"]);
        running.kill().await;
    }
}

/// Each store runs one of the two crashes at a write, and the other one at the next write.
#[tokio::test]
async fn a_crash_leaves_a_router_on_one_host_or_waiting() {
    let clouds = Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await;
    for (share, (cloud, mut running)) in shared(clouds) {
        let scene = Scene::new(&running).await;
        let mut points = 0;
        // Placement, then a move in each direction.
        for (leave, to) in [(None, "a"), (Some("a"), "b"), (Some("b"), "a")] {
            if let Some(host) = leave {
                disable(&running, host, true).await;
            }
            let mut arrived = false;
            for at in 0..8 {
                for (n, death) in [Death::BeforeCommit, Death::AfterCommit].into_iter().enumerate()
                {
                    if !share.has(at as usize + n) {
                        continue;
                    }
                    let plan = CrashPlan::at(at, death);
                    running.replace_services(&cloud, plan.clone()).await;
                    let _ = networks::run(running.compute.clone()).await;
                    let _ = routers::run(running.compute.clone(), routers::Page::default()).await;
                    points += u32::from(plan.is_dead());
                    running.replace_services(&cloud, CrashPlan::default()).await;
                    cloud.audit("after a crash").await;
                    let hosts = scene.hosts(&running).await;
                    assert_eq!(hosts.len(), 1, "{hosts:?}");
                    arrived = hosts == [to];
                }
            }
            settle(&running).await;
            assert_eq!(scene.hosts(&running).await, [to], "arrived before: {arrived}");
            scene.wait_for(&cloud, Some(to)).await;
            if let Some(host) = leave {
                disable(&running, host, false).await;
            }
        }
        assert!(points >= share.least(6), "{points} crash points");
        // The host removes a deleted router in any case.
        scene.end(&running).await;
        for death in [Death::BeforeCommit, Death::AfterCommit] {
            running.replace_services(&cloud, CrashPlan::at(0, death)).await;
            let _ = networks::run(running.compute.clone()).await;
        }
        running.replace_services(&cloud, CrashPlan::default()).await;
        settle(&running).await;
        scene.wait_for(&cloud, None).await;
        cloud.audit("the end").await;
        running.kill().await;
    }
}

#[tokio::test]
async fn a_server_shows_its_floating_address_and_its_deletion_frees_it() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let scene = Scene::new(&running).await;
        let networks = json!([{"uuid": scene.net}]);
        let id = active_server_with_networks(&cloud, &running, "plain", networks, "b").await;
        let ports = format!("GET /ports?device_id={id}");
        let ports = running.neutron(ANN, &ports, None).await.expect(200);
        let port = ports["ports"][0].clone();
        let body = json!({"floatingip": {"floating_network_id": scene.outside,
            "port_id": port["id"]}});
        let made = running.neutron(ANN, "POST /floatingips", Some(body)).await.expect(201);
        let floating = made["floatingip"].clone();
        let shown = running.server(&id).await;
        assert_eq!(
            shown["addresses"]["private"],
            json!([
                {"version": 4, "addr": port["fixed_ips"][0]["ip_address"],
                 "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": port["mac_address"]},
                {"version": 4, "addr": floating["floating_ip_address"],
                 "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": port["mac_address"]},
            ])
        );
        settle(&running).await;
        scene.wait_for(&cloud, Some("a")).await;
        let fixed = |cloud: &Cloud| realized(cloud, "a")[0]["floating"].clone();
        assert_eq!(
            fixed(&cloud),
            json!([{"floating": floating["floating_ip_address"],
                "fixed": port["fixed_ips"][0]["ip_address"]}])
        );
        // The guest's own host has the address too, for the guest's metadata.
        wait_until("the guest's host has the address", async || {
            let text = std::fs::read_to_string(cloud.nodes().join("b").join("network"));
            let text = text.unwrap_or_else(|_| "{}".to_owned());
            let told: Value = serde_json::from_str(&text).expect("the text is JSON");
            let address = &told["guests"][&id][0]["addresses"][0];
            address["floating"] == json!([floating["floating_ip_address"]])
        })
        .await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        let path = format!("GET /floatingips/{}", text(&floating["id"]));
        let free = running.neutron(ANN, &path, None).await.expect(200)["floatingip"].clone();
        assert_eq!((&free["port_id"], &free["router_id"]), (&Value::Null, &Value::Null));
        cloud.audit("the server is gone").await;
        settle(&running).await;
        wait_until("the host removes the address", async || fixed(&cloud).is_null()).await;
        let path = format!("DELETE /floatingips/{}", text(&floating["id"]));
        running.neutron(ANN, &path, None).await.expect(204);
        scene.end(&running).await;
        settle(&running).await;
        cloud.teardown(&running, "floating IPs").await;
    }
}
