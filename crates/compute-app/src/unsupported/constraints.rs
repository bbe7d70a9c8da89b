//! Combinations of CPU, memory and NUMA settings that upstream refuses, with upstream's messages
//! and order (`numa_get_constraints` of `nova/virt/hardware.py`).
//!
//! The messages are useful although none of these settings is supported: clients that test for them
//! get them, and operators see that the flavor is invalid in every cloud.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_compute_db::servers::FlavorOf;

use crate::boot::machine::truth;

type Properties = BTreeMap<String, String>;

/// No flavor of this size boots anywhere; its masks need not be counted.
const MOST_VCPUS: i64 = 4096;
const MOST_NODES: i64 = 128;
const CPU_POLICIES: &[&str] = &["dedicated", "shared", "mixed"];
const THREAD_POLICIES: &[&str] = &["prefer", "isolate", "require"];
const EMULATOR_POLICIES: &[&str] = &["isolate", "share"];
const PCI_POLICIES: &[&str] = &["required", "preferred", "legacy", "socket"];
const NO_REALTIME: &str = "Use of realtime CPUs requires either one or more non-realtime CPU(s) or \
                           offloaded emulator threads.";
const INCOMPLETE: &str = "CPU and memory allocation must be provided for all NUMA nodes";
const MIXED_ONLY: &str = "Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.";
const ONE_MASK: &str = "Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or \
                        'hw:cpu_realtime_mask' when using 'mixed' CPU policy. \
                        'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be specified at \
                        the same time, or be specified with none of them.";

/// Checks a flavor with the properties of an image.
///
/// # Errors
/// The first error.
pub(super) fn check(flavor: &FlavorOf, properties: &Properties) -> Result<(), String> {
    if !(1..=MOST_VCPUS).contains(&flavor.vcpus) {
        return Ok(());
    }
    let asked = Asked { flavor, properties };
    let mut cpu_policy = asked.cpu_policy()?;
    let mut threads = asked.thread_policy()?;
    let realtime = asked.realtime()?;
    let dedicated = asked.dedicated()?;
    let isolate = asked.emulator_policy()? == Some("isolate");
    let (vcpus, pcpus) = (asked.amount("VCPU"), asked.amount("PCPU"));
    if cpu_policy.is_some() && (vcpus != 0 || pcpus != 0) {
        return Err(
            "It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs \
                    in combination with the 'hw:cpu_policy' extra spec or 'hw_cpu_policy' image \
                    metadata property; use one or the other"
                .into(),
        );
    }
    if vcpus != 0 && pcpus != 0 {
        return Err(
            "It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra \
                    specs; use one or the other"
                .into(),
        );
    }
    if pcpus != 0 {
        if isolate && pcpus != flavor.vcpus + 1 {
            return Err("You have requested 'hw:emulator_threads_policy=isolate' but have not \
                        requested sufficient PCPUs to handle this policy; you must allocate exactly \
                        flavor.vcpus + 1 PCPUs."
                .into());
        }
        if !isolate && pcpus != flavor.vcpus {
            return Err("There is a mismatch between the number of PCPUs requested via \
                        'resourcesNN:PCPU' and the flavor); you must allocate exactly flavor.vcpus \
                        PCPUs"
                .into());
        }
        cpu_policy = Some("dedicated");
    }
    if vcpus != 0 {
        cpu_policy = Some("shared");
    }
    if let Some(policy) = asked.hyperthreading() {
        if threads.is_some() {
            return Err(
                "It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in \
                        combination with the 'hw:cpu_thread_policy' extra spec or \
                        'hw_cpu_thread_policy' image metadata property; use one or the other"
                    .into(),
            );
        }
        threads = ["required", "forbidden"].contains(&policy).then_some(policy);
    }
    match cpu_policy {
        Some("dedicated") => {
            if dedicated {
                return Err(MIXED_ONLY.into());
            }
        }
        Some("mixed") => {
            if realtime == dedicated {
                return Err(ONE_MASK.into());
            }
        }
        _ => {
            if threads.is_some() {
                let words = "Cannot set cpu thread pinning policy in a non dedicated cpu pinning \
                             policy";
                return Err(words.into());
            }
            if isolate {
                return Err(
                    "An isolated CPU emulator threads option requires a dedicated CPU policy \
                            option."
                        .into(),
                );
            }
            if dedicated {
                return Err(MIXED_ONLY.into());
            }
            if realtime {
                let words = "Cannot set realtime policy in a non dedicated cpu pinning policy";
                return Err(words.into());
            }
        }
    }
    let nodes = asked.nodes()?;
    let pages = asked.pages()?;
    asked.locked_memory()?;
    let pinned = matches!(cpu_policy, Some("dedicated" | "mixed"));
    let pmem = asked.spec("hw:pmem").is_some();
    if nodes.is_some() || pages || pmem || pinned {
        asked.topology(nodes.unwrap_or(1))?;
    }
    asked.pci_policy()
}

