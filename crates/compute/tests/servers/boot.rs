//! Boots that succeed: without devices, and with accelerators by flavor resources and by profile.

use serde_json::{Value, json};

use crate::kit::{ANN, Cloud, FPGA, GPU, GPUS, hosts};
use crate::servers::resize::admin;

#[tokio::test]
async fn a_server_gets_its_vgpu_and_gives_it_back() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("plain1", &[])])).await {
        let id = running.boot(&cloud, "one", "vgpu").await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "gpu1");
        assert_eq!(server["OS-EXT-STS:power_state"], 1);
        assert!(server["OS-SRV-USG:launched_at"].is_string(), "{server}");
        assert_eq!((cloud.used("VGPU").await, cloud.used("VCPU").await), (1, 1));
        assert_eq!(cloud.files("gpu1", "mdevs").len(), 1);
        cloud.assert_consistent(&running, "after the boot").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "after the delete").await;
    }
}

#[tokio::test]
async fn a_plain_server_needs_no_device() {
    for (cloud, running) in Cloud::all_running(hosts(&[("plain1", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
        cloud.assert_consistent(&running, "plain").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "after the delete").await;
    }
}

/// The domain XML of a server.
fn domain_xml(cloud: &Cloud, host: &str, id: &str) -> String {
    let path = cloud.nodes().join(host).join("domains").join(format!("{id}.xml"));
    std::fs::read_to_string(path).expect("the domain XML exists")
}

#[tokio::test]
async fn a_profile_gives_an_fpga() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("fpga1", &[FPGA])])).await
    {
        let id = running.boot(&cloud, "one", "fpga").await;
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "fpga1");
        assert_eq!(cloud.used("FPGA").await, 1);
        let address = "SELECT h.address FROM attach_handles h JOIN arqs a ON a.uuid = h.arq_id
            WHERE a.profile_id IS NOT NULL";
        let address = cloud.column(address).await;
        assert_eq!(address.len(), 1);
        assert!(
            domain_xml(&cloud, "fpga1", &id).contains(&address[0]),
            "the guest has another device"
        );
        cloud.assert_consistent(&running, "fpga").await;
        cloud.teardown(&running, "fpga").await;
    }
}

#[tokio::test]
async fn a_profile_gives_a_vgpu() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("fpga1", &[FPGA])])).await
    {
        let id = running.boot(&cloud, "one", "profile").await;
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "gpu1");
        let mdevs = cloud.files("gpu1", "mdevs");
        assert_eq!(mdevs.len(), 1);
        assert!(
            domain_xml(&cloud, "gpu1", &id).contains(&mdevs[0]),
            "the guest has another device"
        );
        cloud.assert_consistent(&running, "vgpu profile").await;
        cloud.teardown(&running, "vgpu profile").await;
    }
}

#[tokio::test]
async fn isolated_groups_get_two_gpus() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU])])).await {
        running.active_server(&cloud, "one", "vgpu-pair").await;
        let used = "SELECT CAST(used AS TEXT) FROM inventories WHERE class = 'VGPU'";
        assert_eq!(cloud.column(used).await, ["1", "1"]);
        cloud.assert_consistent(&running, "a pair").await;
        cloud.teardown(&running, "a pair").await;
    }
}

#[tokio::test]
async fn one_group_of_four_fills_one_gpu() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU])])).await {
        running.active_server(&cloud, "one", "vgpu4").await;
        running.active_server(&cloud, "two", "vgpu4").await;
        let used = "SELECT CAST(used AS TEXT) FROM inventories WHERE class = 'VGPU'";
        assert_eq!(cloud.column(used).await, ["4", "4"]);
        assert_eq!(cloud.files("gpu1", "mdevs").len(), 8);
        cloud.assert_consistent(&running, "full").await;
        cloud.teardown(&running, "full").await;
    }
}

#[tokio::test]
async fn flavor_resources_and_profiles_give_devices() {
    let topology = hosts(&[("gpu1", &[GPU]), ("both1", &[GPU, FPGA]), ("fpga1", &[FPGA])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let both = running.boot(&cloud, "both", "both").await;
        assert_eq!(running.wait_for_status(&both, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "both1");
        let domain_xml = domain_xml(&cloud, "both1", &both);
        assert!(domain_xml.contains(&cloud.files("both1", "mdevs")[0]), "{domain_xml}");
        for (name, flavor) in [("a", "vgpu"), ("b", "profile"), ("c", "fpga"), ("d", "plain")] {
            running.active_server(&cloud, name, flavor).await;
        }
        assert_eq!((cloud.used("VGPU").await, cloud.used("FPGA").await), (3, 2));
        cloud.assert_consistent(&running, "flavor resources and profiles").await;
        cloud.teardown(&running, "flavor resources and profiles").await;
    }
}

#[tokio::test]
async fn a_profile_beside_the_same_class_in_the_flavor_gives_two() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU])])).await {
        running.flavor("twice", json!({})).await;
        let specs = json!({"extra_specs": {
            "resources:VGPU": "1", "accel:device_profile": "vgpu",
        }});
        running.admin("2.61", "POST /flavors/twice/os-extra_specs", specs).await.expect(200);
        for n in 0..GPUS / 2 {
            running.active_server(&cloud, &format!("n{n}"), "twice").await;
        }
        assert_eq!(cloud.used("VGPU").await, GPUS);
        let listed = "SELECT uuid FROM arqs WHERE profile_id IS NOT NULL";
        assert_eq!(cloud.column(listed).await.len() as i64, GPUS / 2);
        cloud.assert_consistent(&running, "deleted twice").await;
        cloud.teardown(&running, "deleted twice").await;
    }
}

