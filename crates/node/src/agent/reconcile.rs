//! Reconciles a server with its document.
//!
//! Every step is idempotent: it compares first and changes only what differs. If a step fails, a
//! guest that never reached its desired state is rolled back; a guest that has reached it is left
//! unchanged. The guest's own later changes are reported, not reverted.

use std::collections::HashSet;

use kilonova_devices::KernelObject;
use kilonova_hypervisor::{Definition, DomainState, FoundDisks, MigrationState};
use kilonova_ids::{OperationId, PortId, ServerId};
use kilonova_node_api::{
    Attachment, Domain, Interface, NO_DISK_STEP, Outcome, OutgoingMigration, Phase, Power,
    REBUILT_STEP, REMOVED_STEP, Verb,
};

use super::metadata;
use super::notes::{End, Last, Note};
use super::volumes::{must_start, reboots_hard};
use super::work::{Applied, Halt, Turn, Work};

const CREATE_MDEV: &str = "create_mdev";
const DEFINE: &str = "define";
const DESTROY: &str = "destroy";
const NETWORK: &str = "network";

const REMOVED: &str = "this host has removed the guest and its disks at the request of a later document, which the \
    database of the controller has lost. No empty guest is created in its place. Delete the server; or, if its data \
    is not needed, rebuild it or reboot it hard, which creates it anew. If the server still has a guest on another \
    host, `kilonova doctor` reports it";
const NO_DISK: &str = "this host has neither the guest nor its root disk, and no empty guest is created in its place. \
    If its data is not needed, rebuild the server or reboot it hard, which creates it anew; otherwise find its disk \
    first";
const REBUILT: &str = "this host has rebuilt the guest at the request of a later document, which the database of the \
    controller has lost. The guest and its disks stay as they are, because this document would replace the disks. \
    Save their data, if it is needed, from the guest or from the disks; then rebuild the server, which replaces the \
    disks, or delete it";

const NOT_REBUILT: &str = "the document says that the guest was rebuilt, but this host has its disks from before the \
    rebuild. They stay as they are, and are not replaced by empty ones. Save their data, if it is needed, from the \
    disks; then rebuild the server or reboot it hard, which replaces them, or delete it";

const ARRIVED: &str = "this host has the disks of the guest, which has arrived here at the request of a later document, which \
    the database of the controller has lost. They are not replaced by empty disks for another live migration";

/// The actual domain.
struct Now {
    /// `None` if the domain's XML cannot be parsed.
    definition: Option<Definition>,
    state: DomainState,
}

/// The disks of a guest without a domain.
#[derive(Clone, Copy, Default)]
struct Disks {
    /// True if the host has any, which a rollback must not remove.
    found: bool,
    /// True if they stay.
    kept: bool,
}

/// The outcome that reports a state.
pub(super) fn outcome(state: DomainState) -> Outcome {
    match state {
        DomainState::Shutoff => Outcome::Stopped,
        DomainState::Running => Outcome::Running,
        DomainState::Paused => Outcome::Paused,
        DomainState::Saved => Outcome::Suspended,
        DomainState::MigratedOut => Outcome::MigratedOut,
        DomainState::Incoming => Outcome::Ready,
    }
}

impl Work {
    async fn now(&self, server: ServerId) -> Result<Option<Now>, Halt> {
        Ok(self.hypervisor.domain(server).await?.map(|found| Now {
            definition: found.definition().map_err(|error| tracing::warn!(%server, %error)).ok(),
            state: found.state,
        }))
    }

