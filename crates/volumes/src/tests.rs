//! Volumes on a host in memory: connected and disconnected, shared, over several paths, and after the agent has died at
//! any step.

use std::time::Duration;

use kilonova_node_api::SourceHost;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::testing::Fake;

const PORTAL: &str = "192.0.2.9:3260";
const OTHER: &str = "192.0.2.10:3260";
const IQN: &str = "iqn.2010-10.org.openstack:volume-1";
const EXPORT: &str = "192.0.2.9:/srv/cinder";

struct Bench {
    folder: TempDir,
    fake: Arc<Fake>,
}

impl Bench {
    fn new() -> Self {
        let fake = Arc::new(Fake::default());
        fake.put("/proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n");
        fake.export(IQN, 1, "36001405a", 1);
        fake.export(IQN, 2, "36001405b", 1);
        fake.state().shares.insert(EXPORT.into(), vec!["volume-1", "volume-2"]);
        Self { folder: tempfile::tempdir().expect("a temporary directory is created"), fake }
    }

    async fn open(&self, change: impl FnOnce(&mut VolumesConfig)) -> HostVolumes {
        let mut config = VolumesConfig {
            host: "gpu1".into(),
            address: "192.0.2.1".into(),
            nfs_mount_point_base: "/var/lib/nova/mnt".into(),
            look: Duration::ZERO,
            ..VolumesConfig::default()
        };
        change(&mut config);
        let records = self.folder.path().join("volumes");
        HostVolumes::on(Arc::clone(&self.fake) as _, config, records)
            .await
            .expect("the records are readable")
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.fake.state().log)
    }

    fn records(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("volumes")).map_or(0, Iterator::count)
    }
}

fn volume(connection: Value) -> Volume {
    serde_json::from_value(json!({
        "volume_id": VolumeId::new_v4(), "attachment_id": AttachmentId::new_v4(),
        "device": "vdb", "bus": "virtio", "size_gb": 1, "connection": connection,
    }))
    .expect("the volume is readable")
}

fn lun(number: u64, portals: &[&str]) -> Volume {
    let path = |portal: &&str| json!({"portal": portal, "iqn": IQN, "lun": number});
    let paths: Vec<Value> = portals.iter().map(path).collect();
    volume(json!({
        "protocol": "iscsi", "paths": paths, "chap": {"user": "me", "password": "open sesame"},
    }))
}

fn file(name: &str, options: Option<&str>) -> Volume {
    volume(json!({
        "protocol": "nfs", "export": EXPORT, "name": name, "format": "raw", "options": options,
    }))
}

async fn drop_all(host: &HostVolumes, server: ServerId) -> Vec<StuckVolume> {
    host.disconnect_others(server, &BTreeSet::new()).await
}

#[tokio::test]
async fn a_lun_is_logged_in_scanned_and_taken_away_again() {
    let bench = Bench::new();
    let host = bench.open(|_| {}).await;
    let (server, one) = (ServerId::new_v4(), lun(1, &[PORTAL]));
    let path: PathBuf = format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{IQN}-lun-1").into();
    let source = host.connect(server, &one).await;
    assert_eq!(source, Ok(VolumeSource::Block { path: path.clone() }));
    let node = format!("iscsiadm -m node -T {IQN} -p {PORTAL}");
    assert_eq!(
        bench.log(),
        [
            "iscsiadm -m session",
            &node,
            &format!("{node} --interface default --op new"),
            &format!("{node} --op update -n node.startup -v manual"),
            &format!("{node} --op update -n node.session.scan -v manual"),
            &format!("{node} --op update -n node.session.auth.authmethod -v CHAP"),
            &format!("{node} --op update -n node.session.auth.username -v me"),
            &format!("{node} --op update -n node.session.auth.password -v ***"),
            &format!("{node} --login"),
            "iscsiadm -m session",
            "write /sys/class/scsi_host/host2/scan - - 1",
        ]
    );
    assert_eq!(host.connect(server, &one).await, Ok(VolumeSource::Block { path }));
    assert_eq!(bench.log(), ["iscsiadm -m session"], "a connected volume is not connected again");
    assert_eq!(host.attachments(server), [(one.attachment_id, one.volume_id)]);

    // The volume grows.
    bench.fake.export(IQN, 1, "36001405a", 3);
    let grown = Volume { size_gb: 3, ..one.clone() };
    host.connect(server, &grown).await.expect("the volume is connected");
    assert_eq!(bench.log()[1], "write /sys/bus/scsi/devices/2:0:0:1/rescan 1");
    host.connect(server, &grown).await.expect("the volume is connected");
    assert_eq!(bench.log().len(), 1);

    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(
        bench.log(),
        [
            "iscsiadm -m session",
            "blockdev --flushbufs /dev/sd1x1",
            "write /sys/bus/scsi/devices/2:0:0:1/delete 1",
            "iscsiadm -m session",
            &format!("{node} --logout"),
            &format!("{node} --op delete"),
        ]
    );
    assert_eq!((bench.fake.left(), bench.records()), (Vec::new(), 0));
    assert_eq!(drop_all(&host, server).await, []);
    assert!(bench.log().is_empty() && host.servers().is_empty());
}

