//! What is asked of libvirt about a departure, each thing once.

use kilonova_hypervisor::{Life, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::Progress;
use virt::connect::Connect;
use virt::domain::{Domain, MigrateParameters};
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::course::Act;
use super::request::Request;
use crate::connection::{is, said};
use crate::driver::{life, lookup, mark, unknown};
use crate::life::Mark;

/// Makes libvirt's call, which ends when the guest has gone or stays.
pub(super) fn send(domain: &Domain, request: &Request) -> Result<(), VirtError> {
    let parameters = MigrateParameters {
        dest_xml: Some(request.xml.clone()),
        uri: Some(request.data.clone()),
        bandwidth: request.bandwidth,
        parallel_connections: request.connections,
        ..MigrateParameters::default()
    };
    domain.migrate_to_uri3(Some(&request.uri), parameters, request.flags)
}

/// Marks the domain by where its guest is after libvirt's call has ended so; nothing while libvirt is
/// still at it.
pub(super) fn settle(
    connect: &Connect,
    server: ServerId,
    end: &Result<(), String>,
) -> Result<Option<Result<(), String>>, VirtError> {
    let Some(domain) = lookup(connect, server)? else {
        return Ok(Some(Err(unknown(Step::Migrate, server).message)));
    };
    if is_leaving(&domain)? {
        return Ok(None);
    }
    let gone = end.is_ok() || life(&domain)? == Life::Left;
    mark::set(&domain, gone.then_some(Mark::Left))?;
    Ok(Some(if gone { Ok(()) } else { end.clone() }))
}

/// Whether libvirt is sending the guest away.
pub(super) fn is_leaving(domain: &Domain) -> Result<bool, VirtError> {
    match crate::sys::job(domain, 0) {
        Ok(job) => Ok(job.is(sys::VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)),
        // It is shut off, or the driver knows no jobs.
        Err(error)
            if is(&error, ErrorNumber::OperationInvalid) || is(&error, ErrorNumber::NoSupport) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// What cannot be done now is due again, or no longer matters.
pub(super) fn carry_out(domain: &Domain, act: Act, post_copy: bool) {
    let done = match act {
        Act::Downtime(milliseconds) => domain.migrate_set_max_downtime(milliseconds, 0).map(drop),
        Act::Force if post_copy => crate::sys::start_post_copy(domain),
        Act::Force => domain.suspend().map(drop),
        Act::Abort => crate::sys::abort_job(domain),
    };
    match done {
        Ok(()) => tracing::info!(?act, "a guest that leaves"),
        Err(error) => tracing::warn!(?act, error = %said(&error), "a guest that leaves"),
    }
}

pub(super) fn progress(job: &crate::job::Job) -> Progress {
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
