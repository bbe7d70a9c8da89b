//! A hypervisor that stores domains and runs none.
//!
//! Domains are XML files in a directory, and their states are files next to them, because guests
//! outlive an agent. Memory only caches data for calls that must not read a file.

mod console;
mod files;
mod guest;
mod hardware;
mod migrate;
mod plan;
mod volumes;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kilonova_ids::ServerId;
use kilonova_node_api::{
    ConsoleAnswer, ConsoleKind, DiskFormat, GuestVerb, OutgoingMigration, Peer, Usage,
};

pub use plan::{Failure, GuestLocation, Plan};

use crate::{
    ConsoleFuture, DefinedDomain, Definition, DomainState, DriverFuture, Error, FoundDisks,
    Hypervisor, HypervisorInfo, MigrationState, PluggedVolumes, Step,
};
use files::Files;

struct Guest {
    display_name: Box<str>,
    state: DomainState,
}

/// The simulated hypervisor of one host.
pub struct Simulated {
    files: Files,
    plan: Plan,
    guests: Mutex<HashMap<ServerId, Guest>>,
    /// Outgoing live migrations and when they started.
    migrations: Mutex<HashMap<ServerId, Instant>>,
    consoles: console::Sessions,
}

impl Simulated {
    /// Opens the directory of a host and loads its domains. The directory is created with the first
    /// domain. Files that are not domains are logged and stay unchanged.
    pub fn open(folder: PathBuf, plan: Plan) -> std::io::Result<Self> {
        let files = Files::new(folder);
        let mut guests = HashMap::new();
        for (server, xml) in files.load()? {
            match Definition::from_xml(&xml) {
                Ok(definition) if definition.server == server => {
                    let guest = Guest {
                        display_name: definition.config.display_name.into(),
                        state: files.state(server)?,
                    };
                    guests.insert(server, guest);
                }
                Ok(_) => {
                    tracing::warn!(%server, "ignoring a domain file with the domain of another server")
                }
                Err(error) => {
                    tracing::warn!(%server, %error, "ignoring a domain file that could not be parsed")
                }
            }
        }
        Ok(Self {
            files,
            plan,
            guests: Mutex::new(guests),
            migrations: Mutex::default(),
            consoles: Default::default(),
        })
    }

    /// Durations and failures of steps; failures can be added at any time.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<ServerId, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn migrations(&self) -> MutexGuard<'_, HashMap<ServerId, Instant>> {
        self.migrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and state of a defined domain. The source of a migration may have put an incoming guest
    /// here.
    fn guest(&self, server: ServerId) -> Option<(Box<str>, DomainState)> {
        let mut guests = self.guests();
        let guest = guests.get_mut(&server)?;
        if guest.state == DomainState::Incoming
            && let Ok(state) = self.files.state(server)
        {
            guest.state = state;
        }
        Some((guest.display_name.clone(), guest.state))
    }
}

impl Hypervisor for Simulated {
    fn info(&self) -> HypervisorInfo {
        HypervisorInfo {
            hypervisor_type: "simulated".to_owned(),
            version: 1_000_000,
            traits: Vec::new(),
        }
    }

