//! The next call for a server's volumes, derived from its rows and the documents of its hosts.
//! Pure: the worker derives it anew after each call, so a crash between two calls loses nothing.
//!
//! ```text
//!   make ─► reserve ─► connect ─► deliver ─(host reports)─► complete
//!                         └─ given up: reserve another, then end ─► connect elsewhere
//!   data replaced: deliver without it ─(host reports)─► reserve another, then end ─► reimage ─► connect
//!   detached or failed: deliver without it ─(host reports, or is left)─► end ─► drop the volume ─► forget
//!   gone: end ─► drop the volume ─► forget
//! ```
//!
//! An attachment that the server still needs ends only after the volume has another one, so the
//! volume never becomes available meanwhile. A volume is connected to a second host only for a live
//! migration; any other move waits until the first host has disconnected it.
//!
//! A host that is down may still run the guest, which then writes to its volumes. A volume that is detached from a server
//! of such a host therefore stays attached until the host reports again, or until the server is evacuated.

use std::collections::HashSet;

use kilonova_compute_db::volumes::{AttachmentRow, BlockDevice, Phase, Plug, RowId, Source, State};
use kilonova_ids::{AttachmentId, BlockDeviceId, HostName};

/// A host with a document of the server.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    pub host: HostName,
    /// True if the document describes a guest.
    pub is_present: bool,
    /// True if the guest needs the server's volumes: it is the server's current guest, or one of the two in a live
    /// migration.
    pub wants: bool,
    /// True if the plan does not wait for the host.
    pub is_lost: bool,
    /// The volumes of the document: attachments with the sizes of their volumes.
    pub has: Vec<(AttachmentId, i64)>,
    /// True if the document is held back until it contains all volumes of the server.
    pub lacks: bool,
}

/// The rows and the documents of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Scene {
    /// True if the server is deleted, or never existed.
    pub is_gone: bool,
    /// True if it is shelved without a host.
    pub is_offloaded: bool,
    /// Its host.
    pub host: Option<HostName>,
    pub guests: Vec<Guest>,
    pub devices: Vec<BlockDevice>,
    pub attachments: Vec<AttachmentRow>,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Create the volume of a device.
    Make(BlockDeviceId),
    /// Reserve the volume of a device; first look up a reservation whose answer was lost.
    Reserve(BlockDeviceId, Option<RowId>),
    /// Look up the outcome of an obsolete reservation.
    Find(RowId),
    /// Connect a host.
    Connect(RowId, HostName),
    /// Reserve the volume of a device and connect a further host in one call; delete the leftovers
    /// of an earlier call whose answer was lost.
    Join(BlockDeviceId, HostName, Option<RowId>),
    /// Write the document of a host again.
    Deliver(HostName),
    /// Replace the data of a device's volume with an image's.
    Reimage(BlockDeviceId),
    /// Report to Cinder that the server uses the volume.
    Complete(RowId),
    /// End an attachment.
    End(RowId),
    /// Call `os-roll_detaching`, because the detachment failed or was interrupted.
    RollDetaching(BlockDeviceId),
    /// Delete the volume of a device.
    DeleteVolume(BlockDeviceId),
    /// Delete a device's row.
    Forget(BlockDeviceId),
}

