//! Running guests that go to another host.
//!
//! libvirt does it, host to host: this side asks for it once, on a thread of its own, and looks how far it
//! is. What is asked for and when it is called off is decided in `request` and `course`, which are pure.
//!
//! ```text
//!              depart                    libvirt's call ends
//!   (nothing) ────────► mark leaving ──┬──────── well ────────► mark left ──► Gone
//!                         │    ▲       └──────── badly ───────► no mark ────► an error, the guest is here
//!                    stay │    │ depart, after a restart of the agent
//!                         ▼    │
//!                     called off
//! ```
//!
//! The mark outlives this process, and libvirt goes on without it: a departure that another process
//! began is taken up by looking at libvirt's job and, when there is none, at where the guest is.

mod calls;
mod course;
mod jobs;
mod request;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_hypervisor::{Definition, Error, Life, Step, Transfer};
use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, Progress};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::ErrorNumber;
use virt_sys as sys;

use crate::connection::{QUICK, is};
use crate::driver::{Driver, lookup, mark, seen, unknown};
use crate::life::Mark;
use calls::{carry_out, is_leaving, progress, send, settle};
use course::{Act, Course, Sight};
use jobs::Job;
pub(crate) use jobs::Leaving;
use request::Request;

/// Between two questions to libvirt how far a guest is.
const ASK: Duration = Duration::from_millis(250);
/// How long a departure may take to be called off.
const CALLED_OFF: Duration = Duration::from_secs(60);
const ENDED: &str = "libvirt has ended the guest's departure; the guest is still here";

/// What a look at a domain without a departure of ours finds.
enum Begin {
    Gone,
    Refused(String),
    /// Another process began it, and libvirt goes on.
    GoesOn {
        gib: u64,
        /// Whether the guest has devices.
        devices: bool,
    },
    Ask(Box<Request>),
}

impl Driver {
    pub(crate) async fn send_away(
        &self,
        server: ServerId,
        departure: &Departure,
    ) -> Result<Transfer, Error> {
        let Some(job) = self.leaving.job(server) else {
            return self.begin(server, departure).await;
        };
        if let Some(end) = self.look(server, &job, departure.force).await? {
            self.leaving.forget(server);
            return end.map(|()| Transfer::Gone).map_err(|why| Error::new(Step::Migrate, why));
        }
        let progress = job.state().progress;
        Ok(Transfer::Going(progress))
    }

    async fn begin(&self, server: ServerId, departure: &Departure) -> Result<Transfer, Error> {
        let (config, versions) = (self.host.config.clone(), self.versions());
        let to = departure.clone();
        let begin = move |_: &Connect, domain: &Domain| {
            let (seen, kept) = seen(domain)?;
            match seen.life() {
                Life::Left => return Ok(Begin::Gone),
                Life::Running | Life::Paused => {}
                _ => return Ok(Begin::Refused("the guest does not run".to_owned())),
            }
            if seen.mark == Some(Mark::Leaving) {
                if is_leaving(domain)? {
                    let (gib, devices) = Definition::from_xml(&kept)
                        .map_or((0, false), |of| (request::gib(&of), !of.devices.is_empty()));
                    return Ok(Begin::GoesOn { gib, devices });
                }
                mark::set(domain, None)?;
                return Ok(Begin::Refused(
                    "the agent was restarted while the guest left; the guest is still here"
                        .to_owned(),
                ));
            }
            let running =
                domain.get_xml_desc(sys::VIR_DOMAIN_XML_MIGRATABLE | sys::VIR_DOMAIN_XML_SECURE)?;
            let definition = match Definition::from_xml(&kept) {
                Ok(definition) => definition,
                Err(error) => return Ok(Begin::Refused(error.message)),
            };
            match Request::new(&config, &versions, &definition, &running, &to) {
                Err(why) => Ok(Begin::Refused(why)),
                Ok(request) => {
                    mark::set(domain, Some(Mark::Leaving))?;
                    Ok(Begin::Ask(Box::new(request)))
                }
            }
        };
        match self.with(Step::Migrate, QUICK, server, begin).await? {
            Begin::Gone => return Ok(Transfer::Gone),
            Begin::Refused(why) => return Err(Error::new(Step::Migrate, why)),
            Begin::GoesOn { gib, devices } => {
                let course = Course::new(&self.host.config, gib, devices);
                self.leaving.begin(server, Job::new(course, false, true));
            }
            Begin::Ask(request) => {
                if let Some(options) = request.unused(&self.host.config) {
                    tracing::info!(%server, options, "not used, as the guest has host devices");
                }
                let course = Course::new(&self.host.config, request.gib, request.vfio);
                let job = self.leaving.begin(server, Job::new(course, request.post_copy, false));
                self.migrate(server, job, *request)?;
            }
        }
        Ok(Transfer::Going(Progress::default()))
    }

