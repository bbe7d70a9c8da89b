//! The content of configuration files.

use super::*;

fn settings(text: &str) -> Result<Settings, String> {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let path = folder.path().join("agent.conf");
    std::fs::write(&path, text).expect("the file is written");
    Settings::read(Some(&path), CommandLine::default()).map_err(|failure| failure.to_string())
}

#[test]
fn vendor_data_of_a_file_is_read_at_the_start() {
    let there = tempfile::tempdir().expect("a temporary directory is created");
    let (path, data) = (there.path().join("agent.conf"), there.path().join("vendor.json"));
    let read = |more: &str| {
        let text = format!("[api]\nvendordata_jsonfile_path = {}\n{more}", data.display());
        std::fs::write(&path, text).expect("the file is written");
        Settings::read(Some(&path), CommandLine::default())
    };
    let why = read("").expect_err("the file is missing").to_string();
    assert!(why.contains("vendor.json") && why.contains("agent.conf:2"), "{why}");
    std::fs::write(&data, r#"{"rack": 7}"#).expect("the file is written");
    let fixed = read("").expect("the file is there").files.vendordata.fixed;
    assert_eq!(fixed.map(|value| value.to_string()).as_deref(), Some(r#"{"rack":7}"#));
    let off = read("vendordata_providers = DynamicJSON\n").expect("the file is valid");
    assert_eq!(off.files.vendordata.fixed, None);
    let why =
        read("[network]\nmetadata = perhaps\n").expect_err("the value is refused").to_string();
    assert!(why.contains("[network] metadata"), "{why}");
    assert!(!read("[network]\nmetadata = false\n").expect("the option is known").network.metadata);
}

#[test]
fn groups_of_a_nova_conf_are_accepted() {
    let text = "[DEFAULT]\nhost = gpu-1\nmy_ip = 192.0.2.7\nstate_path = /s\n\
                reserved_host_memory_mb = 2048\nreserved_host_cpus = 2\nreserved_host_disk_mb = 1025\ninitial_cpu_allocation_ratio = 16\n\
                ram_allocation_ratio = 1.5\n\
                sync_power_state_interval = -1\n[devices]\nenabled_mdev_types = nvidia-35\n\
                [pci]\ndevice_spec = {\"vendor_id\": \"10de\"}\n\
                alias = {\"name\": \"gpu\", \"resource_class\": \"GPU\"}\n";
    let read = settings(text).expect("the configuration is valid");
    assert_eq!(read.host.as_deref(), Some("gpu-1"));
    assert_eq!(read.files.instances_path, PathBuf::from("/s/instances"));
    assert_eq!(read.reserved_memory_mb, 2048);
    assert_eq!((read.reserved_cpus, read.reserved_disk_gb), (2, 2));
    assert_eq!(read.ratios.map(|ratio| ratio.value), [16.0, 1.5, 1.0]);
    assert_eq!(read.ratios.map(|ratio| ratio.is_initial), [true, false, true]);
    assert_eq!((read.power_sync, read.concurrency), (None, 10));
    assert_eq!((read.mdev.enabled.len(), read.sources.specs.len()), (1, 1));
    assert_eq!(
        settings("").expect("the result is valid").state_dir,
        PathBuf::from("/var/lib/kilonova-agent")
    );
}

#[test]
fn the_options_of_volumes_are_those_of_a_nova_conf() {
    let uuid = "99999999-9999-4999-8999-999999999999";
    let text = format!(
        "[DEFAULT]\nmy_block_storage_ip = 192.0.2.8\nstate_path = /s\n[libvirt]\n\
         rbd_user = cinder\nrbd_secret_uuid = {uuid}\niscsi_use_multipath = true\n\
         num_iscsi_scan_tries = 7\nnfs_mount_options = nfsvers=4.2\n\
         disk_cachemodes = file=none,network=writeback\n"
    );
    let read = settings(&text).expect("the configuration is valid");
    assert_eq!(read.storage_ip.map(|ip| ip.to_string()).as_deref(), Some("192.0.2.8"));
    let volumes = &read.volumes;
    assert_eq!((volumes.use_multipath, volumes.scan_tries), (true, 7));
    assert_eq!(volumes.rbd_secret.map(|secret| secret.to_string()).as_deref(), Some(uuid));
    assert_eq!(volumes.rbd_user.as_deref(), Some("cinder"));
    assert_eq!(volumes.nfs_mount_options.as_deref(), Some("nfsvers=4.2"));
    assert_eq!(volumes.nfs_mount_point_base, PathBuf::from("/s/mnt"));
    assert_eq!(read.libvirt.network_cache.as_deref(), Some("writeback"));
    let plain = settings("").expect("the result is valid");
    assert_eq!(plain.volumes.iscsi, kilonova_volumes::IscsiInitiator::Kernel);
    let qemu = settings("[node]\niscsi_initiator = qemu\n").expect("the option is known");
    assert_eq!(qemu.volumes.iscsi, kilonova_volumes::IscsiInitiator::Qemu);
}

#[test]
fn refusals_name_the_line() {
    for (text, part) in [
        (
            "[DEFAULT]\nhost = a/b\n",
            "agent.conf:2: [DEFAULT] host: \"a/b\" is not a valid host name",
        ),
        ("[DEFAULT]\nmy_ip = here\n", "agent.conf:2: [DEFAULT] my_ip: here is not a valid value"),
        ("[DEFAULT]\ncpu_allocation_ratio = 0\n", "it must be above 0"),
        ("[DEFAULT]\nreserved_host_memory_mb = -1\n", "it must be 0 or more"),
        (
            "[DEFAULT]\nreserved_host_cpus = 1\n[compute]\ncpu_shared_set = 0\n",
            "agent.conf:2: [DEFAULT] reserved_host_cpus: it cannot be set together with [compute] cpu_shared_set",
        ),
        ("[DEFAULT]\nhosts = a\n", "this option is not known"),
        (
            "[libvirt]\nvirt_type = xen\n",
            "agent.conf:2: [libvirt] virt_type: xen is not a valid value",
        ),
        (
            "[libvirt]\nsnapshot_image_format = vmdk\n",
            "[libvirt] snapshot_image_format: vmdk is not a valid value; expected one of raw, qcow2",
        ),
        ("[libvirt]\nlive_migration_downtime = 9\n", "live_migration_downtime = 9 must be"),
        (
            "[linux_bridge]\nphysical_interface_mappings = eth1\n",
            "agent.conf:2: [linux_bridge] physical_interface_mappings: 'eth1' does not have",
        ),
        ("[pci]\nalias = {\"name\": \"gpu\"}\n", "agent.conf:2: [pci] alias: Invalid PCI alias"),
        ("[node]\niscsi_initiator = x\n", "[node] iscsi_initiator: x is not a valid value"),
        ("[libvirt]\nvolume_enforce_multipath = true\n", "it needs volume_use_multipath"),
        (
            "[libvirt]\nvolume_use_multipath = true\n[node]\niscsi_initiator = qemu\n",
            "supports only one path",
        ),
        ("[libvirt]\nrbd_secret_uuid = x\n", "[libvirt] rbd_secret_uuid: x is not a valid"),
        ("[node]\ntoken_file = /x\n", "needs --control"),
    ] {
        let message = settings(text).expect_err(text);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_cpus_and_memory_pages_of_a_nova_conf_divide_the_host() {
    let text = "[DEFAULT]\nreserved_huge_pages = node:0,size:2048,count:64\n\
                reserved_huge_pages = node:1,size:1GB,count:1\n\
                [compute]\ncpu_dedicated_set = 2-17,^5\ncpu_shared_set = 0,1\n";
    let read = settings(text).expect("the configuration is valid");
    let reserved = ["node:0,size:2048,count:64", "node:1,size:1GB,count:1"].map(str::to_owned);
    let page = rustix::param::page_size() as u64 / 1024;
    let expected = CellOptions::new(Some("0-1"), Some("2-4,6-17"), &reserved, page);
    assert_eq!(Ok(&read.cells), expected.as_ref());
    assert_eq!(read.libvirt.guest_cpus, Some([0, 1].into()));
    for (text, expected) in [
        (text, true),
        ("[compute]\ncpu_dedicated_set = 2\nnuma_in_placement = false\n", false),
        ("[compute]\ncpu_shared_set = 2\n", false),
        ("", false),
        ("[compute]\nnuma_in_placement = true\n", true),
    ] {
        let read = settings(text).expect("the configuration is valid");
        assert_eq!(read.numa_in_placement, expected, "{text}");
    }
    let none = settings("[compute]\ncpu_shared_set =\n").expect("an empty value is accepted");
    assert_eq!((none.cells.shared(), none.libvirt.guest_cpus), (None, None));
    for (text, words) in [
        (
            "[compute]\ncpu_dedicated_set = a\n",
            ":2: [compute] cpu_dedicated_set: Invalid inclusion",
        ),
        ("[compute]\ncpu_shared_set = 0\ncpu_dedicated_set = 0-3\n", "must be disjoint"),
        ("[compute]\nnuma_in_placement = often\n", "true or false"),
        (
            "[DEFAULT]\nreserved_huge_pages = 64\n",
            "expected node:N,size:KIB,count:N, such as node:0,size:2048,count:64",
        ),
    ] {
        let why = settings(text).expect_err(words);
        assert!(why.contains(words), "{why}");
    }
}
