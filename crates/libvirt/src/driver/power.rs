//! Power: start, stop, reboot, pause, verbs, and the arrival of an incoming guest.

use std::time::Duration;

use kilonova_hypervisor::{DomainState, Error, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::GuestVerb;
use tokio::time::{Instant, timeout};
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, domain_state, mark, state_name, status};
use crate::connection::{QUICK, SLOW, has_code};
use crate::state::Mark;

/// Interval between shutdown requests to a guest that ignores them.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(10);
/// Polling interval, in case events are lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a migrated guest may take to appear after it left the source.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How long a start by another process may take.
const STARTING: Duration = Duration::from_secs(120);
const STARTING_LOOK: Duration = Duration::from_millis(250);
/// Delay before a start is retried because a VFIO group was busy.
const GROUP: Duration = Duration::from_secs(1);

impl Driver {
    /// Starts the domain with libvirt's flags. Retries once if a device's VFIO group is still busy from its last owner.
    pub(super) async fn power_on(
        &self,
        step: Step,
        server: ServerId,
        flags: sys::virDomainCreateFlags,
    ) -> Result<(), Error> {
        let begin = move |_: &_, domain: &Domain| {
            let (status, _) = status(domain)?;
            if status.domain_state().is_up() {
                return Ok(());
            }
            if status.mark.is_some() {
                mark::set(domain, None)?;
            }
            domain.create_with_flags(flags).map(drop)
        };
        match self.with(step, SLOW, server, begin).await {
            Err(error) if is_group_race(&error.message) => {
                tracing::info!(%server, %error, "a device's VFIO group is busy; retrying the start");
                tokio::time::sleep(GROUP).await;
                self.with(step, SLOW, server, begin).await
            }
            result => result,
        }
    }

    /// Shuts the guest down, and destroys it after `shutdown_timeout`.
    pub(super) async fn power_off(&self, server: ServerId) -> Result<(), Error> {
        let limit = self.host.config.shutdown_timeout;
        if let Ok(result) = timeout(limit, self.request_shutdown(Step::Stop, server)).await {
            return result;
        }
        tracing::info!(%server, "the guest did not shut down in time; destroying it");
        self.with(Step::Stop, SLOW, server, |_, domain| destroy(domain)).await
    }

    /// Requests a shutdown repeatedly until the guest is off.
    async fn request_shutdown(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let mut events = self.link.events();
        let mut ask: Option<Instant> = None;
        loop {
            let due = ask.is_none_or(|asked| asked.elapsed() >= SHUTDOWN_RETRY);
            let look = move |_: &_, domain: &Domain| {
                let domain_state = domain_state(domain)?;
                if domain_state.is_up() && due {
                    match domain.shutdown() {
                        // The guest may have stopped in between.
                        Err(error) if has_code(&error, ErrorNumber::OperationInvalid) => {}
                        result => result.map(drop)?,
                    }
                }
                Ok(domain_state)
            };
            if !self.with(step, QUICK, server, look).await?.is_up() {
                return Ok(());
            }
            if due {
                ask = Some(Instant::now());
            }
            let mine = async {
                while let Ok(event) = events.recv().await {
                    if event.domain == uuid(server) {
                        return;
                    }
                }
                std::future::pending::<()>().await;
            };
            // Polls even without an event.
            let _ = timeout(POLL_INTERVAL, mine).await;
        }
    }

    /// Reboots by a shutdown and a start, so that the devices are set up again.
    pub(super) async fn restart(&self, server: ServerId) -> Result<(), Error> {
        self.request_shutdown(Step::Reboot, server).await?;
        self.power_on(Step::Reboot, server, sys::VIR_DOMAIN_NONE).await
    }

    pub(super) async fn pause_guest(&self, server: ServerId) -> Result<(), Error> {
        let pause = |_: &_, domain: &Domain| match domain_state(domain)? {
            DomainState::Running => domain.suspend().map(|_| None),
            DomainState::Paused => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Pause, self.with(Step::Pause, QUICK, server, pause).await?)
    }

