//! The individual libvirt calls of an outgoing live migration.

use kilonova_hypervisor::{DomainState, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::Progress;
use virt::connect::Connect;
use virt::domain::{Domain, MigrateParameters};
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::request::MigrationRequest;
use super::schedule::Adjustment;
use crate::connection::{error_text, has_code};
use crate::driver::{domain_state, lookup, mark, no_domain};
use crate::state::Mark;

/// Runs the migration. Libvirt's call blocks until it has succeeded or failed.
pub(super) fn migrate_to(domain: &Domain, request: &MigrationRequest) -> Result<(), VirtError> {
    let parameters = MigrateParameters {
        dest_xml: Some(request.xml.clone()),
        uri: Some(request.listen_uri.clone()),
        bandwidth: request.bandwidth,
        parallel_connections: request.connections,
        migrate_disks: request.copied.clone(),
        ..MigrateParameters::default()
    };
    domain.migrate_to_uri3(Some(&request.uri), parameters, request.flags)
}

/// Sets the mark that matches the result of the migration call and the domain's state. Returns
/// `None` while libvirt still migrates.
pub(super) fn record_result(
    connect: &Connect,
    server: ServerId,
    end: &Result<(), String>,
) -> Result<Option<Result<(), String>>, VirtError> {
    let Some(domain) = lookup(connect, server)? else {
        return Ok(Some(Err(no_domain(Step::Migrate, server).message)));
    };
    if is_migrating_out(&domain)? {
        return Ok(None);
    }
    let gone = end.is_ok() || domain_state(&domain)? == DomainState::MigratedOut;
    mark::set(&domain, gone.then_some(Mark::MigratedOut))?;
    Ok(Some(if gone { Ok(()) } else { end.clone() }))
}

/// True if an outgoing migration of the guest is running.
pub(super) fn is_migrating_out(domain: &Domain) -> Result<bool, VirtError> {
    match crate::sys::job(domain, 0) {
        Ok(job) => Ok(job.is_running(sys::VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)),
        // The domain is shut off, or the driver has no jobs.
        Err(error)
            if has_code(&error, ErrorNumber::OperationInvalid)
                || has_code(&error, ErrorNumber::NoSupport) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Applies an adjustment. Errors are only logged: an adjustment is repeated or no longer needed.
pub(super) fn apply(domain: &Domain, adjustment: Adjustment, post_copy: bool) {
    let done = match adjustment {
        Adjustment::Downtime(milliseconds) => {
            domain.migrate_set_max_downtime(milliseconds, 0).map(drop)
        }
        Adjustment::Force if post_copy => crate::sys::start_post_copy(domain),
        Adjustment::Force => domain.suspend().map(drop),
        Adjustment::Abort => crate::sys::abort_job(domain),
    };
    match done {
        Ok(()) => tracing::info!(?adjustment, "adjusted a live migration"),
        Err(error) => {
            tracing::warn!(?adjustment, error = %error_text(&error), "could not adjust a live migration")
        }
    }
}

pub(super) fn progress(job: &crate::job::JobStats) -> Progress {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Progress {
        memory_total: bytes(job.memory_total),
        memory_processed: bytes(job.memory_processed),
        memory_remaining: bytes(job.memory_remaining),
        disk_total: bytes(job.disk_total),
        disk_processed: bytes(job.disk_processed),
        disk_remaining: bytes(job.disk_remaining),
    }
}
