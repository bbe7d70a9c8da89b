//! The definition of a guest in its document: the virtual machine that its image requires, and the
//! metadata for the guest.

use kilonova_compute_app::reconcile::files;
use kilonova_hypervisor::Definition;
use kilonova_node_api::{
    Bus, Desired, Firmware, GuestMetadata, InjectedFile, Key, Medium, SecureBoot, Topology,
};
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Answer, Cloud, RunningCloud, hosts, wait_until};
use crate::servers::metadata_service::Proxy;
use crate::servers::networks::active_server_with_networks;
use crate::servers::resize::{admin, confirm_resize};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm ann@home";

async fn definition(running: &RunningCloud, id: &str) -> Definition {
    definition_on(running, "a", id).await
}

async fn definition_on(running: &RunningCloud, host: &str, id: &str) -> Definition {
    let server = id.parse().expect("the value is a UUID");
    let found = running
        .nodes
        .hypervisor(host)
        .domain(server)
        .await
        .expect("the hypervisor answers")
        .expect("the domain is defined");
    found.definition().expect("the data can be read")
}

async fn add_keypair(running: &RunningCloud, name: &str) {
    add_keypair_of(running, ANN, name).await;
}

async fn add_keypair_of(running: &RunningCloud, token: &str, name: &str) {
    let add_keypair = json!({"keypair": {"name": name, "public_key": KEY}});
    running.call(token, "2.92", "POST /os-keypairs", Some(add_keypair)).await.expect(201);
}

#[tokio::test]
async fn the_definition_has_the_image_properties_and_the_metadata() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let kernel = cloud.image_with("kernel", &[], b"kernel".to_vec()).await;
        let properties = [
            ("hw_firmware_type", "uefi"),
            ("hw_disk_bus", "scsi"),
            ("hw_machine_type", "q35"),
            ("os_secure_boot", "optional"),
            ("kernel_id", &*kernel.to_string()),
            ("ramdisk_id", ""),
            ("os_command_line", "console=ttyS0"),
            ("img_config_drive", "mandatory"),
            ("trait:COMPUTE_NODE", "required"),
        ];
        let image = cloud.image_with("linux", &properties, b"disk".to_vec()).await;
        add_keypair(&running, "mine").await;
        let more = json!({
            "imageRef": image, "key_name": "mine", "user_data": "I2Nsb3VkLWNvbmZpZwo=",
            "metadata": {"role": "front"}, "min_count": 2,
        });
        let first = running.boot_with(&cloud, "Front One", "plain", more).await;
        let shown = running.wait_for_status(&first, "ACTIVE").await;
        assert_eq!(shown["config_drive"], "True", "the image requires a config drive");
        let is = definition(&running, &first).await;
        let machine = &is.config.machine;
        assert_eq!(machine.firmware, Some(Firmware::Uefi));
        assert_eq!(
            (machine.disk_bus, machine.secure_boot),
            (Some(Bus::Scsi), Some(SecureBoot::Optional))
        );
        assert_eq!((machine.kernel, machine.ramdisk), (Some(kernel), None));
        assert_eq!(machine.command_line.as_deref(), Some("console=ttyS0"));
        assert!(machine.config_drive && machine.rng);
        let guest = &is.config.guest;
        assert_eq!(guest.hostname, "front-one-1");
        assert_eq!((guest.project.as_str(), guest.availability_zone.as_str()), ("red", "nova"));
        let mine = Key { name: "mine".into(), kind: "ssh".into(), public_key: KEY.into() };
        assert_eq!(guest.keys, [mine]);
        assert_eq!(guest.user_data.as_deref(), Some("I2Nsb3VkLWNvbmZpZwo="));
        assert_eq!(guest.metadata["role"], "front");
        assert_eq!((guest.launch_index, guest.flavor.as_str()), (0, "plain"));
        assert_eq!(guest.reservation, shown["OS-EXT-SRV-ATTR:reservation_id"]);

        // The definition has the key pair of the boot; later changes of the key pair do not reach it.
        running.call(ANN, "2.92", "DELETE /os-keypairs/mine", None).await.expect(204);
        let answer = json!({"metadata": {"role": "back"}});
        running
            .call(ANN, "2.90", &format!("PUT /servers/{first}/metadata"), Some(answer))
            .await
            .expect(200);
        running.act(&first, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_all_idle().await;
        assert_eq!(definition(&running, &first).await.config.guest, *guest);

        // A rebuild renews the metadata and uses the properties of its own image.
        let plain = cloud.image_with("plain", &[("hw_disk_bus", "ide")], b"disk".to_vec()).await;
        let rebuild = json!({"rebuild": {"imageRef": plain, "name": "Two", "user_data": null}});
        running.act(&first, rebuild).await;
        running.wait_all_idle().await;
        let anew = definition(&running, &first).await;
        assert_eq!(anew.config.display_name, "Two");
        assert_eq!(
            (anew.config.machine.disk_bus, anew.config.machine.kernel),
            (Some(Bus::Ide), None)
        );
        assert!(anew.config.machine.config_drive, "the request asked for a config drive");
        assert_eq!(
            (anew.config.guest.metadata["role"].as_str(), anew.config.guest.user_data.as_deref()),
            ("back", None)
        );
        assert_eq!(anew.config.guest.keys, guest.keys);

        // The destination of a migration receives the same definition.
        running.act(&first, json!({"shelve": null})).await;
        running.wait_for_status(&first, "SHELVED_OFFLOADED").await;
        running.act(&first, json!({"unshelve": null})).await;
        running.wait_for_status(&first, "ACTIVE").await;
        let back = definition(&running, &first).await;
        assert_eq!(
            (back.config.machine, back.config.guest),
            (anew.config.machine, anew.config.guest)
        );
        cloud.assert_consistent(&running, "explained").await;
    }
}