    fn servers(&self) -> DriverFuture<'_, Vec<ServerId>> {
        Box::pin(async { Ok(self.guests().keys().copied().collect()) })
    }

    fn running(&self) -> DriverFuture<'_, Vec<ServerId>> {
        Box::pin(async {
            let guests = self.guests();
            let running = guests.iter().filter(|(_, guest)| guest.state == DomainState::Running);
            Ok(running.map(|(server, _)| *server).collect())
        })
    }

    fn domain(&self, server: ServerId) -> DriverFuture<'_, Option<DefinedDomain>> {
        Box::pin(async move {
            let Some((_, state)) = self.guest(server) else { return Ok(None) };
            let xml: Arc<str> = self.files.read(server).map_err(failed(Step::Define))?.into();
            Ok(Some(DefinedDomain { server, state, xml }))
        })
    }

    fn kept_machine_type(&self, server: ServerId) -> DriverFuture<'_, Option<String>> {
        Box::pin(async move {
            if self.guest(server).is_none() {
                return Ok(None);
            }
            let xml = self.files.read(server).map_err(failed(Step::Inspect))?;
            Ok(hardware::machine_type(&xml).map(str::to_owned))
        })
    }

    /// The disks of a simulated guest are its domain.
    fn find_disks<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, FoundDisks> {
        Box::pin(async {
            let is_here = self.guests().contains_key(&definition.server);
            Ok(if is_here { FoundDisks::Kept } else { FoundDisks::None })
        })
    }

    fn prepare<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.config.display_name))
    }

    fn fetch<'a>(&'a self, definition: &'a Definition, _from: &'a Peer) -> DriverFuture<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.config.display_name))
    }

    fn prepare_rescue_disk<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.config.display_name))
    }

    fn plug_volumes<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, PluggedVolumes> {
        Box::pin(self.plug(definition))
    }

    fn define<'a>(&'a self, definition: &'a Definition) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            self.plan.step(Step::Define, &definition.config.display_name).await?;
            let mut guests = self.guests();
            let old = guests.contains_key(&definition.server);
            let old = old.then(|| self.files.read(definition.server)).transpose();
            let old = old.map_err(failed(Step::Define))?;
            let machine_type = hardware::next(&self.files, old.as_deref(), definition);
            let xml = hardware::record(definition.to_xml(), machine_type.as_deref());
            self.files.write(definition.server, &xml).map_err(failed(Step::Define))?;
            let state =
                guests.get(&definition.server).map_or(DomainState::Shutoff, |guest| guest.state);
            let display_name = definition.config.display_name.as_str().into();
            guests.insert(definition.server, Guest { display_name, state });
            Ok(())
        })
    }

    fn start(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Start, server, &[DomainState::Shutoff], DomainState::Running))
    }

    fn start_paused(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Start, server, &[DomainState::Shutoff], DomainState::Paused))
    }

    fn stop(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Stop, server, &[DomainState::Running], DomainState::Shutoff))
    }

    fn reboot(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.restart(server))
    }

    fn pause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Pause, server, &[DomainState::Running], DomainState::Paused))
    }

    fn unpause(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Unpause, server, &[DomainState::Paused], DomainState::Running))
    }

    fn suspend(&self, server: ServerId) -> DriverFuture<'_, ()> {
        let from = &[DomainState::Running, DomainState::Paused];
        Box::pin(self.change(Step::Suspend, server, from, DomainState::Saved))
    }

    fn resume(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Resume, server, &[DomainState::Saved], DomainState::Running))
    }

    fn prepare_incoming(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Receive, server, &[DomainState::Shutoff], DomainState::Incoming))
    }

    fn finish_incoming(&self, server: ServerId, state: DomainState) -> DriverFuture<'_, ()> {
        Box::pin(self.change(Step::Inspect, server, &[DomainState::Incoming], state))
    }

    fn migrate_out<'a>(
        &'a self,
        server: ServerId,
        migration: &'a OutgoingMigration,
    ) -> DriverFuture<'a, MigrationState> {
        Box::pin(async move { self.migrate(server, migration) })
    }

    fn abort_migration(&self, server: ServerId) -> DriverFuture<'_, ()> {
        self.migrations().remove(&server);
        Box::pin(async { Ok(()) })
    }

    fn carry_out(&self, server: ServerId, verb: GuestVerb) -> DriverFuture<'_, ()> {
        Box::pin(self.carry_out_verb(server, verb))
    }

    fn snapshot(&self, server: ServerId, file: PathBuf) -> DriverFuture<'_, DiskFormat> {
        Box::pin(async move {
            self.copy_disk(server, file).await?;
            Ok(DiskFormat::Raw)
        })
    }

    fn open_console(
        &self,
        server: ServerId,
        kind: ConsoleKind,
        connect: bool,
    ) -> ConsoleFuture<'_> {
        Box::pin(async move {
            self.console_of(server, kind, connect).unwrap_or_else(ConsoleAnswer::Refused)
        })
    }

    fn console(&self, server: ServerId) -> DriverFuture<'_, String> {
        Box::pin(async move { self.files.console_output(server).map_err(failed(Step::Inspect)) })
    }

    fn usage(&self, server: ServerId) -> DriverFuture<'_, Usage> {
        Box::pin(async move { self.usage_of(server) })
    }

    fn destroy(&self, server: ServerId) -> DriverFuture<'_, ()> {
        let from = &[
            DomainState::Running,
            DomainState::Paused,
            DomainState::Saved,
            DomainState::MigratedOut,
            DomainState::Incoming,
        ];
        self.migrations().remove(&server);
        Box::pin(async move {
            match self.guest(server) {
                None => Ok(()),
                Some(_) => self.change(Step::Destroy, server, from, DomainState::Shutoff).await,
            }
        })
    }

    fn undefine(&self, server: ServerId) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let Some((name, state)) = self.guest(server) else { return Ok(()) };
            if state.is_up() {
                return Err(Error::new(Step::Destroy, format!("{name} is running")));
            }
            let mut guests = self.guests();
            self.files.remove(server).map_err(failed(Step::Destroy))?;
            guests.remove(&server);
            Ok(())
        })
    }
}

fn unknown(step: Step, server: ServerId) -> Error {
    Error::new(step, format!("server {server} has no domain on this host"))
}

fn failed(step: Step) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::new(step, error.to_string())
}

#[cfg(test)]
#[path = "simulated_tests.rs"]
mod tests;
