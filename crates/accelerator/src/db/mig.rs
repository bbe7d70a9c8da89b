//! The GPU instances of cards in MIG mode: the slices that they occupy, and the vGPUs that still fit.
//!
//! The card's host reports the geometry and the foreign GPU instances. The instances of this cloud are read
//! from the rows of the handles, because the host creates an instance only after the claim.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::ProviderId;
use kilonova_node_api::{GpuInstance, Mig, MigPlacement};
use kilonova_packing::mig::{Geometry, Instances, Placement, Profile};
use kilonova_store::{Asked, Error, Row, Tx, params, statements};

use super::handles::MixedCard;
use crate::states::HandleState;

statements! {
    /// The geometry of a card.
    GEOMETRY = "SELECT address, mig FROM devices WHERE host = ?1 AND card = ?2 AND mig IS NOT NULL";
    /// The handles of a card's providers.
    HANDLES = "SELECT p.provider_id, h.address, h.mdev_type, h.state, h.present, h.mig_start,
        h.mig_size FROM devices d JOIN deployables p ON p.device_id = d.id
        JOIN attach_handles h ON h.deployable_id = p.id
        WHERE d.host = ?1 AND d.card = ?2 AND d.mig IS NOT NULL";
}

/// The geometry that a host reported.
///
/// # Errors
/// Returns the reason why the geometry is impossible.
pub(crate) fn geometry(mig: &Mig) -> Result<Geometry, String> {
    let placement = |one: &MigPlacement| Placement { start: one.start, size: one.size };
    let profiles = mig.profiles.iter().map(|profile| Profile {
        name: profile.name.clone(),
        // Unused: the memory slices decide what fits.
        compute: 0,
        most: profile.most,
        placements: profile.placements.iter().map(placement).collect(),
    });
    Geometry::new(mig.slices, profiles.collect()).map_err(|invalid| invalid.to_string())
}

/// The vGPU type of a provider, and counts of its handles.
struct Part {
    vgpu_type: String,
    present: usize,
    owned: usize,
}

/// A card in MIG mode.
pub(crate) struct MigCard {
    address: String,
    geometry: Geometry,
    /// The index of each vGPU type's profile in the geometry.
    profiles: BTreeMap<String, usize>,
    instances: Instances,
    /// Other occupied slices, with a name for the instance that occupies them.
    others: Vec<(Placement, String)>,
    parts: BTreeMap<ProviderId, Part>,
    /// The number of functions without a handle in use.
    free_functions: usize,
}

impl MigCard {
    /// The number of further vGPUs of a type that fit.
    pub fn fits(&self, vgpu_type: &str) -> usize {
        let profile = self.profiles.get(vgpu_type);
        let fits = profile.map_or(0, |profile| self.geometry.fits(*profile, &self.instances));
        fits.min(self.free_functions)
    }

    /// Claims the first placement for a vGPU of a type, if one is left.
    pub fn place(&mut self, vgpu_type: &str) -> Option<GpuInstance> {
        let profile = *self.profiles.get(vgpu_type)?;
        let place = self.geometry.place(profile, &self.instances)?;
        self.instances.add(profile, place).then(|| GpuInstance {
            card: self.address.clone(),
            profile: self.geometry.profiles()[profile].name.clone(),
            place: MigPlacement { start: place.start, size: place.size },
        })
    }

    /// The number of units of each provider that are not owned and do not fit.
    pub fn withheld(&self) -> BTreeMap<ProviderId, i64> {
        let withheld = |part: &Part| {
            let profile = self.profiles.get(&part.vgpu_type);
            let most = profile.map_or(0, |at| usize::from(self.geometry.profiles()[*at].most));
            let free = part.present.min(most).saturating_sub(part.owned);
            free.saturating_sub(self.fits(&part.vgpu_type)) as i64
        };
        self.parts.iter().map(|(provider, part)| (*provider, withheld(part))).collect()
    }

