//! A host whose image service is a table.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kilonova_disks::{Answers, Disks, DisksConfig, Images, Reading};
use kilonova_hypervisor::Definition;
use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{Boot, Chunk, Domain, DomainConfig, GuestMetadata, Machine, Power};
use serde_json::Value;
use sha2::{Digest as _, Sha512};
use tempfile::TempDir;

/// Size of a chunk, so that images take several reads.
const PIECE: usize = 100_000;

/// True if these programs are installed; prints the first that is missing.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = programs
        .iter()
        .find(|program| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if let Some(missing) = missing {
        kilonova_testkit::skip(format!("{missing} is not on this machine"));
    }
    missing.is_none()
}

/// An image in the image service.
#[derive(Clone)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub format: Option<&'static str>,
    pub sha512: Option<String>,
}

#[derive(Default)]
pub struct Table {
    pub images: Mutex<HashMap<ImageId, Stored>>,
    /// How often a download of an image started.
    pub begun: AtomicUsize,
    /// The answers of the vendor data services; `None` where one fails.
    pub vendordata: Mutex<Option<serde_json::Map<String, serde_json::Value>>>,
}

impl Images for Table {
    fn read(&self, image: ImageId, offset: u64) -> Reading<'_> {
        Box::pin(async move {
            if offset == 0 {
                self.begun.fetch_add(1, Ordering::Relaxed);
            }
            tokio::task::yield_now().await;
            let images = self.images.lock().expect("the lock is not poisoned");
            let stored = images.get(&image).ok_or("the image service does not know it")?;
            let rest = stored.bytes.iter().skip(usize::try_from(offset).expect("the size fits"));
            Ok(Chunk {
                size: stored.bytes.len() as u64,
                format: stored.format.map(str::to_owned),
                sha512: stored.sha512.clone(),
                bytes: rest.take(PIECE).copied().collect(),
            })
        })
    }

    fn vendordata(&self, _: ServerId) -> Answers<'_> {
        let answers = self.vendordata.lock().expect("the lock is not poisoned").clone();
        Box::pin(async move { answers.ok_or_else(|| "a service failed".to_owned()) })
    }
}

pub struct Host {
    pub folder: TempDir,
    pub table: Arc<Table>,
    pub disks: Disks,
}

impl Host {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(choose: impl FnOnce(&mut DisksConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let mut config = DisksConfig {
            instances_path: folder.path().join("instances"),
            force_config_drive: false,
            ..DisksConfig::default()
        };
        choose(&mut config);
        let table = Arc::new(Table::default());
        let disks =
            Disks::open(config, Arc::clone(&table) as Arc<dyn Images>).expect("the disks open");
        Self { folder, table, disks }
    }

    /// Adds an image.
    pub fn image(&self, bytes: Vec<u8>, format: &'static str) -> ImageId {
        let sha512 = Sha512::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        self.store(Stored { bytes, format: Some(format), sha512: Some(sha512) })
    }

    pub fn store(&self, stored: Stored) -> ImageId {
        let id = ImageId::new_v4();
        self.table.images.lock().expect("the lock is not poisoned").insert(id, stored);
        id
    }

    /// Adds a qcow2 image with this content, converted by `qemu-img` with extra arguments.
    pub fn qcow2(&self, bytes: &[u8], arguments: &[&str]) -> ImageId {
        self.image(self.as_qcow2(bytes, arguments), "qcow2")
    }

    pub fn as_qcow2(&self, bytes: &[u8], arguments: &[&str]) -> Vec<u8> {
        let (raw, made) = (self.folder.path().join("raw"), self.folder.path().join("qcow2"));
        std::fs::write(&raw, bytes).expect("the file is written");
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", "qcow2"]).args(arguments);
        let done = convert.arg(&raw).arg(&made).output().expect("the program runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(made).expect("the file is read")
    }

    pub fn base(&self) -> PathBuf {
        self.disks.folder().join("_base")
    }

    /// Names of the files in the cache.
    pub fn cached(&self) -> Vec<String> {
        names(&self.base())
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the directory is read");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("the entry exists").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// A guest of an image with a root disk of 1 GiB.
pub fn guest(image: ImageId) -> Definition {
    let domain = Domain {
        config: DomainConfig {
            name: "instance-00000001".into(),
            display_name: "one".into(),
            vcpus: 1,
            memory_mb: 64,
            boot: Boot {
                image: Some(image),
                root_gb: 1,
                ephemeral_gb: 0,
                swap_mb: 0,
                rebuilt: None,
            },
            machine: Machine::default(),
            guest: GuestMetadata { hostname: "one".into(), ..GuestMetadata::default() },
            devices: Vec::new(),
            interfaces: Vec::new(),
            rescue: None,
            volumes: Vec::new(),
            numa: None,
        },
        power: Power::On,
        starts_paused: false,
        existing: false,
        verb: None,
        from: None,
        outgoing_migration: None,
        kept_machine_type: None,
    };
    Definition::of(ServerId::new_v4(), &domain)
}

pub fn rebuilt(of: &Definition, image: ImageId) -> Definition {
    let mut anew = of.clone();
    anew.config.boot.image = Some(image);
    anew.config.boot.rebuilt = Some(OperationId::new_v4());
    anew
}

pub fn info(path: &Path) -> Value {
    let run = Command::new("qemu-img").args(["info", "--output=json", "-U"]).arg(path).output();
    serde_json::from_slice(&run.expect("qemu-img runs").stdout).expect("the text is JSON")
}

/// The first bytes of a disk, as its guest sees it.
pub fn seen(path: &Path, bytes: usize) -> Vec<u8> {
    let raw = path.with_extension("seen");
    let run = Command::new("qemu-img")
        .args(["dd", "-f", "qcow2", "-O", "raw", "bs=65536", "count=8"])
        .arg(format!("if={}", path.display()))
        .arg(format!("of={}", raw.display()))
        .output()
        .expect("the program runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut seen = std::fs::read(&raw).expect("the file is read");
    std::fs::remove_file(raw).expect("the file is removed");
    seen.truncate(bytes);
    seen
}

/// Writes to a disk as its guest would.
pub fn write(path: &Path, at: u64, byte: u8) {
    let command = format!("write -P {byte} {at} 512");
    let run = Command::new("qemu-io").args(["-f", "qcow2", "-c", &command]).arg(path).output();
    let run = run.expect("qemu-io runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