    pub(super) async fn present(
        &self,
        server: ServerId,
        domain: &Domain,
        turn: &Turn<'_>,
    ) -> Result<Applied, Halt> {
        if domain.power == Power::AsIs {
            return self.as_is(server).await.map(Applied::of);
        }
        let mut definition = Definition::of(server, domain);
        let now = self.now(server).await?;
        let is = now.as_ref().and_then(|now| now.definition.as_ref());
        if now.is_none() {
            definition.kept_machine_type.clone_from(&domain.kept_machine_type);
        }
        self.name_groups(&mut definition, is);
        let state = now.as_ref().map_or(DomainState::Shutoff, |now| now.state);
        if state == DomainState::MigratedOut {
            return Ok(Applied::of(Outcome::MigratedOut));
        }
        if let Some(is) = now.as_ref().and_then(|now| now.definition.as_ref()) {
            self.check_rebuilt(&mut definition, is, turn)?;
        }
        if let Some(migration) = &domain.outgoing_migration {
            return self.migrate_guest(server, migration, state).await.map(Applied::of);
        }
        let noted = self.notes.get(server);
        let disks = match now {
            None => self.check_new(&mut definition, domain, noted.as_ref(), turn).await?,
            Some(_) => Disks::default(),
        };
        if state.is_up() {
            self.hypervisor.abort_migration(server).await?;
        }
        let last = noted.as_ref().and_then(|note| note.last.clone());
        match last.filter(|last| last.generation == turn.generation).map(|last| last.end) {
            Some(End::Failed { step, message }) => return Err(Halt::Failed { step, message }),
            Some(End::Reached(_)) => {
                let is = now.as_ref().and_then(|now| now.definition.as_ref());
                if let Some(is) = is.filter(|is| is.same_machine(&definition)) {
                    return self
                        .check_existing(&definition, is, noted.unwrap_or_default(), state, turn)
                        .await;
                }
            }
            None => {}
        }
        // The rollback of an existing guest would remove its disks, which may be here without a domain and a note.
        let is_new = now.is_none() && !disks.found;
        let fresh = !domain.existing && noted.as_ref().map_or(is_new, |note| note.building);
        let here;
        let domain = if domain.from.is_some() && (disks.kept || domain.requires_guest()) {
            here = Domain { from: None, ..domain.clone() };
            &here
        } else {
            domain
        };
        let noted = noted.unwrap_or_default();
        let result = self.reconcile(definition, domain, now, noted, fresh, turn).await;
        if fresh
            && let Err(Halt::Failed { .. }) = &result
            && let Err(halt) = self.absent(server).await
        {
            tracing::warn!(host = %self.host(), %server, ?halt, "rollback of a partial build failed");
        }
        result
    }

    /// Adds the names of the guest's security groups for its config drive. On Kilonova's own networks, the packet
    /// filters contain them; until the agent has the filters, the recorded names stay.
    fn name_groups(&self, definition: &mut Definition, is: Option<&Definition>) {
        let config = &mut definition.config;
        let known = metadata::security_groups(&self.connections.filters(), &config.interfaces);
        if let Some(names) = known {
            config.guest.security_groups = names;
        } else if let Some(is) = is.filter(|_| config.guest.security_groups.is_empty()) {
            config.guest.security_groups.clone_from(&is.config.guest.security_groups);
        }
    }

