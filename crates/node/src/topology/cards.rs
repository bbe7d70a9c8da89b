//! Builds a host's device tree from the cards of a topology file.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilonova_devices::{Function, PciAddress};
use kilonova_packing::mig::{self, Geometry};

use super::file::{Card as CardTable, CardEntry};
use super::read::Refusal;
use super::{Card, MdevType, Slot, Tree};
use kilonova_ids::ResourceClass;

/// The first VF is four functions after its PF.
const FIRST_VF: u32 = 4;

/// A card type, with the properties that are not in sysfs.
pub(super) struct KnownCard {
    card: Arc<Card>,
    resource_class: Option<ResourceClass>,
    traits: Vec<String>,
}

pub(super) fn card_of(name: &str, table: CardTable) -> Result<KnownCard, Refusal> {
    let key = |rest: &str| format!("card.{name}.{rest}");
    let hex = |field: &str, text: &str, digits: usize| {
        let fits = text.len() == digits
            && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if fits || (text.is_empty() && field != "class") {
            Ok(())
        } else {
            Err((key(field), format!("'{text}' must be {digits} lower-case hex digits")))
        }
    };
    hex("vendor", &table.vendor, 4)?;
    hex("product", &table.product, 4)?;
    hex("class", &table.class, 6)?;
    hex("vf_product", table.vf_product.as_deref().unwrap_or_default(), 4)?;
    for (field, files) in [("files", &table.files), ("vf_files", &table.vf_files)] {
        let wrong =
            |path: &&String| path.split('/').any(|part| part.is_empty() || part.starts_with('.'));
        if let Some(path) = files.keys().find(wrong) {
            return Err((key(field), format!("'{path}' is not a path below the card's directory")));
        }
    }
    let mut types = Vec::new();
    for (index, one) in table.types.into_iter().enumerate() {
        let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if one.id.is_empty() || one.id.starts_with('.') || !one.id.bytes().all(named) {
            return Err((
                key(&format!("types[{index}].id")),
                format!("'{}' is not the name of an mdev type", one.id),
            ));
        }
        if one.available_instances == 0 {
            return Err((
                key(&format!("types[{index}].available_instances")),
                "it must be at least 1".to_owned(),
            ));
        }
        types.push(MdevType {
            id: one.id,
            name: one.name,
            description: one.description,
            device_api: one.device_api,
            instances: one.available_instances,
            mig_profile: one.mig_profile,
        });
    }
    if table.resource_class.is_some() && !types.is_empty() {
        return Err((
            key("resource_class"),
            "a card with types cannot be passed through as a whole".to_owned(),
        ));
    }
    let numbered = |one: &MdevType| {
        let number = one.id.strip_prefix("nvidia-");
        number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
    };
    if table.vfio_types && !types.iter().all(numbered) {
        return Err((
            key("types"),
            "with vfio_types, the id of a type must be like nvidia-558".to_owned(),
        ));
    }
    types.sort_by(|a, b| a.id.cmp(&b.id));
    let mig = table.mig.as_deref().map(|written| geometry(&key("mig"), written)).transpose()?;
    let of_card = |one: &MdevType| match (&one.mig_profile, &mig) {
        (None, None) => true,
        (Some(profile), Some(mig)) => mig.find(profile).is_some(),
        (None, Some(_)) | (Some(_), None) => false,
    };
    if let Some(wrong) = types.iter().find(|one| !of_card(one)) {
        let why =
            format!("mig_profile of {} must be a profile of the card's mig geometry", wrong.id);
        return Err((key("types"), why));
    }
    if mig.is_some() && !table.vfio_types {
        return Err((key("mig"), "it needs vfio_types = true".to_owned()));
    }
    Ok(KnownCard {
        card: Arc::new(Card {
            vendor: table.vendor,
            vf_product: table.vf_product.unwrap_or_else(|| table.product.clone()),
            product: table.product,
            class: table.class,
            driver: table.driver,
            exclusive: table.exclusive_types,
            types,
            vfio_types: table.vfio_types,
            mig,
            files: table.files,
            vf_files: table.vf_files,
        }),
        resource_class: table.resource_class,
        traits: table.traits,
    })
}

