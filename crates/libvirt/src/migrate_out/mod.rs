//! Outgoing live migration.
//!
//! Libvirt migrates peer to peer. This side makes one blocking call on its own thread and polls the
//! job. `request` and `schedule` are pure: they build the request, and decide the downtime and the
//! timeout.
//!
//! ```text
//!          migrate_out                        libvirt's call returns
//!   (no mark) ────────► mark leaving ──┬─────── success ────────► mark left ──► Completed
//!                         │    ▲       └─────── failure ────────► no mark ────► an error, the guest stays
//!         abort_migration │    │ migrate_out after a restart of the agent
//!                         ▼    │
//!                      aborted
//! ```
//!
//! The mark outlives this process, and libvirt continues without it. A migration that another
//! process started is resumed from libvirt's job, or, if there is none, from the domain's state.

mod calls;
mod jobs;
mod request;
mod schedule;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_hypervisor::{Definition, DomainState, Error, MigrationState, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::{OutgoingMigration, Progress};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::ErrorNumber;
use virt_sys as sys;

use crate::connection::{QUICK, has_code};
use crate::driver::{Driver, lookup, mark, no_domain, status};
use crate::state::Mark;
use calls::{apply, is_migrating_out, migrate_to, progress, record_result};
use jobs::OutgoingJob;
pub(crate) use jobs::OutgoingMigrations;
use request::MigrationRequest;
use schedule::{Adjustment, DowntimeSchedule, TransferSample};

/// Polling interval of a migration job.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long an abort may take.
const ABORT_LIMIT: Duration = Duration::from_secs(60);
const ENDED_BY_LIBVIRT: &str = "libvirt ended the migration; the guest is still here";

/// The result of checking a domain before a migration starts.
enum Check {
    AlreadyMigrated,
    Refused(String),
    /// Another process started the migration, and libvirt continues it.
    InProgress {
        gib: u64,
        /// True if the guest has devices.
        devices: bool,
    },
    Start(Box<MigrationRequest>),
}

impl Driver {
    pub(crate) async fn migrate_guest(
        &self,
        server: ServerId,
        migration: &OutgoingMigration,
    ) -> Result<MigrationState, Error> {
        let Some(job) = self.outgoing.job(server) else {
            return self.begin(server, migration).await;
        };
        if let Some(end) = self.poll(server, &job, migration.force).await? {
            self.outgoing.remove(server);
            return end
                .map(|()| MigrationState::Completed)
                .map_err(|reason| Error::new(Step::Migrate, reason));
        }
        let progress = job.state().progress;
        Ok(MigrationState::InProgress(progress))
    }

    async fn begin(
        &self,
        server: ServerId,
        migration: &OutgoingMigration,
    ) -> Result<MigrationState, Error> {
        let (config, versions) = (self.host.config.clone(), self.versions());
        let to = migration.clone();
        let begin = move |_: &Connect, domain: &Domain| {
            let (status, kept) = status(domain)?;
            match status.domain_state() {
                DomainState::MigratedOut => return Ok(Check::AlreadyMigrated),
                DomainState::Running | DomainState::Paused => {}
                _ => return Ok(Check::Refused("the guest is not running".to_owned())),
            }
            if status.mark == Some(Mark::MigratingOut) {
                if is_migrating_out(domain)? {
                    let (gib, devices) = Definition::from_xml(&kept).map_or((0, false), |of| {
                        (request::gib(&of), !of.config.devices.is_empty())
                    });
                    return Ok(Check::InProgress { gib, devices });
                }
                mark::set(domain, None)?;
                return Ok(Check::Refused(
                    "the agent restarted during the migration; the guest is still here".to_owned(),
                ));
            }
            let running =
                domain.get_xml_desc(sys::VIR_DOMAIN_XML_MIGRATABLE | sys::VIR_DOMAIN_XML_SECURE)?;
            let definition = match Definition::from_xml(&kept) {
                Ok(definition) => definition,
                Err(error) => return Ok(Check::Refused(error.message)),
            };
            match MigrationRequest::new(&config, &versions, &definition, &running, &to) {
                Err(reason) => Ok(Check::Refused(reason)),
                Ok(request) => {
                    mark::set(domain, Some(Mark::MigratingOut))?;
                    Ok(Check::Start(Box::new(request)))
                }
            }
        };
        match self.with(Step::Migrate, QUICK, server, begin).await? {
            Check::AlreadyMigrated => return Ok(MigrationState::Completed),
            Check::Refused(reason) => return Err(Error::new(Step::Migrate, reason)),
            Check::InProgress { gib, devices } => {
                let schedule = DowntimeSchedule::new(&self.host.config, gib, devices);
                self.outgoing.begin(server, OutgoingJob::new(schedule, false, true));
            }
            Check::Start(request) => {
                if let Some(options) = request.unused_options(&self.host.config) {
                    tracing::info!(%server, options, "options not used for a guest with host devices");
                }
                let schedule = DowntimeSchedule::new(&self.host.config, request.gib, request.vfio);
                let job = self
                    .outgoing
                    .begin(server, OutgoingJob::new(schedule, request.post_copy, false));
                self.migrate(server, job, *request)?;
            }
        }
        Ok(MigrationState::InProgress(Progress::default()))
    }