#[tokio::test]
async fn the_rescue_machine_follows_its_image() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let own = definition(&running, &id).await;
        let disc =
            [("hw_rescue_device", "cdrom"), ("hw_rescue_bus", "usb"), ("hw_disk_bus", "ide")];
        let disc = cloud.image_with("disc", &disc, b"disc".to_vec()).await;
        let disk = cloud.image_with("disk", &[("hw_disk_bus", "sata")], b"disk".to_vec()).await;
        for (image, device, bus) in
            [(disc, Some((Medium::Cdrom, Some(Bus::Usb))), None), (disk, None, Some(Bus::Sata))]
        {
            let rescue = json!({"rescue": {"rescue_image_ref": image}});
            running.try_act(&id, rescue).await.expect(200);
            running.wait_for_status(&id, "RESCUE").await;
            let is = definition(&running, &id).await;
            assert_eq!(is.config.machine, own.config.machine, "the guest's machine is unchanged");
            let rescue = is.config.rescue.expect("the server is in rescue");
            assert_eq!(rescue.image, Some(image));
            assert_eq!(rescue.device.map(|device| (device.medium, device.bus)), device);
            assert_eq!(
                rescue.machine.disk_bus, bus,
                "a stable rescue keeps the disk bus of the guest"
            );
            running.act(&id, json!({"unrescue": null})).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(definition(&running, &id).await.config.rescue, None);
        }
        let wrong = cloud.image_with("wrong", &[("hw_rescue_bus", "xen")], b"disk".to_vec()).await;
        let rescue = json!({"rescue": {"rescue_image_ref": wrong}});
        let words = "Requested hardware 'xen' is not supported by the 'kvm' virt driver";
        running.try_act(&id, rescue).await.refused(400, words);
        cloud.assert_consistent(&running, "rescued").await;
    }
}

