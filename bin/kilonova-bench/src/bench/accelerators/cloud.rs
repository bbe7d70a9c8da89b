//! The measured cloud: hosts of eight GPUs that register over the node protocol, and bound requests
//! that are written to the database while the server is stopped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kilonova_ids::HostName;
use kilonova_node_api::ControlPlane;
use kilonova_node_link::Remote;
use kilonova_program::Failure;
use kilonova_store::Store;
use serde_json::{Value, json};
use uuid::Uuid;

use super::arq_cycle::DeviceRef;
use super::statements::OtherRequests;
use super::table::Row;
use super::{ROUNDS, Target, report_progress, row};

const GPUS: usize = 8;
const SLOTS: u32 = 16;
/// Hosts that register concurrently.
const CONCURRENT_REPORTS: usize = 8;

/// The name of a host.
pub fn host(number: usize) -> HostName {
    HostName::verbatim(format!("bench-{number:05}"))
}

/// The resource provider of a GPU.
pub fn provider(number: usize, gpu: usize) -> String {
    let name = format!("{}_{}", host(number), deployable(gpu));
    Uuid::new_v3(&Uuid::NAMESPACE_DNS, name.as_bytes()).to_string()
}

fn address(gpu: usize) -> String {
    format!("0000:{:02x}:00.0", gpu + 4)
}

fn deployable(gpu: usize) -> String {
    format!("pci_0000_{:02x}_00_0", gpu + 4)
}

/// A registration in JSON, without the optional fields, as an agent sends it.
fn registration(number: usize) -> Value {
    let device = |gpu: usize| {
        let traits =
            ["OWNER_CYBORG", "CUSTOM_GPU_NVIDIA", "CUSTOM_NVIDIA_13BD", "CUSTOM_NVIDIA_35"];
        let slots = json!([{"type": "mdev", "mdev_type": "nvidia-35", "count": SLOTS}]);
        let deployable = json!({
            "name": deployable(gpu), "resource_class": "VGPU", "traits": traits, "driver": "nvidia",
            "slots": slots,
        });
        json!({
            "address": address(gpu), "kind": "GPU", "vendor_id": "10de", "product_id": "13bd",
            "model": "Tesla M10", "numa_node": 0, "deployables": [deployable],
        })
    };
    json!({
        "host": host(number), "hypervisor_type": "QEMU", "hypervisor_version": 7_002_000,
        "host_ip": "192.0.2.1", "vcpus": 128, "memory_mb": 1_048_576, "disk_gb": 8_000,
        "ratios": [4.0, 1.0, 1.0], "reserved_memory_mb": 512, "traits": ["COMPUTE_NODE"],
        "devices": (0..GPUS).map(device).collect::<Vec<_>>(),
    })
}

/// The running agent of a host; it stops when this value is dropped.
pub struct AgentTask(tokio::task::JoinHandle<()>);

impl Drop for AgentTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The hosts' connection to the controller.
pub struct Reports {
    remote: Arc<Remote>,
    hosts: usize,
}

impl Reports {
    /// Connects `hosts` hosts with the shared token in the file.
    pub fn new(target: &Target, token_file: &Path, hosts: usize) -> Result<Self, Failure> {
        let token_file = std::fs::read_to_string(token_file)
            .map_err(|e| Failure::failed(&format!("cannot read {}", token_file.display()), e))?;
        let remote = Remote::new(&format!("http://{}", target.address), token_file.trim())
            .map_err(|e| Failure::failed("cannot connect as an agent", e))?;
        Ok(Self { remote: Arc::new(remote), hosts })
    }

    /// Acknowledges documents as the agent of a host does, until the value is dropped. A released handle
    /// becomes free only when its host acknowledges.
    pub async fn start_agent(&self, number: usize) -> Result<AgentTask, Failure> {
        let registration_body = serde_json::from_value(registration(number))
            .map_err(|e| Failure::failed("the registration is not valid", e))?;
        let session = self.remote.register(registration_body).await;
        let epoch = session.map_err(|e| Failure::failed("a registration was refused", e))?.epoch;
        let remote = Arc::clone(&self.remote);
        Ok(AgentTask(tokio::spawn(async move {
            let mut since = 0;
            while let Ok(batch) = remote.desired(&host(number), epoch, since).await {
                since = batch.generation;
            }
        })))
    }

    /// Measures the first registration of all hosts, and unchanged registrations.
    pub async fn measure(&self, target: &Target) -> Result<Vec<Row>, Failure> {
        let (first, wall) = target.cpu_of(self.report_all()).await?;
        let mut again = Vec::new();
        for _ in 0..ROUNDS {
            again.push(target.cpu_of(self.report_all()).await?.0);
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

    /// Registers all hosts; returns the seconds that it took.
    async fn report_all(&self) -> Result<f64, Failure> {
        let next = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..CONCURRENT_REPORTS {
            let (remote, next, hosts) = (Arc::clone(&self.remote), Arc::clone(&next), self.hosts);
            tasks.push(tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= hosts {
                        return Ok(());
                    }
                    let registration_body = serde_json::from_value(registration(number))
                        .map_err(|e| Failure::failed("the registration is not valid", e))?;
                    let session = remote.register(registration_body).await;
                    session.map_err(|e| Failure::failed("a registration was refused", e))?;
                }
            }));
        }
        for task in tasks {
            task.await.map_err(|e| Failure::failed("the task of a host failed", e))??;
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Binds this number of requests, each for an instance of its own, evenly over all GPUs.
pub async fn fill(store: &Store, hosts: usize, requests: usize) -> Result<(), Failure> {
    let room = hosts * GPUS * (SLOTS as usize - 1);
    if requests > room {
        return Err(Failure::Refused(format!(
            "{hosts} hosts have room for {room} requests, not for {requests}; take more --hosts"
        )));
    }
    let others = OtherRequests::new(store).await?;
    let device = |number: usize| {
        let (host_number, gpu) = (number / GPUS % hosts, number % GPUS);
        DeviceRef::new(host(host_number), provider(host_number, gpu))
    };
    let mut bound = 0;
    while bound < requests {
        let made = others.create().await?;
        let some = &made[..made.len().min(requests - bound)];
        others.bind(some, |at| device(bound + at)).await?;
        bound += some.len();
        if bound % 20_000 == 0 {
            report_progress(&format!("{bound} requests are bound"));
        }
    }
    Ok(())
}
