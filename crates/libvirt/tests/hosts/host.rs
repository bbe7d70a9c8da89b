//! A host of its own on this machine: a private libvirtd with QEMU, without devices and without KVM.
//!
//! Two of them share nothing but the kernel: each has its folders bound over libvirt's in a mount
//! namespace, a name, and an id. Needs root, libvirtd, QEMU and the tools of disks.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_devices::Directory;
use kilonova_disks::{Disks, Images, Reading};
use kilonova_hypervisor::{Definition, Hypervisor, Life};
use kilonova_ids::{ImageId, ServerId};
use kilonova_libvirt::{Config, Driver, VirtType};
use kilonova_node_api::{Boot, Chunk, Departure, Peer};

/// Starts by itself and counts on the serial line, ten times a second: `tick 0001`.
const BOOT: &str = "fa31c08ed88ed0bc007cfb31db43be567cac84c07405e82c00ebf6b90400c1c30488d8240f04303c39\
                    76020427e81500e2ecb00ae80e0053b486b90100baa086cd155bebc85250bafd03eca82074fb58baf8\
                    03ee5ac37469636b20";
const SIZE: u64 = 1024 * 1024;

/// Why there can be no such host here.
pub fn missing() -> Option<String> {
    for program in ["libvirtd", "qemu-system-x86_64", "qemu-img", "unshare"] {
        let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).exists());
        if !found {
            return Some(format!("{program} is not installed"));
        }
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "-u", "mount", "--make-rprivate", "/"]).stderr(Stdio::null());
    let able = unshare.status().is_ok_and(|status| status.success());
    (!able).then(|| "mount namespaces need root".to_owned())
}

/// Why there can be no mediated device of libvirt's there.
pub fn no_mdevs() -> Option<String> {
    for program in ["mdevctl", "virsh"] {
        if !["/usr/sbin", "/usr/bin"].iter().any(|at| Path::new(at).join(program).exists()) {
            return Some(format!("{program} is not installed"));
        }
    }
    pci().is_none().then(|| "there is no PCI device".to_owned())
}

/// The address of a PCI device of this machine.
pub fn pci() -> Option<String> {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").ok()?;
    devices.flatten().map(|device| device.file_name().to_string_lossy().into_owned()).min()
}

/// The image of guests that count.
struct Counting;

