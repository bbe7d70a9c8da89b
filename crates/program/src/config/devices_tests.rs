//! Groups of a nova.conf, and every refusal with its position.

use super::*;

fn file(text: &str) -> Result<(tempfile::TempDir, File), String> {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let path = folder.path().join("kilonova.conf");
    std::fs::write(&path, text).expect("the file is written");
    File::read(&path, &[]).map(|file| (folder, file)).map_err(|failure| failure.to_string())
}

fn read(text: &str) -> Result<MdevOptions, String> {
    let (_folder, file) = file(text)?;
    options(&file).map_err(|failure| failure.to_string())
}

#[test]
fn an_address_may_have_several_types_that_take_turns() {
    let options = read(
        "[devices]\nenabled_mdev_types = a,b\nmdev_retyping = true\n\
         [mdev_a]\ndevice_addresses = 0000:84:00.0\nmin_instances = 2\n\
         [mdev_b]\ndevice_addresses = 0000:84:00.0\n",
    )
    .expect("the configuration is valid");
    assert!(options.retyping);
    assert_eq!(options.groups["a"].min_instances, Some(2));
}

#[test]
fn groups_of_a_nova_conf_are_accepted() {
    let options = read(
        "[devices]\nenabled_mdev_types = nvidia-35, nvidia-36,mtty-1\n\n\
         [mdev_nvidia-35]\ndevice_addresses = 0000:84:00.0,0000:85:00.0\n\
         [mdev_nvidia-36]\ndevice_addresses = 0000:86:00.0\nmdev_class = CUSTOM_SMALL\nmax_instances = 4\n\
         [mdev_mtty-1]\ndevice_addresses = mtty_mtty\n",
    )
    .expect("the configuration is valid");
    assert_eq!(options.enabled, ["nvidia-35", "nvidia-36", "mtty-1"]);
    let small = &options.groups["nvidia-36"];
    assert_eq!(options.groups["nvidia-35"].device_addresses, ["0000:84:00.0", "0000:85:00.0"]);
    assert_eq!((small.mdev_class.as_deref(), small.max_instances), (Some("CUSTOM_SMALL"), Some(4)));
    assert_eq!(options.groups["mtty-1"].device_addresses, ["mtty_mtty"]);
    assert_eq!(
        read("[devices]\nenabled_mdev_types =\n").expect("the option is off"),
        MdevOptions::default()
    );
    assert_eq!(read("").expect("the option is off"), MdevOptions::default());
}

#[test]
fn old_names_are_accepted() {
    let options =
        read("[devices]\nenabled_vgpu_types = nvidia-35\n[vgpu_nvidia-35]\nmax_instances = 2\n")
            .expect("the configuration is valid");
    assert_eq!(options.enabled, ["nvidia-35"]);
    assert_eq!(options.groups["nvidia-35"].max_instances, Some(2));
}