/// The geometries that NVIDIA's MIG user guide lists, by name.
const GEOMETRIES: [(&str, mig::Card); 6] = [
    ("a30-24gb", mig::Card::A30),
    ("a100-40gb", mig::Card::A100),
    ("a100-80gb", mig::Card::A100Large),
    ("h100-80gb", mig::Card::A100Large),
    ("h200-141gb", mig::Card::H200),
    ("b200-180gb", mig::Card::B200),
];

fn geometry(key: &str, written: &str) -> Result<Geometry, Refusal> {
    let known = GEOMETRIES.iter().find(|(name, _)| *name == written);
    let (_, card) = known.ok_or_else(|| {
        let all: Vec<&str> = GEOMETRIES.iter().map(|(name, _)| *name).collect();
        (key.to_owned(), format!("'{written}' must be one of {}", all.join(", ")))
    })?;
    Geometry::new(card.slices(), card.profiles()).map_err(|why| (key.to_owned(), why.to_string()))
}

/// The device tree of a host, and the functions for passthrough.
pub(super) fn tree(
    key: &str,
    entries: &[CardEntry],
    cards: &BTreeMap<String, KnownCard>,
) -> Result<(Tree, Vec<Function>), Refusal> {
    let mut tree = Tree::default();
    let mut functions = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = format!("{key}.card[{index}]");
        let known = cards.get(&entry.card).ok_or_else(|| {
            (format!("{key}.card"), format!("unknown card [card.{}]", entry.card))
        })?;
        for address in &entry.addresses {
            let physical = add(&mut tree, &key, address.clone(), entry, known, None)?;
            for number in 0..entry.vfs {
                let place = PciAddress::parse(address).and_then(|pci| pci.plus(FIRST_VF + number));
                let place = place.ok_or_else(|| {
                    (format!("{key}.vfs"), format!("not enough addresses after {address}"))
                })?;
                let slot = add(&mut tree, &key, place.to_string(), entry, known, Some(physical))?;
                tree.slots[physical].virtuals.push(slot);
            }
            if let Some(resource_class) = &known.resource_class {
                functions.push(Function {
                    address: address.clone(),
                    resource_class: resource_class.clone(),
                    traits: known.traits.clone(),
                });
            }
        }
    }
    Ok((tree, functions))
}

fn add(
    tree: &mut Tree,
    key: &str,
    address: String,
    entry: &CardEntry,
    known: &KnownCard,
    physical: Option<usize>,
) -> Result<usize, Refusal> {
    let key = format!("{key}.addresses");
    let path = match PciAddress::parse(&address) {
        Some(pci) if pci.to_string() == address => {
            let above = match &entry.switch {
                Some(switch) => bridges(switch, &pci, entry).ok_or_else(|| {
                    (key.clone(), format!("'{switch}' is not the PCI address of a switch"))
                })?,
                None => format!("devices/pci{:04x}:{:02x}", pci.domain, pci.bus),
            };
            format!("{above}/{address}")
        }
        None if address
            .split('_')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric())) =>
        {
            format!("devices/virtual/{}", address.replace('_', "/"))
        }
        _ => {
            return Err((key, format!("'{address}' does not look like 0000:84:00.0 or mtty_mtty")));
        }
    };
    if tree.by_address(&address).is_some() {
        return Err((key, format!("{address} is used twice")));
    }
    let (numa_node, card) = (entry.numa_node, Arc::clone(&known.card));
    tree.slots.push(Slot { address, path, numa_node, card, physical, virtuals: Vec::new() });
    Ok(tree.slots.len() - 1)
}

/// The directory of the switch's downstream port above a card. The root port is on the bus before the upstream port's
/// bus, and the downstream ports are on the bus after it.
fn bridges(switch: &str, card: &PciAddress, entry: &CardEntry) -> Option<String> {
    let upstream = PciAddress::parse(switch).filter(|one| one.to_string() == switch)?;
    let root = PciAddress { bus: upstream.bus.checked_sub(1)?, ..upstream };
    let address = card.to_string();
    let number = entry.addresses.iter().position(|one| *one == address).unwrap_or(0);
    let device = u8::try_from(number).ok()?;
    let down = PciAddress { bus: upstream.bus.checked_add(1)?, device, function: 0, ..upstream };
    let bridge = format!("devices/pci{:04x}:{:02x}", root.domain, root.bus);
    Some(format!("{bridge}/{root}/{upstream}/{down}"))
}
