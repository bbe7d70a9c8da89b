//! What libvirt is at with a domain: sending it away, copying its disks. Read in `sys`.

use virt_sys as sys;

/// A job of libvirt's, under way or ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// `VIR_DOMAIN_JOB_NONE`, …
    pub kind: u32,
    /// `VIR_DOMAIN_JOB_OPERATION_BACKUP`, …
    pub operation: u32,
    /// Whether it ended well, if that is said.
    pub success: Option<bool>,
    /// Why it did not.
    pub message: Option<String>,
    pub memory_total: u64,
    pub memory_processed: u64,
    pub memory_remaining: u64,
    pub disk_total: u64,
    pub disk_processed: u64,
    pub disk_remaining: u64,
    /// Bytes of memory a second, lately.
    pub memory_bps: u64,
    /// What devices have sent of their state while the guest runs (libvirt 10.6 and newer).
    pub vfio_transferred: u64,
}

impl Job {
    /// Whether it is that, and under way.
    pub(crate) fn is(&self, operation: u32) -> bool {
        self.kind != sys::VIR_DOMAIN_JOB_NONE && self.operation == operation
    }

    /// Whether it ended badly.
    pub(crate) fn has_failed(&self) -> bool {
        self.kind == sys::VIR_DOMAIN_JOB_FAILED
            || self.kind == sys::VIR_DOMAIN_JOB_CANCELLED
            || self.success == Some(false)
    }
}