    /// Starts the migration call on its own thread.
    fn migrate(
        &self,
        server: ServerId,
        job: Arc<OutgoingJob>,
        request: MigrationRequest,
    ) -> Result<(), Error> {
        tracing::info!(%server, to = %request.uri, flags = request.flags, "starting live migration");
        let link = self.link.clone();
        let thread = std::thread::Builder::new().name("libvirt-leave".into());
        let spawned = thread.spawn(move || {
            let sent = link.call_here(Step::Migrate, |connect| {
                let Some(domain) = lookup(connect, server)? else { return Ok(false) };
                migrate_to(&domain, &request).map(|()| true)
            });
            let end = match sent {
                Ok(true) => Ok(()),
                Ok(false) => Err(no_domain(Step::Migrate, server).message),
                Err(error) => Err(error.message),
            };
            // The domain's state decides: the connection may have closed before the call returned.
            let end = link.call_here(Step::Migrate, |connect| record_result(connect, server, &end));
            let mut state = job.state();
            match end {
                Ok(Some(end)) => state.result = Some(end),
                Ok(None) | Err(_) => state.adopted = true,
            }
        });
        spawned.map(drop).map_err(|error| Error::new(Step::Migrate, error.to_string()))
    }

    /// Polls a migration and applies the adjustment that is due. Returns the result once the
    /// migration has ended.
    async fn poll(
        &self,
        server: ServerId,
        job: &Arc<OutgoingJob>,
        force: bool,
    ) -> Result<Option<Result<(), String>>, Error> {
        let (adopted, adjustment) = {
            let mut state = job.state();
            if let Some(end) = state.result.clone() {
                let reason = state.abort_reason.take();
                return Ok(Some(end.map_err(|error| reason.unwrap_or(error))));
            }
            if state.last_poll.is_some_and(|last_poll| last_poll.elapsed() < POLL_INTERVAL) {
                return Ok(None);
            }
            state.last_poll = Some(Instant::now());
            let adjustment = state.schedule.next(job.began.elapsed(), force);
            let adjustment = adjustment.or_else(|| state.pending.take());
            if adjustment == Some(Adjustment::Abort) {
                let limit = state.schedule.limit().unwrap_or_default().as_secs();
                state.abort_reason = Some(format!(
                    "the live migration did not complete within {limit} s \
                     (live_migration_completion_timeout); the guest stays"
                ));
            }
            (state.adopted, adjustment)
        };
        let post_copy = job.post_copy;
        let ask = move |connect: &Connect, domain: &Domain| {
            let stats = match is_migrating_out(domain) {
                Ok(true) => crate::sys::job(domain, 0).map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            let stats = match stats {
                // The guest has just left; the migration call is about to return.
                Err(error) if has_code(&error, ErrorNumber::OperationInvalid) => None,
                stats => stats?,
            };
            let Some(job) = stats else {
                let end = if adopted {
                    record_result(connect, server, &Err(ENDED_BY_LIBVIRT.to_owned()))?
                } else {
                    None
                };
                return Ok((end, None));
            };
            if let Some(adjustment) = adjustment {
                apply(domain, adjustment, post_copy);
            }
            Ok((None, Some(job)))
        };
        let (end, status) = self.with(Step::Migrate, QUICK, server, ask).await?;
        let mut state = job.state();
        if let Some(status) = status {
            state.progress = progress(&status);
            let remaining = status.memory_remaining.saturating_add(status.disk_remaining);
            let sample = TransferSample { remaining, throughput: status.memory_bps };
            state.pending = state.schedule.observe(job.began.elapsed(), sample);
            if let Some(adjustment) = state.pending {
                tracing::info!(
                    %server, ?adjustment, remaining, sent_by_devices = status.vfio_transferred,
                    "the remaining memory fits into the downtime but the guest does not switch over: \
                     raising the downtime for its device state"
                );
            }
        }
        if end.is_some() {
            state.result = end.clone();
        }
        Ok(end)
    }

    /// Aborts a running migration and waits until the guest is known to run here.
    pub(crate) async fn abort_outgoing(&self, server: ServerId) -> Result<(), Error> {
        let job = self.outgoing.job(server);
        if job.is_none() && self.outgoing.is_idle(server) {
            return Ok(());
        }
        let end = Instant::now() + ABORT_LIMIT;
        loop {
            let abort = |_: &Connect, domain: &Domain| {
                let outgoing = is_migrating_out(domain)?;
                if outgoing && let Err(error) = crate::sys::abort_job(domain) {
                    tracing::debug!(%error, "could not abort a live migration yet; retrying");
                }
                let (status, _) = status(domain)?;
                if !outgoing
                    && status.mark == Some(Mark::MigratingOut)
                    && status.domain_state().is_up()
                {
                    mark::set(domain, None)?;
                }
                Ok((outgoing, status.domain_state()))
            };
            let (outgoing, domain_state) = self.with(Step::Migrate, QUICK, server, abort).await?;
            let waits = job.as_ref().is_some_and(|job| {
                let state = job.state();
                state.result.is_none() && !state.adopted
            });
            if domain_state == DomainState::MigratedOut {
                let reason = "the guest has already migrated to the other host";
                return Err(Error::new(Step::Migrate, reason));
            }
            if !outgoing && !waits {
                self.outgoing.remove(server);
                return Ok(());
            }
            if Instant::now() >= end {
                let reason = "the live migration could not be aborted";
                return Err(Error::new(Step::Migrate, reason));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
