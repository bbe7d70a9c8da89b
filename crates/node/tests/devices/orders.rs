//! Programming and cleaning: done once, reported with the tool's output, and never on a device in
//! use.

use std::os::unix::fs::PermissionsExt as _;

use kilonova_ids::{ImageId, OperationId};
use kilonova_node_api::{
    CLEANED_BY_AGENT, CLEANED_BY_OPERATOR, End, ON_RELEASE, Order, OrderResult, Task,
};

use super::*;

const CARD: &str = "0000:5e:00.0";
const REGION: &str = "f3c99413-5081-4aad-5f1f-b0d0e7e5c0c6";
const FUNCTION: &str = "331db30c-9885-41ea-9081-f88b8f655caa";
const DISK: &str = "0000:01:00.0";

/// An Intel bitstream for a region.
fn green(region: &str, function: &str) -> Vec<u8> {
    let text = serde_json::json!({"version": 1, "afu-image": {
        "interface-uuid": region,
        "accelerator-clusters": [{"accelerator-type-uuid": function}],
    }})
    .to_string();
    let length = u32::try_from(text.len()).expect("the length fits into 32 bits").to_le_bytes();
    // Longer than one chunk, so that the download takes several chunks.
    [&b"XeonFPGA\xb7GBSv001"[..], &length, text.as_bytes(), &[7; 5000]].concat()
}

fn order(task: Task, server: Option<ServerId>) -> Order {
    let device = match &task {
        Task::Program { .. } => CARD.to_owned(),
        Task::Clean { address, .. } => address.clone(),
    };
    Order { id: OperationId::new_v4(), generation: 0, server, device, task }
}

fn program(image: ImageId, server: Option<ServerId>) -> Order {
    order(Task::Program { driver: "intel".into(), image }, server)
}

fn clean(address: &str) -> Order {
    let resource_class = kilonova_ids::ResourceClass::verbatim("CUSTOM_NVME");
    order(Task::Clean { address: address.into(), resource_class }, None)
}

async fn end_of(control: &Control, order: &Order) -> End {
    let id = order.id;
    let of = |one: &&OrderResult| one.order == id;
    let found = |state: &State| state.carried.iter().find(of).map(|one| one.end.clone());
    control.until("the end of an order", found).await
}

fn failure(end: End) -> String {
    match end {
        End::Failed { message, .. } => message,
        End::Done { output } => panic!("the order succeeded: {output}"),
    }
}

fn image(control: &Control, bytes: Vec<u8>) -> ImageId {
    let id = ImageId::new_v4();
    control.with(|state| state.images.insert(id, bytes));
    id
}

