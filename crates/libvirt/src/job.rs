//! Statistics of a domain's job, such as a migration or a backup. `sys` reads them.

use virt_sys as sys;

/// A running or completed job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobStats {
    /// `VIR_DOMAIN_JOB_NONE`, …
    pub kind: u32,
    /// `VIR_DOMAIN_JOB_OPERATION_BACKUP`, …
    pub operation: u32,
    /// True if the job succeeded, if libvirt reports it.
    pub success: Option<bool>,
    /// The error of a failed job.
    pub message: Option<String>,
    pub memory_total: u64,
    pub memory_processed: u64,
    pub memory_remaining: u64,
    pub disk_total: u64,
    pub disk_processed: u64,
    pub disk_remaining: u64,
    /// Memory throughput in bytes per second.
    pub memory_bps: u64,
    /// Bytes of device state sent while the guest runs (libvirt 10.6 and newer).
    pub vfio_transferred: u64,
}

impl JobStats {
    /// True if a job of this operation is running.
    pub(crate) fn is_running(&self, operation: u32) -> bool {
        self.kind != sys::VIR_DOMAIN_JOB_NONE && self.operation == operation
    }

    /// True if the job failed or was cancelled.
    pub(crate) fn has_failed(&self) -> bool {
        self.kind == sys::VIR_DOMAIN_JOB_FAILED
            || self.kind == sys::VIR_DOMAIN_JOB_CANCELLED
            || self.success == Some(false)
    }
}
