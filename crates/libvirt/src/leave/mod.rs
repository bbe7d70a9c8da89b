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

mod course;
mod request;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_hypervisor::{Definition, Error, Life, Step, Transfer};
use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, Progress};
use virt::connect::Connect;
use virt::domain::{Domain, MigrateParameters};
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use crate::connection::{QUICK, is, said};
use crate::driver::{Driver, life, lookup, mark, seen, unknown};
use crate::life::Mark;
use course::{Act, Course, Sight};
use request::Request;

/// Between two questions to libvirt how far a guest is.
const ASK: Duration = Duration::from_millis(250);
/// How long a departure may take to be called off.
const CALLED_OFF: Duration = Duration::from_secs(60);

/// The departures of a host.
#[derive(Default)]
pub(crate) struct Leaving {
    jobs: Mutex<HashMap<ServerId, Arc<Job>>>,
    /// Servers that no process before this one was sending away, or no longer.
    clear: Mutex<HashSet<ServerId>>,
}

/// A departure under way.
struct Job {
    began: Instant,
    state: Mutex<State>,
    /// Whether the guest may go before its memory has.
    post_copy: bool,
}

struct State {
    course: Course,
    progress: Progress,
    asked: Option<Instant>,
    /// Why it was called off.
    why: Option<String>,
    /// How libvirt's call ended; nobody waits for it where another process made it.
    end: Option<Result<(), String>>,
    /// Whether libvirt's job is to be looked for, as no call of ours will end.
    adopted: bool,
    /// What is due because of what was seen last.
    heeded: Option<Act>,
}

impl Job {
    fn new(course: Course, post_copy: bool, adopted: bool) -> Self {
        let state = State {
            course,
            progress: Progress::default(),
            asked: None,
            why: None,
            end: None,
            adopted,
            heeded: None,
        };
        Self { began: Instant::now(), state: Mutex::new(state), post_copy }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leaving {
    fn job(&self, server: ServerId) -> Option<Arc<Job>> {
        lock(&self.jobs).get(&server).cloned()
    }

    fn begin(&self, server: ServerId, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        lock(&self.jobs).insert(server, Arc::clone(&job));
        job
    }

    /// Nothing of a departure is under way.
    pub(crate) fn forget(&self, server: ServerId) {
        lock(&self.jobs).remove(&server);
        lock(&self.clear).insert(server);
    }

    fn is_clear(&self, server: ServerId) -> bool {
        lock(&self.clear).contains(&server)
    }
}

/// What a look at a domain without a departure of ours finds.
enum Begin {
    Gone,
    Refused(String),
    /// Another process began it, and libvirt goes on; whether the guest has devices.
    GoesOn(bool),
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
                    let devices = Definition::from_xml(&kept)
                        .is_ok_and(|definition| !definition.devices.is_empty());
                    return Ok(Begin::GoesOn(devices));
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
            Begin::GoesOn(devices) => {
                let course = Course::new(&self.host.config, 0, devices);
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

const ENDED: &str = "libvirt has ended the guest's departure; the guest is still here";

/// Makes libvirt's call, which ends when the guest has gone or stays.
fn send(domain: &Domain, request: &Request) -> Result<(), VirtError> {
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
fn settle(
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
fn is_leaving(domain: &Domain) -> Result<bool, VirtError> {
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
fn carry_out(domain: &Domain, act: Act, post_copy: bool) {
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

fn progress(job: &crate::job::Job) -> Progress {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