#[tokio::test]
async fn a_session_stays_while_anybody_uses_it() {
    let bench = Bench::new();
    let host = bench.open(|_| {}).await;
    let (server, other) = (ServerId::new_v4(), ServerId::new_v4());
    let (one, two) = (lun(1, &[PORTAL]), lun(2, &[PORTAL]));
    // The first LUN is attached to two guests.
    let shared = Volume { attachment_id: AttachmentId::new_v4(), ..one.clone() };
    for (server, volume) in [(server, &one), (server, &two), (other, &shared)] {
        host.connect(server, volume).await.expect("the volume is connected");
    }
    assert_eq!(host.servers().len(), 2);
    assert_eq!(drop_all(&host, server).await, []);
    let session = format!("session {IQN} {PORTAL}");
    let node = format!("node {IQN} {PORTAL}");
    assert_eq!(bench.fake.left(), [session.clone(), node.clone(), "sd1x1".to_owned()]);
    // A foreign device appears in the session.
    bench.fake.export(IQN, 7, "x", 1);
    bench.fake.state().appear(1, 7);
    assert_eq!(drop_all(&host, other).await, []);
    assert_eq!(bench.fake.left(), [session, node, "sd1x7".to_owned()]);
    assert_eq!(bench.records(), 0);
}

#[tokio::test]
async fn the_next_path_replaces_one_that_fails() {
    let bench = Bench::new();
    let host = bench.open(|_| {}).await;
    let (server, one) = (ServerId::new_v4(), lun(1, &[PORTAL, OTHER]));
    bench.fake.state().failing = vec!["-p 192.0.2.9:3260 --login"];
    let source = host.connect(server, &one).await.expect("the volume is connected");
    let path = format!("/dev/disk/by-path/ip-{OTHER}-iscsi-{IQN}-lun-1").into();
    assert_eq!(source, VolumeSource::Block { path });
    bench.fake.state().failing = vec!["--login"];
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(
        bench.fake.left(),
        Vec::<String>::new(),
        "the node record of the dead path is gone too"
    );
    let why = host.connect(server, &one).await.expect_err("no path works");
    assert!(why.contains("--login") && !why.contains("sesame"), "{why}");
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!((bench.fake.left(), bench.records()), (Vec::new(), 0));
    bench.fake.state().failing.clear();
    let why = host.connect(server, &lun(9, &[PORTAL])).await.expect_err("there is no such LUN");
    assert!(why.contains("shows no LUN 9"), "{why}");
}

