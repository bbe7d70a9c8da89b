//! A guest's volumes on the host: connected before the guest needs them, plugged into it while it runs,
//! and disconnected once it has released them.
//!
//! If a volume cannot be attached to a running guest, only the volume fails. A guest that must
//! start does not start unless all its volumes are connected. A volume that the guest already has
//! stays attached while its backend is temporarily unavailable.

use std::collections::BTreeSet;

use kilonova_hypervisor::{Definition, DomainState, HeldVolume, PluggedVolumes};
use kilonova_ids::{AttachmentId, ServerId, VolumeId};
use kilonova_node_api::{
    Domain, Power, VOLUME_STEP, Verb, Volume, VolumeSource, VolumeState, VolumeStatus,
};

use super::work::{Halt, Turn, Work};

/// The volumes that do not match the document.
#[derive(Default)]
pub(super) struct Deviations {
    failed: Vec<(Volume, String)>,
    held: Vec<HeldVolume>,
    /// Volumes that the running guest still uses through the attachments with which it started.
    /// These attachments stay until it starts again.
    in_use: Vec<VolumeId>,
    /// Volumes whose disks have not grown, with the reasons. They have their sizes at the guest's next start, so that
    /// they match the document.
    not_grown: Vec<(VolumeId, String)>,
}

impl Deviations {
    /// True if every volume matches the document.
    pub(super) fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.held.is_empty()
    }

    /// Removes a failed volume from the definition.
    fn fail(&mut self, definition: &mut Definition, id: VolumeId, why: String) {
        let volumes = &mut definition.config.volumes;
        if let Some(at) = volumes.iter().position(|volume| volume.volume_id == id) {
            self.failed.push((volumes.remove(at), why));
        }
        definition.sources.remove(&id);
    }
}

/// True if the guest needs its volumes because a start is due.
pub(super) fn must_start(domain: &Domain, state: DomainState, reboots: bool) -> bool {
    let starts = match domain.power {
        Power::On | Power::Incoming => matches!(state, DomainState::Shutoff | DomainState::Saved),
        Power::Paused => state == DomainState::Saved,
        Power::Suspended | Power::Off | Power::AsIs => false,
    };
    starts || (reboots && domain.power == Power::On)
}

/// True if a hard reboot is due, which reconnects the guest's volumes.
pub(super) fn reboots_hard(domain: &Domain, done: Option<kilonova_ids::OperationId>) -> bool {
    matches!(domain.verb, Some((operation, Verb::RebootHard)) if done != Some(operation))
}

impl Work {
    /// True if the guest has volumes, will get some, or may still have one after a crash.
    pub(super) fn has_volumes(&self, definition: &Definition, is: Option<&Definition>) -> bool {
        !definition.config.volumes.is_empty()
            || is.is_some_and(|is| !is.config.volumes.is_empty())
            || !self.volumes.attachments(definition.server).is_empty()
    }

    /// Connects the volumes of a definition and records their sources in it. A volume that cannot
    /// be connected is removed from the definition if the failure is tolerable.
    pub(super) async fn connect_volumes(
        &self,
        definition: &mut Definition,
        is: Option<&Definition>,
        must: bool,
        is_up: bool,
        turn: &Turn<'_>,
    ) -> Result<Deviations, Halt> {
        let (server, mut deviations) = (definition.server, Deviations::default());
        for volume in definition.config.volumes.clone() {
            turn.current()?;
            let id = volume.volume_id;
            let before = is.and_then(|is| is.sources.get(&id));
            let why = match self.connect_volume(server, &volume).await {
                Ok(source) => {
                    definition.sources.insert(id, source);
                    continue;
                }
                Err(why) => format!("volume {id}: {why}"),
            };
            match before {
                Some(source) if !must => {
                    deviations.in_use.extend(is_up.then_some(id));
                    tracing::warn!(host = %self.host(), %server, %why, "could not check a volume of a guest");
                    definition.sources.insert(id, source.clone());
                }
                None if !must && !volume.is_root() => deviations.fail(definition, id, why),
                _ => return Err(Halt::failed(VOLUME_STEP, why)),
            }
        }
        Ok(deviations)
    }

    async fn connect_volume(
        &self,
        server: ServerId,
        volume: &Volume,
    ) -> Result<VolumeSource, String> {
        let source = self.volumes.connect(server, volume).await?;
        let given = self.hypervisor.give_secret(server, volume, &source).await;
        given.map(|()| source).map_err(|error| error.message)
    }