#[tokio::test]
async fn servers_survive_a_restart() {
    for (cloud, running) in Cloud::all_running(hosts(&[("gpu1", &[GPU]), ("fpga1", &[FPGA])])).await
    {
        let ids = [
            running.active_server(&cloud, "one", "vgpu").await,
            running.active_server(&cloud, "two", "fpga").await,
        ];
        let mdevs = cloud.files("gpu1", "mdevs");
        running.kill().await;
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        let servers: Vec<Value> = running.wait_all_idle().await;
        assert_eq!(servers.len(), ids.len());
        assert!(servers.iter().all(|server| server["status"] == "ACTIVE"));
        assert_eq!(cloud.files("gpu1", "mdevs"), mdevs);
        cloud.assert_consistent(&running, "after the restart").await;
        cloud.teardown(&running, "after the restart").await;
    }
}

#[tokio::test]
async fn local_disks_have_the_requested_sizes_until_the_flavor_changes() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let disks = |swap: i64| json!({"vcpus": 1, "swap": swap, "OS-FLV-EXT-DATA:ephemeral": 2});
        running.flavor("disks", disks(1024)).await;
        running.flavor("more", disks(2048)).await;
        let blank = |format: &str, size: i64| {
            json!({
                "source_type": "blank", "destination_type": "local", "boot_index": -1,
                "delete_on_termination": true, "guest_format": format, "volume_size": size,
            })
        };
        let root = json!({
            "source_type": "image", "destination_type": "local", "uuid": cloud.image, "boot_index": 0,
            "delete_on_termination": true,
        });
        // The requests of `openstack server create --swap 512 --ephemeral size=1`.
        let mapping = |swap| json!({"block_device_mapping_v2": [root, blank("swap", swap), blank("ext4", 1)]});
        let mut request = running.boot_request(&cloud, "one", "disks");
        request["server"]["block_device_mapping_v2"] =
            mapping(1025)["block_device_mapping_v2"].take();
        let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
        refused.refused(400, "Swap drive requested is larger than instance type allows.");
        for (key, value, words) in [
            ("tag", "root", "a disk with a tag must be a volume (destination_type=volume)."),
            ("disk_bus", "scsi", "on the bus of its image, virtio, not scsi."),
        ] {
            let mut request = running.boot_request(&cloud, "one", "disks");
            let mut root = root.clone();
            root[key] = json!(value);
            request["server"]["block_device_mapping_v2"] = json!([root]);
            let refused = running.call(ANN, "2.90", "POST /servers", Some(request)).await;
            refused.refused(400, words);
        }
        let id = running.boot_with(&cloud, "one", "disks", mapping(512)).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let shown = async |sizes: &str| {
            let server = running.server(&id).await;
            let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
            let xml = domain_xml(&cloud, &host, &id);
            assert!(xml.contains(sizes), "{xml}");
            (host, server["flavor"]["swap"].clone())
        };
        let requested = "ephemeral_gb='1' swap_mb='512'";
        let (source, swap) = shown(requested).await;
        assert_eq!(swap, 1024, "the server shows its flavor");
        admin(&running, "2.90", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        assert_ne!(shown(requested).await.0, source);
        running.try_act(&id, json!({"confirmResize": null})).await.expect(204);
        running.act(&id, json!({"rebuild": {"imageRef": cloud.image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        shown(requested).await;
        running.act(&id, json!({"resize": {"flavorRef": "more"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        shown("ephemeral_gb='2' swap_mb='2048'").await;
        running.try_act(&id, json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        shown(requested).await;
        running.act(&id, json!({"resize": {"flavorRef": "more"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        running.try_act(&id, json!({"confirmResize": null})).await.expect(204);
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        shown("ephemeral_gb='2' swap_mb='2048'").await;
        cloud.teardown(&running, "local disks").await;
    }
}

/// A host keeps CPUs and disk for itself, in whole GiB. (Upstream: `reserved_host_cpus` and `reserved_host_disk_mb`.)
#[tokio::test]
async fn a_host_reserves_cpus_and_disk_for_itself() {
    let own = "reserved_host_cpus = 2\nreserved_host_disk_mb = 1025";
    for (cloud, _running) in Cloud::all_running(hosts(&[("a", &[own])])).await {
        let reserved = "SELECT class || ' ' || reserved FROM inventories
            WHERE class IN ('DISK_GB', 'MEMORY_MB', 'VCPU') ORDER BY class";
        assert_eq!(cloud.column(reserved).await, ["DISK_GB 2", "MEMORY_MB 512", "VCPU 2"]);
    }
}