    pub(super) async fn unpause_guest(&self, server: ServerId) -> Result<(), Error> {
        let unpause = |_: &_, domain: &Domain| match state_after_start(domain)? {
            DomainState::Paused => domain.resume().map(|_| None),
            DomainState::Running => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Unpause, self.with(Step::Unpause, SLOW, server, unpause).await?)
    }

    /// Marks a domain that is shut off as incoming.
    pub(super) async fn await_incoming(&self, server: ServerId) -> Result<(), Error> {
        let mark_incoming = |_: &_, domain: &Domain| match domain_state(domain)? {
            DomainState::Shutoff => mark::set(domain, Some(Mark::Incoming)).map(|()| None),
            DomainState::Incoming => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Receive, self.with(Step::Receive, QUICK, server, mark_incoming).await?)
    }

    /// Waits for a guest that has left the source host, and records its hardware. Fails if it does not appear.
    pub(super) async fn wait_until_arrived(
        &self,
        server: ServerId,
        domain_state: DomainState,
    ) -> Result<(), Error> {
        let end = Instant::now() + ARRIVAL;
        loop {
            let found = self.find(server).await?.map(|found| found.state);
            match (found, domain_state) {
                (Some(DomainState::Running), DomainState::Running)
                | (Some(DomainState::Paused), DomainState::Paused) => {
                    return Ok(());
                }
                (Some(DomainState::Running), _) => return self.pause_guest(server).await,
                (Some(DomainState::Paused), _) => return self.unpause_guest(server).await,
                _ if Instant::now() < end => tokio::time::sleep(POLL_INTERVAL).await,
                _ => {
                    let why = "the guest did not arrive from the source host";
                    return Err(Error::new(Step::Receive, why));
                }
            }
        }
    }

    pub(super) async fn carry_out_verb(
        &self,
        server: ServerId,
        verb: GuestVerb,
    ) -> Result<(), Error> {
        self.with(Step::Verb(verb), QUICK, server, move |_, domain| match verb {
            GuestVerb::CrashDump => crate::sys::inject_nmi(domain),
        })
        .await
    }
}

/// A domain's state once no start is in progress. A process that has ended may have requested a
/// start that libvirt still carries out.
fn state_after_start(domain: &Domain) -> Result<DomainState, VirtError> {
    let end = std::time::Instant::now() + STARTING;
    loop {
        let (status, _) = status(domain)?;
        let starting = status.code == sys::VIR_DOMAIN_PAUSED
            && status.reason == sys::VIR_DOMAIN_PAUSED_STARTING_UP;
        if !starting || std::time::Instant::now() >= end {
            return Ok(status.domain_state());
        }
        std::thread::sleep(STARTING_LOOK);
    }
}

/// Destroys the domain, and removes its save image and the mark.
pub(super) fn destroy(domain: &Domain) -> Result<(), VirtError> {
    let (status, _) = status(domain)?;
    if domain.is_active()? {
        match domain.destroy() {
            // The guest may have stopped in between.
            Err(error) if has_code(&error, ErrorNumber::OperationInvalid) => {}
            result => result?,
        }
    }
    if domain.has_managed_save(0)? {
        domain.managed_save_remove(0)?;
    }
    if status.mark.is_some() {
        mark::set(domain, None)?;
    }
    Ok(())
}

/// Undefines a domain with everything that libvirt keeps for it.
pub(super) fn undefine(domain: &Domain) -> Result<(), VirtError> {
    let all = sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | sys::VIR_DOMAIN_UNDEFINE_NVRAM;
    match domain.undefine_flags(all) {
        // Some of libvirt's drivers support neither checkpoints nor NVRAM.
        Err(error) if has_code(&error, ErrorNumber::InvalidArg) => {
            domain.undefine_flags(sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        }
        result => result,
    }
}

fn refuse(step: Step, other: Option<DomainState>) -> Result<(), Error> {
    match other {
        None => Ok(()),
        Some(domain_state) => {
            Err(Error::new(step, format!("the guest is {}", state_name(domain_state))))
        }
    }
}

fn is_group_race(message: &str) -> bool {
    message.contains("error getting device from group")
        || (message.contains("vfio") && message.contains("Device or resource busy"))
}

fn uuid(server: ServerId) -> uuid::Uuid {
    uuid::Uuid::parse_str(&server.to_string()).unwrap_or_default()
}