    /// Refuses to create a guest that must not be created: one that the host has removed since the document was issued,
    /// one whose disks should exist and do not, or one whose disks here would be replaced for a document that requests
    /// no rebuild.
    ///
    /// A rebuild stores no data on the host for a guest whose root disk is a volume. Such a guest follows the document, but
    /// keeps the rebuild of its other disks, so that they stay too.
    ///
    /// The disks of a guest should exist if the document says so, or if the host has carried out the document or a later
    /// one: only the first delivery of a document creates disks. An outgoing migration and [`Power::AsIs`] never create a
    /// guest; an incoming one is refused too, because its migration has ended.
    async fn check_new(
        &self,
        definition: &mut Definition,
        domain: &Domain,
        noted: Option<&Note>,
        turn: &Turn<'_>,
    ) -> Result<Disks, Halt> {
        let (server, rebuilt) = (definition.server, definition.config.boot.rebuilt);
        if self.removals.of(server).is_some_and(|removal| turn.generation < removal) {
            return Err(Halt::failed(REMOVED_STEP, REMOVED));
        }
        let is_carried_out = noted.is_some_and(|note| is_carried_out(note, turn));
        let found = self.hypervisor.find_disks(definition).await?;
        let disks = |kept| Disks { found: found != FoundDisks::None, kept };
        if domain.power == Power::Incoming {
            if is_carried_out && found != FoundDisks::None {
                return Err(Halt::failed(DEFINE, ARRIVED));
            }
            return Ok(disks(false));
        }
        // Documents with a verb are for a guest that the host has: a move brings it without one.
        let is_here = domain.existing || is_carried_out || domain.verb.is_some();
        let needs_disk =
            (is_carried_out || domain.existing) && !definition.config.is_volume_backed();
        match found {
            FoundDisks::Kept => return Ok(disks(is_here || domain.from.is_none())),
            FoundDisks::OfRebuild(earlier) => {
                let is_move = domain.from.is_some() && !is_here;
                let is_new = rebuilt.is_some() && !self.rebuilds.is_superseded(server, rebuilt);
                if !is_move && !is_new {
                    if !has_volume_root(definition) {
                        return Err(Halt::failed(REBUILT_STEP, REBUILT));
                    }
                    definition.config.boot.rebuilt = earlier;
                    return Ok(disks(true));
                }
                if needs_disk {
                    return Err(Halt::failed(DEFINE, NOT_REBUILT));
                }
                self.record_rebuild(server, earlier, rebuilt)?;
            }
            FoundDisks::None if needs_disk => return Err(Halt::failed(NO_DISK_STEP, NO_DISK)),
            FoundDisks::None => {}
        }
        Ok(disks(false))
    }

    /// Refuses a document from before a rebuild of the guest, because it would replace the newer disks. If the document
    /// is older than a removal of the guest from this host, another host may have rebuilt the guest meanwhile. The
    /// document's rebuild is then recorded as superseded, because later documents may still name it.
    ///
    /// A rebuild stores no data on the host for a guest whose root disk is a volume. Such a guest follows the document,
    /// but keeps the rebuild that it has, so that its other disks stay too.
    fn check_rebuilt(
        &self,
        definition: &mut Definition,
        is: &Definition,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        let server = definition.server;
        let (rebuilt, wanted) = (is.config.boot.rebuilt, definition.config.boot.rebuilt);
        if rebuilt == wanted {
            return Ok(());
        }
        if self.removals.of(server).is_some_and(|removal| turn.generation < removal) {
            if let Err(error) = self.rebuilds.record(server, wanted, rebuilt) {
                tracing::warn!(host = %self.host(), %server, %error, "could not record a rebuild");
            }
        } else if !self.rebuilds.is_superseded(server, wanted) {
            return Ok(());
        }
        if has_volume_root(definition) {
            definition.config.boot.rebuilt = rebuilt;
            return Ok(());
        }
        Err(Halt::failed(REBUILT_STEP, REBUILT))
    }

    /// Records a rebuild before it replaces the guest's disks, so that a crash cannot lose the record. If the record
    /// cannot be written, the disks are not replaced.
    fn record_rebuild(
        &self,
        server: ServerId,
        earlier: Option<OperationId>,
        later: Option<OperationId>,
    ) -> Result<(), Halt> {
        if earlier == later {
            return Ok(());
        }
        self.rebuilds
            .record(server, earlier, later)
            .map_err(|error| Halt::failed(DEFINE, format!("{}: {error}", self.state.display())))
    }

    /// Reports the guest's state. The guest is not changed, except that a migration is aborted.
    async fn as_is(&self, server: ServerId) -> Result<Outcome, Halt> {
        let state =
            |found: Option<kilonova_hypervisor::DefinedDomain>| found.map(|found| found.state);
        let mut is = state(self.hypervisor.domain(server).await?);
        if is.is_some_and(DomainState::is_up) {
            let stays = self.hypervisor.abort_migration(server).await;
            is = state(self.hypervisor.domain(server).await?);
            if is.is_some_and(DomainState::is_up) {
                stays?;
            }
        }
        Ok(is.map_or(Outcome::Absent, outcome))
    }