    /// Attaches and detaches volumes of a guest that is up. A newer document ends the wait for the
    /// guest.
    pub(super) async fn plug_volumes(
        &self,
        definition: &mut Definition,
        deviations: &mut Deviations,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.current()?;
        let PluggedVolumes { refused, held, elsewhere, not_grown } = tokio::select! {
            biased;
            halt = turn.superseded() => return Err(halt),
            plugged = self.hypervisor.plug_volumes(definition) => plugged?,
        };
        for (id, why) in refused {
            tracing::warn!(host = %self.host(), server = %definition.server, volume = %id, %why, "could not attach a volume");
            deviations.fail(definition, id, why);
        }
        for one in &held {
            tracing::warn!(host = %self.host(), server = %definition.server, volume = %one.volume, why = %one.reason, "a guest does not release a volume");
        }
        deviations.held = held;
        deviations.in_use.extend(elsewhere);
        for (volume, why) in &not_grown {
            tracing::warn!(host = %self.host(), server = %definition.server, %volume, %why, "could not grow a guest's disk; the guest sees the new size at its next start");
        }
        deviations.not_grown = not_grown;
        Ok(())
    }

    /// Disconnects the volumes that the guest no longer has. Returns the state of each volume.
    pub(super) async fn settle_volumes(
        &self,
        definition: &Definition,
        deviations: &mut Deviations,
    ) -> Vec<VolumeState> {
        let server = definition.server;
        let attachments = self.volumes.attachments(server);
        let mut keep = attachments_of(definition);
        let held = |id: &VolumeId| {
            deviations.in_use.contains(id) || deviations.held.iter().any(|one| one.volume == *id)
        };
        keep.extend(attachments.iter().filter(|(_, volume)| held(volume)).map(|(id, _)| *id));
        let is_done = attachments.iter().all(|(id, _)| keep.contains(id));
        let stuck =
            if is_done { Vec::new() } else { self.volumes.disconnect_others(server, &keep).await };
        for stuck in stuck {
            let volume = stuck.volume.volume_id;
            tracing::warn!(host = %self.host(), %server, %volume, why = %stuck.reason, "could not disconnect a volume");
            let is_wanted = definition.sources.contains_key(&volume);
            if !is_wanted && !deviations.failed.iter().any(|(one, _)| one.volume_id == volume) {
                let (device, reason) = (stuck.volume.device, stuck.reason);
                deviations.held.push(HeldVolume { volume, device, reason });
            }
        }
        let attached = definition.connected().map(|(volume, source)| {
            let device = volume.device.clone();
            let mut not_grown = deviations.not_grown.iter();
            let not_grown = not_grown.find(|(id, _)| *id == volume.volume_id);
            let not_grown = not_grown.map(|(_, reason)| reason.clone());
            state(volume, VolumeStatus::Attached { device, source: source.clone(), not_grown })
        });
        let failed = deviations
            .failed
            .iter()
            .map(|(volume, reason)| state(volume, VolumeStatus::Failed { reason: reason.clone() }));
        let held = deviations.held.iter().map(|one| {
            let attachment = attachments.iter().find(|(_, volume)| *volume == one.volume);
            let (device, reason) = (one.device.clone(), one.reason.clone());
            VolumeState {
                volume_id: one.volume,
                attachment_id: attachment.map(|(id, _)| *id),
                status: VolumeStatus::Held { device, reason },
            }
        });
        attached.chain(failed).chain(held).collect()
    }

    /// Reconnects, as far as possible, the volumes of a guest that had reached its desired state: a reboot of the
    /// host may have disconnected them. Returns the state of each volume.
    pub(super) async fn check_volumes(
        &self,
        definition: &Definition,
        is: &Definition,
    ) -> Vec<VolumeState> {
        for volume in &definition.config.volumes {
            if let Err(why) = self.connect_volume(definition.server, volume).await {
                let volume = volume.volume_id;
                tracing::warn!(host = %self.host(), server = %definition.server, %volume, %why, "a guest lacks a volume");
            }
        }
        let mut now = definition.clone();
        now.sources.clone_from(&is.sources);
        self.settle_volumes(&now, &mut Deviations::default()).await
    }

    /// Disconnects all volumes of a server.
    pub(super) async fn release_volumes(&self, server: ServerId) -> Result<(), Halt> {
        if self.volumes.attachments(server).is_empty() {
            return Ok(());
        }
        match self.volumes.disconnect_others(server, &BTreeSet::new()).await.first() {
            None => Ok(()),
            Some(stuck) => {
                let why = format!("volume {}: {}", stuck.volume.volume_id, stuck.reason);
                Err(Halt::failed(VOLUME_STEP, why))
            }
        }
    }
}

fn attachments_of(definition: &Definition) -> BTreeSet<AttachmentId> {
    definition.config.volumes.iter().map(|volume| volume.attachment_id).collect()
}

fn state(volume: &Volume, status: VolumeStatus) -> VolumeState {
    let (volume_id, attachment_id) = (volume.volume_id, Some(volume.attachment_id));
    VolumeState { volume_id, attachment_id, status }
}
