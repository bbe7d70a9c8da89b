//! Power: on, off, held, awaited.

use std::time::Duration;

use kilonova_hypervisor::{Error, Life, Step};
use kilonova_ids::ServerId;
use tokio::time::{Instant, timeout};
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, life, mark, seen, words};
use crate::connection::{QUICK, SLOW, is};
use crate::life::Mark;

/// A guest that did not listen is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Between two looks at a guest whose events may have been lost.
const LOOK: Duration = Duration::from_secs(1);
/// How long a guest that has gone from the other host may take to be here.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How long a start that somebody else asked for may take.
const STARTING: Duration = Duration::from_secs(120);
const STARTING_LOOK: Duration = Duration::from_millis(250);
/// After a device's group was still busy with its last owner.
const GROUP: Duration = Duration::from_secs(1);

impl Driver {
    /// Powers on. A device's VFIO group can be busy for a moment after its last owner; that is tried
    /// once more.
    pub(super) async fn power_on(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let begin = move |_: &_, domain: &Domain| {
            let (seen, _) = seen(domain)?;
            if seen.life().is_up() {
                return Ok(());
            }
            if seen.mark.is_some() {
                mark::set(domain, None)?;
            }
            domain.create().map(drop)
        };
        match self.with(step, SLOW, server, begin).await {
            Err(error) if is_group_race(&error.message) => {
                tracing::info!(%server, %error, "a device's group is busy; once more");
                tokio::time::sleep(GROUP).await;
                self.with(step, SLOW, server, begin).await
            }
            result => result,
        }
    }

    /// Powers off by asking, and by force after a while.
    pub(super) async fn power_off(&self, server: ServerId) -> Result<(), Error> {
        let limit = self.host.config.shutdown_timeout;
        if let Ok(result) = timeout(limit, self.ask_to_stop(Step::Stop, server)).await {
            return result;
        }
        tracing::info!(%server, "the guest did not shut itself off; it is shut off");
        self.with(Step::Stop, SLOW, server, |_, domain| destroy(domain)).await
    }

    /// Asks a guest to shut itself off until it is.
    async fn ask_to_stop(&self, step: Step, server: ServerId) -> Result<(), Error> {
        let mut events = self.link.events();
        let mut ask: Option<Instant> = None;
        loop {
            let due = ask.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
            let look = move |_: &_, domain: &Domain| {
                let life = life(domain)?;
                if life.is_up() && due {
                    match domain.shutdown() {
                        // It may have ended in between.
                        Err(error) if is(&error, ErrorNumber::OperationInvalid) => {}
                        result => result.map(drop)?,
                    }
                }
                Ok(life)
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
            // Without an event a look is due all the same.
            let _ = timeout(LOOK, mine).await;
        }
    }

    /// Restarts by asking the guest to shut itself off: its devices are set up anew.
    pub(super) async fn restart(&self, server: ServerId) -> Result<(), Error> {
        self.ask_to_stop(Step::Reboot, server).await?;
        self.power_on(Step::Reboot, server).await
    }

    pub(super) async fn hold(&self, server: ServerId) -> Result<(), Error> {
        let hold = |_: &_, domain: &Domain| match life(domain)? {
            Life::Running => domain.suspend().map(|_| None),
            Life::Paused => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Pause, self.with(Step::Pause, QUICK, server, hold).await?)
    }

    pub(super) async fn let_go(&self, server: ServerId) -> Result<(), Error> {
        let let_go = |_: &_, domain: &Domain| match started(domain)? {
            Life::Paused => domain.resume().map(|_| None),
            Life::Running => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Unpause, self.with(Step::Unpause, SLOW, server, let_go).await?)
    }

    /// Marks a domain that is shut off as one that waits for its guest.
    pub(super) async fn expect(&self, server: ServerId) -> Result<(), Error> {
        let expect = |_: &_, domain: &Domain| match life(domain)? {
            Life::Off => mark::set(domain, Some(Mark::Incoming)).map(|()| None),
            Life::Incoming => Ok(None),
            other => Ok(Some(other)),
        };
        refuse(Step::Receive, self.with(Step::Receive, QUICK, server, expect).await?)
    }

    /// Waits for a guest that has gone from the other host: it is here, or it is nowhere.
    pub(super) async fn arrived(&self, server: ServerId, life: Life) -> Result<(), Error> {
        let end = Instant::now() + ARRIVAL;
        loop {
            let found = self.find(server).await?.map(|found| found.life);
            match (found, life) {
                (Some(Life::Running), Life::Running) | (Some(Life::Paused), Life::Paused) => {
                    return Ok(());
                }
                (Some(Life::Running), _) => return self.hold(server).await,
                (Some(Life::Paused), _) => return self.let_go(server).await,
                _ if Instant::now() < end => tokio::time::sleep(LOOK).await,
                _ => {
                    let why = "the guest has not come from the other host";
                    return Err(Error::new(Step::Receive, why));
                }
            }
        }
    }

    pub(super) async fn interrupt(&self, server: ServerId) -> Result<(), Error> {
        self.with(Step::CrashDump, QUICK, server, |_, domain| crate::sys::inject_nmi(domain)).await
    }
}

/// What a domain is doing, once it is no longer being started: a process that has ended may have asked
/// for that, and libvirt goes on with it.
fn started(domain: &Domain) -> Result<Life, VirtError> {
    let end = std::time::Instant::now() + STARTING;
    loop {
        let (seen, _) = seen(domain)?;
        let starting = seen.state == sys::VIR_DOMAIN_PAUSED
            && seen.reason == sys::VIR_DOMAIN_PAUSED_STARTING_UP;
        if !starting || std::time::Instant::now() >= end {
            return Ok(seen.life());
        }
        std::thread::sleep(STARTING_LOOK);
    }
}

/// Powers off at once, and throws away memory on disk and the mark.
pub(super) fn destroy(domain: &Domain) -> Result<(), VirtError> {
    let (seen, _) = seen(domain)?;
    if domain.is_active()? {
        match domain.destroy() {
            // It may have ended in between.
            Err(error) if is(&error, ErrorNumber::OperationInvalid) => {}
            result => result?,
        }
    }
    if domain.has_managed_save(0)? {
        domain.managed_save_remove(0)?;
    }
    if seen.mark.is_some() {
        mark::set(domain, None)?;
    }
    Ok(())
}

/// Makes a domain unknown, with all that libvirt keeps of it.
pub(super) fn undefine(domain: &Domain) -> Result<(), VirtError> {
    let all = sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | sys::VIR_DOMAIN_UNDEFINE_NVRAM;
    match domain.undefine_flags(all) {
        // Not every driver of libvirt's has checkpoints and firmware variables.
        Err(error) if is(&error, ErrorNumber::InvalidArg) => {
            domain.undefine_flags(sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        }
        result => result,
    }
}

fn refuse(step: Step, other: Option<Life>) -> Result<(), Error> {
    match other {
        None => Ok(()),
        Some(life) => Err(Error::new(step, format!("the guest is {}", words(life)))),
    }
}

fn is_group_race(message: &str) -> bool {
    message.contains("error getting device from group")
        || (message.contains("vfio") && message.contains("Device or resource busy"))
}

fn uuid(server: ServerId) -> uuid::Uuid {
    uuid::Uuid::parse_str(&server.to_string()).unwrap_or_default()
}
