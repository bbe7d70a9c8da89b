//! The operator's settings for servers, with the names and defaults of nova.conf.
//!
//! Plain values; the program reads them from its configuration.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_scheduler::Rules;
use kilonova_topology::Strategy;
use kilonova_wire::Microversion;

use crate::aliases::Aliases;
use crate::consoles::ConsoleOptions;
use crate::microversions;
use crate::rebalance::RebalanceOptions;

/// The settings for servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `[DEFAULT] allow_resize_to_same_host`: whether a resize may stay on the server's host.
    pub allow_resize_to_same_host: bool,
    /// `[DEFAULT] resize_confirm_window`: a resize is confirmed automatically after this
    /// time; 0 never.
    pub resize_confirm_window: SignedDuration,
    /// `[DEFAULT] reclaim_instance_interval`: how long a deleted server can be restored; 0
    /// disables soft deletion.
    pub reclaim_instance_interval: SignedDuration,
    /// `[DEFAULT] shelved_offload_time`: a shelved server is offloaded after this time; 0 immediately, -1 never.
    pub shelved_offload_time: SignedDuration,
    /// `[DEFAULT] shelved_poll_interval`: how often shelved servers are checked; 0 never.
    pub shelved_poll_interval: SignedDuration,
    /// `[DEFAULT] reboot_timeout`: a soft reboot that takes longer becomes a hard reboot;
    /// 0 never.
    pub reboot_timeout: SignedDuration,
    /// `[DEFAULT] rescue_timeout`: a server is unrescued after this time; 0 never.
    pub rescue_timeout: SignedDuration,
    /// `[DEFAULT] max_concurrent_live_migrations`: live migrations from a host at the same time;
    /// others wait; 0 for no limit.
    pub max_concurrent_live_migrations: i64,
    /// `[DEFAULT] instance_build_timeout`: a build that takes longer has failed; 0 never.
    pub instance_build_timeout: SignedDuration,
    /// `[DEFAULT] resume_guests_state_on_host_boot`: whether guests that ran when their host went
    /// down are started when it returns.
    pub resume_guests_state_on_host_boot: bool,
    /// `[DEFAULT] sync_power_state_interval`: how often the simulated hosts of this
    /// process check the power states of guests; 0 every minute, negative never.
    pub sync_power_state_interval: SignedDuration,
    /// `[DEFAULT] running_deleted_instance_action`: the action for guests whose servers were
    /// deleted.
    pub running_deleted_instance_action: Orphans,
    /// `[DEFAULT] running_deleted_instance_timeout`: minimum time since the deletion.
    pub running_deleted_instance_timeout: SignedDuration,
    /// `[scheduler] max_attempts`: maximum number of hosts tried for one boot or move.
    pub max_attempts: usize,
    /// The settings of the scheduler.
    pub scheduler: Rules,
    /// `[pci] alias`: the aliases that flavors may request.
    pub pci_aliases: Aliases,
    /// True if `[nova]` names an external Nova, which runs the servers on the hosts that report
    /// here and uses their devices through the Cyborg API.
    pub nova_elsewhere: bool,
    /// `[compute] packing_host_numa_cells_allocation_strategy`: which NUMA cells of a host are used first for guests
    /// with a topology.
    pub numa_strategy: Strategy,
    /// The settings of rebalancing.
    pub rebalance: RebalanceOptions,
    /// The settings of consoles.
    pub consoles: ConsoleOptions,
    /// The newest microversion that the compute API serves. Only tests change it.
    pub newest_microversion: Microversion,
}

/// The action for a guest whose server was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// Leaves the guest.
    Noop,
    /// Leaves the guest and logs a warning.
    Log,
    /// Removes the guest.
    Reap,
}

impl Options {
    /// Interval at which hosts check the power states of guests; `None` for never.
    pub fn power_sync(&self) -> Option<Duration> {
        if self.sync_power_state_interval.is_zero() {
            return Some(Duration::from_secs(60));
        }
        Duration::try_from(self.sync_power_state_interval).ok()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_resize_to_same_host: false,
            resize_confirm_window: SignedDuration::ZERO,
            reclaim_instance_interval: SignedDuration::ZERO,
            shelved_offload_time: SignedDuration::ZERO,
            shelved_poll_interval: SignedDuration::from_hours(1),
            reboot_timeout: SignedDuration::ZERO,
            rescue_timeout: SignedDuration::ZERO,
            max_concurrent_live_migrations: 1,
            instance_build_timeout: SignedDuration::ZERO,
            resume_guests_state_on_host_boot: false,
            sync_power_state_interval: SignedDuration::from_mins(10),
            running_deleted_instance_action: Orphans::Reap,
            running_deleted_instance_timeout: SignedDuration::ZERO,
            max_attempts: 3,
            scheduler: Rules::default(),
            pci_aliases: Aliases::new(),
            nova_elsewhere: false,
            numa_strategy: Strategy::default(),
            rebalance: RebalanceOptions::default(),
            consoles: ConsoleOptions::default(),
            newest_microversion: microversions::MAX,
        }
    }
}
