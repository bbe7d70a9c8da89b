//! Carries out device orders: one order per device at a time, and never on a device in use by a
//! guest.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kilonova_devices::{BITSTREAM_HEAD, Bitstream, region_of};
use kilonova_ids::ImageId;
use kilonova_node_api::{Attachment, End, Order, OrderResult, Task};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::link::{Link, Stop};
use super::work::Work;
use crate::tools::{Function, Load, ToolError, Tools};

const QUEUE: usize = 256;
/// Maximum size of a bitstream in bytes.
const LARGEST: u64 = 2 << 30;

type DeviceLock = Arc<tokio::sync::Mutex<()>>;

/// The orders of a host. Dropping it cancels the orders whose tool has not started.
pub(super) struct Orders {
    runner: Arc<OrderRunner>,
    tasks: JoinSet<()>,
    ended: mpsc::Receiver<OrderResult>,
}

/// The state that the tasks share.
struct OrderRunner {
    work: Arc<Work>,
    link: Arc<Link>,
    tools: Arc<dyn Tools>,
    /// One lock per device.
    locks: Mutex<HashMap<String, DeviceLock>>,
    ends: mpsc::Sender<OrderResult>,
}

impl Orders {
    pub(super) fn new(work: Arc<Work>, link: Arc<Link>, tools: Arc<dyn Tools>) -> Self {
        let (ends, ended) = mpsc::channel(QUEUE);
        let runner = OrderRunner { work, link, tools, locks: Mutex::default(), ends };
        Self { runner: Arc::new(runner), tasks: JoinSet::new(), ended }
    }

    /// Starts an order, unless it is running. Reports the result of a finished order again.
    pub(super) fn dispatch(&mut self, order: Order) {
        while let Some(task) = self.tasks.try_join_next() {
            if let Err(error) = task {
                tracing::error!(%error, "the task that carries out an order panicked");
            }
        }
        let Some(ended) = self.runner.work.order_log.begin(&order) else { return };
        let runner = Arc::clone(&self.runner);
        self.tasks.spawn(async move {
            let end = match ended {
                Some(end) => end,
                None => match runner.run_and_record(&order).await {
                    Some(end) => end,
                    None => return,
                },
            };
            // The receiver is dropped only when the agent stops.
            let _ = runner.ends.send(OrderResult { order: order.id, end }).await;
        });
    }

    /// The result of the next order that ends.
    pub(super) async fn ended(&mut self) -> OrderResult {
        match self.ended.recv().await {
            Some(carried) => carried,
            None => std::future::pending().await,
        }
    }
}

impl OrderRunner {
    /// Carries out an order and records the result. Returns `None` if the agent must stop before
    /// the order ends.
    async fn run_and_record(&self, order: &Order) -> Option<End> {
        let lock = self.lock(&order.device);
        let _turn = lock.lock().await;
        let host = self.work.host();
        let end = match self.carry_out(order).await? {
            Ok(output) => {
                tracing::info!(%host, order = %order.id, device = %order.device, "carried out a device order");
                End::Done { output }
            }
            Err(ToolError { message, output }) => {
                tracing::warn!(%host, order = %order.id, device = %order.device, %message, "a device order failed");
                End::Failed { message, output }
            }
        };
        while let Err(error) = self.work.order_log.end(order, &end) {
            // Without the record, the order could be repeated on a device in use.
            let folder = self.work.state.display();
            tracing::error!(%host, %folder, %error, "could not record the result of a device order; retrying");
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        }
        Some(end)
    }

