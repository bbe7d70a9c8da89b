//! A host on this machine: a private libvirtd with QEMU, without KVM and without devices.
//!
//! Two such hosts share only the kernel: each has a mount namespace with its own directories bound
//! over libvirt's, its own host name and its own id. Needs root, libvirtd, QEMU and qemu-img.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_devices::Directory;
use kilonova_disks::{Answers, Disks, Images, Reading};
use kilonova_hypervisor::{Definition, DomainState, Hypervisor};
use kilonova_ids::{HostName, ImageId, ServerId};
use kilonova_libvirt::{Driver, LibvirtConfig, VirtType};
use kilonova_node_api::{Boot, Chunk, DomainConfig, OutgoingMigration, Peer};

/// Boot sector of a guest that prints `tick` and a counter on its serial console ten times a
/// second.
const BOOT: &str = "fa31c08ed88ed0bc007cfb31db43be567cac84c07405e82c00ebf6b90400c1c30488d8240f04303c39\
                    76020427e81500e2ecb00ae80e0053b486b90100baa086cd155bebc85250bafd03eca82074fb58baf8\
                    03ee5ac37469636b20";
const SIZE: u64 = 1024 * 1024;

/// The reason why such a host cannot run here.
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

/// The reason why libvirt cannot define mediated devices here.
pub fn no_mdevs() -> Option<String> {
    for program in ["mdevctl", "virsh"] {
        if !["/usr/sbin", "/usr/bin"].iter().any(|at| Path::new(at).join(program).exists()) {
            return Some(format!("{program} is not installed"));
        }
    }
    pci().is_none().then(|| "there is no PCI device".to_owned())
}

/// The address of some PCI device of this machine.
pub fn pci() -> Option<String> {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").ok()?;
    devices.flatten().map(|device| device.file_name().to_string_lossy().into_owned()).min()
}

/// The image of the counting guest.
fn image() -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&BOOT[2 * at..2 * at + 2], 16);
    let mut bytes: Vec<u8> =
        (0..BOOT.len() / 2).map(|at| byte(at).expect("the text is hexadecimal")).collect();
    bytes.resize(510, 0);
    bytes.extend([0x55, 0xaa]);
    bytes
}

/// Writes the image of the counting guest to the start of a file.
pub fn write_image(file: &Path) {
    use std::io::Write as _;
    let file = std::fs::File::options().write(true).open(file);
    file.and_then(|mut file| file.write_all(&image())).expect("the file is written");
}

/// An image service with the image of the counting guest.
struct Counting;

impl Images for Counting {
    fn read(&self, _: ImageId, offset: u64) -> Reading<'_> {
        let mut bytes = image();
        bytes.resize(SIZE as usize, 0);
        let rest = bytes.get(offset as usize..).unwrap_or_default().to_vec();
        let format = Some("raw".to_owned());
        Box::pin(async move { Ok(Chunk { size: SIZE, bytes: rest, format, sha512: None }) })
    }

    fn vendordata(&self, _: ServerId) -> Answers<'_> {
        Box::pin(async { Err("there are no services".to_owned()) })
    }
}

pub struct Host {
    pub address: &'static str,
    root: PathBuf,
    libvirtd: Child,
}

impl Host {
    /// Starts the host with this address below a directory. Every host sees its instances directory
    /// at the same path, that of the first host.
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

    /// Kills libvirtd and starts it again; guests keep running.
    pub fn restart(&mut self) {
        self.libvirtd.kill().expect("libvirtd is stopped");
        self.libvirtd.wait().expect("libvirtd is stopped");
        let _ = std::fs::remove_file(self.socket());
        self.libvirtd = launch(&self.root, self.address);
        self.ready();
    }

    /// Defines a mediated device; it cannot be started here.
    pub fn define_mdev(&self, uuid: uuid::Uuid, parent: &str) {
        let parent = parent.replace([':', '.'], "_");
        let file = self.folder().join("mdev.xml");
        let xml = format!(
            "<device><parent>pci_{parent}</parent><capability type='mdev'><type id='mtty-1'/>\
             <uuid>{uuid}</uuid></capability></device>"
        );
        std::fs::write(&file, xml).expect("the file is written");
        let uri = self.uri();
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let define = ["-c", &uri, "nodedev-define"];
            let defined =
                Command::new("virsh").args(define).arg(&file).output().expect("the program runs");
            if defined.status.success() {
                return;
            }
            // libvirt notices the removal of the previous device with a delay.
            let why = String::from_utf8_lossy(&defined.stderr);
            assert!(why.contains("modify") && Instant::now() < end, "{why}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The URI of its libvirt.
    pub fn uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.socket().display())
    }

    /// The XML of a running domain.
    pub fn live_xml(&self, server: ServerId) -> String {
        self.virsh(&["dumpxml", &server.to_string()])
    }

