//! A hypervisor that keeps domains and runs none.
//!
//! Domains live as XML files in a folder, as a real one keeps them across restarts of its manager;
//! which of them run is kept beside them, because guests go on when an agent restarts. In memory is
//! only what must be answered without a file.

mod files;
mod guest;
mod leave;
mod plan;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, DiskFormat, Peer, Usage};

pub use plan::{Failure, Fate, Plan};

use crate::{About, Answer, Definition, Error, Found, Hypervisor, Life, Step, Transfer};
use files::Files;

struct Guest {
    display_name: Box<str>,
    life: Life,
}

/// The simulated hypervisor of one host.
pub struct Simulated {
    files: Files,
    plan: Plan,
    guests: Mutex<HashMap<ServerId, Guest>>,
    /// Since when guests are on their way to another host.
    leaving: Mutex<HashMap<ServerId, Instant>>,
}

impl Simulated {
    /// Opens the folder of a host, which is made when the first domain is defined, and takes up the
    /// domains that are in it. Files that cannot be read as domains are logged and left alone.
    pub fn open(folder: PathBuf, plan: Plan) -> std::io::Result<Self> {
        let files = Files::new(folder);
        let mut guests = HashMap::new();
        for (server, xml) in files.load()? {
            match Definition::from_xml(&xml) {
                Ok(definition) if definition.server == server => {
                    let guest = Guest {
                        display_name: definition.display_name.into(),
                        life: files.life(server)?,
                    };
                    guests.insert(server, guest);
                }
                Ok(_) => tracing::warn!(%server, "a domain file holds another server's domain"),
                Err(error) => tracing::warn!(%server, %error, "a domain file cannot be read"),
            }
        }
        Ok(Self { files, plan, guests: Mutex::new(guests), leaving: Mutex::default() })
    }

    /// Times and failures; failures can be added while it runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<ServerId, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, HashMap<ServerId, Instant>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and state of a defined domain. One that is awaited may have come: whoever had it puts it
    /// here.
    fn guest(&self, server: ServerId) -> Option<(Box<str>, Life)> {
        let mut guests = self.guests();
        let guest = guests.get_mut(&server)?;
        if guest.life == Life::Incoming
            && let Ok(life) = self.files.life(server)
        {
            guest.life = life;
        }
        Some((guest.display_name.clone(), guest.life))
    }
}

impl Hypervisor for Simulated {
    fn about(&self) -> About {
        About { hypervisor_type: "simulated".to_owned(), version: 1_000_000, traits: Vec::new() }
    }

    fn servers(&self) -> Answer<'_, Vec<ServerId>> {
        Box::pin(async { Ok(self.guests().keys().copied().collect()) })
    }

    fn running(&self) -> Answer<'_, Vec<ServerId>> {
        Box::pin(async {
            let guests = self.guests();
            let running = guests.iter().filter(|(_, guest)| guest.life == Life::Running);
            Ok(running.map(|(server, _)| *server).collect())
        })
    }

    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>> {
        Box::pin(async move {
            let Some((_, life)) = self.guest(server) else { return Ok(None) };
            let xml: Arc<str> = self.files.read(server).map_err(failed(Step::Define))?.into();
            Ok(Some(Found { server, life, xml }))
        })
    }

    fn prepare<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.display_name))
    }

    fn fetch<'a>(&'a self, definition: &'a Definition, _from: &'a Peer) -> Answer<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.display_name))
    }

    fn prepare_rescue<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.plan.step(Step::Image, &definition.display_name))
    }

    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(async move {
            self.plan.step(Step::Define, &definition.display_name).await?;
            let mut guests = self.guests();
            self.files
                .write(definition.server, &definition.to_xml())
                .map_err(failed(Step::Define))?;
            let life = guests.get(&definition.server).map_or(Life::Off, |guest| guest.life);
            let display_name = definition.display_name.as_str().into();
            guests.insert(definition.server, Guest { display_name, life });
            Ok(())
        })
    }

    fn start(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Start, server, &[Life::Off], Life::Running))
    }

    fn stop(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Stop, server, &[Life::Running], Life::Off))
    }

    fn reboot(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.restart(server))
    }

    fn pause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Pause, server, &[Life::Running], Life::Paused))
    }

    fn unpause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Unpause, server, &[Life::Paused], Life::Running))
    }

    fn suspend(&self, server: ServerId) -> Answer<'_, ()> {
        let from = &[Life::Running, Life::Paused];
        Box::pin(self.change(Step::Suspend, server, from, Life::Saved))
    }

    fn resume(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Resume, server, &[Life::Saved], Life::Running))
    }

    fn receive(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Receive, server, &[Life::Off], Life::Incoming))
    }

    fn arrive(&self, server: ServerId, life: Life) -> Answer<'_, ()> {
        Box::pin(self.change(Step::Look, server, &[Life::Incoming], life))
    }

    fn depart<'a>(&'a self, server: ServerId, departure: &'a Departure) -> Answer<'a, Transfer> {
        Box::pin(async move { self.leave(server, departure) })
    }

    fn stay(&self, server: ServerId) -> Answer<'_, ()> {
        self.leaving().remove(&server);
        Box::pin(async { Ok(()) })
    }

    fn crash_dump(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.interrupt(server))
    }

    fn snapshot(&self, server: ServerId, file: PathBuf) -> Answer<'_, DiskFormat> {
        Box::pin(async move {
            self.copy_disk(server, file).await?;
            Ok(DiskFormat::Raw)
        })
    }

    fn console(&self, server: ServerId) -> Answer<'_, String> {
        Box::pin(async move { self.files.said(server).map_err(failed(Step::Look)) })
    }

    fn usage(&self, server: ServerId) -> Answer<'_, Usage> {
        Box::pin(async move { self.used(server) })
    }

    fn destroy(&self, server: ServerId) -> Answer<'_, ()> {
        let from = &[Life::Running, Life::Paused, Life::Saved, Life::Left, Life::Incoming];
        self.leaving().remove(&server);
        Box::pin(async move {
            match self.guest(server) {
                None => Ok(()),
                Some(_) => self.change(Step::Destroy, server, from, Life::Off).await,
            }
        })
    }

    fn undefine(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Some((name, life)) = self.guest(server) else { return Ok(()) };
            if life.is_up() {
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
