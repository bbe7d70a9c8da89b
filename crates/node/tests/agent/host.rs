//! A simulated host in a temporary directory, run by one agent after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{MigDriver, Sysfs, mdevs};
use kilonova_hypervisor::{Definition, DomainState, Hypervisor};
use kilonova_ids::ServerId;
use kilonova_node::topology::Topology;
use kilonova_node::{Error, Node, Parts, Volumes};
use kilonova_node_api::{Attachment, Boot, Desired, Domain, DomainConfig, Power};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::agent::control::Control;
use crate::agent::crashing_host::{Doom, Fragile, Stubborn};

pub const GPUS: [&str; 2] = ["0000:84:00.0", "0000:85:00.0"];

pub struct Host {
    folder: tempfile::TempDir,
    topology: Topology,
}

/// A running agent.
pub struct Running {
    pub parts: Parts,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), Error>>,
}

impl Host {
    /// `more` is added to the host's entry in the topology.
    pub fn new(more: &str) -> Self {
        let text = format!(
            "[card.m10]\nvendor = \"10de\"\nproduct = \"13bd\"\ndriver = \"nvidia\"\nexclusive_types = true\n\
             types = [{{ id = \"nvidia-35\", name = \"GRID M10-0B\", available_instances = 4 }}]\n\
             [[host]]\nname = \"gpu1\"\nvcpus = 16\nmemory_mb = 65536\ndisk_gb = 500\n{more}\n\
             card = [{{ card = \"m10\", addresses = [\"{}\", \"{}\"] }}]\nfake = [{{}}]\n\
             devices = {{ enabled_mdev_types = [\"nvidia-35\"] }}\n",
            GPUS[0], GPUS[1]
        );
        Self::of(&text)
    }

    /// The host of a topology, whose name is `gpu1`.
    pub fn of(text: &str) -> Self {
        let topology =
            Topology::parse(text, Path::new("test.toml")).expect("the topology is valid");
        Self { folder: tempfile::tempdir().expect("a temporary directory is created"), topology }
    }

    pub fn node(&self) -> Node {
        Node::simulated(&self.topology.hosts[0], self.folder.path()).expect("the agent starts")
    }

    pub fn parts(&self) -> Parts {
        self.node().parts().clone()
    }

    pub fn run(&self, control: &Arc<Control>) -> Running {
        Running::start(self.node(), control)
    }

    /// Runs an agent with these components.
    pub fn run_parts(&self, parts: Parts, control: &Arc<Control>) -> Running {
        Running::start(Node::new(parts).expect("the agent starts"), control)
    }

    /// Runs an agent that checks at this interval for guests whose state changed without a
    /// document.
    pub fn run_syncing(&self, control: &Arc<Control>, every: Option<Duration>) -> Running {
        Running::start(self.node().syncing_power(every), control)
    }

    /// Runs an agent on a host that `doom` crashes.
    pub fn run_doomed(&self, control: &Arc<Control>, doom: &Arc<Doom>) -> Running {
        let mut parts = self.parts();
        parts.hypervisor =
            Arc::new(Fragile::<dyn Hypervisor> { doom: Arc::clone(doom), inner: parts.hypervisor });
        parts.sysfs = Arc::new(Fragile::<dyn Sysfs> { doom: Arc::clone(doom), inner: parts.sysfs });
        parts.mig = Arc::new(Fragile::<dyn MigDriver> { doom: Arc::clone(doom), inner: parts.mig });
        parts.volumes =
            Arc::new(Fragile::<dyn Volumes> { doom: Arc::clone(doom), inner: parts.volumes });
        Running::start(Node::new(parts).expect("the agent starts"), control)
    }

    /// Runs an agent whose kernel refuses some writes.
    pub fn run_refusing(
        &self,
        control: &Arc<Control>,
        refusals: Vec<(&'static str, usize, i32)>,
    ) -> Running {
        let mut parts = self.parts();
        parts.sysfs = Arc::new(Stubborn { refusals: refusals.into(), inner: parts.sysfs });
        Running::start(Node::new(parts).expect("the agent starts"), control)
    }

    /// A directory of the host's state.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.path().join("gpu1").join(name)
    }

    /// Names of the files in a directory of the host's state, except the spare file of the notes.
    pub fn files(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder(folder)) else {
            return Vec::new();
        };
        entries
            .map(|entry| {
                entry.expect("the directory is readable").file_name().to_string_lossy().into_owned()
            })
            .filter(|name| name != "spare.new")
            .collect()
    }

    /// Removes the domain of a guest, as an operator or a disk failure does. The agent must not run.
    pub fn lose_domain(&self, server: ServerId) {
        let file = self.folder("domains").join(format!("{server}.xml"));
        std::fs::remove_file(file).expect("the domain exists");
        std::fs::remove_dir_all(self.folder("running")).expect("the directory is removed");
    }

    pub fn assert_empty(&self, when: &str) {
        let kept =
            ["mdevs", "domains", "running", "saved", "console", "snapshots", "notes", "volumes"];
        for folder in kept {
            assert_eq!(self.files(folder), Vec::<String>::new(), "{folder} {when}");
        }
    }
}

impl Running {
    pub fn start(node: Node, control: &Arc<Control>) -> Self {
        let parts = node.parts().clone();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(node.run(control.clone(), stopped));
        Self { parts, stop, task }
    }

    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.ended().await.expect("the agent stops without an error");
    }

    pub async fn ended(self) -> Result<(), Error> {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), self.task).await;
        ended.expect("the agent stops in time").expect("the agent does not panic")
    }

    /// Simulates a kill of the process.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn mdevs(&self) -> Vec<Uuid> {
        let mut all: Vec<Uuid> = mdevs(&*self.parts.sysfs)
            .expect("the directory is readable")
            .iter()
            .map(|mdev| mdev.uuid)
            .collect();
        all.sort();
        all
    }

    pub async fn domain(&self, server: ServerId) -> Option<(Definition, bool)> {
        let (definition, state) = self.state(server).await?;
        Some((definition, state == DomainState::Running))
    }

    pub async fn state(&self, server: ServerId) -> Option<(Definition, DomainState)> {
        let found = self.parts.hypervisor.domain(server).await.expect("the lookup succeeds")?;
        Some((found.definition().expect("the definition is readable"), found.state))
    }
}

pub fn vgpu(gpu: &str) -> Attachment {
    Attachment::Mdev { uuid: Uuid::new_v4(), parent: gpu.into(), mdev_type: "nvidia-35".into() }
}

pub fn guest(name: &str, devices: Vec<Attachment>) -> Domain {
    Domain {
        config: DomainConfig {
            name: "instance-00000001".into(),
            display_name: name.into(),
            vcpus: 1,
            memory_mb: 512,
            boot: Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None },
            machine: Default::default(),
            guest: Default::default(),
            devices,
            rescue: None,
            volumes: Vec::new(),
            numa: None,
            interfaces: Vec::new(),
        },
        power: Power::On,
        starts_paused: false,
        existing: false,
        verb: None,
        from: None,
        outgoing_migration: None,
        kept_machine_type: None,
    }
}

pub fn present(domain: &Domain) -> Desired {
    Desired::Present(Box::new(domain.clone()))
}

pub fn uuids(devices: &[Attachment]) -> Vec<Uuid> {
    let uuid = |device: &Attachment| match device {
        Attachment::Mdev { uuid, .. } => Some(*uuid),
        _ => None,
    };
    let mut all: Vec<Uuid> = devices.iter().filter_map(uuid).collect();
    all.sort();
    all
}