#[tokio::test]
async fn invalid_image_properties_are_refused_at_create() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let gone = "33333333-3333-4333-8333-333333333333";
        let id = running.active_server(&cloud, "one", "plain").await;
        for (property, value, words) in [
            ("hw_disk_bus", "foo", "Invalid image metadata. Error: Field value foo is invalid"),
            ("hw_cpu_cores", "x", "Error: invalid literal for int() with base 10: 'x'"),
            ("kernel_id", gone, "Image 33333333-3333-4333-8333-333333333333 could not be found."),
            ("ramdisk_id", "no uuid", "Image no uuid could not be found."),
        ] {
            let image = cloud.image_with("wrong", &[(property, value)], b"disk".to_vec()).await;
            let mut boot_request = running.boot_request(&cloud, "two", "plain");
            boot_request["server"]["imageRef"] = json!(image);
            running
                .call(ANN, "2.90", "POST /servers", Some(boot_request))
                .await
                .refused(400, words);
            let rebuild = json!({"rebuild": {"imageRef": image}});
            running.try_act(&id, rebuild).await.refused(400, words);
        }
        assert_eq!(running.servers().await.len(), 1);
        running.wait_for_status(&id, "ACTIVE").await;
    }
}

/// A flavor that requires secure boot.
async fn add_secure_flavor(running: &RunningCloud) {
    let flavor =
        json!({"flavor": {"id": "secure", "name": "secure", "ram": 512, "vcpus": 1, "disk": 1}});
    running.call(ADMIN, "2.90", "POST /flavors", Some(flavor)).await.expect(200);
    let specs = json!({"extra_specs": {"os:secure_boot": "required"}});
    let at = "POST /flavors/secure/os-extra_specs";
    running.call(ADMIN, "2.90", at, Some(specs)).await.expect(200);
}

#[tokio::test]
async fn hardware_that_no_host_can_give_is_refused_at_create() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        add_secure_flavor(&running).await;
        for (flavor, properties, words) in [
            (
                "plain",
                [("hw_machine_type", "q35"), ("hw_disk_bus", "ide")],
                "hw_machine_type=q35 has no IDE bus for hw_disk_bus",
            ),
            (
                "plain",
                [("hw_machine_type", "pc-q35-8.2"), ("hw_cdrom_bus", "ide")],
                "hw_machine_type=pc-q35-8.2 has no IDE bus for hw_cdrom_bus",
            ),
            (
                "secure",
                [("hw_firmware_type", "uefi"), ("os_secure_boot", "disabled")],
                "Flavor secure has os:secure_boot extra spec explicitly set to required, conflicting \
                 with the image, which has os_secure_boot explicitly set to disabled.",
            ),
        ] {
            let image = cloud.image_with("wrong", &properties, b"disk".to_vec()).await;
            let mut boot_request = running.boot_request(&cloud, "two", flavor);
            boot_request["server"]["imageRef"] = json!(image);
            boot_request["server"]["config_drive"] = json!(true);
            running
                .call(ANN, "2.90", "POST /servers", Some(boot_request))
                .await
                .refused(400, words);
        }
        assert!(running.servers().await.is_empty());
    }
}