#[test]
fn refusals_name_file_line_group_and_option() {
    let types = "[devices]\nenabled_mdev_types = a,b\n";
    let cases = [
        (
            format!(
                "{types}[mdev_a]\ndevice_addresses = 0000:84:00.0\n[mdev_b]\n\
                 device_addresses = 0000:85:00.0, 0000:84:00.0\n"
            ),
            "kilonova.conf:6: [mdev_b] device_addresses: duplicate types for PCI ID 0000:84:00.0: \
             it is listed for a and for b",
        ),
        (
            format!("{types}[mdev_a]\ndevice_addresses = 84:00.0\n[mdev_b]\n"),
            "kilonova.conf:4: [mdev_a] device_addresses: incorrect device address: 84:00.0",
        ),
        (
            format!("{types}[mdev_a]\nmdev_class = vgpu\n[mdev_b]\n"),
            "kilonova.conf:4: [mdev_a] mdev_class: 'vgpu' must be VGPU or start with CUSTOM_",
        ),
        (
            format!("{types}[mdev_a]\nmax_instances = many\n[mdev_b]\n"),
            "kilonova.conf:4: [mdev_a] max_instances: many is not a valid value",
        ),
        (
            format!("{types}[mdev_a]\nmax_instances = 0\n[mdev_b]\n"),
            "kilonova.conf:4: [mdev_a] max_instances: it must be at least 1",
        ),
        (
            format!("{types}[mdev_a]\nmin_instances = 2\n[mdev_b]\n"),
            "kilonova.conf:4: [mdev_a] min_instances: it has no effect without [devices] mdev_retyping",
        ),
        (
            format!("{types}mdev_retyping = perhaps\n[mdev_a]\n[mdev_b]\n"),
            "kilonova.conf:3: [devices] mdev_retyping: perhaps is not a valid value",
        ),
        (
            format!("{types}[mdev_a]\n"),
            "kilonova.conf:2: [devices] enabled_mdev_types: can't find '[devices]/mdev_b group'",
        ),
        (
            "[devices]\nenabled_mdev_types = a,a\n".to_owned(),
            "kilonova.conf:2: [devices] enabled_mdev_types: a is listed twice",
        ),
        (
            "[devices]\nenabled_mdev_types = a/b\n".to_owned(),
            "kilonova.conf:2: [devices] enabled_mdev_types: 'a/b' is not the name of an mdev type",
        ),
        (
            "[devices]\nenabled_mdev_types = a\nenabled_vgpu_types = a\n".to_owned(),
            "kilonova.conf:3: [devices] enabled_vgpu_types: it is the old name",
        ),
        (
            "[mdev_a]\nmdev_class = VGPU\n[vgpu_a]\nmdev_class = VGPU\n".to_owned(),
            "are the same group; remove one of them",
        ),
        (
            "[vgpu_a]\nmdev_class = x\n".to_owned(),
            "kilonova.conf:2: [vgpu_a] mdev_class: 'x' must be VGPU",
        ),
        (
            "[mdev_a]\ndevice_address = 0000:84:00.0\n".to_owned(),
            "kilonova.conf:2: [mdev_a] device_address: this option is not known",
        ),
        ("[mdev_]\nmdev_class = VGPU\n".to_owned(), "[mdev_] mdev_class: this group is not known"),
    ];
    for (text, part) in cases {
        let error = read(&text).expect_err(part);
        assert!(error.contains(part), "expected {part:?} in {error:?}");
    }
}

#[test]
fn each_class_may_have_a_command() {
    let read = |text: &str| {
        let (_folder, file) = file(text)?;
        cleanup(&file).map_err(|failure| failure.to_string())
    };
    let both = read(
        "[devices]\ncleanup_command = CUSTOM_NVME:/bin/wipe --all\ncleanup_command = FPGA:/bin/blank\n\
         cleanup_timeout = 60\n",
    )
    .expect("the configuration is valid");
    assert_eq!(both.command(&ResourceClass::verbatim("CUSTOM_NVME")).map(<[String]>::len), Some(2));
    assert_eq!(
        both.command(&ResourceClass::verbatim("FPGA")),
        Some(&["/bin/blank".to_owned()][..])
    );
    assert_eq!(both.timeout().as_secs(), 60);
    assert_eq!(read("").expect("the result is valid"), Cleanup::default());
    for (text, part) in [
        (
            "[devices]\ncleanup_command = FPGA:/bin/a\ncleanup_command = wipe\n",
            ":3: [devices] cleanup_command",
        ),
        ("[devices]\ncleanup_command = FPGA:/a\ncleanup_command = FPGA:/b\n", "duplicate command"),
        ("[devices]\ncleanup_timeout = 0\n", "at least 1"),
        ("[devices]\ncleanup_timeout = soon\n", "[devices] cleanup_timeout"),
    ] {
        let message = read(text).expect_err(text);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn islands_have_a_line_each() {
    let text = "[devices]\nnvlink_islands = 0000:18:00.0, 0000:2A:00.0\nnvlink_islands = 0000:84:00.0,0000:8b:00.0\n";
    let of = |text: &str| {
        let (_folder, file) = file(text)?;
        links(&file).map_err(|failure| failure.to_string())
    };
    let listed = ["0000:18:00.0,0000:2a:00.0", "0000:84:00.0,0000:8b:00.0"].map(str::to_owned);
    assert_eq!(of(text).ok(), Links::parse(&listed).ok());
    assert_eq!(of("[devices]\n").ok(), Some(Links::default()));
    let why = of("[devices]\nnvlink_islands = 0000:18:00.0\n").expect_err("one card");
    assert!(
        why.contains("kilonova.conf:2: [devices] nvlink_islands: '0000:18:00.0' is no"),
        "{why}"
    );
}