    /// Checks a guest that had reached its desired state. Recreates devices that a reboot of the
    /// host removed. If a device cannot be recreated, the guest's next start fails.
    async fn check_existing(
        &self,
        definition: &Definition,
        is: &Definition,
        noted: Note,
        state: DomainState,
        turn: &Turn<'_>,
    ) -> Result<Applied, Halt> {
        if let Err(Halt::Failed { message, .. }) = self.plug(definition).await {
            tracing::warn!(host = %self.host(), server = %definition.server, %message, "a guest lacks a network");
        }
        match self.devices(definition, Some(is), noted, false, turn).await {
            Err(Halt::Failed { step, message }) => {
                tracing::warn!(host = %self.host(), server = %definition.server, %step, %message, "a guest lacks a device");
            }
            Err(halt) => return Err(halt),
            Ok(_) => {}
        }
        let volumes = Some(self.check_volumes(definition, is).await);
        Ok(Applied { outcome: outcome(state), found: true, volumes })
    }

    async fn reconcile(
        &self,
        mut definition: Definition,
        domain: &Domain,
        now: Option<Now>,
        noted: Note,
        fresh: bool,
        turn: &Turn<'_>,
    ) -> Result<Applied, Halt> {
        let server = definition.server;
        let mut state = now.as_ref().map_or(DomainState::Shutoff, |now| now.state);
        let is = now.as_ref().and_then(|now| now.definition.as_ref());
        let same = is.is_some_and(|is| is.same_machine(&definition));
        if state != DomainState::Shutoff && !same {
            turn.current()?;
            self.hypervisor.destroy(server).await?;
            state = DomainState::Shutoff;
        }
        let reached = !fresh && is.is_some_and(|is| is_reached(&definition, domain, is, state));
        match self.plug(&definition).await {
            // The rollback of a failed change must not fail for the same reason as the change.
            Err(Halt::Failed { message, .. }) if reached => {
                tracing::warn!(host = %self.host(), %server, %message, "a guest lacks a network");
            }
            plugged => plugged?,
        }
        // A guest that is defined again has its verb behind it.
        let is_again = now.is_none() && is_carried_out(&noted, turn);
        let done = if fresh || is_again { definition.done } else { is.and_then(|is| is.done) };
        let reboots = reboots_hard(domain, done);
        let must = fresh || must_start(domain, state, reboots);
        let mut deviations =
            self.connect_volumes(&mut definition, is, must, state.is_up(), turn).await?;
        // Shutting a guest off releases its volumes.
        let plugs = state.is_up() && !reboots && domain.power != Power::Off;
        if plugs && self.has_volumes(&definition, is) {
            self.plug_volumes(&mut definition, &mut deviations, turn).await?;
        }
        let definition = &definition;
        let wanted = self.devices(definition, is, noted, fresh, turn).await?;
        if now.is_none()
            && let Err(error) = self.rebuilds.record_new(server, definition.config.boot.rebuilt)
        {
            tracing::warn!(host = %self.host(), %server, %error, "could not record a rebuild");
        }
        if now.is_none()
            && let Some(from) = &domain.from
        {
            turn.current()?;
            if domain.power == Power::Incoming {
                self.hypervisor.prepare_incoming_disks(definition, from).await?;
            } else {
                self.hypervisor.fetch(definition, from).await?;
                turn.say(Phase::Spawning);
            }
        } else if now.is_none() || is.is_some_and(|is| is.config.boot != definition.config.boot) {
            turn.current()?;
            if let Some(is) = is {
                let (earlier, later) = (is.config.boot.rebuilt, definition.config.boot.rebuilt);
                self.record_rebuild(server, earlier, later)?;
            }
            self.hypervisor.prepare(definition).await?;
            let anew = is.is_none_or(|is| is.config.boot.rebuilt != definition.config.boot.rebuilt);
            if anew && definition.config.boot.rebuilt.is_some() {
                turn.say(Phase::Spawning);
            }
        }
        if definition.config.rescue.is_some()
            && is.is_none_or(|is| is.config.rescue != definition.config.rescue)
        {
            turn.current()?;
            self.hypervisor.prepare_rescue_disk(definition).await?;
        }
        let next = Definition { done, ..definition.clone() };
        if is != Some(&next.without_secrets()) {
            turn.current()?;
            if let Some(is) = is.filter(|_| !state.is_up()) {
                self.connections.unplug(server, &detached(is, &next)).await;
            }
            self.hypervisor.define(&next).await?;
            self.metadata.forget(server);
            self.machine_types.forget(server);
        }
        self.connections.set_exactly(server, &definition.config.interfaces).await;
        let due = domain.verb.filter(|(operation, _)| done != Some(*operation));
        if let Some((_, verb @ (Verb::RebootSoft | Verb::RebootHard))) = due {
            if state != DomainState::Shutoff && domain.power == Power::On {
                turn.current()?;
                state = self.restart(definition, verb, state, turn).await?;
            } else {
                self.hypervisor.define(definition).await?;
                self.metadata.forget(server);
            }
        }
        if domain.power == Power::Incoming && !state.is_up() {
            turn.current()?;
            self.hypervisor.prepare_incoming(server).await?;
            self.note(server, Note { building: false, made: wanted, last: None }, DEFINE)?;
            let volumes = Some(self.settle_volumes(definition, &mut deviations).await);
            return Ok(Applied { volumes, ..Applied::of(Outcome::Ready) });
        }
        let state = self.settle_power(server, domain, state, turn).await?;
        match due {
            Some((_, Verb::Snapshot { image })) => self.snapshot(definition, image, turn).await?,
            Some((_, Verb::Guest(verb))) => self.guest_verb(definition, verb, turn).await?,
            _ => {}
        }
        let volumes = Some(self.settle_volumes(definition, &mut deviations).await);
        let settled = !matches!(state, DomainState::MigratedOut | DomainState::Incoming)
            && deviations.is_empty();
        // A guest that waits for its ports is not running, so each periodic check reports it again.
        let end = End::Reached(domain.power);
        let last = settled.then_some(Last { generation: turn.generation, end });
        self.note(server, Note { building: false, made: wanted, last }, DEFINE)?;
        Ok(Applied { volumes, ..Applied::of(outcome(state)) })
    }