impl Images for Counting {
    fn read(&self, _: ImageId, offset: u64) -> Reading<'_> {
        let mut bytes: Vec<u8> = (0..BOOT.len() / 2)
            .map(|at| u8::from_str_radix(&BOOT[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        bytes.resize(510, 0);
        bytes.extend([0x55, 0xaa]);
        bytes.resize(SIZE as usize, 0);
        let rest = bytes.get(offset as usize..).unwrap_or_default().to_vec();
        let format = Some("raw".to_owned());
        Box::pin(async move { Ok(Chunk { size: SIZE, bytes: rest, format, sha512: None }) })
    }
}

pub struct Host {
    pub address: &'static str,
    root: PathBuf,
    libvirtd: Child,
}

impl Host {
    /// Starts the host of an address below a folder. Guests of the first see its instances where they
    /// are; those of others see theirs in the same place.
    pub fn start(root: &Path, address: &'static str) -> Self {
        let host = Self { address, root: root.to_owned(), libvirtd: launch(root, address) };
        host.ready();
        host
    }

    fn ready(&self) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.socket().exists() {
            assert!(Instant::now() < end, "libvirtd did not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends libvirtd, and starts it anew; guests run on.
    pub fn restart(&mut self) {
        self.libvirtd.kill().expect("ended");
        self.libvirtd.wait().expect("ended");
        let _ = std::fs::remove_file(self.socket());
        self.libvirtd = launch(&self.root, self.address);
        self.ready();
    }

    /// Defines a mediated device, which cannot start here.
    pub fn define_mdev(&self, uuid: uuid::Uuid, parent: &str) {
        let parent = parent.replace([':', '.'], "_");
        let file = self.folder().join("mdev.xml");
        let xml = format!(
            "<device><parent>pci_{parent}</parent><capability type='mdev'><type id='mtty-1'/>\
             <uuid>{uuid}</uuid></capability></device>"
        );
        std::fs::write(&file, xml).expect("written");
        let uri = format!("qemu+unix:///system?socket={}", self.socket().display());
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let define = ["-c", &uri, "nodedev-define"];
            let defined = Command::new("virsh").args(define).arg(&file).output().expect("virsh");
            if defined.status.success() {
                return;
            }
            // libvirt hears a little later that the one before has gone.
            let why = String::from_utf8_lossy(&defined.stderr);
            assert!(why.contains("modify") && Instant::now() < end, "{why}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The files of defined mediated devices of a parent.
    pub fn mdevs(&self, parent: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder().join("mdevctl").join(parent));
        files.into_iter().flatten().flatten().map(|file| file.path()).collect()
    }

    /// Sends libvirtd a signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.libvirtd.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill").success());
    }

    fn folder(&self) -> PathBuf {
        self.root.join(self.address)
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("run/libvirt-sock")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("libvirtd.log")).unwrap_or_default()
    }

    pub fn peer(&self) -> Peer {
        Peer { host: self.address.into(), address: self.address.into() }
    }

    /// A driver of the host, as an agent opens one when it starts.
    pub async fn driver(&self, config: Config) -> Driver {
        let root = self.root.display();
        let config = Config {
            connection_uri: format!("qemu+unix:///system?socket={}", self.socket().display()),
            live_migration_uri: Some(format!(
                "qemu+unix:///system?socket={root}/%s/run/libvirt-sock"
            )),
            virt_type: VirtType::Qemu,
            shutdown_timeout: Duration::from_secs(2),
            ..config
        };
        let disks = kilonova_disks::Config {
            instances_path: self.instances(),
            force_config_drive: false,
            ..kilonova_disks::Config::default()
        };
        let disks = Disks::open(disks, Arc::new(Counting)).expect("a folder");
        let sysfs = Arc::new(Directory(PathBuf::from("/sys")));
        Driver::open(config, disks, sysfs).await.expect("libvirt answers")
    }

    pub fn instances(&self) -> PathBuf {
        self.folder().join("instances")
    }

    /// The last number that a guest said here.
    pub fn count(&self, server: ServerId) -> Option<u32> {
        let log = self.instances().join(server.to_string()).join("console.log");
        let said = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
        let whole = said.rfind('\n').map(|end| &said[..end])?;
        let last = whole.lines().rev().find_map(|line| line.trim().strip_prefix("tick "))?;
        u32::from_str_radix(last, 16).ok()
    }

    /// Waits until a guest has counted further than that, here.
    pub async fn counts_past(&self, server: ServerId, number: u32) -> u32 {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            match self.count(server) {
                Some(count) if count > number => return count,
                count if Instant::now() > end => {
                    panic!("{} says {count:?} and not more than {number}", self.address)
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.libvirtd.kill();
        let _ = self.libvirtd.wait();
        let Ok(files) = std::fs::read_dir(self.folder().join("run/qemu")) else { return };
        for file in
            files.flatten().filter(|file| file.path().extension().is_some_and(|e| e == "pid"))
        {
            let pid = std::fs::read_to_string(file.path()).unwrap_or_default();
            let _ = Command::new("kill").args(["-9", pid.trim()]).stderr(Stdio::null()).status();
        }
    }
}

fn launch(root: &Path, address: &str) -> Child {
    let folder = root.join(address);
    for part in ["run", "lib", "log/qemu", "etc", "cache", "instances", "pid"] {
        std::fs::create_dir_all(folder.join(part)).expect("made");
    }
    let id = address.rsplit('.').next().unwrap_or_default();
    let etc = |name: &str, text: &str| std::fs::write(folder.join("etc").join(name), text);
    etc(
        "libvirtd.conf",
        &format!(
            "host_uuid = \"aaaaaaaa-0000-4000-8000-00000000000{id}\"\nlisten_tls = 0\n\
             unix_sock_group = \"root\"\nauth_unix_rw = \"none\"\n"
        ),
    )
    .expect("written");
    etc(
        "qemu.conf",
        "user = \"root\"\ngroup = \"root\"\nremember_owner = 0\nsecurity_driver = \"none\"\n\
         cgroup_controllers = []\nnamespaces = []\nstdio_handler = \"file\"\n",
    )
    .expect("written");
    let script = "set -e
        hostname \"host$1\"
        mount --make-rprivate /
        for pair in run:/run/libvirt lib:/var/lib/libvirt log:/var/log/libvirt etc:/etc/libvirt cache:/var/cache/libvirt; do
            mkdir -p ${pair#*:}; mount --bind $2/${pair%%:*} ${pair#*:}
        done
        if [ -d /etc/mdevctl.d ]; then
            cp -a /etc/mdevctl.d $2/mdevctl; find $2/mdevctl -mindepth 2 -type f -delete
            mount --bind $2/mdevctl /etc/mdevctl.d
        fi
        [ $2/instances = $3 ] || mount --bind $2/instances $3
        exec libvirtd -p $2/pid/libvirtd.pid";
    let log = std::fs::File::create(folder.join("libvirtd.log")).expect("made");
    Command::new("unshare")
        .args(["-m", "-u", "sh", "-c", script, "sh", id])
        .arg(&folder)
        .arg(root.join("127.0.0.1/instances"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .spawn()
        .expect("started")
}

/// A guest that counts.
pub fn guest() -> Definition {
    let image = "22222222-2222-4222-8222-222222222222".parse::<ImageId>().expect("a uuid");
    Definition {
        server: ServerId::new_v4(),
        name: "instance-00000001".into(),
        display_name: "counts & 'goes' on".into(),
        vcpus: 1,
        memory_mb: 64,
        boot: Boot { image: Some(image), root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None },
        machine: Default::default(),
        guest: Default::default(),
        devices: Vec::new(),
        interfaces: Vec::new(),
        rescue: None,
        done: None,
    }
}

pub async fn life(driver: &Driver, server: ServerId) -> Option<Life> {
    driver.domain(server).await.expect("looked").map(|found| found.life)
}

/// Departure to another host.
pub fn to(host: &Host, force: bool) -> Departure {
    Departure { to: host.peer(), devices: Vec::new(), force }
}