/// The checks of new servers do not refuse the operations of existing ones.
#[tokio::test]
async fn an_existing_server_keeps_hardware_that_a_new_one_would_not_get() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        add_secure_flavor(&running).await;
        let small =
            json!({"flavor": {"id": "small", "name": "small", "ram": 512, "vcpus": 1, "disk": 1}});
        running.call(ADMIN, "2.90", "POST /flavors", Some(small)).await.expect(200);
        let properties = [
            ("hw_machine_type", "q35"),
            ("hw_cdrom_bus", "ide"),
            ("hw_firmware_type", "uefi"),
            ("os_secure_boot", "disabled"),
        ];
        let image = cloud.image_with("own", &properties, b"disk".to_vec()).await;
        let id = running.boot_with(&cloud, "one", "small", json!({"imageRef": image})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, json!({"resize": {"flavorRef": "secure"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        confirm_resize(&running, &cloud, &id).await;
        let shown = running.wait_for_status(&id, "ACTIVE").await;
        let host = shown["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host");
        let secure_boot = definition_on(&running, host, &id).await.config.machine.secure_boot;
        assert_eq!(secure_boot, Some(SecureBoot::Required), "the flavor wins");
        running.try_act(&id, json!({"rescue": {}})).await.expect(200);
        running.wait_for_status(&id, "RESCUE").await;
        running.act(&id, json!({"unrescue": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.act(&id, json!({"rebuild": {"imageRef": image}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        running.wait_all_idle().await;
        let other = [("hw_firmware_type", "uefi"), ("os_secure_boot", "optional")];
        let other = cloud.image_with("other", &other, b"disk".to_vec()).await;
        let rebuild = json!({"rebuild": {"imageRef": other}});
        let words =
            "conflicting with the image, which has os_secure_boot explicitly set to optional";
        running.try_act(&id, rebuild).await.refused(400, words);
        cloud.assert_consistent(&running, "kept").await;
    }
}

#[tokio::test]
async fn the_cpu_topology_follows_a_resize() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let flavor = |name: &str, vcpus: i64, disk: i64| json!({"flavor": {"id": name, "name": name, "ram": 512, "vcpus": vcpus, "disk": disk}});
        for (name, vcpus) in [("two", 2), ("four", 4)] {
            running
                .call(ADMIN, "2.90", "POST /flavors", Some(flavor(name, vcpus, 1)))
                .await
                .expect(200);
        }
        running.call(ADMIN, "2.90", "POST /flavors", Some(flavor("tight", 4, 1))).await.expect(200);
        let specs = json!({"extra_specs": {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1",
            "hw:cpu_max_threads": "2"}});
        let at = "POST /flavors/tight/os-extra_specs";
        running.call(ADMIN, "2.90", at, Some(specs)).await.expect(200);
        let image = cloud.image_with("one", &[("hw_cpu_sockets", "1")], b"disk".to_vec()).await;
        let id = running.boot_with(&cloud, "one", "two", json!({"imageRef": image})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let arranged = Topology { sockets: 1, cores: 2, threads: 1 };
        let (from, to) = match running.server(&id).await["OS-EXT-SRV-ATTR:host"].as_str() {
            Some("a") => ("a", "b"),
            _ => ("b", "a"),
        };
        assert_eq!(
            definition_on(&running, from, &id).await.config.machine.topology,
            Some(arranged)
        );
        let tight = json!({"resize": {"flavorRef": "tight"}});
        let words = "are impossible to satisfy for vcpus count 4";
        running.try_act(&id, tight).await.refused(400, words);
        running.act(&id, json!({"resize": {"flavorRef": "four"}})).await;
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        let topology = definition_on(&running, to, &id).await.config.machine.topology;
        assert_eq!(topology, Some(Topology { sockets: 1, cores: 4, threads: 1 }));
        cloud.assert_consistent(&running, "resized").await;
    }
}

/// A host serves a guest's metadata. It receives the user's changes, but not during an operation.
#[tokio::test]
async fn changes_of_a_server_reach_the_host_of_a_guest_with_ports() {
    let slow = "times_ms = { snapshot = 4000 }";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[slow]), ("b", &[])])).await {
        let network = running.network_with_subnet(ANN, "lan", "10.7.0.0/24").await;
        let networks = json!([{"uuid": network}]);
        let id = active_server_with_networks(&cloud, &running, "plain", networks, "a").await;
        let groups = definition(&running, &id).await.config.guest.security_groups;
        assert_eq!(groups, ["default"], "they are on the config drive");
        let deliver = async || {
            let done =
                kilonova_compute_app::reconcile::networks::run(running.compute.clone()).await;
            done.expect("the loop succeeds");
        };
        let put = async |version: &str, what: &str, body: Value| {
            running.call(ADMIN, version, what, Some(body)).await.expect(200);
        };
        let rename = async |name: &str| {
            let what = format!("PUT /servers/{id}");
            put("2.90", &what, json!({"server": {"name": name, "hostname": name}})).await;
        };
        let told = async |host: &str, name: &str| {
            let is = definition_on(&running, host, &id).await.config;
            is.display_name == name && is.guest.hostname == name
        };
        rename("two").await;
        deliver().await;
        wait_until("the new name", async || told("a", "two").await).await;
        let what = format!("POST /servers/{id}/metadata");
        put("2.90", &what, json!({"metadata": {"role": "back"}})).await;
        deliver().await;
        wait_until("the new metadata", async || {
            definition(&running, &id).await.config.guest.metadata.get("role")
                == Some(&"back".to_owned())
        })
        .await;

        // A change does not restart a snapshot in progress.
        running.act(&id, json!({"createImage": {"name": "i"}})).await;
        rename("three").await;
        deliver().await;
        assert!(told("a", "two").await, "the operation is in progress");
        running.wait_until_idle(&id).await;
        deliver().await;
        wait_until("the name after the operation", async || told("a", "three").await).await;

        // After a migration, and after its revert, the host has the changes made in the meantime.
        admin(&running, "2.56", &id, json!({"migrate": null})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        rename("four").await;
        deliver().await;
        wait_until("the name at the destination", async || told("b", "four").await).await;
        running.act(&id, json!({"revertResize": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        deliver().await;
        wait_until("the name back at the source", async || told("a", "four").await).await;
        cloud.audit("at the end").await;
    }
}

#[tokio::test]
async fn a_rebuild_takes_a_key_pair_of_its_caller() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        add_keypair(&running, "anns").await;
        add_keypair_of(&running, "eve:red", "eves").await;
        let id = running.boot_with(&cloud, "one", "plain", json!({"key_name": "anns"})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let path = format!("POST /servers/{id}/action");
        let rebuild = |key| json!({"rebuild": {"imageRef": cloud.image, "key_name": key}});
        let refused = running.call("eve:red", "2.90", &path, Some(rebuild("anns"))).await;
        refused.refused(400, "Invalid key_name provided");
        running.call("eve:red", "2.90", &path, Some(rebuild("eves"))).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["key_name"], "eves");
        let keys = definition(&running, &id).await.config.guest.keys;
        assert_eq!(keys, [Key { name: "eves".into(), kind: "ssh".into(), public_key: KEY.into() }]);
        cloud.teardown(&running, "rebuilt").await;
    }
}

fn file(path: &str, contents: &str) -> InjectedFile {
    InjectedFile { path: path.into(), contents: contents.into() }
}

/// The metadata in the document of a host with one guest. The guest's domain has the same, without the files.
async fn guest_on(cloud: &Cloud, running: &RunningCloud, host: &str, id: &str) -> GuestMetadata {
    let body = match host {
        "a" => cloud.column("SELECT body FROM documents WHERE host = 'a'").await,
        _ => cloud.column("SELECT body FROM documents WHERE host = 'b'").await,
    };
    let body = body.concat();
    let Ok(Desired::Present(domain)) = serde_json::from_str(&body) else {
        panic!("host {host} has the document {body:?}")
    };
    let guest = domain.config.guest;
    let recorded = definition_on(running, host, id).await.config.guest;
    assert_eq!(recorded, guest.clone().without_files());
    guest
}

/// The number of texts in the database that contain a text, of servers, documents and deleted servers.
async fn texts_with(cloud: &Cloud, text: &str) -> [usize; 3] {
    let all = [
        cloud.column("SELECT spec FROM servers").await,
        cloud.column("SELECT body FROM documents").await,
        cloud.column("SELECT spec FROM deleted_servers").await,
    ];
    all.map(|texts| texts.iter().filter(|one| one.contains(text)).count())
}

async fn sweep(running: &RunningCloud) {
    files::run(running.compute.clone()).await.expect("the sweep runs");
}

/// Files reach the hosts as in upstream: only the request that creates or rebuilds a server has them. They stay in the
/// database until its operation has ended.
#[tokio::test]
async fn the_files_of_a_request_are_for_its_config_drive() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["availability_zone"] = json!("nova:a");
        let motd = json!([{"path": "/etc/motd", "contents": "SGVs\nbG8K\n"}]);
        request["server"]["personality"] = motd;
        running.admin("2.57", "POST /servers", request.clone()).await.refused(400, "personality");
        let made = running.admin("2.56", "POST /servers", request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        let motd = [file("/etc/motd", "SGVsbG8K")];
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, motd);

        // A change of the server leaves the files in the host's document, until the sweep removes them.
        let rename = json!({"server": {"name": "two", "hostname": "two"}});
        running.admin("2.90", &format!("PUT /servers/{id}"), rename).await.expect(200);
        admin(&running, "2.90", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, motd);
        let before = generation(&cloud).await;
        sweep(&running).await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [0, 0, 0]);
        assert_eq!(generation(&cloud).await, before, "the host gets no new document");
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, []);
        admin(&running, "2.90", &id, json!({"reboot": {"type": "HARD"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;

        // A rebuild replaces the files, and without files removes them.
        let issue = json!([{"path": "/etc/issue", "contents": ""}]);
        let rebuild = json!({"rebuild": {"imageRef": cloud.image, "personality": issue}});
        admin(&running, "2.1", &id, rebuild.clone()).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, [file("/etc/issue", "")]);
        let without = json!({"rebuild": {"imageRef": cloud.image}});
        admin(&running, "2.90", &id, without).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, []);

        // Another host that creates a config drive gets none.
        admin(&running, "2.56", &id, rebuild.clone()).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        admin(&running, "2.90", &id, json!({"shelve": null})).await.expect(202);
        running.wait_for_status(&id, "SHELVED_OFFLOADED").await;
        admin(&running, "2.91", &id, json!({"unshelve": {"host": "a"}})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, []);
        admin(&running, "2.56", &id, rebuild).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        running.force_down("a", true).await;
        admin(&running, "2.94", &id, json!({"evacuate": {}})).await.expect(200);
        running.wait_for_status(&id, "ACTIVE").await;
        let evacuated = guest_on(&cloud, &running, "b", &id).await;
        assert_eq!((evacuated.files, evacuated.hostname.as_str()), (Vec::new(), "two"));
        assert_eq!(texts_with(&cloud, "/etc/issue").await[0], 1);
        sweep(&running).await;
        assert_eq!(texts_with(&cloud, "/etc/issue").await, [0, 0, 0]);
        cloud.audit("at the end").await;
    }
}

/// The generation of host `a`.
async fn generation(cloud: &Cloud) -> Vec<String> {
    cloud.column("SELECT CAST(generation AS TEXT) FROM hosts WHERE host = 'a'").await
}

/// A server with a file, which waits for its host.
async fn boot_with_file(cloud: &Cloud, running: &RunningCloud) -> String {
    let mut request = running.boot_request(cloud, "two", "plain");
    request["server"]["personality"] = json!([{"path": "/etc/motd", "contents": "SGVsbG8K"}]);
    let made = running.admin("2.56", "POST /servers", request).await.expect(202);
    let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
    let task = "OS-EXT-STS:task_state";
    wait_until("the boot waits for its host", async || {
        running.server(&id).await[task] == "spawning"
    })
    .await;
    id
}

/// The records of operations never have the files, so none puts them back into a document.
#[tokio::test]
async fn no_operation_records_the_files() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["availability_zone"] = json!("nova:a");
        request["server"]["personality"] = json!([{"path": "/etc/motd", "contents": "SGVsbG8K"}]);
        let made = running.admin("2.56", "POST /servers", request).await.expect(202);
        let id = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&id, "ACTIVE").await;
        for (action, status) in
            [("pause", "PAUSED"), ("unpause", "ACTIVE"), ("migrate", "VERIFY_RESIZE")]
        {
            admin(&running, "2.55", &id, json!({action: null})).await.expect(202);
            running.wait_for_status(&id, status).await;
        }
        assert_eq!(texts_with(&cloud, "/etc/motd").await[0], 1, "the sweep has not run");
        let records = [
            cloud.column("SELECT COALESCE(data, '') FROM operations").await,
            cloud.column("SELECT old_domain FROM moves").await,
        ];
        assert!(records.iter().all(|texts| !texts.is_empty()));
        assert!(!records.concat().concat().contains("/etc/motd"), "{}", cloud.name);
        sweep(&running).await;
        admin(&running, "2.55", &id, json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [0, 0, 0], "{}", cloud.name);
        cloud.audit("at the end").await;
    }
}