    /// Why no vGPU of these types fits, as the end of a sentence; `None` if one fits, or if the card has no instances.
    pub fn shortage<'a>(&self, mut types: impl Iterator<Item = &'a str>) -> Option<String> {
        if types.any(|vgpu_type| self.fits(vgpu_type) > 0) {
            return None;
        }
        if self.free_functions == 0 {
            return Some("all of its virtual functions are in use".to_owned());
        }
        let instances = self.instances();
        (!instances.is_empty()).then(|| format!("its GPU instances are {}", instances.join(", ")))
    }

    /// The instances, as `3g.20gb at slice 4`.
    fn instances(&self) -> Vec<String> {
        let name = |profile: usize| self.geometry.profiles()[profile].name.as_str();
        let placed = self.instances.placed().iter().map(|(of, place)| (*place, name(*of)));
        let others = self.others.iter().map(|(place, name)| (*place, name.as_str()));
        let mut all: Vec<_> = placed.chain(others).collect();
        all.sort();
        all.iter().map(|(place, name)| format!("{name} at slice {}", place.start)).collect()
    }
}

/// The reads of a card that [`ask`] has added to the transaction.
pub(crate) struct AskedCard([Asked; 2]);

/// Asks for a card; [`found`] reads the answer.
pub(crate) fn ask(tx: &mut Tx<'_>, card: &MixedCard) -> Result<AskedCard, Error> {
    let key = params![&card.host, &card.card].to_vec();
    Ok(AskedCard([tx.ask(GEOMETRY, &key)?, tx.ask(HANDLES, &key)?]))
}

/// The card, if it is in MIG mode.
pub(crate) fn found(
    tx: &mut Tx<'_>,
    AskedCard(asked): AskedCard,
) -> Result<Option<MigCard>, Error> {
    let [card, handles] = asked;
    let (card, handles) = (tx.answer_row(card)?, tx.answer(handles)?);
    card.map(|card| read(&card, &handles)).transpose()
}

/// Asks for a card and reads it.
pub(crate) fn of_card(tx: &mut Tx<'_>, card: &MixedCard) -> Result<Option<MigCard>, Error> {
    let asked = ask(tx, card)?;
    found(tx, asked)
}

fn read(card: &Row, handles: &[Row]) -> Result<MigCard, Error> {
    let unreadable = |why: String| Error::Shape(format!("column mig: {why}"));
    let mig: Mig =
        serde_json::from_str(card.text("mig")?).map_err(|why| unreadable(why.to_string()))?;
    let geometry = geometry(&mig).map_err(unreadable)?;
    let mut profiles = BTreeMap::new();
    for (at, profile) in mig.profiles.iter().enumerate() {
        profiles.extend(profile.vgpu_types.iter().map(|one| (one.clone(), at)));
    }
    let (mut instances, mut others) = (Instances::default(), Vec::new());
    for one in &mig.foreign {
        let place = Placement { start: one.start, size: one.size };
        instances.occupy(place);
        others.push((place, "a foreign one".to_owned()));
    }
    let mut parts: BTreeMap<ProviderId, Part> = BTreeMap::new();
    let (mut functions, mut held) = (BTreeSet::new(), BTreeSet::new());
    for row in handles {
        let vgpu_type = row.string("mdev_type")?;
        let state = HandleState::read(row, "state")?;
        let profile = profiles.get(&vgpu_type).copied();
        let new = || Part { vgpu_type, present: 0, owned: 0 };
        let part = parts.entry(row.id("provider_id")?).or_insert_with(new);
        part.present += usize::from(row.bool("present")?);
        functions.insert(row.string("address")?);
        match state {
            HandleState::Free => continue,
            HandleState::Owned => part.owned += 1,
            HandleState::Dirty | HandleState::Failed => {}
        }
        held.insert(row.string("address")?);
        if let (Some(start), Some(size)) = (row.int_opt("mig_start")?, row.int_opt("mig_size")?) {
            let slice = |number: i64| u8::try_from(number).unwrap_or(u8::MAX);
            let place = Placement { start: slice(start), size: slice(size) };
            // A type that the host no longer offers keeps its slices.
            if !profile.is_some_and(|profile| instances.add(profile, place)) {
                instances.occupy(place);
                others.push((place, format!("one of {}", part.vgpu_type)));
            }
        }
    }
    let free_functions = functions.difference(&held).count();
    let address = card.string("address")?;
    Ok(MigCard { address, geometry, profiles, instances, others, parts, free_functions })
}