    fn lock(&self, device: &str) -> DeviceLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(device.to_owned()).or_default())
    }

    async fn carry_out(&self, order: &Order) -> Option<Result<String, ToolError>> {
        if let Err(unfit) = self.check_unused(order).await {
            return Some(Err(unfit));
        }
        match &order.task {
            Task::Clean { address, resource_class } => {
                Some(self.tools.clean(Function { address, resource_class }).await)
            }
            Task::Program { driver, image } => {
                let file = self.work.state.join("bitstreams").join(order.id.to_string());
                let result = match self.fetch(*image, &file).await {
                    Ok(()) => Ok(self.load(&order.device, driver, &file).await),
                    Err(end) => end,
                };
                let _ = std::fs::remove_file(&file);
                result.ok()
            }
        }
    }

    async fn load(&self, device: &str, driver: &str, file: &Path) -> Result<String, ToolError> {
        let head =
            head(file).map_err(|error| ToolError::new(format!("{}: {error}", file.display())))?;
        let bitstream = Bitstream::read(driver, &head).map_err(ToolError::new)?;
        if let (Some(wants), Some(has)) = (&bitstream.region, region_of(&*self.work.sysfs, device))
            && *wants != has
        {
            return Err(ToolError::new(format!(
                "the bitstream is for region {wants}, but {device} has region {has}"
            )));
        }
        self.tools.load(Load { device, driver, file, bitstream: &bitstream }).await
    }

    /// Fails if a guest uses the device.
    async fn check_unused(&self, order: &Order) -> Result<(), ToolError> {
        let unreadable = |why: String| {
            ToolError::new(format!("could not check whether a guest uses {}: {why}", order.device))
        };
        let hypervisor = &self.work.hypervisor;
        for server in hypervisor.servers().await.map_err(|e| unreadable(e.to_string()))? {
            let found = hypervisor.domain(server).await.map_err(|e| unreadable(e.to_string()))?;
            let Some(found) = found else { continue };
            let definition = found.definition().map_err(|e| unreadable(e.to_string()))?;
            let mut functions = definition.config.devices.iter().filter_map(address);
            if let Some(function) = functions.find(|function| self.affects(order, function)) {
                return Err(ToolError::new(format!("server {server} uses {function}")));
            }
        }
        Ok(())
    }

    /// True if an order affects a function: programming affects all functions of the card, cleaning
    /// only the function itself.
    fn affects(&self, order: &Order, function: &str) -> bool {
        let card = |address: &str| address.rsplit_once('.').map(|(card, _)| card.to_owned());
        match &order.task {
            Task::Clean { address, .. } => address == function,
            Task::Program { .. } => {
                let physical = format!("bus/pci/devices/{function}/physfn");
                let physical = self.work.sysfs.real(&physical).unwrap_or_default();
                function == order.device
                    || physical.rsplit('/').next() == Some(order.device.as_str())
                    || (card(function).is_some() && card(function) == card(&order.device))
            }
        }
    }

    /// Downloads an image to a file. The inner error fails the order, the outer one stops the
    /// agent.
    async fn fetch(
        &self,
        image: ImageId,
        file: &Path,
    ) -> Result<(), Result<Result<String, ToolError>, Stop>> {
        let io_error =
            |error: std::io::Error| Ok(Err(ToolError::new(format!("{}: {error}", file.display()))));
        let failed = |why: String| Err(Ok(Err(ToolError::new(why))));
        let mut target = create(file.to_owned()).map_err(io_error)?;
        let mut offset = 0;
        loop {
            let chunk = match self.link.image(image, offset).await {
                Ok(chunk) => chunk,
                Err(Stop::Rejected(why)) => {
                    return failed(format!("could not download the bitstream: {why}"));
                }
                Err(stop) => return Err(Err(stop)),
            };
            if chunk.size > LARGEST {
                return failed(format!(
                    "image {image} has {} bytes; a bitstream may have at most {LARGEST}",
                    chunk.size
                ));
            }
            offset += chunk.bytes.len() as u64;
            target.write_all(&chunk.bytes).map_err(io_error)?;
            if offset >= chunk.size {
                return Ok(());
            }
            if chunk.bytes.is_empty() {
                return failed(format!("image {image} ends early, after {offset} bytes"));
            }
        }
    }
}

fn create(file: PathBuf) -> std::io::Result<std::fs::File> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::File::create(file)
}

fn head(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(BITSTREAM_HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn address(device: &Attachment) -> Option<&str> {
    match device {
        Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => Some(address),
        Attachment::Mdev { .. } => None,
    }
}