/// Files of a boot that finds no host, of one whose state an operator resets and of one that is deleted leave the
/// database as well. A boot in progress keeps them.
#[tokio::test]
async fn files_that_no_host_gets_leave_the_database() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let motd = json!([{"path": "/etc/motd", "contents": "SGVsbG8K"}]);
        let mut request = running.boot_request(&cloud, "one", "vgpu");
        request["server"]["personality"] = motd;
        let made = running.admin("2.56", "POST /servers", request).await.expect(202);
        let refused = made["server"]["id"].as_str().expect("the answer has an id").to_owned();
        running.wait_for_status(&refused, "ERROR").await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [1, 0, 0]);
        sweep(&running).await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [0, 0, 0]);

        running.nodes.kill_all().await;
        let reset = boot_with_file(&cloud, &running).await;
        sweep(&running).await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [1, 1, 0], "the host has not got them");
        admin(&running, "2.90", &reset, json!({"os-resetState": {"state": "error"}}))
            .await
            .expect(202);
        sweep(&running).await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [0, 0, 0]);

        let deleted = boot_with_file(&cloud, &running).await;
        assert_eq!(texts_with(&cloud, "/etc/motd").await, [1, 1, 0]);
        let path = format!("DELETE /servers/{deleted}");
        running.call(ADMIN, "2.90", &path, None).await.expect(204);
        running.start_node(&cloud, "a").await;
        running.wait_until_gone(&deleted).await;
        let kept = cloud.column("SELECT id FROM deleted_servers").await;
        assert_eq!((texts_with(&cloud, "/etc/motd").await, kept), ([0, 0, 0], vec![deleted]));
        cloud.audit("at the end").await;
    }
}