#[tokio::test]
async fn several_paths_become_one_map() {
    let bench = Bench::new();
    bench.fake.state().maps = true;
    let host = bench.open(|config| config.use_multipath = true).await;
    assert!(host.connector().is_some_and(|connector| connector.multipath));
    let (server, one) = (ServerId::new_v4(), lun(1, &[PORTAL, OTHER]));
    let source = host.connect(server, &one).await.expect("the volume is connected");
    let path = "/dev/disk/by-id/dm-uuid-mpath-36001405a".into();
    assert_eq!(source, VolumeSource::Block { path });
    bench.log();

    // A map that is in use stays, with all its paths.
    bench.fake.state().failing = vec!["multipath -f"];
    let stuck = drop_all(&host, server).await;
    assert_eq!(stuck.len(), 1);
    assert!(stuck[0].reason.contains("multipath -f mpatha"), "{}", stuck[0].reason);
    assert_eq!((bench.fake.state().sessions.len(), bench.records()), (2, 1));
    bench.fake.state().failing.clear();
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!((bench.fake.left(), bench.records()), (Vec::new(), 0));
}

#[tokio::test]
async fn a_path_of_udev_that_is_late_is_awaited() {
    for maps in [false, true] {
        let bench = Bench::new();
        bench.fake.state().maps = maps;
        bench.fake.state().late_links = Some(Vec::new());
        let host = bench.open(|config| config.use_multipath = maps).await;
        let (server, one) = (ServerId::new_v4(), lun(1, &[PORTAL]));
        let source = host.connect(server, &one).await.expect("the volume is connected");
        let path = match maps {
            false => format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{IQN}-lun-1").into(),
            true => "/dev/disk/by-id/dm-uuid-mpath-36001405a".into(),
        };
        assert_eq!(source, VolumeSource::Block { path });
    }
}

#[tokio::test]
async fn multipath_needs_multipathd_if_it_is_enforced() {
    let bench = Bench::new();
    bench.fake.state().failing = vec!["multipathd show"];
    let host = bench.open(|config| config.use_multipath = true).await;
    assert!(host.connector().is_some_and(|connector| !connector.multipath));
    let config =
        VolumesConfig { use_multipath: true, enforce_multipath: true, ..VolumesConfig::default() };
    let records = bench.folder.path().join("volumes");
    let refused = HostVolumes::on(Arc::clone(&bench.fake) as _, config.clone(), records).await;
    assert!(refused.is_err_and(|why| why.contains("volume_enforce_multipath")));
    bench.fake.state().failing.clear();
    let host = bench.open(|mine| *mine = VolumesConfig { look: mine.look, ..config }).await;
    let server = ServerId::new_v4();
    let why = host.connect(server, &lun(1, &[PORTAL])).await.expect_err("there is no map");
    assert!(why.contains("no map"), "{why}");
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.fake.left(), Vec::<String>::new());
}

