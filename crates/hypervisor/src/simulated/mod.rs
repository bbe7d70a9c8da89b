//! A hypervisor that keeps domains and runs none.
//!
//! Domains live as XML files in a folder, as a real one keeps them across restarts of its manager;
//! which of them run is kept beside them, because guests go on when an agent restarts. In memory is
//! only what must be answered without a file.

mod files;
mod plan;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_ids::ServerId;
use kilonova_node_api::Boot;

pub use plan::{Failure, Plan};

use crate::{About, Answer, Definition, Error, Found, Hypervisor, Step};
use files::Files;

struct Guest {
    display_name: Box<str>,
    running: bool,
}

/// The simulated hypervisor of one host.
pub struct Simulated {
    files: Files,
    plan: Plan,
    guests: Mutex<HashMap<ServerId, Guest>>,
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
                        running: files.is_running(server),
                    };
                    guests.insert(server, guest);
                }
                Ok(_) => tracing::warn!(%server, "a domain file holds another server's domain"),
                Err(error) => tracing::warn!(%server, %error, "a domain file cannot be read"),
            }
        }
        Ok(Self { files, plan, guests: Mutex::new(guests) })
    }

    /// Times and failures; failures can be added while it runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<ServerId, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and power state of a defined domain.
    fn guest(&self, server: ServerId) -> Option<(Box<str>, bool)> {
        self.guests().get(&server).map(|guest| (guest.display_name.clone(), guest.running))
    }

    async fn power(&self, step: Step, server: ServerId, running: bool) -> Result<(), Error> {
        let Some((name, was)) = self.guest(server) else { return Err(unknown(step, server)) };
        if was == running {
            return Ok(());
        }
        self.plan.step(step, &name).await?;
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        self.files.set_running(server, running).map_err(failed(step))?;
        guest.running = running;
        Ok(())
    }
}

impl Hypervisor for Simulated {
    fn about(&self) -> About {
        About { hypervisor_type: "simulated".to_owned(), version: 1_000_000 }
    }

    fn servers(&self) -> Answer<'_, Vec<ServerId>> {
        Box::pin(async { Ok(self.guests().keys().copied().collect()) })
    }

    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>> {
        Box::pin(async move {
            let guests = self.guests();
            let Some(guest) = guests.get(&server) else { return Ok(None) };
            let xml: Arc<str> = self.files.read(server).map_err(failed(Step::Define))?.into();
            Ok(Some(Found { server, running: guest.running, xml }))
        })
    }

    fn prepare<'a>(
        &'a self,
        _server: ServerId,
        display_name: &'a str,
        _boot: &'a Boot,
    ) -> Answer<'a, ()> {
        Box::pin(self.plan.step(Step::Image, display_name))
    }

    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(async move {
            self.plan.step(Step::Define, &definition.display_name).await?;
            let mut guests = self.guests();
            self.files
                .write(definition.server, &definition.to_xml())
                .map_err(failed(Step::Define))?;
            let running = guests.get(&definition.server).is_some_and(|guest| guest.running);
            let display_name = definition.display_name.as_str().into();
            guests.insert(definition.server, Guest { display_name, running });
            Ok(())
        })
    }

    fn start(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.power(Step::Start, server, true))
    }

    fn stop(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.power(Step::Stop, server, false))
    }

    fn reboot(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Some((name, running)) = self.guest(server) else {
                return Err(unknown(Step::Reboot, server));
            };
            if !running {
                return Err(Error::new(Step::Reboot, format!("{name} is shut off")));
            }
            self.plan.step(Step::Reboot, &name).await
        })
    }

    fn destroy(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.power(Step::Destroy, server, false))
    }

    fn undefine(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(async move {
            let Some((name, running)) = self.guest(server) else { return Ok(()) };
            if running {
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
