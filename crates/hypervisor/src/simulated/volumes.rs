//! Volumes of a simulated guest: those that its domain file names.
//!
//! The file `volume_held` in the host's directory contains the reason why guests do not release volumes, and
//! `volume_not_grown` the reason why their disks do not grow.

use super::{Simulated, failed};
use crate::{Definition, Error, HeldVolume, PluggedVolumes, Step};

impl Simulated {
    /// Determines which changes the guest would refuse. The caller then writes the definition,
    /// which applies the others.
    pub(super) async fn plug(&self, definition: &Definition) -> Result<PluggedVolumes, Error> {
        let step = Step::Volume;
        let xml = self.files.read(definition.server).map_err(failed(step))?;
        let before = Definition::from_xml(&xml)?;
        let mut plugged = PluggedVolumes::default();
        let wanted = |id| definition.sources.contains_key(&id);
        let gone = before.connected().filter(|(volume, _)| !wanted(volume.volume_id));
        if let Some(reason) = self.files.volume_held() {
            let held = |device: &str, volume| {
                let (device, reason) = (device.to_owned(), reason.clone());
                HeldVolume { volume, device, reason }
            };
            plugged.held = gone.map(|(one, _)| held(&one.device, one.volume_id)).collect();
        }
        let differs =
            |id| before.sources.get(id).is_some_and(|source| *source != definition.sources[id]);
        plugged.elsewhere = definition.sources.keys().filter(|id| differs(*id)).copied().collect();
        if let Some(reason) = self.files.volume_not_grown() {
            let size = |id| {
                let mut volumes = before.connected();
                volumes.find(|(one, _)| one.volume_id == id).map(|(one, _)| one.size_gb)
            };
            let grown = definition
                .connected()
                .filter(|(volume, _)| size(volume.volume_id).is_some_and(|is| is < volume.size_gb));
            plugged.not_grown =
                grown.map(|(volume, _)| (volume.volume_id, reason.clone())).collect();
        }
        let new = definition
            .connected()
            .filter(|(volume, _)| !before.sources.contains_key(&volume.volume_id));
        for (volume, _) in new {
            if let Err(error) = self.plan.step(step, &definition.config.display_name).await {
                plugged.refused.push((volume.volume_id, error.message));
            }
        }
        Ok(plugged)
    }
}