/// The requested settings.
struct Asked<'a> {
    flavor: &'a FlavorOf,
    properties: &'a Properties,
}

impl<'a> Asked<'a> {
    fn spec(&self, key: &str) -> Option<&'a str> {
        self.flavor.extra_specs.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn property(&self, key: &str) -> Option<&'a str> {
        self.properties.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// `hw:name` and `hw_name`.
    fn both(&self, name: &str) -> (Option<&'a str>, Option<&'a str>) {
        (self.spec(&format!("hw:{name}")), self.property(&format!("hw_{name}")))
    }

    fn cpu_policy(&self) -> Result<Option<&'a str>, String> {
        let (flavor, image) = self.both("cpu_policy");
        one_of("CPU policy", flavor, image, CPU_POLICIES)?;
        let forbidden = match flavor {
            Some("mixed") => image == Some("dedicated"),
            Some("shared") => matches!(image, Some("mixed" | "dedicated")),
            _ => false,
        };
        if forbidden {
            return Err("Image property 'hw_cpu_policy' is not permitted to override CPU pinning \
                        policy set against the flavor"
                .into());
        }
        Ok(flavor.or(image))
    }

    fn thread_policy(&self) -> Result<Option<&'a str>, String> {
        let (flavor, image) = self.both("cpu_thread_policy");
        one_of("CPU thread policy", flavor, image, THREAD_POLICIES)?;
        let may_differ = matches!(flavor, None | Some("prefer"));
        if !may_differ && image.is_some() && image != flavor {
            return Err("Image property 'hw_cpu_thread_policy' is not permitted to override CPU \
                        thread pinning policy set against the flavor"
                .into());
        }
        Ok(flavor.or(image))
    }

    fn emulator_policy(&self) -> Result<Option<&'a str>, String> {
        let asked = self.spec("hw:emulator_threads_policy");
        match asked.filter(|asked| !EMULATOR_POLICIES.contains(asked)) {
            Some(wrong) => Err(format!(
                "CPU emulator threads option requested is invalid, given: '{}', available: '{}'.",
                wrong.escape_debug(),
                available(EMULATOR_POLICIES)
            )),
            None => Ok(asked),
        }
    }

    /// True if realtime CPUs are requested.
    fn realtime(&self) -> Result<bool, String> {
        if !self.spec("hw:cpu_realtime").is_some_and(truth) {
            return Ok(false);
        }
        let (flavor, image) = self.both("cpu_realtime_mask");
        let cpus = match image.or(flavor) {
            Some(mask) => self.mask(mask)?,
            None => Cpus { inside: (0..self.flavor.vcpus).collect(), outside: None },
        };
        let all = cpus.outside.is_none() && self.is_all(&cpus);
        if cpus.is_empty() || (all && self.emulator_policy()?.is_none()) {
            return Err(NO_REALTIME.into());
        }
        if cpus.outside.is_some() {
            return Err("Realtime policy vCPU(s) mask is configured with RT vCPUs that are not a \
                        subset of the vCPUs in the flavor. See hw:cpu_realtime_mask or \
                        hw_cpu_realtime_mask"
                .into());
        }
        Ok(true)
    }

    /// True if dedicated CPUs are requested.
    fn dedicated(&self) -> Result<bool, String> {
        let Some(mask) = self.spec("hw:cpu_dedicated_mask") else { return Ok(false) };
        let cpus = self.mask(mask)?;
        if cpus.is_empty() || self.is_all(&cpus) {
            return Err(
                "Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See \
                        'hw:cpu_dedicated_mask'."
                    .into(),
            );
        }
        if cpus.outside.is_some() {
            return Err("Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the \
                        flavor. See \"hw:cpu_dedicated_mask\""
                .into());
        }
        Ok(true)
    }

    fn is_all(&self, cpus: &Cpus) -> bool {
        i64::try_from(cpus.inside.len()).is_ok_and(|many| many == self.flavor.vcpus)
    }

    /// A mask; one that begins with `^` excludes from all CPUs.
    fn mask(&self, mask: &str) -> Result<Cpus, String> {
        if mask.trim().starts_with('^') {
            return Cpus::parse(&format!("0-{},{mask}", self.flavor.vcpus - 1), self.flavor.vcpus);
        }
        Cpus::parse(mask, self.flavor.vcpus)
    }

    /// Units of a class that the flavor requests in any group.
    fn amount(&self, class: &str) -> i64 {
        let of_class = |key: &str| {
            let group = key.strip_prefix("resources")?.strip_suffix(class)?.strip_suffix(':')?;
            (group.is_empty() || group.bytes().all(|byte| byte.is_ascii_digit())).then_some(())
        };
        let specs = self.flavor.extra_specs.iter().filter(|(key, _)| of_class(key).is_some());
        specs.filter_map(|(_, value)| value.trim().parse::<i64>().ok()).fold(0, i64::saturating_add)
    }

    fn hyperthreading(&self) -> Option<&'a str> {
        let is_it = |key: &str| {
            key.strip_prefix("trait")
                .and_then(|key| key.strip_suffix(":HW_CPU_HYPERTHREADING"))
                .is_some_and(|group| group.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let flavor = self.flavor.extra_specs.iter().find(|(key, _)| is_it(key));
        let image = || {
            let given = self.property("trait:HW_CPU_HYPERTHREADING");
            given.filter(|given| *given == "required")
        };
        flavor.map(|(_, value)| value.as_str()).or_else(image)
    }

    fn nodes(&self) -> Result<Option<i64>, String> {
        let (flavor, image) = self.both("numa_nodes");
        if flavor.is_some() && image.is_some() {
            return Err(overrides("hw_numa_nodes"));
        }
        let Some(asked) = flavor.or(image) else { return Ok(None) };
        match asked.trim().parse::<i64>() {
            Ok(nodes) if nodes >= 1 => Ok(Some(nodes)),
            _ => Err(format!(
                "The property 'numa_nodes' cannot be '{}'. It must be a number greater than 0",
                asked.escape_debug()
            )),
        }
    }

    /// True if a page size is requested.
    fn pages(&self) -> Result<bool, String> {
        let (flavor, image) = self.both("mem_page_size");
        let forbidden = |asked: &str, against: &str| {
            let (asked, against) = (asked.escape_debug(), against.escape_debug());
            format!("Page size {asked} forbidden against '{against}'")
        };
        match (flavor, image) {
            (None, None) => Ok(false),
            (None, Some(image)) => Err(forbidden(image, "<empty>")),
            (Some(flavor), image) => {
                page_size(flavor)?;
                match image {
                    None => Ok(true),
                    Some(image) if ["any", "large"].contains(&flavor) => {
                        page_size(image).map(|()| true)
                    }
                    Some(image) => Err(forbidden(image, flavor)),
                }
            }
        }
    }

    fn locked_memory(&self) -> Result<(), String> {
        let (flavor, image) = self.both("locked_memory");
        let (flavor, image) = (flavor.map(truth), image.map(truth));
        let word = |yes: bool| if yes { "True" } else { "False" };
        if let (Some(flavor), Some(image)) = (flavor, image)
            && flavor != image
        {
            return Err(format!(
                "locked_memory value in image ({}) and flavor ({}) conflict. A consistent value is \
                 expected if both specified.",
                word(image),
                word(flavor)
            ));
        }
        let (of_flavor, of_image) = self.both("mem_page_size");
        if flavor.or(image) == Some(true) && of_flavor.is_none() && of_image.is_none() {
            return Err(
                "locked_memory value in image or flavor is forbidden when mem_page_size is \
                        not set."
                    .into(),
            );
        }
        Ok(())
    }

    /// `hw:numa_cpus.0`, `….1`, … up to the first missing one.
    fn of_nodes(&self, name: &str) -> Result<Option<Vec<&'a str>>, String> {
        let flavor = (0..MOST_NODES)
            .map_while(|node| self.spec(&format!("hw:{name}.{node}")))
            .collect::<Vec<_>>();
        let image = (0..MOST_NODES)
            .map_while(|node| self.property(&format!("hw_{name}.{node}")))
            .collect::<Vec<_>>();
        match (flavor.is_empty(), image.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Err(overrides(&format!("hw_{name}"))),
            (false, true) => Ok(Some(flavor)),
            (true, false) => Ok(Some(image)),
        }
    }

    fn topology(&self, nodes: i64) -> Result<(), String> {
        let (cpus, memory) = (self.of_nodes("numa_cpus")?, self.of_nodes("numa_mem")?);
        match (cpus, memory) {
            (None, None) if self.flavor.vcpus % nodes > 0 || self.flavor.ram % nodes > 0 => Err(
                "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA \
                     nodes. Explicit assignment of CPUs and memory to nodes is required"
                    .into(),
            ),
            (None, None) => Ok(()),
            (Some(cpus), Some(memory)) => {
                let fits = |list: usize| i64::try_from(list).is_ok_and(|list| list == nodes);
                if !fits(cpus.len()) || !fits(memory.len()) {
                    return Err(INCOMPLETE.into());
                }
                self.by_hand(&cpus, &memory)
            }
            _ => Err(INCOMPLETE.into()),
        }
    }

    fn by_hand(&self, cpus: &[&str], memory: &[&str]) -> Result<(), String> {
        let mut free: BTreeSet<i64> = (0..self.flavor.vcpus).collect();
        for list in cpus {
            let cpus = Cpus::parse(list, self.flavor.vcpus)?;
            for cpu in &cpus.inside {
                if !free.remove(cpu) {
                    return Err(format!("CPU number {cpu} is assigned to two nodes"));
                }
            }
            if let Some(cpu) = cpus.outside {
                let most = self.flavor.vcpus - 1;
                return Err(format!("CPU number {cpu} is larger than max {most}"));
            }
        }
        if !free.is_empty() {
            let free = free.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!("CPU number {{{free}}} is not assigned to any node"));
        }
        let amounts = memory.iter().map(|text| text.trim().parse::<i64>().unwrap_or(0));
        let total = amounts.fold(0, i64::saturating_add);
        if total != self.flavor.ram {
            return Err(format!(
                "{total} MB of memory assigned, but expected {} MB",
                self.flavor.ram
            ));
        }
        Ok(())
    }

    fn pci_policy(&self) -> Result<(), String> {
        let (flavor, image) = self.both("pci_numa_affinity_policy");
        if flavor.is_some() && image.is_some() && flavor != image {
            return Err(
                "Image property 'hw_pci_numa_affinity_policy' is not permitted to override \
                        the 'hw:pci_numa_affinity_policy' flavor extra spec."
                    .into(),
            );
        }
        match flavor.or(image).filter(|policy| !PCI_POLICIES.contains(policy)) {
            Some(wrong) => {
                Err(format!("Invalid PCI NUMA affinity configured: {}", wrong.escape_debug()))
            }
            None => Ok(()),
        }
    }
}