    /// Sets up the guest's networks.
    async fn plug(&self, definition: &Definition) -> Result<(), Halt> {
        let plugged =
            self.connections.set_up(definition.server, &definition.config.interfaces).await;
        plugged.map_err(|why| Halt::failed(NETWORK, why))
    }

    /// Moves the guest to the desired power state. A guest that is shut off has no memory to pause
    /// or suspend: it stays shut off and is reported as such.
    async fn settle_power(
        &self,
        server: ServerId,
        domain: &Domain,
        mut state: DomainState,
        turn: &Turn<'_>,
    ) -> Result<DomainState, Halt> {
        let hypervisor = &self.hypervisor;
        while let Some(next) = next(domain.power, domain.starts_paused, state) {
            turn.current()?;
            match (state, next) {
                (DomainState::Incoming, DomainState::Running | DomainState::Paused) => {
                    hypervisor.finish_incoming(server, next).await?;
                }
                (DomainState::Shutoff, DomainState::Paused) => {
                    hypervisor.start_paused(server).await?;
                }
                (DomainState::Shutoff, _) => hypervisor.start(server).await?,
                (DomainState::Paused, DomainState::Running) => hypervisor.unpause(server).await?,
                (DomainState::Saved, DomainState::Running) => hypervisor.resume(server).await?,
                (_, DomainState::Paused) => hypervisor.pause(server).await?,
                (_, DomainState::Saved) => hypervisor.suspend(server).await?,
                (DomainState::Running, _) => hypervisor.stop(server).await?,
                (_, _) => hypervisor.destroy(server).await?,
            }
            state = next;
        }
        Ok(state)
    }