    /// The UUIDs of libvirt's secrets.
    pub fn secrets(&self) -> Vec<String> {
        let listed = self.virsh(&["secret-list"]);
        let words = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next());
        words.map(str::to_owned).collect()
    }

    /// The output of `virsh`.
    pub fn virsh(&self, words: &[&str]) -> String {
        let asked = Command::new("virsh").args(["-c", &self.uri()]).args(words).output();
        String::from_utf8(asked.expect("virsh runs").stdout).expect("the text is UTF-8")
    }

    /// The definition files of a parent's mediated devices.
    pub fn mdevs(&self, parent: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder().join("mdevctl").join(parent));
        files.into_iter().flatten().flatten().map(|file| file.path()).collect()
    }

    /// Sends a signal to libvirtd.
    pub fn signal(&self, signal: &str) {
        let pid = self.libvirtd.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("the signal is sent").success());
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
        Peer { host: HostName::verbatim(self.address), address: self.address.into() }
    }

    /// A driver for the host, as a starting agent opens it.
    pub async fn driver(&self, config: LibvirtConfig) -> Driver {
        let root = self.root.display();
        let config = LibvirtConfig {
            connection_uri: format!("qemu+unix:///system?socket={}", self.socket().display()),
            live_migration_uri: Some(format!(
                "qemu+unix:///system?socket={root}/%s/run/libvirt-sock"
            )),
            virt_type: VirtType::Qemu,
            shutdown_timeout: Duration::from_secs(2),
            ..config
        };
        let disks = kilonova_disks::DisksConfig {
            instances_path: self.instances(),
            force_config_drive: false,
            ..kilonova_disks::DisksConfig::default()
        };
        let disks = Disks::open(disks, Arc::new(Counting)).expect("the disks open");
        let sysfs = Arc::new(Directory(PathBuf::from("/sys")));
        Driver::open(config, disks, sysfs).await.expect("libvirt answers")
    }

    pub fn instances(&self) -> PathBuf {
        self.folder().join("instances")
    }

    /// The last number in the guest's console log on this host.
    pub fn count(&self, server: ServerId) -> Option<u32> {
        let log = self.instances().join(server.to_string()).join("console.log");
        let output = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
        let whole = output.rfind('\n').map(|end| &output[..end])?;
        let last = whole.lines().rev().find_map(|line| line.trim().strip_prefix("tick "))?;
        u32::from_str_radix(last, 16).ok()
    }

    /// Waits until the guest counts past `number` on this host.
    pub async fn counts_past(&self, server: ServerId, number: u32) -> u32 {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            match self.count(server) {
                Some(count) if count > number => return count,
                count if Instant::now() > end => {
                    panic!("{} is at {count:?}, not past {number}", self.address)
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
        std::fs::create_dir_all(folder.join(part)).expect("the directory is created");
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
    .expect("the file is written");
    etc(
        "qemu.conf",
        "user = \"root\"\ngroup = \"root\"\nremember_owner = 0\nsecurity_driver = \"none\"\n\
         cgroup_controllers = []\nnamespaces = []\nstdio_handler = \"file\"\n",
    )
    .expect("the file is written");
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
    let log = std::fs::File::create(folder.join("libvirtd.log")).expect("the file is written");
    Command::new("unshare")
        .args(["-m", "-u", "sh", "-c", script, "sh", id])
        .arg(&folder)
        .arg(root.join("127.0.0.1/instances"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log is duplicated"))
        .stderr(log)
        .spawn()
        .expect("the program starts")
}

/// A guest that counts on its console.
pub fn guest() -> Definition {
    let image =
        "22222222-2222-4222-8222-222222222222".parse::<ImageId>().expect("the value is a UUID");
    Definition {
        server: ServerId::new_v4(),
        config: DomainConfig {
            name: "instance-00000001".into(),
            display_name: "counts & 'goes' on".into(),
            vcpus: 1,
            memory_mb: 64,
            boot: Boot {
                image: Some(image),
                root_gb: 1,
                ephemeral_gb: 0,
                swap_mb: 0,
                rebuilt: None,
            },
            machine: Default::default(),
            guest: Default::default(),
            devices: Vec::new(),
            interfaces: Vec::new(),
            rescue: None,
            volumes: Vec::new(),
            numa: None,
        },
        done: None,
        sources: Default::default(),
        kept_machine_type: None,
    }
}

pub async fn domain_state(driver: &Driver, server: ServerId) -> Option<DomainState> {
    driver.domain(server).await.expect("the lookup succeeds").map(|found| found.state)
}

/// A live migration to another host.
pub fn to(host: &Host, force: bool) -> OutgoingMigration {
    OutgoingMigration {
        to: host.peer(),
        devices: Vec::new(),
        force,
        volumes: Vec::new(),
        numa: None,
        interfaces: Vec::new(),
    }
}
