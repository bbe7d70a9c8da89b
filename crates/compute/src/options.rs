//! What an operator decides about servers, with the names and defaults of nova.conf.
//!
//! Plain values; who reads them from where is the program's business.

use std::time::Duration;

use crate::app::aliases::Aliases;
use crate::app::scheduler::Rules;

/// How servers are treated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `[DEFAULT] allow_resize_to_same_host`: whether a resize may stay on its host.
    pub allow_resize_to_same_host: bool,
    /// `[DEFAULT] resize_confirm_window`, seconds: a resize is confirmed by itself after that; 0
    /// never.
    pub resize_confirm_window: i64,
    /// `[DEFAULT] reclaim_instance_interval`, seconds: how long a deleted server can be restored; 0
    /// not at all.
    pub reclaim_instance_interval: i64,
    /// `[DEFAULT] shelved_offload_time`, seconds: a shelved server leaves its host after that; 0 at
    /// once, -1 never.
    pub shelved_offload_time: i64,
    /// `[DEFAULT] shelved_poll_interval`, seconds: how often shelved servers are looked at; 0 never.
    pub shelved_poll_interval: i64,
    /// `[DEFAULT] reboot_timeout`, seconds: a soft reboot that takes longer becomes a hard one; 0
    /// never.
    pub reboot_timeout: i64,
    /// `[DEFAULT] rescue_timeout`, seconds: a server is in rescue no longer than that; 0 as long as
    /// its user likes.
    pub rescue_timeout: i64,
    /// `[DEFAULT] max_concurrent_live_migrations`: guests that leave a host at once while they run,
    /// the others wait; 0 any number.
    pub max_concurrent_live_migrations: i64,
    /// `[DEFAULT] instance_build_timeout`, seconds: a build that takes longer has failed; 0 never.
    pub instance_build_timeout: i64,
    /// `[DEFAULT] resume_guests_state_on_host_boot`: whether guests that ran when their host went
    /// down are started when it is back.
    pub resume_guests_state_on_host_boot: bool,
    /// `[DEFAULT] sync_power_state_interval`, seconds: how often the hosts of this process look at
    /// guests that may have changed by themselves; 0 every minute, less never.
    pub sync_power_state_interval: i64,
    /// `[DEFAULT] running_deleted_instance_action`: what becomes of guests that a host still has of
    /// servers that were deleted.
    pub running_deleted_instance_action: Orphans,
    /// `[DEFAULT] running_deleted_instance_timeout`, seconds: how long before they were deleted.
    pub running_deleted_instance_timeout: i64,
    /// `[scheduler] max_attempts`: hosts tried for one boot or move.
    pub max_attempts: usize,
    /// How a host is chosen.
    pub scheduler: Rules,
    /// `[pci] alias`: what flavors may ask for by name.
    pub pci_aliases: Aliases,
    /// `[nova]` names a Nova of somebody else: it has the servers on the hosts that report here, and
    /// knows the devices as Cyborg's.
    pub nova_elsewhere: bool,
}

/// What becomes of a guest whose server was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// It is left.
    Noop,
    /// It is left, and the log says so.
    Log,
    /// It is removed.
    Reap,
}

impl Options {
    /// How often hosts look at guests that may have changed by themselves; never without.
    pub fn power_sync(&self) -> Option<Duration> {
        match self.sync_power_state_interval {
            0 => Some(Duration::from_secs(60)),
            seconds => u64::try_from(seconds).ok().map(Duration::from_secs),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_resize_to_same_host: false,
            resize_confirm_window: 0,
            reclaim_instance_interval: 0,
            shelved_offload_time: 0,
            shelved_poll_interval: 3600,
            reboot_timeout: 0,
            rescue_timeout: 0,
            max_concurrent_live_migrations: 1,
            instance_build_timeout: 0,
            resume_guests_state_on_host_boot: false,
            sync_power_state_interval: 600,
            running_deleted_instance_action: Orphans::Reap,
            running_deleted_instance_timeout: 0,
            max_attempts: 3,
            scheduler: Rules::default(),
            pci_aliases: Aliases::new(),
            nova_elsewhere: false,
        }
    }
}
