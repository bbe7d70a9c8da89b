//! GPU instances through the program `nvidia-smi`, which comes with NVIDIA's driver.
//!
//! No safe wrapper covers NVML's functions for GPU instances, and this repository uses `unsafe` only for libvirt. A
//! table in an unexpected form makes its card unreadable rather than a card without profiles. This module runs no other
//! program.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kilonova_node_api::{GpuInstance, MigPlacement};

use crate::mig::{InstanceProfile, InstanceType, MigCard, MigDriver, refused};
use crate::{Error, PciAddress};

/// The program's name.
const PROGRAM: &str = "nvidia-smi";
/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Polling interval of a call.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum length of the output that is read.
const MOST_OUTPUT: u64 = 16 * 1024 * 1024;

/// The driver of a real host.
#[derive(Debug, Clone)]
pub struct NvidiaSmi {
    program: PathBuf,
}

impl Default for NvidiaSmi {
    fn default() -> Self {
        Self { program: PROGRAM.into() }
    }
}

/// A profile with the number by which the program knows it.
struct Numbered {
    number: u32,
    profile: InstanceProfile,
}

/// An existing instance with its number.
struct Existing {
    number: u32,
    instance: GpuInstance,
}

impl NvidiaSmi {
    /// Uses another program with the same interface.
    pub fn with_program(program: PathBuf) -> Self {
        Self { program }
    }

    /// Runs the program and returns its output.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        // Both pipes are read, because the program blocks while one is full.
        let (text, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
        let late = || format!("{PROGRAM} {} takes too long", arguments.join(" "));
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if Instant::now() > end {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Err(late());
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        let left = || end.saturating_duration_since(Instant::now()).max(POLL_INTERVAL);
        let text = text.recv_timeout(left()).map_err(|_| late())?;
        if status.success() {
            return Ok(text);
        }
        let errors = errors.recv_timeout(left()).unwrap_or_default();
        let why: Vec<&str> = text.lines().chain(errors.lines()).map(str::trim).collect();
        Err(format!("{PROGRAM} {}: {}", arguments.join(" "), why.join(" ").trim()))
    }

    fn profiles(&self, card: &str) -> Result<Vec<Numbered>, String> {
        let places = places(&self.run(&["mig", "-lgipp", "-i", card])?)?;
        profiles(&self.run(&["mig", "-lgip", "-i", card])?, &places)
    }

    fn instances(&self, card: &str) -> Result<Vec<Existing>, String> {
        match self.run(&["mig", "-lgi", "-i", card]) {
            Ok(table) => instances(&table, card),
            // The program fails if there are no instances.
            Err(why) if why.contains("No GPU instances found") => Ok(Vec::new()),
            Err(why) => Err(why),
        }
    }

    fn card(&self, address: &str) -> Result<MigCard, String> {
        let profiles = self.profiles(address)?;
        let types = types(&self.run(&["vgpu", "-s", "-v", "-i", address])?, &profiles);
        let instances = self.instances(address)?;
        let places = profiles.iter().flat_map(|one| &one.profile.placements);
        Ok(MigCard {
            address: address.to_owned(),
            slices: places.map(|one| one.start.saturating_add(one.size)).max().unwrap_or(0),
            types,
            profiles: profiles.into_iter().map(|one| one.profile).collect(),
            instances: instances.into_iter().map(|one| one.instance).collect(),
            unreadable: None,
        })
    }
}

impl NvidiaSmi {
    /// The pairs of GPUs that are connected by NVLink, by address. Relies on the matrix of `nvidia-smi topo -m`, in
    /// which `NV` and a number stand for that many links.
    pub(crate) fn nvlinks(&self) -> Result<Vec<(String, String)>, String> {
        let list = self.run(&["--query-gpu=index,pci.bus_id", "--format=csv,noheader"])?;
        let mut addresses = BTreeMap::new();
        for line in list.lines().filter(|line| !line.trim().is_empty()) {
            let (index, address) = line.split_once(',').ok_or_else(|| unreadable(line))?;
            let address = address_of(address.trim()).ok_or_else(|| unreadable(line))?;
            addresses.insert(format!("GPU{}", index.trim()), address);
        }
        let matrix = self.run(&["topo", "-m"])?;
        let address = |name: &String| addresses.get(name).cloned();
        let named = |(one, other): &(String, String)| Some((address(one)?, address(other)?));
        let pairs = linked(&matrix)?;
        pairs.iter().map(|pair| named(pair).ok_or_else(|| unreadable(&pair.0))).collect()
    }
}

impl MigDriver for NvidiaSmi {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        let query = ["--query-gpu=pci.bus_id,mig.mode.current", "--format=csv,noheader"];
        let list = self.run(&query).map_err(Error::Mig)?;
        let cards = in_mig_mode(&list).map_err(Error::Mig)?;
        let read = |listed: MigCard| match listed.unreadable {
            Some(_) => listed,
            None => {
                let card = self.card(&listed.address);
                card.unwrap_or_else(|why| MigCard::unreadable(&listed.address, why))
            }
        };
        Ok(cards.into_iter().map(read).collect())
    }

    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        let wrong = |why| refused(instance, why);
        let there = self.instances(&instance.card).map_err(wrong)?;
        if there.iter().any(|one| one.instance == *instance) {
            return Ok(());
        }
        let profiles = self.profiles(&instance.card).map_err(wrong)?;
        let profile = profiles.iter().find(|one| one.profile.name == instance.profile);
        let profile = profile.ok_or_else(|| refused(instance, "the card has no such profile"))?;
        let new = format!("{}:{}", profile.number, instance.place.start);
        self.run(&["mig", "-cgi", &new, "-i", &instance.card]).map_err(wrong)?;
        let there = self.instances(&instance.card).map_err(wrong)?;
        match there.iter().any(|one| one.instance == *instance) {
            true => Ok(()),
            false => Err(refused(instance, "the driver accepted it but does not show it")),
        }
    }

    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error> {
        let wrong = |why| refused(instance, why);
        let there = self.instances(&instance.card).map_err(wrong)?;
        let Some(old) = there.iter().find(|one| one.instance == *instance) else { return Ok(()) };
        let number = old.number.to_string();
        self.run(&["mig", "-dgi", "-gi", &number, "-i", &instance.card]).map_err(wrong)?;
        Ok(())
    }
}