    /// Starts or continues a live migration; returns immediately.
    async fn migrate_guest(
        &self,
        server: ServerId,
        migration: &OutgoingMigration,
        state: DomainState,
    ) -> Result<Outcome, Halt> {
        if !state.is_up() {
            return Err(Halt::failed("migrate", "the guest is not running"));
        }
        Ok(match self.hypervisor.migrate_out(server, migration).await? {
            MigrationState::InProgress(progress) => Outcome::MigratingOut(progress),
            MigrationState::Completed => Outcome::MigratedOut,
        })
    }

    /// Creates the missing devices and removes those that are no longer desired.
    async fn devices(
        &self,
        definition: &Definition,
        is: Option<&Definition>,
        noted: Note,
        fresh: bool,
        turn: &Turn<'_>,
    ) -> Result<Vec<KernelObject>, Halt> {
        let wanted = made(definition);
        let last = noted.last;
        let mut stale = noted.made;
        stale.extend(is.map(made).unwrap_or_default());
        stale.retain(|made| !wanted.contains(made));
        stale.sort_unstable();
        stale.dedup();
        let union = wanted.iter().chain(&stale).cloned().collect();
        let note = Note { building: fresh, made: union, last: last.clone() };
        self.note(definition.server, note, DEFINE)?;
        for address in definition.config.devices.iter().filter_map(pci) {
            if !self.sysfs.exists(&format!("bus/pci/devices/{address}")) {
                return Err(Halt::failed(
                    DEFINE,
                    format!("there is no PCI function {address} on this host"),
                ));
            }
        }
        for made in stale {
            turn.current()?;
            self.unmake(definition.server, made)
                .await
                .map_err(|error| Halt::failed(DESTROY, error))?;
        }
        for made in &wanted {
            turn.current()?;
            self.make(made.clone()).await.map_err(|error| Halt::failed(CREATE_MDEV, error))?;
        }
        let note = Note { building: fresh, made: wanted.clone(), last };
        self.note(definition.server, note, DEFINE)?;
        Ok(wanted)
    }

    /// Carries out a reboot and records it in the domain. Returns the resulting state.
    async fn restart(
        &self,
        definition: &Definition,
        verb: Verb,
        state: DomainState,
        turn: &Turn<'_>,
    ) -> Result<DomainState, Halt> {
        if verb == Verb::RebootSoft && state == DomainState::Running {
            match tokio::time::timeout(self.soft_reboot, self.hypervisor.reboot(definition.server))
                .await
            {
                Ok(Ok(())) => {
                    self.tried(definition, &Ok(()), turn).await?;
                    return Ok(DomainState::Running);
                }
                // As upstream (`reboot` in `nova/virt/libvirt/driver.py`).
                Ok(Err(error)) => {
                    tracing::info!(server = %definition.server, %error, "the guest could not be rebooted; resetting it")
                }
                Err(_) => {
                    tracing::info!(server = %definition.server, "the guest did not reboot in time; resetting it")
                }
            }
        }
        self.hypervisor.destroy(definition.server).await?;
        self.hypervisor.define(definition).await?;
        self.metadata.forget(definition.server);
        Ok(DomainState::Shutoff)
    }

    /// Removes the guest at the request of a document. The removal is recorded first, so that a crash cannot lose the
    /// record. A full disk must not prevent a removal, which frees space: the record is then written afterwards,
    /// or with the next removal if the state directory is still full.
    pub(super) async fn remove(&self, server: ServerId, generation: i64) -> Result<Outcome, Halt> {
        if let Err(error) = self.removals.record(server, generation) {
            tracing::warn!(host = %self.host(), %server, %error, "could not record a removal in advance");
        }
        let outcome = self.absent(server).await?;
        if let Err(error) = self.removals.record(server, generation) {
            tracing::error!(
                host = %self.host(), %server, %error,
                "could not record a removal in {}: free space there. Until the next removal is recorded, a restart of the \
                 agent forgets it",
                self.state.display()
            );
            self.removals.keep(server, generation);
        }
        Ok(outcome)
    }

