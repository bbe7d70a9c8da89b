//! The agents of the hosts, each of which can be killed and started on its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kilonova_hypervisor::Hypervisor;
use kilonova_ids::HostName;
use kilonova_node::topology::Host;
use kilonova_node::{Error, Node, Parts};
use kilonova_node_api::ControlPlane;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::topology::failing;

pub struct Nodes {
    control: Arc<dyn ControlPlane>,
    folder: PathBuf,
    running: BTreeMap<HostName, Running>,
    /// How often agents that start from now on check the power states of their guests.
    pub power_sync: Option<Duration>,
    /// How often agents that start from now on scan their devices, if not at the usual interval.
    pub rescan: Option<Duration>,
}

struct Running {
    parts: Parts,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), Error>>,
}

impl Nodes {
    pub fn new(control: Arc<dyn ControlPlane>, folder: PathBuf) -> Self {
        Self { control, folder, running: BTreeMap::new(), power_sync: None, rescan: None }
    }

    /// Agents for the same hosts, none of them started.
    pub fn for_same_hosts(&self) -> Self {
        Self::new(Arc::clone(&self.control), self.folder.clone())
    }

    /// Starts a host's agent. An agent that already runs for the host keeps running.
    pub fn start(&mut self, host: &Host) {
        let node = Node::simulated(host, &self.folder).expect("the agent starts");
        let node = node.syncing_power(self.power_sync);
        let node = match self.rescan {
            Some(every) => node.rescanning(every),
            None => node,
        };
        let parts = node.parts().clone();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(node.run(Arc::clone(&self.control), stopped));
        self.running.insert(host.name.clone(), Running { parts, stop, task });
    }

    /// [`Nodes::start`] with steps that fail the given number of times, or always.
    pub fn start_failing(&mut self, host: &Host, steps: &[(&str, Option<u32>)]) {
        let template = failing(&host.template, steps);
        self.start(&Host { template: Arc::new(template), ..host.clone() });
    }

    /// Stops a host's agent, whatever it is doing.
    pub async fn kill(&mut self, host: &str) {
        let Some(running) = self.running.remove(host) else { return };
        running.stop.send_replace(true);
        running
            .task
            .await
            .expect("the task does not panic")
            .expect("the agent stops without an error");
    }

    pub async fn kill_all(&mut self) {
        for running in self.running.values() {
            running.stop.send_replace(true);
        }
        for running in std::mem::take(&mut self.running).into_values() {
            running
                .task
                .await
                .expect("the task does not panic")
                .expect("the agent stops without an error");
        }
    }

    /// The error with which a host's agent ended.
    pub async fn outcome_of(&mut self, host: &str) -> Error {
        let running = self.running.remove(host).expect("the agent was started");
        running
            .task
            .await
            .expect("the task does not panic")
            .expect_err("the agent ends with an error")
    }

    /// The hypervisor of a host, as an operator on the host uses it.
    pub fn hypervisor(&self, host: &str) -> &dyn Hypervisor {
        &*self.running.get(host).expect("the agent was started").parts.hypervisor
    }

    /// True if a host's agent was started and has not ended.
    pub fn is_running(&self, host: &str) -> bool {
        self.running.get(host).is_some_and(|running| !running.task.is_finished())
    }

    pub fn names(&self) -> Vec<HostName> {
        self.running.keys().cloned().collect()
    }
}