#[tokio::test]
async fn an_export_is_mounted_once_and_unmounted_after_its_last_file() {
    let bench = Bench::new();
    let place = "/var/lib/nova/mnt/60f7b0f4e0b7b4e9a9a8a1e9d3b2f3f7";
    bench.fake.put("/proc/self/mounts", "192.0.2.9:/home /home nfs4 rw 0 0\n");
    let options =
        |config: &mut VolumesConfig| config.nfs_mount_options = Some("nfsvers=4.2".into());
    let host = bench.open(options).await;
    let server = ServerId::new_v4();
    let (one, two) = (file("volume-1", Some("-o soft,ro")), file("volume-2", None));
    let source = host.connect(server, &one).await.expect("the volume is connected");
    let VolumeSource::File { path, format } = source else { panic!("a file") };
    assert_eq!((path.file_name(), format.as_str()), (Some("volume-1".as_ref()), "raw"));
    let folder = path.parent().expect("the file is below a mount").to_owned();
    assert_eq!(folder.parent(), Some(Path::new("/var/lib/nova/mnt")));
    let name = folder.file_name().expect("the folder has a name").to_string_lossy().into_owned();
    assert_eq!(name.len(), place.rsplit('/').next().map_or(0, str::len), "an MD5 sum");
    let mount = format!("mount -t nfs -o nfsvers=4.2,soft,ro {EXPORT} {}", folder.display());
    let stat = |name: &str| format!("stat -c %F {}/{name}", folder.display());
    assert_eq!(bench.log(), [mount, stat("volume-1")]);
    host.connect(server, &two).await.expect("the volume is connected");
    assert_eq!(bench.log(), [stat("volume-2")], "the export is mounted");
    let why = host.connect(server, &file("volume-3", None)).await.expect_err("there is no file");
    assert!(why.contains("volume-3"), "{why}");
    bench.fake.put(&format!("{}/volume-4", folder.display()), "-> /etc/shadow");
    let why = host.connect(server, &file("volume-4", None)).await.expect_err("a link");
    assert!(why.contains("is a symbolic link"), "{why}");
    assert_eq!(bench.log(), [stat("volume-3"), stat("volume-4")]);
    let keep = BTreeSet::from([two.attachment_id]);
    assert_eq!(host.disconnect_others(server, &keep).await, []);
    assert!(bench.log().is_empty(), "another volume uses the export");

    // A busy mount stays until the next time.
    bench.fake.state().failing = vec!["umount"];
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.records(), 0);
    assert_eq!(bench.fake.left().len(), 2);
    bench.fake.state().failing.clear();
    bench.fake.put("/run/systemd/system", "");
    bench.log();
    host.connect(server, &two).await.expect("the volume is connected");
    assert_eq!(bench.log(), [stat("volume-2")], "the export is still mounted");
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.log(), [format!("systemd-umount {}", folder.display())]);
    host.connect(server, &two).await.expect("the volume is connected");
    assert!(
        bench.log()[0].starts_with("systemd-mount --quiet --collect --fsck=no -t nfs -o nfsvers")
    );
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.fake.left(), ["192.0.2.9:/home /home nfs4 rw 0 0"], "others' mounts stay");

    for options in ["--bind", "-o", "-o -x", "rw"] {
        let why = host.connect(server, &file("volume-1", Some(options))).await;
        assert!(why.is_err_and(|why| why.contains("mount options")), "{options}");
    }
    bench.fake.put("/proc/self/mounts", &format!("other:/x {} nfs4 rw 0 0\n", folder.display()));
    let why = host.connect(server, &one).await.expect_err("the mount point is in use");
    assert!(why.contains("other:/x is mounted"), "{why}");
}

/// The kernel shows the source of a mount without its trailing slash.
#[tokio::test]
async fn an_export_with_a_slash_at_its_end_is_unmounted_too() {
    let bench = Bench::new();
    // A trailing slash of the mount directory makes no difference.
    let slash = |config: &mut VolumesConfig| {
        config.nfs_mount_point_base = "/var/lib/nova/mnt/".into();
    };
    let host = bench.open(slash).await;
    let server = ServerId::new_v4();
    let slash = volume(json!({
        "protocol": "nfs", "export": format!("{EXPORT}/"), "name": "volume-1", "format": "raw",
    }));
    for _ in 0..2 {
        host.connect(server, &slash).await.expect("the volume is connected");
    }
    assert_eq!(bench.fake.left().len(), 1, "one mount");
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.fake.left(), Vec::<String>::new());
}

