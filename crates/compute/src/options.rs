//! What an operator decides about servers, with the names and defaults of nova.conf.
//!
//! Plain values; who reads them from where is the program's business.

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
    /// `[DEFAULT] instance_build_timeout`, seconds: a build that takes longer has failed; 0 never.
    pub instance_build_timeout: i64,
    /// `[DEFAULT] resume_guests_state_on_host_boot`: whether guests that ran when their host went
    /// down are started when it is back.
    pub resume_guests_state_on_host_boot: bool,
    /// `[scheduler] max_attempts`: hosts tried for one boot or move.
    pub max_attempts: usize,
    /// How a host is chosen.
    pub scheduler: Rules,
    /// `[nova]` names a Nova of somebody else: it has the servers on the hosts that report here, and
    /// knows the devices as Cyborg's.
    pub nova_elsewhere: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_resize_to_same_host: false,
            resize_confirm_window: 0,
            reclaim_instance_interval: 0,
            shelved_offload_time: 0,
            instance_build_timeout: 0,
            resume_guests_state_on_host_boot: false,
            max_attempts: 3,
            scheduler: Rules::default(),
            nova_elsewhere: false,
        }
    }
}
