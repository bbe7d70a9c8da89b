//! Carrying out what is to be done to devices: one order of a device after the other, never at a
//! device that a guest has.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kilonova_devices::{BITSTREAM_HEAD, Bitstream, region_of};
use kilonova_ids::ImageId;
use kilonova_node_api::{Attachment, Carried, End, Order, Task};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::link::{Link, Stop};
use super::work::Work;
use crate::tools::{Function, Load, Tools, Unfit};

const QUEUE: usize = 256;
/// Bytes of the largest bitstream.
const LARGEST: u64 = 2 << 30;

type Line = Arc<tokio::sync::Mutex<()>>;

/// The orders of a host; dropping it stops what has not been handed to a tool.
pub(super) struct Orders {
    desk: Arc<Desk>,
    tasks: JoinSet<()>,
    ended: mpsc::Receiver<Carried>,
}

/// What the tasks share.
struct Desk {
    work: Arc<Work>,
    link: Arc<Link>,
    tools: Arc<dyn Tools>,
    /// One after the other for each device.
    lines: Mutex<HashMap<String, Line>>,
    ends: mpsc::Sender<Carried>,
}

impl Orders {
    pub(super) fn new(work: Arc<Work>, link: Arc<Link>, tools: Arc<dyn Tools>) -> Self {
        let (ends, ended) = mpsc::channel(QUEUE);
        let desk = Desk { work, link, tools, lines: Mutex::default(), ends };
        Self { desk: Arc::new(desk), tasks: JoinSet::new(), ended }
    }

    /// Sets about an order, unless the agent is at it. One that has ended is said once more.
    pub(super) fn dispatch(&mut self, order: Order) {
        while let Some(task) = self.tasks.try_join_next() {
            if let Err(error) = task {
                tracing::error!(%error, "an order broke off");
            }
        }
        let Some(ended) = self.desk.work.book.begin(&order) else { return };
        let desk = Arc::clone(&self.desk);
        self.tasks.spawn(async move {
            let end = match ended {
                Some(end) => end,
                None => match desk.see_to(&order).await {
                    Some(end) => end,
                    None => return,
                },
            };
            // The other end is gone only when the node stops.
            let _ = desk.ends.send(Carried { order: order.id, end }).await;
        });
    }

    /// The next order that has ended.
    pub(super) async fn ended(&mut self) -> Carried {
        match self.ended.recv().await {
            Some(carried) => carried,
            None => std::future::pending().await,
        }
    }
}

impl Desk {
    /// Carries an order out and writes it down. `None` if the node has to stop first.
    async fn see_to(&self, order: &Order) -> Option<End> {
        let line = self.line(&order.device);
        let _turn = line.lock().await;
        let host = self.work.host();
        let end = match self.carry_out(order).await? {
            Ok(output) => {
                tracing::info!(host, order = %order.id, device = %order.device, "an order is carried out");
                End::Done { output }
            }
            Err(Unfit { message, output }) => {
                tracing::warn!(host, order = %order.id, device = %order.device, %message, "an order failed");
                End::Failed { message, output }
            }
        };
        while let Err(error) = self.work.book.end(order, &end) {
            // Said and not remembered, it might be carried out again on a device in use.
            let folder = self.work.state.display();
            tracing::error!(host, %folder, %error, "what came of an order cannot be written down");
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        }
        Some(end)
    }

    fn line(&self, device: &str) -> Line {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        Arc::clone(lines.entry(device.to_owned()).or_default())
    }

    async fn carry_out(&self, order: &Order) -> Option<Result<String, Unfit>> {
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

    async fn load(&self, device: &str, driver: &str, file: &Path) -> Result<String, Unfit> {
        let head =
            head(file).map_err(|error| Unfit::new(format!("{}: {error}", file.display())))?;
        let bitstream = Bitstream::read(driver, &head).map_err(Unfit::new)?;
        if let (Some(wants), Some(has)) = (&bitstream.region, region_of(&*self.work.sysfs, device))
            && *wants != has
        {
            return Err(Unfit::new(format!(
                "the bitstream is for region {wants}, and {device} has region {has}"
            )));
        }
        self.tools.load(Load { device, driver, file, bitstream: &bitstream }).await
    }

    /// No guest has anything of the device.
    async fn check_unused(&self, order: &Order) -> Result<(), Unfit> {
        let unreadable = |why: String| {
            Unfit::new(format!("it cannot be told whether a guest has {}: {why}", order.device))
        };
        let hypervisor = &self.work.hypervisor;
        for server in hypervisor.servers().await.map_err(|e| unreadable(e.to_string()))? {
            let found = hypervisor.domain(server).await.map_err(|e| unreadable(e.to_string()))?;
            let Some(found) = found else { continue };
            let definition = found.definition().map_err(|e| unreadable(e.to_string()))?;
            let mut functions = definition.devices.iter().filter_map(address);
            if let Some(function) = functions.find(|function| self.concerns(order, function)) {
                return Err(Unfit::new(format!("server {server} has {function}")));
            }
        }
        Ok(())
    }

    /// Whether an order has to do with a function: a bitstream with all of its card's, a clean-up
    /// with the one.
    fn concerns(&self, order: &Order, function: &str) -> bool {
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

    /// Fetches an image into a file. The inner error is the order's, the outer the node's end.
    async fn fetch(
        &self,
        image: ImageId,
        file: &Path,
    ) -> Result<(), Result<Result<String, Unfit>, Stop>> {
        let cannot =
            |error: std::io::Error| Ok(Err(Unfit::new(format!("{}: {error}", file.display()))));
        let failed = |why: String| Err(Ok(Err(Unfit::new(why))));
        let mut target = create(file.to_owned()).map_err(cannot)?;
        let mut offset = 0;
        loop {
            let chunk = match self.link.image(image, offset).await {
                Ok(chunk) => chunk,
                Err(Stop::Rejected(why)) => {
                    return failed(format!("the bitstream cannot be had: {why}"));
                }
                Err(stop) => return Err(Err(stop)),
            };
            if chunk.size > LARGEST {
                return failed(format!(
                    "image {image} has {} bytes, and a bitstream at most {LARGEST}",
                    chunk.size
                ));
            }
            offset += chunk.bytes.len() as u64;
            target.write_all(&chunk.bytes).map_err(cannot)?;
            if offset >= chunk.size {
                return Ok(());
            }
            if chunk.bytes.is_empty() {
                return failed(format!("image {image} ends after {offset} of its bytes"));
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