/// The limits and their order are upstream's (`_check_injected_file_quota` in `nova/compute/api.py`).
#[tokio::test]
async fn the_files_of_a_request_are_limited() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let create = async |files: Value| -> Answer {
            let mut request = running.boot_request(&cloud, "two", "plain");
            request["server"]["personality"] = files;
            running.call(ANN, "2.56", "POST /servers", Some(request)).await
        };
        let rebuild = async |files: Value| -> Answer {
            let body = json!({"rebuild": {"imageRef": cloud.image, "personality": files}});
            running.call(ANN, "2.56", &format!("POST /servers/{id}/action"), Some(body)).await
        };
        let one = |path: &str, contents: &str| json!([{"path": path, "contents": contents}]);
        let (long, large) = ("x".repeat(256), "AAAA".repeat(2561));
        let many = vec![json!({"path": "/a", "contents": ""}); 6];
        for (files, status, part) in [
            (json!(many), 403, "Personality file limit exceeded"),
            (one(&long, &large), 403, "Personality file path exceeds maximum 255"),
            (one("/a", &large), 403, "Personality file content exceeds maximum 10240"),
            (one("/a", "eA="), 400, "field/attribute contents. It is not base64."),
            (one("/a", &"AAAA".repeat(30_000)), 400, "at most 114688 bytes"),
            (json!([{"path": "/a"}]), 400, "'contents' is a required property"),
            (json!([{"path": 1, "contents": ""}]), 400, "field/attribute path"),
        ] {
            create(files.clone()).await.refused(status, part);
            rebuild(files).await.refused(status, part);
        }
        let quota = json!({"quota_set": {"injected_files": 1, "injected_file_path_bytes": -1}});
        running.admin("2.56", "PUT /os-quota-sets/red", quota).await.expect(200);
        create(json!(many[..2])).await.refused(403, "Personality file limit exceeded");
        rebuild(one(&long, "eA==")).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(guest_on(&cloud, &running, "a", &id).await.files, [file(&long, "eA==")]);
        // The metadata service has no files.
        let proxy = Proxy::of(&running);
        assert_eq!(proxy.meta_data(&id).await.get("files"), None);
        assert_eq!(proxy.get(&id, "/openstack/content/0000").await.status, 404);
        cloud.teardown(&running, "limited").await;
    }
}
