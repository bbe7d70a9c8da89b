//! From what is on the host to what a document says.
//!
//! Looks first and does only what is missing, so a document that is satisfied costs a look. A guest
//! that was never as its document said is undone when a step fails; one that was is left as it is.

use kilonova_devices::Made;
use kilonova_hypervisor::Definition;
use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, Domain, Outcome, Power, Verb};

use super::notes::Note;
use super::work::{Halt, Work};

const CREATE_MDEV: &str = "create_mdev";
const DEFINE: &str = "define";
const DESTROY: &str = "destroy";

type Current<'a> = &'a (dyn Fn() -> Result<(), Halt> + Send + Sync);

/// The domain as it is.
struct Now {
    /// `None` where the hypervisor's XML cannot be read.
    definition: Option<Definition>,
    running: bool,
}

impl Work {
    async fn now(&self, server: ServerId) -> Result<Option<Now>, Halt> {
        Ok(self.hypervisor.domain(server).await?.map(|found| Now {
            definition: found.definition().map_err(|error| tracing::warn!(%server, %error)).ok(),
            running: found.running,
        }))
    }

    pub(super) async fn present(
        &self,
        server: ServerId,
        domain: &Domain,
        current: Current<'_>,
    ) -> Result<Outcome, Halt> {
        let want = Definition::of(server, domain);
        let now = self.now(server).await?;
        let noted = self.notes.get(server);
        let fresh = noted.as_ref().map_or(now.is_none(), |note| note.building);
        let noted = noted.unwrap_or_default();
        let result = self.reach(&want, domain, now, noted, fresh, current).await;
        if fresh
            && let Err(Halt::Failed { .. }) = &result
            && let Err(halt) = self.absent(server).await
        {
            tracing::warn!(host = self.host(), %server, ?halt, "what was half made is not undone");
        }
        result
    }

    async fn reach(
        &self,
        want: &Definition,
        domain: &Domain,
        now: Option<Now>,
        noted: Note,
        fresh: bool,
        current: Current<'_>,
    ) -> Result<Outcome, Halt> {
        let server = want.server;
        let mut running = now.as_ref().is_some_and(|now| now.running);
        let is = now.as_ref().and_then(|now| now.definition.as_ref());
        let same = is.is_some_and(|is| is.same_machine(want));
        if running && !same {
            current()?;
            self.hypervisor.destroy(server).await?;
            running = false;
        }
        let wanted = self.devices(want, is, noted, fresh, current).await?;
        if now.is_none() {
            current()?;
            self.hypervisor.prepare(server, &want.display_name, &want.boot).await?;
        }
        let done = if fresh { want.done } else { is.and_then(|is| is.done) };
        let next = Definition { done, ..want.clone() };
        if is != Some(&next) {
            current()?;
            self.hypervisor.define(&next).await?;
        }
        if let Some((_, verb)) = domain.verb.filter(|(operation, _)| done != Some(*operation)) {
            if running && domain.power == Power::On {
                current()?;
                running = self.restart(want, verb).await?;
            } else {
                self.hypervisor.define(want).await?;
            }
        }
        let outcome = match domain.power {
            Power::On => {
                if !running {
                    current()?;
                    self.hypervisor.start(server).await?;
                }
                Outcome::Running
            }
            Power::Off => {
                if running {
                    current()?;
                    self.hypervisor.stop(server).await?;
                }
                Outcome::Stopped
            }
        };
        self.note(server, Note { building: false, made: wanted }, DEFINE)?;
        Ok(outcome)
    }

    /// Makes what is missing for the devices and takes back what is no longer wanted.
    async fn devices(
        &self,
        want: &Definition,
        is: Option<&Definition>,
        noted: Note,
        fresh: bool,
        current: Current<'_>,
    ) -> Result<Vec<Made>, Halt> {
        let wanted = made(want);
        let mut stale = noted.made;
        stale.extend(is.map(made).unwrap_or_default());
        stale.retain(|made| !wanted.contains(made));
        stale.sort_unstable();
        stale.dedup();
        let union = wanted.iter().chain(&stale).cloned().collect();
        self.note(want.server, Note { building: fresh, made: union }, CREATE_MDEV)?;
        for address in want.devices.iter().filter_map(pci) {
            if !self.sysfs.exists(&format!("bus/pci/devices/{address}")) {
                return Err(Halt::failed(
                    DEFINE,
                    format!("there is no PCI function {address} on this host"),
                ));
            }
        }
        for made in stale {
            current()?;
            self.unmake(want.server, made).await.map_err(|error| Halt::failed(DESTROY, error))?;
        }
        for made in &wanted {
            current()?;
            self.make(made.clone()).await.map_err(|error| Halt::failed(CREATE_MDEV, error))?;
        }
        self.note(want.server, Note { building: fresh, made: wanted.clone() }, CREATE_MDEV)?;
        Ok(wanted)
    }

    /// Carries out a one-shot verb on a running guest and remembers it with the domain. Returns
    /// whether the guest runs.
    async fn restart(&self, want: &Definition, verb: Verb) -> Result<bool, Halt> {
        if verb == Verb::RebootSoft {
            match tokio::time::timeout(self.soft_reboot, self.hypervisor.reboot(want.server)).await
            {
                Ok(result) => {
                    // A failed reboot counts as tried: a later document must not restart the guest.
                    let remembered = self.hypervisor.define(want).await;
                    result?;
                    remembered?;
                    return Ok(true);
                }
                Err(_) => {
                    tracing::info!(server = %want.server, "the guest did not restart by itself")
                }
            }
        }
        self.hypervisor.destroy(want.server).await?;
        self.hypervisor.define(want).await?;
        Ok(false)
    }

    pub(super) async fn absent(&self, server: ServerId) -> Result<Outcome, Halt> {
        let now = self.now(server).await?;
        let mut made = self.notes.get(server).unwrap_or_default().made;
        if let Some(now) = &now {
            made.extend(now.definition.as_ref().map(self::made).unwrap_or_default());
            if now.running {
                self.hypervisor.destroy(server).await?;
            }
        }
        for made in made {
            self.unmake(server, made).await.map_err(|error| Halt::failed(DESTROY, error))?;
        }
        self.hypervisor.undefine(server).await?;
        self.book
            .forget(server)
            .and_then(|()| self.notes.remove(server))
            .map_err(|error| Halt::failed(DESTROY, format!("{}: {error}", self.state.display())))?;
        Ok(Outcome::Absent)
    }
}

fn made(definition: &Definition) -> Vec<Made> {
    definition.devices.iter().filter_map(Made::of).collect()
}

fn pci(device: &Attachment) -> Option<&str> {
    match device {
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => Some(address),
        Attachment::Mdev { .. } | Attachment::TestPci { .. } => None,
    }
}