fn overrides(name: &str) -> String {
    format!(
        "Image property '{name}' is not permitted to override NUMA configuration set against the \
         flavor"
    )
}

/// A list as Python prints it, without its brackets.
fn available(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    format!("({})", quoted.join(", "))
}

fn one_of(
    what: &str,
    flavor: Option<&str>,
    image: Option<&str>,
    known: &[&str],
) -> Result<(), String> {
    for (asked, source) in [(flavor, "flavor extra specs"), (image, "image properties")] {
        if let Some(wrong) = asked.filter(|asked| !known.contains(asked)) {
            return Err(format!(
                "{what} requested from '{source}' is invalid, given: '{}', available: '{}'.",
                wrong.escape_debug(),
                available(known)
            ));
        }
    }
    Ok(())
}

fn page_size(asked: &str) -> Result<(), String> {
    let words = ["any", "large", "small"].contains(&asked);
    let digits = asked.find(|c: char| !c.is_ascii_digit()).unwrap_or(asked.len());
    let unit = &asked[digits..];
    let prefix = unit.strip_suffix("bit").or_else(|| unit.strip_suffix(['b', 'B']));
    let is_size = digits > 0
        && matches!(
            prefix.unwrap_or(unit),
            "" | "k" | "K" | "M" | "G" | "T" | "ki" | "Ki" | "Mi" | "Gi" | "Ti"
        );
    if words || is_size {
        return Ok(());
    }
    Err(format!("Invalid memory page size '{}'", asked.escape_debug()))
}

