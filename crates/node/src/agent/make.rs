//! From what is on the host to what a document says.
//!
//! Looks first and does only what is missing, so a document that is satisfied costs a look. A guest
//! that was never as its document said is undone when a step fails; one that was is left as it is.

use kilonova_devices::Made;
use kilonova_hypervisor::{Definition, Life, Transfer};
use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, Departure, Domain, Outcome, Power, Verb};

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
    life: Life,
}

/// What there is to say of a guest.
pub(super) fn outcome(life: Life) -> Outcome {
    match life {
        Life::Off => Outcome::Stopped,
        Life::Running => Outcome::Running,
        Life::Paused => Outcome::Paused,
        Life::Saved => Outcome::Suspended,
        Life::Left => Outcome::Departed,
        Life::Incoming => Outcome::Ready,
    }
}

impl Work {
    async fn now(&self, server: ServerId) -> Result<Option<Now>, Halt> {
        Ok(self.hypervisor.domain(server).await?.map(|found| Now {
            definition: found.definition().map_err(|error| tracing::warn!(%server, %error)).ok(),
            life: found.life,
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
        let life = now.as_ref().map_or(Life::Off, |now| now.life);
        if life == Life::Left {
            return Ok(Outcome::Departed);
        }
        if let Some(departure) = &domain.departure {
            return self.send_away(server, departure, life).await;
        }
        if life.is_up() {
            self.hypervisor.stay(server).await?;
        }
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
        let mut life = now.as_ref().map_or(Life::Off, |now| now.life);
        let is = now.as_ref().and_then(|now| now.definition.as_ref());
        let same = is.is_some_and(|is| is.same_machine(want));
        if life != Life::Off && !same {
            current()?;
            self.hypervisor.destroy(server).await?;
            life = Life::Off;
        }
        let wanted = self.devices(want, is, noted, fresh, current).await?;
        if now.is_none()
            && let Some(from) = &domain.from
        {
            current()?;
            self.hypervisor.fetch(server, &want.display_name, &want.boot, from).await?;
        } else if now.is_none() || is.is_some_and(|is| is.boot.rebuilt != want.boot.rebuilt) {
            current()?;
            self.hypervisor.prepare(server, &want.display_name, &want.boot).await?;
        }
        if let Some(rescue) = want.rescue.filter(|_| is.is_none_or(|is| is.rescue != want.rescue)) {
            current()?;
            self.hypervisor.prepare_rescue(server, &want.display_name, &rescue).await?;
        }
        let done = if fresh { want.done } else { is.and_then(|is| is.done) };
        let next = Definition { done, ..want.clone() };
        if is != Some(&next) {
            current()?;
            self.hypervisor.define(&next).await?;
        }
        let due = domain.verb.filter(|(operation, _)| done != Some(*operation));
        if let Some((_, verb @ (Verb::RebootSoft | Verb::RebootHard))) = due {
            if life != Life::Off && domain.power == Power::On {
                current()?;
                life = self.restart(want, verb, life).await?;
            } else {
                self.hypervisor.define(want).await?;
            }
        }
        if domain.power == Power::Incoming && !life.is_up() {
            current()?;
            self.hypervisor.receive(server).await?;
            self.note(server, Note { building: false, made: wanted }, DEFINE)?;
            return Ok(Outcome::Ready);
        }
        let life = self.settle_power(server, domain.power, life, current).await?;
        match due {
            Some((_, Verb::Snapshot { image })) => self.snapshot(want, image, current).await?,
            Some((_, Verb::CrashDump)) => self.crash_dump(want, current).await?,
            _ => {}
        }
        self.note(server, Note { building: false, made: wanted }, DEFINE)?;
        Ok(outcome(life))
    }

    /// Takes the guest to the power state that is wanted, from whichever it is in. One that is shut
    /// off has no memory that could be kept: it stays so, and is reported so.
    async fn settle_power(
        &self,
        server: ServerId,
        power: Power,
        mut life: Life,
        current: Current<'_>,
    ) -> Result<Life, Halt> {
        let hypervisor = &self.hypervisor;
        while let Some(next) = next(power, life) {
            current()?;
            match (life, next) {
                (Life::Incoming, Life::Running | Life::Paused) => {
                    hypervisor.arrive(server, next).await?;
                }
                (Life::Off, _) => hypervisor.start(server).await?,
                (Life::Paused, Life::Running) => hypervisor.unpause(server).await?,
                (Life::Saved, Life::Running) => hypervisor.resume(server).await?,
                (_, Life::Paused) => hypervisor.pause(server).await?,
                (_, Life::Saved) => hypervisor.suspend(server).await?,
                (Life::Running, _) => hypervisor.stop(server).await?,
                (_, _) => hypervisor.destroy(server).await?,
            }
            life = next;
        }
        Ok(life)
    }

    /// Sends a guest to another host, or goes on with it; answers at once.
    async fn send_away(
        &self,
        server: ServerId,
        departure: &Departure,
        life: Life,
    ) -> Result<Outcome, Halt> {
        if !life.is_up() {
            return Err(Halt::failed("migrate", "the guest does not run"));
        }
        Ok(match self.hypervisor.depart(server, departure).await? {
            Transfer::Going(progress) => Outcome::Departing(progress),
            Transfer::Gone => Outcome::Departed,
        })
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

    /// Carries out a one-shot verb on a guest and remembers it with the domain. Returns what the
    /// guest is then.
    async fn restart(&self, want: &Definition, verb: Verb, life: Life) -> Result<Life, Halt> {
        if verb == Verb::RebootSoft && life == Life::Running {
            match tokio::time::timeout(self.soft_reboot, self.hypervisor.reboot(want.server)).await
            {
                Ok(result) => {
                    // A failed reboot counts as tried: a later document must not restart the guest.
                    let remembered = self.hypervisor.define(want).await;
                    result?;
                    remembered?;
                    return Ok(Life::Running);
                }
                Err(_) => {
                    tracing::info!(server = %want.server, "the guest did not restart by itself")
                }
            }
        }
        self.hypervisor.destroy(want.server).await?;
        self.hypervisor.define(want).await?;
        Ok(Life::Off)
    }

    pub(super) async fn absent(&self, server: ServerId) -> Result<Outcome, Halt> {
        let now = self.now(server).await?;
        let mut made = self.notes.get(server).unwrap_or_default().made;
        if let Some(now) = &now {
            made.extend(now.definition.as_ref().map(self::made).unwrap_or_default());
            if now.life != Life::Off {
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

/// The step from a state towards what is wanted; nothing when it is reached or cannot be.
fn next(power: Power, life: Life) -> Option<Life> {
    let next = match (power, life) {
        (Power::Incoming, _) | (_, Life::Left) => return None,
        (Power::On, _) => Life::Running,
        (Power::Off, _) | (_, Life::Off) => Life::Off,
        (Power::Paused, Life::Saved) => Life::Running,
        (Power::Paused, _) => Life::Paused,
        (Power::Suspended, _) => Life::Saved,
    };
    (next != life).then_some(next)
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