/// Reads a program's output on a separate thread.
fn listen(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (output, listener) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(from) = from {
            // The output before an error is parsed like any other.
            let _ = from.take(MOST_OUTPUT).read_to_end(&mut text);
        }
        // The caller has given up after the limit.
        let _ = output.send(String::from_utf8_lossy(&text).into_owned());
    });
    listener
}

/// The cards in MIG mode, by address: `00000000:41:00.0, Enabled`. A card whose mode is unknown, such as `[GPU is lost]`,
/// is unreadable.
fn in_mig_mode(list: &str) -> Result<Vec<MigCard>, String> {
    let mut cards = Vec::new();
    for line in list.lines().filter(|line| !line.trim().is_empty()) {
        let (address, mode) = line.split_once(',').ok_or_else(|| unreadable(line))?;
        let unknown = match mode.trim() {
            "Disabled" | "N/A" | "[N/A]" | "[Not Supported]" => continue,
            "Enabled" => None,
            other => Some(format!("{PROGRAM} does not report its MIG mode: {other}")),
        };
        let address = address_of(address.trim()).ok_or_else(|| unreadable(line))?;
        cards.push(MigCard { address, unreadable: unknown, ..MigCard::default() });
    }
    Ok(cards)
}

/// `00000000:41:00.0` as the kernel writes it.
fn address_of(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (domain, rest) = lower.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    PciAddress::parse(&format!("{domain:04x}:{rest}")).map(|address| address.to_string())
}

/// The pairs of names that a matrix connects by NVLink: `GPU0  X  NV18  SYS`. Its first line has the names of the columns,
/// underlined.
fn linked(matrix: &str) -> Result<Vec<(String, String)>, String> {
    let plain = matrix.replace("\u{1b}[4m", "").replace("\u{1b}[0m", "");
    let is_gpu = |word: &&str| {
        let number = word.strip_prefix("GPU");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut lines = plain.lines().filter(|line| !line.trim().is_empty());
    let header = lines.next().unwrap_or_default();
    let columns: Vec<&str> = header.split_whitespace().take_while(is_gpu).collect();
    if columns.is_empty() {
        return Err(unreadable(header));
    }
    let mut pairs = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let Some(name) = words.next().filter(is_gpu) else { continue };
        let cells: Vec<&str> = words.take(columns.len()).collect();
        if cells.len() < columns.len() {
            return Err(unreadable(line));
        }
        let is_link = |cell: &str| {
            let number = cell.strip_prefix("NV");
            number.is_some_and(|number| number.parse::<u32>().is_ok_and(|links| links > 0))
        };
        let others = columns.iter().zip(cells).filter(|(_, cell)| is_link(cell));
        pairs.extend(others.map(|(other, _)| (name.to_owned(), (*other).to_owned())));
    }
    Ok(pairs)
}