/// The first and the last of some CPUs.
type Span = (i64, i64);

/// The CPUs that a text names: those that the guest has, and the first that it does not have.
#[derive(Debug, Default)]
struct Cpus {
    inside: BTreeSet<i64>,
    outside: Option<i64>,
}

impl Cpus {
    fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_none()
    }

    /// Parses `0-3,^2,7` for a guest with this number of CPUs.
    fn parse(text: &str, vcpus: i64) -> Result<Self, String> {
        let mut named: Vec<Span> = Vec::new();
        let mut not: Vec<Span> = Vec::new();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (list, span) = match rule.strip_prefix('^') {
                Some(span) => (&mut not, span),
                None => (&mut named, rule),
            };
            let wrong = |what: &str| format!("Invalid {what} expression '{}'", rule.escape_debug());
            let number = |text: &str| text.trim().parse::<i64>().ok().filter(|n| *n >= 0);
            list.push(match span.split_once('-') {
                Some((first, last)) => match number(first).zip(number(last)) {
                    Some((first, last)) if first <= last => (first, last),
                    _ => return Err(wrong("range")),
                },
                None => match number(span) {
                    Some(one) => (one, one),
                    None if rule.starts_with('^') => return Err(wrong("exclusion")),
                    None => return Err(wrong("inclusion")),
                },
            });
        }
        let within = |spans: &[Span], cpu: i64| {
            spans.iter().any(|(first, last)| (*first..=*last).contains(&cpu))
        };
        let has = |cpu: i64| within(&named, cpu) && !within(&not, cpu);
        let starts = named.iter().map(|(first, _)| *first);
        let behind = not.iter().map(|(_, last)| last.saturating_add(1));
        let edges = starts.chain(behind).chain([vcpus]).filter(|cpu| *cpu >= vcpus && has(*cpu));
        Ok(Self { inside: (0..vcpus).filter(|cpu| has(*cpu)).collect(), outside: edges.min() })
    }
}
