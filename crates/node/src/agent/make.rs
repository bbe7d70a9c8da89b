//! From what is on the host to what a document says.
//!
//! Looks first and does only what is missing, so a document that is satisfied costs a look. A guest
//! that was never as its document said is undone when a step fails; one that was is left as it is. What a
//! guest does by itself afterwards is told, and is not undone here.

use kilonova_devices::Made;
use kilonova_hypervisor::{Definition, Life, Transfer};
use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, Departure, Domain, Outcome, Phase, Power, Verb};

use super::notes::{End, Last, Note};
use super::work::{Came, Halt, Turn, Work};

const CREATE_MDEV: &str = "create_mdev";
const DEFINE: &str = "define";
const DESTROY: &str = "destroy";
const NETWORK: &str = "network";

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
        turn: &Turn<'_>,
    ) -> Result<Came, Halt> {
        let came = |outcome| Came { outcome, found: false };
        if domain.power == Power::AsIs {
            return self.as_is(server).await.map(came);
        }
        let want = Definition::of(server, domain);
        let now = self.now(server).await?;
        let life = now.as_ref().map_or(Life::Off, |now| now.life);
        if life == Life::Left {
            return Ok(came(Outcome::Departed));
        }
        if let Some(departure) = &domain.departure {
            return self.send_away(server, departure, life).await.map(came);
        }
        if life.is_up() {
            self.hypervisor.stay(server).await?;
        }
        let noted = self.notes.get(server);
        let last = noted.as_ref().and_then(|note| note.last.clone());
        match last.filter(|last| last.generation == turn.generation).map(|last| last.end) {
            Some(End::Failed { step, message }) => return Err(Halt::Failed { step, message }),
            Some(End::As(_)) => {
                let is = now.as_ref().and_then(|now| now.definition.as_ref());
                if let Some(is) = is.filter(|is| is.same_machine(&want)) {
                    return self.look_after(&want, is, noted.unwrap_or_default(), life, turn).await;
                }
            }
            None => {}
        }
        let fresh = noted.as_ref().map_or(now.is_none(), |note| note.building);
        let noted = noted.unwrap_or_default();
        let result = self.reach(&want, domain, now, noted, fresh, turn).await;
        if fresh
            && let Err(Halt::Failed { .. }) = &result
            && let Err(halt) = self.absent(server).await
        {
            tracing::warn!(host = self.host(), %server, ?halt, "what was half made is not undone");
        }
        result.map(came)
    }

    /// Says what a guest does. Nothing is done to it, but that it no longer leaves.
    async fn as_is(&self, server: ServerId) -> Result<Outcome, Halt> {
        let life = |found: Option<kilonova_hypervisor::Found>| found.map(|found| found.life);
        let mut is = life(self.hypervisor.domain(server).await?);
        if is.is_some_and(Life::is_up) {
            let stays = self.hypervisor.stay(server).await;
            is = life(self.hypervisor.domain(server).await?);
            if is.is_some_and(Life::is_up) {
                stays?;
            }
        }
        Ok(is.map_or(Outcome::Absent, outcome))
    }

    /// Looks at a guest that once was as its document says. Devices that went when the host was
    /// restarted are made again; where one cannot be, the next start fails of it.
    async fn look_after(
        &self,
        want: &Definition,
        is: &Definition,
        noted: Note,
        life: Life,
        turn: &Turn<'_>,
    ) -> Result<Came, Halt> {
        if let Err(Halt::Failed { message, .. }) = self.plug(want).await {
            tracing::warn!(host = self.host(), server = %want.server, %message, "a network is not there");
        }
        match self.devices(want, Some(is), noted, false, turn).await {
            Err(Halt::Failed { step, message }) => {
                tracing::warn!(host = self.host(), server = %want.server, %step, %message, "a device is not there");
            }
            Err(halt) => return Err(halt),
            Ok(_) => {}
        }
        Ok(Came { outcome: outcome(life), found: true })
    }

    async fn reach(
        &self,
        want: &Definition,
        domain: &Domain,
        now: Option<Now>,
        noted: Note,
        fresh: bool,
        turn: &Turn<'_>,
    ) -> Result<Outcome, Halt> {
        let server = want.server;
        let mut life = now.as_ref().map_or(Life::Off, |now| now.life);
        let is = now.as_ref().and_then(|now| now.definition.as_ref());
        let same = is.is_some_and(|is| is.same_machine(want));
        if life != Life::Off && !same {
            turn.current()?;
            self.hypervisor.destroy(server).await?;
            life = Life::Off;
        }
        self.plug(want).await?;
        let wanted = self.devices(want, is, noted, fresh, turn).await?;
        if now.is_none()
            && let Some(from) = &domain.from
        {
            turn.current()?;
            if domain.power == Power::Incoming {
                self.hypervisor.prepare_arrival(want, from).await?;
            } else {
                self.hypervisor.fetch(want, from).await?;
                turn.say(Phase::Spawning);
            }
        } else if now.is_none() || is.is_some_and(|is| is.boot != want.boot) {
            turn.current()?;
            self.hypervisor.prepare(want).await?;
            let anew = is.is_none_or(|is| is.boot.rebuilt != want.boot.rebuilt);
            if anew && want.boot.rebuilt.is_some() {
                turn.say(Phase::Spawning);
            }
        }
        if want.rescue.is_some() && is.is_none_or(|is| is.rescue != want.rescue) {
            turn.current()?;
            self.hypervisor.prepare_rescue(want).await?;
        }
        let done = if fresh { want.done } else { is.and_then(|is| is.done) };
        let next = Definition { done, ..want.clone() };
        if is != Some(&next) {
            turn.current()?;
            self.hypervisor.define(&next).await?;
        }
        self.connections.settle(server, &want.interfaces).await;
        let due = domain.verb.filter(|(operation, _)| done != Some(*operation));
        if let Some((_, verb @ (Verb::RebootSoft | Verb::RebootHard))) = due {
            if life != Life::Off && domain.power == Power::On {
                turn.current()?;
                life = self.restart(want, verb, life, turn).await?;
            } else {
                self.hypervisor.define(want).await?;
            }
        }
        if domain.power == Power::Incoming && !life.is_up() {
            turn.current()?;
            self.hypervisor.receive(server).await?;
            self.note(server, Note { building: false, made: wanted, last: None }, DEFINE)?;
            return Ok(Outcome::Ready);
        }
        let life = self.settle_power(server, domain.power, life, turn).await?;
        match due {
            Some((_, Verb::Snapshot { image })) => self.snapshot(want, image, turn).await?,
            Some((_, Verb::CrashDump)) => self.crash_dump(want, turn).await?,
            _ => {}
        }
        let settled = !matches!(life, Life::Left | Life::Incoming);
        let end = End::As(domain.power);
        let last = settled.then_some(Last { generation: turn.generation, end });
        self.note(server, Note { building: false, made: wanted, last }, DEFINE)?;
        Ok(outcome(life))
    }

    /// Has the host plugged into the guest's networks.
    async fn plug(&self, want: &Definition) -> Result<(), Halt> {
        let plugged = self.connections.plug(want.server, &want.interfaces).await;
        plugged.map_err(|why| Halt::failed(NETWORK, why))
    }

    /// Takes the guest to the power state that is wanted, from whichever it is in. One that is shut
    /// off has no memory that could be kept: it stays so, and is reported so.
    async fn settle_power(
        &self,
        server: ServerId,
        power: Power,
        mut life: Life,
        turn: &Turn<'_>,
    ) -> Result<Life, Halt> {
        let hypervisor = &self.hypervisor;
        while let Some(next) = next(power, life) {
            turn.current()?;
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
        turn: &Turn<'_>,
    ) -> Result<Vec<Made>, Halt> {
        let wanted = made(want);
        let last = noted.last;
        let mut stale = noted.made;
        stale.extend(is.map(made).unwrap_or_default());
        stale.retain(|made| !wanted.contains(made));
        stale.sort_unstable();
        stale.dedup();
        let union = wanted.iter().chain(&stale).cloned().collect();
        let note = Note { building: fresh, made: union, last: last.clone() };
        self.note(want.server, note, DEFINE)?;
        for address in want.devices.iter().filter_map(pci) {
            if !self.sysfs.exists(&format!("bus/pci/devices/{address}")) {
                return Err(Halt::failed(
                    DEFINE,
                    format!("there is no PCI function {address} on this host"),
                ));
            }
        }
        for made in stale {
            turn.current()?;
            self.unmake(want.server, made).await.map_err(|error| Halt::failed(DESTROY, error))?;
        }
        for made in &wanted {
            turn.current()?;
            self.make(made.clone()).await.map_err(|error| Halt::failed(CREATE_MDEV, error))?;
        }
        let note = Note { building: fresh, made: wanted.clone(), last };
        self.note(want.server, note, DEFINE)?;
        Ok(wanted)
    }

    /// Carries out a one-shot verb on a guest and remembers it with the domain. Returns what the
    /// guest is then.
    async fn restart(
        &self,
        want: &Definition,
        verb: Verb,
        life: Life,
        turn: &Turn<'_>,
    ) -> Result<Life, Halt> {
        if verb == Verb::RebootSoft && life == Life::Running {
            match tokio::time::timeout(self.soft_reboot, self.hypervisor.reboot(want.server)).await
            {
                Ok(result) => {
                    // A failed reboot counts as tried: a later document must not restart the guest.
                    let result = result.map_err(Halt::from);
                    self.tried(want, &result, turn).await?;
                    return result.map(|()| Life::Running);
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
        self.connections.settle(server, &[]).await;
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
        (Power::Incoming | Power::AsIs, _) | (_, Life::Left) => return None,
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