/// An unreachable server must not delay the volumes of other servers.
#[tokio::test]
async fn an_export_that_does_not_answer_fails_alone() {
    let bench = Bench::new();
    bench.fake.state().shares.insert("192.0.2.8:/e".into(), vec!["volume-1"]);
    let host = bench.open(|_| {}).await;
    let server = ServerId::new_v4();
    bench.fake.state().failing = vec!["stat"];
    let why = host
        .connect(server, &file("volume-1", None))
        .await
        .expect_err("the server does not answer");
    assert!(why.contains("timed out"), "{why}");
    bench.fake.state().failing.clear();
    let other = volume(json!({
        "protocol": "nfs", "export": "192.0.2.8:/e", "name": "volume-1", "format": "raw",
    }));
    host.connect(server, &other).await.expect("the volume is connected");
    assert_eq!(bench.fake.left().len(), 2);
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.fake.left(), Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_is_connected_by_its_portals() {
    let bench = Bench::new();
    let host = bench.open(|_| {}).await;
    let server = ServerId::new_v4();
    let portal = |address: &str| json!({"address": address, "port": 4420, "transport": "tcp"});
    let namespace = || {
        volume(json!({
            "protocol": "nvmeof", "nqn": "nqn.2014-08.org:x",
            "uuid": "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22",
            "portals": [portal("192.0.2.9"), portal("192.0.2.10")],
        }))
    };
    let (one, shared) = (namespace(), namespace());
    let source = host.connect(server, &one).await;
    assert_eq!(source, Ok(VolumeSource::Block { path: "/dev/nvme1n1".into() }));
    let connect = "nvme connect -t tcp -n nqn.2014-08.org:x -a 192.0.2.9 -s 4420 -l -1";
    let log = bench.log();
    assert_eq!((log.len(), log[0].as_str()), (2, connect));
    host.connect(server, &shared).await.expect("the volume is connected");
    assert!(bench.log().is_empty());
    let keep = BTreeSet::from([shared.attachment_id]);
    assert_eq!(host.disconnect_others(server, &keep).await, []);
    assert_eq!(bench.log(), ["blockdev --flushbufs /dev/nvme1n1"]);
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.log()[1], "nvme disconnect -n nqn.2014-08.org:x");
    assert_eq!((bench.fake.left(), bench.records()), (Vec::new(), 0));

    // A foreign namespace keeps the subsystem connected until its next volume is disconnected.
    host.connect(server, &one).await.expect("the volume is connected");
    let foreign = "/sys/class/block/nvme1n2";
    bench.fake.put(&format!("{foreign}/device/subsysnqn"), "nqn.2014-08.org:x\n");
    bench.fake.put(&format!("{foreign}/uuid"), "8d1b2c1e-2f55-4a0c-9b8e-0a7f4f1f6d11\n");
    bench.log();
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!(bench.log(), ["blockdev --flushbufs /dev/nvme1n1"]);
    assert_eq!((bench.fake.left(), bench.records()), (vec!["nvme1n1".into(), "nvme1n2".into()], 0));
    bench.fake.state().files.retain(|path, _| !path.starts_with(foreign));
    host.connect(server, &one).await.expect("the volume is connected");
    assert_eq!(drop_all(&host, server).await, []);
    assert_eq!((bench.fake.left(), bench.records()), (Vec::new(), 0));
}

#[tokio::test]
async fn qemu_may_be_the_initiator() {
    let bench = Bench::new();
    bench
        .fake
        .put("/etc/iscsi/initiatorname.iscsi", "## x\nInitiatorName=iqn.1993-08.org.debian:01:a\n");
    let host = bench.open(|config| config.iscsi = IscsiInitiator::Qemu).await;
    let (server, one) = (ServerId::new_v4(), lun(1, &["[fd00::9]:3260"]));
    let source = host.connect(server, &one).await.expect("the volume is connected");
    let secret = one.attachment_id.to_string().parse().expect("the id is a UUID");
    assert_eq!(
        source,
        VolumeSource::Iscsi {
            iqn: IQN.into(),
            lun: 1,
            portal: SourceHost { name: "fd00::9".into(), port: 3260 },
            initiator: Some("iqn.1993-08.org.debian:01:a".into()),
            user: Some("me".into()),
            secret: Some(secret),
        }
    );
    assert_eq!(drop_all(&host, server).await, []);
    assert!(bench.log().is_empty() && bench.records() == 0);
}

