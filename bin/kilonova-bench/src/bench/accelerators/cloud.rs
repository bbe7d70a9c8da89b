//! The measured cloud: hosts of eight GPUs that say so over the node protocol, and requests that
//! were bound before, written into the database of a server that does not run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kilonova_node_api::ControlPlane;
use kilonova_node_link::Remote;
use kilonova_program::Failure;
use kilonova_store::Store;
use serde_json::{Value, json};
use uuid::Uuid;

use super::dance::Place;
use super::statements::Crowd;
use super::table::Row;
use super::{ROUNDS, Target, row, say};

const GPUS: usize = 8;
const SLOTS: u32 = 16;
/// Hosts that speak at once.
const VOICES: usize = 8;

/// The name of a host.
pub fn host(number: usize) -> String {
    format!("bench-{number:05}")
}

/// The resource provider of a GPU.
pub fn provider(number: usize, gpu: usize) -> String {
    let name = format!("{}_{}", host(number), part(gpu));
    Uuid::new_v3(&Uuid::NAMESPACE_DNS, name.as_bytes()).to_string()
}

fn address(gpu: usize) -> String {
    format!("0000:{:02x}:00.0", gpu + 4)
}

fn part(gpu: usize) -> String {
    format!("pci_0000_{:02x}_00_0", gpu + 4)
}

/// Written as a node writes it, so that what a host need not say is not said.
fn registration(number: usize) -> Value {
    let device = |gpu: usize| {
        let traits =
            ["OWNER_CYBORG", "CUSTOM_GPU_NVIDIA", "CUSTOM_NVIDIA_13BD", "CUSTOM_NVIDIA_35"];
        let slots = json!([{"type": "mdev", "mdev_type": "nvidia-35", "count": SLOTS}]);
        let part = json!({
            "name": part(gpu), "resource_class": "VGPU", "traits": traits, "driver": "nvidia",
            "slots": slots,
        });
        json!({
            "address": address(gpu), "kind": "GPU", "vendor_id": "10de", "product_id": "13bd",
            "model": "Tesla M10", "numa_node": 0, "deployables": [part],
        })
    };
    json!({
        "host": host(number), "hypervisor_type": "QEMU", "hypervisor_version": 7_002_000,
        "host_ip": "192.0.2.1", "vcpus": 128, "memory_mb": 1_048_576, "disk_gb": 8_000,
        "ratios": [4.0, 1.0, 1.0], "reserved_memory_mb": 512, "traits": ["COMPUTE_NODE"],
        "devices": (0..GPUS).map(device).collect::<Vec<_>>(),
    })
}

/// A host whose agent is at work.
pub struct Attended(tokio::task::JoinHandle<()>);

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The hosts as they speak to the control plane.
pub struct Reports {
    remote: Arc<Remote>,
    hosts: usize,
}

impl Reports {
    /// So many hosts, which know the word in the file.
    pub fn new(target: &Target, word: &Path, hosts: usize) -> Result<Self, Failure> {
        let word = std::fs::read_to_string(word)
            .map_err(|e| Failure::failed(&format!("cannot read {}", word.display()), e))?;
        let remote = Remote::new(&format!("http://{}", target.address), word.trim())
            .map_err(|e| Failure::failed("cannot speak as a node", e))?;
        Ok(Self { remote: Arc::new(remote), hosts })
    }

    /// Answers as the agent of a host does until the handle is dropped: what an instance gives up is free
    /// when its host has spoken.
    pub async fn attend(&self, number: usize) -> Result<Attended, Failure> {
        let said = serde_json::from_value(registration(number))
            .map_err(|e| Failure::failed("this is no report", e))?;
        let session = self.remote.register(said).await;
        let epoch = session.map_err(|e| Failure::failed("a report was refused", e))?.epoch;
        let remote = Arc::clone(&self.remote);
        Ok(Attended(tokio::spawn(async move {
            let mut since = 0;
            while let Ok(batch) = remote.desired(&host(number), epoch, since).await {
                since = batch.generation;
            }
        })))
    }

    /// The first report of all, and that nothing has changed.
    pub async fn measure(&self, target: &Target) -> Result<Vec<Row>, Failure> {
        let (first, wall) = target.cost(self.all()).await?;
        let mut again = Vec::new();
        for _ in 0..ROUNDS {
            again.push(target.cost(self.all()).await?.0);
        }
        let of = |what: &str| format!("report of {} hosts x {GPUS} GPUs, {what}", self.hosts);
        let elapsed = Row {
            what: of("first, elapsed"),
            server: wall,
            services: 0.0,
            unit: "s",
            aim: Some(10.0),
        };
        Ok(vec![
            elapsed,
            row(of("first"), None, &[first], 1.0),
            row(of("unchanged"), Some(500.0), &again, 1.0),
        ])
    }

    /// All report; the seconds that it took.
    async fn all(&self) -> Result<f64, Failure> {
        let next = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let mut voices = Vec::new();
        for _ in 0..VOICES {
            let (remote, next, hosts) = (Arc::clone(&self.remote), Arc::clone(&next), self.hosts);
            voices.push(tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= hosts {
                        return Ok(());
                    }
                    let said = serde_json::from_value(registration(number))
                        .map_err(|e| Failure::failed("this is no report", e))?;
                    let heard = remote.register(said).await;
                    heard.map_err(|e| Failure::failed("a report was refused", e))?;
                }
            }));
        }
        for voice in voices {
            voice.await.map_err(|e| Failure::failed("a host broke", e))??;
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Binds so many requests, each of an instance of its own, evenly over all GPUs.
pub async fn fill(store: &Store, hosts: usize, requests: usize) -> Result<(), Failure> {
    let room = hosts * GPUS * (SLOTS as usize - 1);
    if requests > room {
        return Err(Failure::Refused(format!(
            "{hosts} hosts have room for {room} requests, not for {requests}; take more --hosts"
        )));
    }
    let crowd = Crowd::new(store).await?;
    let place = |number: usize| {
        let (host_number, gpu) = (number / GPUS % hosts, number % GPUS);
        Place::new(host(host_number), provider(host_number, gpu))
    };
    let mut bound = 0;
    while bound < requests {
        let made = crowd.make().await?;
        let some = &made[..made.len().min(requests - bound)];
        crowd.bind(some, |at| place(bound + at)).await?;
        bound += some.len();
        if bound % 20_000 == 0 {
            say(&format!("{bound} are"));
        }
    }
    Ok(())
}