fn unreadable(line: &str) -> String {
    format!("{PROGRAM} printed an unexpected line: {}", line.trim())
}

/// The cells after `MIG` in a table's line that begins with a GPU's index and `MIG`.
fn row(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace().filter(|word| *word != "|");
    let is_row = words.next()?.parse::<u32>().is_ok() && words.next()? == "MIG";
    is_row.then(|| words.collect())
}

/// The places by profile number: `GPU  0 Profile ID 19 Placements: {0,1,2}:1`, or `Placement : {0}:8`.
fn places(text: &str) -> Result<BTreeMap<u32, Vec<MigPlacement>>, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once("Placement") else { continue };
        let after = after.split_once(':').map_or("", |(_, after)| after);
        let number = before.split_whitespace().last().and_then(|word| word.parse().ok());
        let places = after.trim().rsplit_once(':').and_then(|(starts, size)| {
            let size = size.trim().parse().ok()?;
            let starts = starts.trim().trim_start_matches('{').trim_end_matches('}').split(',');
            let place =
                |start: &str| Some(MigPlacement { start: start.trim().parse().ok()?, size });
            starts.map(place).collect::<Option<Vec<_>>>()
        });
        let (Some(number), Some(places)) = (number, places) else { return Err(unreadable(line)) };
        all.insert(number, places);
    }
    Ok(all)
}

/// The profiles: `|   0  MIG 1g.5gb    19    7/7    4.75    No    14    0    0   |`.
fn profiles(
    table: &str,
    places: &BTreeMap<u32, Vec<MigPlacement>>,
) -> Result<Vec<Numbered>, String> {
    let mut all = Vec::new();
    for line in table.lines() {
        let Some(cells) = row(line) else { continue };
        let number: Option<u32> = cells.get(1).and_then(|word| word.parse().ok());
        let most = cells.get(2).and_then(|word| word.split_once('/')?.1.parse().ok());
        let (Some(name), Some(number), Some(most)) = (cells.first(), number, most) else {
            return Err(unreadable(line));
        };
        let placements = places.get(&number).cloned().unwrap_or_default();
        let profile = InstanceProfile { name: (*name).to_owned(), most, placements };
        all.push(Numbered { number, profile });
    }
    match all.is_empty() {
        true => Err(format!("{PROGRAM} lists no profiles of a card in MIG mode")),
        false => Ok(all),
    }
}

/// The instances: `|   0  MIG 1g.5gb    19    7    4:1   |`.
fn instances(table: &str, card: &str) -> Result<Vec<Existing>, String> {
    let mut all = Vec::new();
    for line in table.lines() {
        let Some(cells) = row(line) else { continue };
        let number: Option<u32> = cells.get(2).and_then(|word| word.parse().ok());
        let place = cells.get(3).and_then(|word| {
            let (start, size) = word.split_once(':')?;
            Some(MigPlacement { start: start.parse().ok()?, size: size.parse().ok()? })
        });
        let (Some(profile), Some(number), Some(place)) = (cells.first(), number, place) else {
            return Err(unreadable(line));
        };
        let (card, profile) = (card.to_owned(), (*profile).to_owned());
        all.push(Existing { number, instance: GpuInstance { card, profile, place } });
    }
    Ok(all)
}

/// The vGPU types with a profile of GPU instances: lines `vGPU Type ID : 0x1da`, `Name : …` and
/// `GPU Instance Profile ID : 19`, in this order for each type.
fn types(text: &str, profiles: &[Numbered]) -> Vec<InstanceType> {
    let mut all = Vec::new();
    let (mut id, mut name) = (None, String::new());
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "vGPU Type ID" => {
                let hex = value.strip_prefix("0x").map(|hex| u32::from_str_radix(hex, 16));
                id = hex.map_or_else(|| value.parse().ok(), Result::ok);
                name.clear();
            }
            "Name" => value.clone_into(&mut name),
            "GPU Instance Profile ID" => {
                let profile = profiles.iter().find(|one| value.parse() == Ok(one.number));
                if let (Some(id), Some(profile)) = (id, profile) {
                    let (id, profile) = (format!("nvidia-{id}"), profile.profile.name.clone());
                    all.push(InstanceType { id, name: name.clone(), profile });
                }
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
#[path = "nvidia_smi_tests.rs"]
mod tests;