    /// Asks libvirt to send a guest away, on a thread that waits for it.
    fn migrate(&self, server: ServerId, job: Arc<Job>, request: Request) -> Result<(), Error> {
        tracing::info!(%server, to = %request.uri, flags = request.flags, "a guest leaves");
        let link = self.link.clone();
        let thread = std::thread::Builder::new().name("libvirt-leave".into());
        let spawned = thread.spawn(move || {
            let sent = link.call_here(Step::Migrate, |connect| {
                let Some(domain) = lookup(connect, server)? else { return Ok(false) };
                send(&domain, &request).map(|()| true)
            });
            let end = match sent {
                Ok(true) => Ok(()),
                Ok(false) => Err(unknown(Step::Migrate, server).message),
                Err(error) => Err(error.message),
            };
            // Where the guest is, is what counts: the connection may have ended before the call did.
            let end = link.call_here(Step::Migrate, |connect| settle(connect, server, &end));
            let mut state = job.state();
            match end {
                Ok(Some(end)) => state.end = Some(end),
                Ok(None) | Err(_) => state.adopted = true,
            }
        });
        spawned.map(drop).map_err(|error| Error::new(Step::Migrate, error.to_string()))
    }

    /// Looks how far a departure is and does what is due. Gives its end, once it has one.
    async fn look(
        &self,
        server: ServerId,
        job: &Arc<Job>,
        force: bool,
    ) -> Result<Option<Result<(), String>>, Error> {
        let (adopted, act) = {
            let mut state = job.state();
            if let Some(end) = state.end.clone() {
                let why = state.why.take();
                return Ok(Some(end.map_err(|error| why.unwrap_or(error))));
            }
            if state.asked.is_some_and(|asked| asked.elapsed() < ASK) {
                return Ok(None);
            }
            state.asked = Some(Instant::now());
            let act = state.course.next(job.began.elapsed(), force);
            let act = act.or_else(|| state.heeded.take());
            if act == Some(Act::Abort) {
                let limit = state.course.limit().unwrap_or_default().as_secs();
                state.why = Some(format!(
                    "the guest did not get to the other host in {limit} s \
                     (live_migration_completion_timeout); it stays"
                ));
            }
            (state.adopted, act)
        };
        let post_copy = job.post_copy;
        let ask = move |connect: &Connect, domain: &Domain| {
            let looked = match is_leaving(domain) {
                Ok(true) => crate::sys::job(domain, 0).map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            let looked = match looked {
                // The guest has just gone: the call that sent it is about to say so.
                Err(error) if is(&error, ErrorNumber::OperationInvalid) => None,
                looked => looked?,
            };
            let Some(job) = looked else {
                let end =
                    if adopted { settle(connect, server, &Err(ENDED.to_owned()))? } else { None };
                return Ok((end, None));
            };
            if let Some(act) = act {
                carry_out(domain, act, post_copy);
            }
            Ok((None, Some(job)))
        };
        let (end, seen) = self.with(Step::Migrate, QUICK, server, ask).await?;
        let mut state = job.state();
        if let Some(seen) = seen {
            state.progress = progress(&seen);
            let remaining = seen.memory_remaining.saturating_add(seen.disk_remaining);
            let sight = Sight { remaining, speed: seen.memory_bps };
            state.heeded = state.course.heed(job.began.elapsed(), sight);
            if let Some(act) = state.heeded {
                tracing::info!(
                    %server, ?act, remaining, sent_by_devices = seen.vfio_transferred,
                    "what is left of a guest's memory would fit into the pause, and the guest does not go: \
                     it is given longer for the state of its devices"
                );
            }
        }
        if end.is_some() {
            state.end = end.clone();
        }
        Ok(end)
    }

    /// Calls off a departure that is under way, and waits until the guest is surely here.
    pub(crate) async fn keep(&self, server: ServerId) -> Result<(), Error> {
        let job = self.leaving.job(server);
        if job.is_none() && self.leaving.is_clear(server) {
            return Ok(());
        }
        let end = Instant::now() + CALLED_OFF;
        loop {
            let abort = |_: &Connect, domain: &Domain| {
                let leaving = is_leaving(domain)?;
                if leaving && let Err(error) = crate::sys::abort_job(domain) {
                    tracing::debug!(%error, "a departure is not called off yet");
                }
                let (seen, _) = seen(domain)?;
                if !leaving && seen.mark == Some(Mark::Leaving) && seen.life().is_up() {
                    mark::set(domain, None)?;
                }
                Ok((leaving, seen.life()))
            };
            let (leaving, life) = self.with(Step::Migrate, QUICK, server, abort).await?;
            let waits = job.as_ref().is_some_and(|job| {
                let state = job.state();
                state.end.is_none() && !state.adopted
            });
            if life == Life::Left {
                let why = "the guest has gone to the other host already";
                return Err(Error::new(Step::Migrate, why));
            }
            if !leaving && !waits {
                self.leaving.forget(server);
                return Ok(());
            }
            if Instant::now() >= end {
                let why = "the guest's departure cannot be called off";
                return Err(Error::new(Step::Migrate, why));
            }
            tokio::time::sleep(ASK).await;
        }
    }
}