/// The function in the newest registration.
fn function(control: &Control) -> String {
    let registered = control.registrations().pop().expect("the host has registered");
    let facts = &registered.devices[0].deployables[0].facts;
    facts.get("function_id").cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_shows_its_new_function_when_the_order_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (node, _) = Running::start(&host("fpga-intel"), folder.path()).await;
    let order = program(image(&node.control, green(REGION, FUNCTION)), None);
    node.control.order(order.clone());
    assert!(matches!(end_of(&node.control, &order).await, End::Done { .. }));
    assert_eq!(function(&node.control), FUNCTION.replace('-', ""));
    let left = std::fs::read_dir(folder.path().join("fpga-intel/bitstreams"))
        .expect("the directory is read");
    assert_eq!(left.count(), 0, "the bitstream is removed");
    drop(node);

    // The next process recognizes the finished order by its id, whatever its content is now, and
    // the card keeps its function.
    let (node, devices) = Running::start(&host("fpga-intel"), folder.path()).await;
    let facts = &devices[0].deployables[0].facts;
    assert_eq!(facts.get("function_id"), Some(&FUNCTION.replace('-', "")));
    let other = image(&node.control, green(REGION, "00000000-0000-0000-0000-000000000001"));
    let task = Task::Program { driver: "intel".into(), image: other };
    node.control.order(Order { task, ..order.clone() });
    assert!(matches!(end_of(&node.control, &order).await, End::Done { .. }));
    assert_eq!(function(&node.control), FUNCTION.replace('-', ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bitstreams_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (node, _) = Running::start(&host("fpga-intel"), folder.path()).await;
    let before = function(&node.control);
    let other_region = "00000000-0000-0000-0000-000000000001";
    for (bytes, part) in [
        (b"QFI\xfb and so on".to_vec(), "not a bitstream"),
        (Vec::new(), "not a bitstream"),
        (green(other_region, FUNCTION), "is for region 0000"),
    ] {
        let order = program(image(&node.control, bytes), None);
        node.control.order(order.clone());
        let message = failure(end_of(&node.control, &order).await);
        assert!(message.contains(part), "{message}");
    }
    let absent = program(ImageId::new_v4(), None);
    node.control.order(absent.clone());
    let message = failure(end_of(&node.control, &absent).await);
    assert!(message.contains("could not download the bitstream"), "{message}");
    assert_eq!(function(&node.control), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_waits_for_its_order_and_fails_with_it() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (node, _) = Running::start(&host("fpga-intel"), folder.path()).await;
    let control = &node.control;
    let server = ServerId::new_v4();
    let wanted = || guest(vec![Attachment::Pci { address: CARD.into() }]);
    // Both are in one batch, as the controller writes them in one transaction.
    let both = |order: &Order| {
        control.with(|state| state.unavailable = 1);
        control.order(order.clone());
        control.want(server, wanted())
    };
    let bad = program(image(control, b"nothing".to_vec()), Some(server));
    let generation = both(&bad);
    match control.outcome(generation).await {
        Outcome::Failed { step, message } => {
            assert_eq!(step, "program");
            assert!(message.contains("not a bitstream"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    let gone = control.want(server, Desired::Absent);
    control.expect(gone, Outcome::Absent).await;
    let good = program(image(control, green(REGION, FUNCTION)), Some(server));
    let generation = both(&good);
    control.expect(generation, Outcome::Running).await;
    assert!(matches!(end_of(control, &good).await, End::Done { .. }));

    // Now the card is in use.
    let late = program(image(control, green(REGION, FUNCTION)), None);
    control.order(late.clone());
    let message = failure(end_of(control, &late).await);
    assert!(message.contains(&server.to_string()), "{message}");
}

fn with_cleanup(command: &Path, seconds: u64) -> Host {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nodes/devices.toml");
    let text = std::fs::read_to_string(&path).expect("the file is read");
    let line = format!(
        "name = \"pci\"\ndevices = {{ cleanup_command = [\"CUSTOM_NVME:{}\"], cleanup_timeout = {seconds} }}",
        command.display()
    );
    let text = text.replace("name = \"pci\"", &line);
    let hosts = Topology::parse(&text, &path).expect("the topology is valid").hosts;
    hosts.into_iter().find(|host| host.name == "pci").expect("the element exists")
}

fn script(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("wipe");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the file is written");
    let mut mode = std::fs::metadata(&path).expect("the file exists").permissions();
    mode.set_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the file attributes are set");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_up_command_runs_and_its_output_is_kept() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let wipe = script(
        folder.path(),
        "echo $KILONOVA_HOST $KILONOVA_ADDRESS $KILONOVA_RESOURCE_CLASS $KILONOVA_SIMULATED\n\
         test $KILONOVA_ADDRESS = 0000:01:00.0",
    );
    let (node, devices) = Running::start(&with_cleanup(&wipe, 60), folder.path()).await;
    let by = |class: &str| {
        let parts = devices.iter().flat_map(|device| &device.deployables);
        let mut of = parts.filter(|part| part.resource_class == class);
        of.next().expect("the list has an element").facts.get(ON_RELEASE).cloned()
    };
    assert_eq!(by("CUSTOM_NVME").as_deref(), Some(CLEANED_BY_AGENT));
    assert_eq!(by("CUSTOM_X710"), None);

    let one = clean(DISK);
    node.control.order(one.clone());
    let output = "pci 0000:01:00.0 CUSTOM_NVME 1".to_owned();
    assert_eq!(end_of(&node.control, &one).await, End::Done { output });
    let other = clean("0000:02:00.0");
    node.control.order(other.clone());
    match end_of(&node.control, &other).await {
        End::Failed { message, output } => {
            assert!(message.contains("exit status: 1"), "{message}");
            assert_eq!(output, "pci 0000:02:00.0 CUSTOM_NVME 1");
        }
        done => panic!("{done:?}"),
    }

    let server = ServerId::new_v4();
    let wanted = guest(vec![Attachment::Pci { address: DISK.into() }]);
    let generation = node.control.want(server, wanted);
    node.control.expect(generation, Outcome::Running).await;
    let in_use = clean(DISK);
    node.control.order(in_use.clone());
    let message = failure(end_of(&node.control, &in_use).await);
    assert!(message.contains(&server.to_string()), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_command_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let wipe = script(folder.path(), "echo begun\nsleep 60");
    let (node, _) = Running::start(&with_cleanup(&wipe, 1), folder.path()).await;
    let one = clean(DISK);
    node.control.order(one.clone());
    match end_of(&node.control, &one).await {
        End::Failed { message, output } => {
            assert!(message.contains("timeout of 1s"), "{message}");
            assert_eq!(output, "begun");
        }
        done => panic!("{done:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_are_cleaned_by_the_agent_and_the_rest_by_operators() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let (node, devices) = Running::start(&host("pci"), folder.path()).await;
    let disk = devices.iter().find(|device| device.address == DISK).expect("the element exists");
    assert_eq!(
        disk.deployables[0].facts.get(ON_RELEASE).map(String::as_str),
        Some(CLEANED_BY_AGENT)
    );
    let one = clean(DISK);
    node.control.order(one.clone());
    assert!(matches!(end_of(&node.control, &one).await, End::Done { .. }));
    let gone = clean("0000:09:00.0");
    node.control.order(gone.clone());
    let message = failure(end_of(&node.control, &gone).await);
    assert!(message.contains("no PCI function 0000:09:00.0"), "{message}");

    let text = "[card.c]\nvendor = \"1bd4\"\nproduct = \"0001\"\nclass = \"120000\"\n\
        [[host]]\nname = \"once\"\nvcpus = 1\nmemory_mb = 512\ndisk_gb = 1\n\
        card = [{ card = \"c\", addresses = [\"0000:05:00.0\"] }]\n\
        pci.device_spec = ['{\"vendor_id\": \"1bd4\", \"product_id\": \"0001\", \"one_time_use\": true}']\n";
    let hosts = Topology::parse(text, Path::new("once.toml")).expect("the topology is valid").hosts;
    let (_node, devices) = Running::start(&hosts[0], folder.path()).await;
    let facts = &devices[0].deployables[0].facts;
    assert_eq!(facts.get(ON_RELEASE).map(String::as_str), Some(CLEANED_BY_OPERATOR));
}