#[tokio::test]
async fn ceph_takes_its_login_from_cinder_or_the_options() {
    let bench = Bench::new();
    let server = ServerId::new_v4();
    let (mine, theirs) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let image = |more: Value| {
        let mut connection = json!({"protocol": "rbd", "name": "volumes/volume-1"});
        for (name, value) in more.as_object().into_iter().flatten() {
            connection[name] = value.clone();
        }
        volume(connection)
    };
    let login = |source: Result<VolumeSource, String>| match source {
        Ok(VolumeSource::Rbd { user, secret, .. }) => Ok((user, secret)),
        Ok(other) => panic!("{other:?}"),
        Err(why) => Err(why),
    };
    let host = bench.open(|_| {}).await;
    let with = json!({"auth": true, "user": "cinder", "secret": theirs});
    let both = Ok((Some("cinder".to_owned()), Some(theirs)));
    assert_eq!(login(host.connect(server, &image(with.clone())).await), both);
    assert_eq!(login(host.connect(server, &image(json!({}))).await), Ok((None, None)));
    let half = image(json!({"auth": true, "user": "cinder"}));
    let why = login(host.connect(server, &half).await).expect_err("there is no secret");
    assert!(why.contains("rbd_secret_uuid"), "{why}");
    let host = bench
        .open(|config| {
            (config.rbd_user, config.rbd_secret) = (Some("nova".into()), Some(mine));
        })
        .await;
    assert_eq!(login(host.connect(server, &image(with)).await), both);
    let own = Ok((Some("cinder".to_owned()), Some(mine)));
    assert_eq!(login(host.connect(server, &half).await), own);
    let fallback = Ok((Some("nova".to_owned()), Some(mine)));
    assert_eq!(login(host.connect(server, &image(json!({}))).await), fallback);
    let unknown = volume(json!({"protocol": "carrier_pigeon"}));
    assert!(host.connect(server, &unknown).await.is_err_and(|why| why.contains("newer")));
    let local = volume(json!({"protocol": "local", "device_path": "/dev/vg/v"}));
    assert!(host.connect(server, &local).await.is_err());
    bench.fake.put("/dev/vg/v", "-> /dev/dm-7");
    let path = "/dev/vg/v".into();
    assert_eq!(host.connect(server, &local).await, Ok(VolumeSource::Block { path }));
}

#[tokio::test]
async fn the_connector_says_what_is_there() {
    let bench = Bench::new();
    let host = bench.open(|_| {}).await;
    let connector = host.connector().expect("the host can attach volumes");
    assert_eq!((connector.initiator, connector.nqn, connector.multipath), (None, None, false));
    for (path, text) in [
        ("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.1993-08.org.debian:01:a\n"),
        ("/etc/nvme/hostnqn", "nqn.2014-08.org.nvmexpress:uuid:a\n"),
        ("/etc/nvme/hostid", "a b\n"),
        ("/sys/module/nvme_core/parameters/multipath", "Y\n"),
    ] {
        bench.fake.put(path, text);
    }
    let connector = host.connector().expect("the host can attach volumes");
    assert_eq!(connector.initiator.as_deref(), Some("iqn.1993-08.org.debian:01:a"));
    assert_eq!(connector.nqn.as_deref(), Some("nqn.2014-08.org.nvmexpress:uuid:a"));
    assert_eq!((connector.nvme_hostid, connector.nvme_native_multipath), (None, Some(true)));
    assert_eq!((&*connector.host, connector.ip.as_deref()), ("gpu1", Some("192.0.2.1")));
}

/// The agent dies before a step of connecting or disconnecting; the next agent disconnects.
#[tokio::test]
async fn no_death_leaves_anything_behind() {
    for paths in [&[PORTAL][..], &[PORTAL, OTHER]] {
        let mut step = 0;
        loop {
            let bench = Bench::new();
            bench.fake.state().maps = paths.len() > 1;
            let host = bench.open(|config| config.use_multipath = paths.len() > 1).await;
            bench.fake.state().dies_at = Some(step);
            let server = ServerId::new_v4();
            let mut lived = true;
            for volume in [lun(1, paths), file("volume-1", None)] {
                lived &= host.connect(server, &volume).await.is_ok();
            }
            lived &= drop_all(&host, server).await.is_empty();
            bench.fake.state().dies_at = None;
            drop(host);
            let again = bench.open(|config| config.use_multipath = paths.len() > 1).await;
            assert_eq!(drop_all(&again, server).await, [], "death at {step}");
            // An export is unmounted with the next volume if its unmount was lost.
            let next = file("volume-2", None);
            again.connect(server, &next).await.expect("the volume is connected");
            assert_eq!(drop_all(&again, server).await, [], "death at {step}");
            assert_eq!(
                (bench.fake.left(), bench.records()),
                (Vec::new(), 0),
                "death at {step} of {paths:?}"
            );
            if lived {
                assert!(step > 10, "{step} steps");
                break;
            }
            step += 1;
        }
    }
}