    /// Removes everything of the server from the host.
    pub(super) async fn absent(&self, server: ServerId) -> Result<Outcome, Halt> {
        let now = self.now(server).await?;
        let mut made = self.notes.get(server).unwrap_or_default().made;
        if let Some(now) = &now {
            made.extend(now.definition.as_ref().map(self::made).unwrap_or_default());
            if now.state != DomainState::Shutoff {
                self.hypervisor.destroy(server).await?;
            }
            // The definition names the interfaces until nothing is left of them.
            if let Some(definition) = &now.definition {
                self.connections.unplug(server, &definition.config.interfaces).await;
            }
        }
        made.sort_unstable();
        made.dedup();
        for made in made {
            self.unmake(server, made).await.map_err(|error| Halt::failed(DESTROY, error))?;
        }
        self.hypervisor.undefine(server).await?;
        self.metadata.forget(server);
        self.machine_types.forget(server);
        self.connections.set_exactly(server, &[]).await;
        self.release_volumes(server).await?;
        self.order_log
            .forget(server)
            .and_then(|()| self.notes.remove(server))
            .map_err(|error| Halt::failed(DESTROY, format!("{}: {error}", self.state.display())))?;
        Ok(Outcome::Absent)
    }
}

/// True if the host has carried out the document, or a later one of the server.
fn is_carried_out(note: &Note, turn: &Turn<'_>) -> bool {
    !note.building && note.last.as_ref().is_some_and(|last| turn.generation <= last.generation)
}

/// The interfaces that a guest had and no longer has.
fn detached(is: &Definition, next: &Definition) -> Vec<Interface> {
    let kept: HashSet<PortId> = next.config.interfaces.iter().map(|one| one.port).collect();
    is.config.interfaces.iter().filter(|one| !kept.contains(&one.port)).cloned().collect()
}

/// True if the guest's root disk is a volume. While Cinder replaces the volume's data, the document does not name the
/// volume; it then has neither an image nor a size for a local disk.
fn has_volume_root(definition: &Definition) -> bool {
    let boot = &definition.config.boot;
    definition.config.is_volume_backed() || (boot.image.is_none() && boot.root_gb == 0)
}

/// True if a guest is as its document requests, so that only its networks, its volumes' connections and its devices can
/// need repair.
fn is_reached(
    definition: &Definition,
    domain: &Domain,
    is: &Definition,
    state: DomainState,
) -> bool {
    is.config == definition.without_secrets().config
        && domain.verb.is_none_or(|(operation, _)| is.done == Some(operation))
        && domain.power != Power::Incoming
        && next(domain.power, domain.starts_paused, state).is_none()
}

/// The next state on the way to the desired power state; `None` if it is reached or unreachable.
fn next(power: Power, starts_paused: bool, state: DomainState) -> Option<DomainState> {
    let next = match (power, state) {
        (Power::Incoming | Power::AsIs, _) | (_, DomainState::MigratedOut) => return None,
        (Power::On, DomainState::Shutoff | DomainState::Paused) if starts_paused => {
            DomainState::Paused
        }
        (Power::On, _) => DomainState::Running,
        (Power::Off, _) | (_, DomainState::Shutoff) => DomainState::Shutoff,
        (Power::Paused, DomainState::Saved) => DomainState::Running,
        (Power::Paused, _) => DomainState::Paused,
        (Power::Suspended, _) => DomainState::Saved,
    };
    (next != state).then_some(next)
}

fn made(definition: &Definition) -> Vec<KernelObject> {
    definition.config.devices.iter().flat_map(KernelObject::of).collect()
}

fn pci(device: &Attachment) -> Option<&str> {
    match device {
        Attachment::Pci { address } | Attachment::Vfio { address, .. } => Some(address),
        Attachment::Mdev { .. } | Attachment::TestPci { .. } => None,
    }
}