impl Scene {
    fn guest(&self, host: &HostName) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.host == *host)
    }

    /// True if documents must contain the device.
    pub(super) fn is_wanted(&self, device: &BlockDevice) -> bool {
        !self.is_gone
            && match device.phase {
                Phase::Attaching
                | Phase::Attached
                | Phase::BeginDetaching
                | Phase::RollDetaching => true,
                Phase::Requested | Phase::Detaching | Phase::Reimaging | Phase::Failed => false,
            }
    }

    /// The volumes that the document of a host can contain now, in order.
    pub(super) fn deliverable(&self, host: &HostName) -> Vec<(&BlockDevice, &AttachmentRow)> {
        let wants = self.guest(host).is_some_and(|guest| guest.is_present && guest.wants);
        let wanted = self.devices.iter().filter(|device| wants && self.is_wanted(device));
        let connected = wanted.filter_map(|device| {
            let row = self.attachments.iter().find(|row| {
                row.device == device.id
                    && row.host.as_ref() == Some(host)
                    && matches!(row.state, State::Connected | State::Complete)
            });
            row.map(|row| (device, row))
        });
        connected.collect()
    }

    /// True if every volume that the server has can be in the document of a host.
    pub(super) fn is_complete(&self, host: &HostName) -> bool {
        let wanted = self.devices.iter().filter(|device| self.is_wanted(device)).count();
        self.deliverable(host).len() == wanted
    }

    fn delivery(&self) -> Option<Next> {
        for guest in self.guests.iter().filter(|guest| guest.is_present) {
            let list: Vec<(AttachmentId, i64)> = self
                .deliverable(&guest.host)
                .into_iter()
                .filter_map(|(device, row)| Some((row.attachment?, device.size_gb)))
                .collect();
            let differs = list != guest.has;
            if guest.lacks {
                if !guest.wants || self.is_complete(&guest.host) {
                    return Some(Next::Deliver(guest.host.clone()));
                }
            } else if differs {
                return Some(Next::Deliver(guest.host.clone()));
            }
        }
        None
    }

    /// The next step; `None` if everything is done, or if a host has to report first. A device in `skipped` has no step:
    /// the steps of the others do not wait for it.
    pub(super) fn next(&self, skipped: &HashSet<BlockDeviceId>) -> Option<Next> {
        if let Some(delivery) = self.delivery() {
            return Some(delivery);
        }
        let mut devices = self.devices.iter().filter(|device| !skipped.contains(&device.id));
        devices.find_map(|device| self.next_of(device))
    }

    /// The device of a step; `None` for a step that concerns all devices.
    pub(super) fn device_of(&self, step: &Next) -> Option<BlockDeviceId> {
        match step {
            Next::Make(id)
            | Next::Reserve(id, _)
            | Next::Join(id, ..)
            | Next::Reimage(id)
            | Next::RollDetaching(id)
            | Next::DeleteVolume(id)
            | Next::Forget(id) => Some(*id),
            Next::Find(row) | Next::Connect(row, _) | Next::Complete(row) | Next::End(row) => {
                self.attachments.iter().find(|one| one.id == *row).map(|row| row.device)
            }
            Next::Deliver(_) => None,
        }
    }

    fn next_of(&self, device: &BlockDevice) -> Option<Next> {
        let rows: Vec<&AttachmentRow> =
            self.attachments.iter().filter(|row| row.device == device.id).collect();
        if let Some(row) = rows.iter().find(|row| row.state == State::Ending) {
            return Some(Next::End(row.id));
        }
        if self.is_gone {
            return Some(self.ending(device, &rows));
        }
        match device.phase {
            Phase::Requested => Some(self.ending(device, &rows)),
            Phase::BeginDetaching | Phase::RollDetaching => Some(Next::RollDetaching(device.id)),
            Phase::Detaching | Phase::Failed => {
                let is_in_use = rows.iter().any(|row| self.may_have(row) && !self.is_left(row));
                (!is_in_use).then(|| self.ending(device, &rows))
            }
            Phase::Attaching | Phase::Attached => {
                let wanting = self.guests.iter().filter(|guest| guest.is_present && guest.wants);
                self.kept(device, &rows, &wanting.collect::<Vec<_>>())
            }
            // The guest of a host that is down may still run, and write to the volume.
            Phase::Reimaging if rows.iter().any(|row| self.may_have(row)) => None,
            Phase::Reimaging => self.kept(device, &rows, &[]).or_else(|| {
                let is_reserved = rows.iter().all(|row| row.host.is_none());
                is_reserved.then_some(Next::Reimage(device.id))
            }),
        }
    }

    /// The next step for a device that is being removed.
    fn ending(&self, device: &BlockDevice, rows: &[&AttachmentRow]) -> Next {
        if let Some(row) = rows.first() {
            return match row.state {
                State::Reserving => Next::Find(row.id),
                State::Reserved
                | State::Connecting
                | State::Connected
                | State::Complete
                | State::Ending => Next::End(row.id),
            };
        }
        let is_made = device.source != Source::Volume;
        // A volume that a user detaches is not deleted.
        let is_detached = device.phase == Phase::Detaching && !self.is_gone;
        if device.delete_on_termination && !is_detached && (is_made || device.volume.is_some()) {
            let is_existing_of_failed = !is_made && !self.is_gone;
            if !is_existing_of_failed {
                return Next::DeleteVolume(device.id);
            }
        }
        Next::Forget(device.id)
    }

    /// The device whose row is obsolete as soon as an attachment has ended.
    pub(super) fn last_of(&self, row: &AttachmentRow) -> Option<BlockDeviceId> {
        let device = self.devices.iter().find(|device| device.id == row.device)?;
        let is_removed = self.is_gone
            || matches!(device.phase, Phase::Requested | Phase::Detaching | Phase::Failed);
        let mut others = self.attachments.iter().filter(|one| one.id != row.id);
        let is_last = others.all(|one| one.device != device.id);
        let is_obsolete =
            is_removed && is_last && self.ending(device, &[]) == Next::Forget(device.id);
        is_obsolete.then_some(device.id)
    }

    /// True if the host of an unneeded attachment no longer uses its disk, or if the plan does not wait for the host.
    fn is_released(&self, row: &AttachmentRow) -> bool {
        let is_lost = |host| self.guest(host).is_some_and(|guest| guest.is_lost);
        row.host.as_ref().is_some_and(is_lost) || !self.may_have(row)
    }

    /// True if the server has left the host of an attachment, which is down: an operator, who must have made sure that the host
    /// is down, has evacuated it.
    fn is_left(&self, row: &AttachmentRow) -> bool {
        let Some(host) = &row.host else { return false };
        let mut others = self.guests.iter().filter(|guest| guest.host != *host);
        let is_elsewhere = self.is_offloaded || others.any(|guest| guest.is_present && guest.wants);
        is_elsewhere && self.guest(host).is_some_and(|guest| guest.is_lost && !guest.wants)
    }

    /// True if the host of an attachment may use its disk.
    fn may_have(&self, row: &AttachmentRow) -> bool {
        row.host.as_ref().is_some_and(|host| self.guest(host).is_some())
            && matches!(row.plug, Plug::Given | Plug::Plugged)
    }

    /// The next step for a device that the server keeps, given the guests that need it.
    fn kept(
        &self,
        device: &BlockDevice,
        rows: &[&AttachmentRow],
        wanting: &[&Guest],
    ) -> Option<Next> {
        if device.volume.is_none() {
            return Some(Next::Make(device.id));
        }
        // Applies to a host that is down too: its guest may still run there, with the disk open.
        let is_wanted_on = |host: &HostName| wanting.iter().any(|guest| guest.host == *host);
        if let Some(row) = rows.iter().find(|row| row.state == State::Reserving) {
            return Some(match &row.host {
                None => Next::Reserve(device.id, Some(row.id)),
                Some(host) if is_wanted_on(host) => {
                    Next::Join(device.id, host.clone(), Some(row.id))
                }
                Some(_) => Next::Find(row.id),
            });
        }
        let mut is_blocked = false;
        for row in rows {
            let Some(host) = &row.host else { continue };
            if is_wanted_on(host) {
                continue;
            }
            if !self.is_released(row) {
                is_blocked = true;
                continue;
            }
            return Some(if rows.len() > 1 {
                Next::End(row.id)
            } else {
                Next::Reserve(device.id, None)
            });
        }
        if let Some(row) = rows.iter().find(|row| row.state == State::Connecting)
            && let Some(host) = &row.host
        {
            return Some(Next::Connect(row.id, host.clone()));
        }
        let idle = rows.iter().find(|row| row.host.is_none());
        for guest in wanting {
            if rows.iter().any(|row| row.host.as_ref() == Some(&guest.host)) {
                continue;
            }
            if is_blocked {
                return None;
            }
            let is_connected = rows.iter().any(|row| row.host.is_some());
            return Some(match idle {
                // While a host is connected, Cinder connects another one only by creating a new
                // attachment.
                Some(row) if is_connected => Next::End(row.id),
                Some(row) => Next::Connect(row.id, guest.host.clone()),
                None if is_connected => Next::Join(device.id, guest.host.clone(), None),
                None => Next::Reserve(device.id, None),
            });
        }
        if rows.is_empty() {
            return Some(Next::Reserve(device.id, None));
        }
        if let Some(row) = idle
            && rows.len() > 1
        {
            return Some(Next::End(row.id));
        }
        self.completion(device, rows)
    }

    fn completion(&self, device: &BlockDevice, rows: &[&AttachmentRow]) -> Option<Next> {
        for row in rows {
            let is_used = match (&row.host, row.state) {
                (Some(host), State::Connected) => {
                    row.plug == Plug::Plugged && self.host.as_ref() == Some(host)
                }
                (None, State::Reserved) => self.is_offloaded && device.phase == Phase::Attaching,
                _ => false,
            };
            if is_used {
                return Some(Next::Complete(row.id));
            }
        }
        None
    }
}
