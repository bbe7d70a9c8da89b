//! The policies for CPUs, threads, the emulator and devices, and the masks of vCPUs.

use super::{Asked, Refusal, Source, truth};
use crate::cpus::Named;
use crate::{CpuPolicy, Cpus, EmulatorPolicy, PciPolicy, ThreadPolicy};

impl<'a> Asked<'a> {
    pub(super) fn cpu_policy(&self) -> Result<Option<CpuPolicy>, Refusal> {
        let (flavor, image) = self.both("cpu_policy");
        let known = |value: Option<&str>, from| match value {
            None => Ok(None),
            Some(value) => CpuPolicy::parse(value).map(Some).ok_or_else(|| {
                Refusal::InvalidCpuAllocationPolicy {
                    from,
                    given: value.to_owned(),
                    available: available(CpuPolicy::NAMES),
                }
            }),
        };
        let flavor = known(flavor, Source::Flavor)?;
        let image = known(image, Source::Image)?;
        match (flavor, image) {
            (Some(CpuPolicy::Mixed), Some(CpuPolicy::Dedicated))
            | (Some(CpuPolicy::Shared), Some(CpuPolicy::Mixed | CpuPolicy::Dedicated)) => {
                Err(Refusal::ImageCpuPinningForbidden)
            }
            (flavor, image) => Ok(flavor.or(image)),
        }
    }

    pub(super) fn thread_policy(&self) -> Result<Option<ThreadPolicy>, Refusal> {
        let (flavor, image) = self.both("cpu_thread_policy");
        let known = |value: Option<&str>, from| match value {
            None => Ok(None),
            Some(value) => ThreadPolicy::parse(value).map(Some).ok_or_else(|| {
                Refusal::InvalidCpuThreadAllocationPolicy {
                    from,
                    given: value.to_owned(),
                    available: available(ThreadPolicy::NAMES),
                }
            }),
        };
        let flavor = known(flavor, Source::Flavor)?;
        let image = known(image, Source::Image)?;
        let may_differ = matches!(flavor, None | Some(ThreadPolicy::Prefer));
        if !may_differ && image.is_some() && image != flavor {
            return Err(Refusal::ImageCpuThreadPolicyForbidden);
        }
        Ok(flavor.or(image))
    }

    pub(super) fn emulator_policy(&self) -> Result<Option<EmulatorPolicy>, Refusal> {
        let Some(given) = self.spec("hw:emulator_threads_policy") else { return Ok(None) };
        let known = EmulatorPolicy::parse(given);
        known.map(Some).ok_or_else(|| Refusal::InvalidEmulatorThreadsPolicy {
            given: given.to_owned(),
            available: available(EmulatorPolicy::NAMES),
        })
    }

    /// The realtime vCPUs, if realtime is requested. The image's mask takes precedence.
    pub(super) fn realtime(&self) -> Result<Option<Cpus>, Refusal> {
        if !self.spec("hw:cpu_realtime").is_some_and(truth) {
            return Ok(None);
        }
        let (flavor, image) = self.both("cpu_realtime_mask");
        let cpus = match image.or(flavor) {
            Some(mask) => self.mask(mask)?,
            None => Named { inside: (0..self.counted_vcpus()?).collect(), outside: None },
        };
        let all = cpus.outside.is_none() && self.is_all(&cpus);
        if cpus.is_empty() || (all && self.emulator_policy()?.is_none()) {
            return Err(Refusal::RealtimeMaskNotFoundOrInvalid);
        }
        if cpus.outside.is_some() {
            return Err(Refusal::RealtimeMaskOutside);
        }
        Ok(Some(cpus.inside))
    }

    /// The vCPUs of the dedicated mask, if there is one.
    pub(super) fn dedicated(&self) -> Result<Option<Cpus>, Refusal> {
        let Some(mask) = self.spec("hw:cpu_dedicated_mask") else { return Ok(None) };
        let cpus = self.mask(mask)?;
        if cpus.is_empty() || self.is_all(&cpus) {
            return Err(Refusal::InvalidMixedInstanceDedicatedMask);
        }
        if cpus.outside.is_some() {
            return Err(Refusal::DedicatedMaskOutside);
        }
        Ok(Some(cpus.inside))
    }

    fn is_all(&self, cpus: &Named) -> bool {
        i64::try_from(cpus.inside.len()).is_ok_and(|many| many == self.vcpus)
    }

    /// The CPU policy, which `resources:VCPU` or `resources:PCPU` may imply.
    pub(super) fn policy_of_resources(
        &self,
        policy: Option<CpuPolicy>,
        emulator: Option<EmulatorPolicy>,
    ) -> Result<Option<CpuPolicy>, Refusal> {
        let (vcpus, pcpus) = (self.amount("VCPU"), self.amount("PCPU"));
        match (vcpus != 0, pcpus != 0) {
            (false, false) => Ok(policy),
            _ if policy.is_some() => Err(Refusal::PolicyAndResources),
            (true, true) => Err(Refusal::VcpuAndPcpu),
            (true, false) => Ok(Some(CpuPolicy::Shared)),
            (false, true) => match emulator {
                Some(EmulatorPolicy::Isolate) if pcpus != self.vcpus.saturating_add(1) => {
                    Err(Refusal::PcpusOfEmulator)
                }
                Some(EmulatorPolicy::Share) | None if pcpus != self.vcpus => {
                    Err(Refusal::PcpuMismatch)
                }
                Some(EmulatorPolicy::Isolate | EmulatorPolicy::Share) | None => {
                    Ok(Some(CpuPolicy::Dedicated))
                }
            },
        }
    }

    /// The units of a class that the flavor requests in all groups together.
    fn amount(&self, class: &str) -> i64 {
        let of_class = |key: &str| {
            let group = key.strip_prefix("resources")?.strip_suffix(class)?.strip_suffix(':')?;
            group.bytes().all(|byte| byte.is_ascii_digit()).then_some(())
        };
        let specs = self.extra_specs.iter().filter(|(key, _)| of_class(key).is_some());
        specs.filter_map(|(_, value)| value.trim().parse::<i64>().ok()).fold(0, i64::saturating_add)
    }

    /// The thread policy, which the trait `HW_CPU_HYPERTHREADING` may imply.
    pub(super) fn policy_of_trait(
        &self,
        policy: Option<ThreadPolicy>,
    ) -> Result<Option<ThreadPolicy>, Refusal> {
        match self.hyperthreading() {
            None => Ok(policy),
            Some(_) if policy.is_some() => Err(Refusal::ThreadPolicyAndTrait),
            Some("forbidden") => Ok(Some(ThreadPolicy::Isolate)),
            Some("required") => Ok(Some(ThreadPolicy::Require)),
            Some(_) => Ok(None),
        }
    }

    fn hyperthreading(&self) -> Option<&'a str> {
        let is_it = |key: &str| {
            key.strip_prefix("trait")
                .and_then(|key| key.strip_suffix(":HW_CPU_HYPERTHREADING"))
                .is_some_and(|group| group.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let mut flavor = self.extra_specs.iter();
        let flavor = flavor.find(|(key, value)| is_it(key) && !value.is_empty());
        let image = || {
            let given = self.property("trait:HW_CPU_HYPERTHREADING");
            given.filter(|given| *given == "required")
        };
        flavor.map(|(_, value)| value.as_str()).or_else(image)
    }

    pub(super) fn pci_policy(&self) -> Result<Option<PciPolicy>, Refusal> {
        let (flavor, image) = self.both("pci_numa_affinity_policy");
        if flavor.is_some() && image.is_some() && flavor != image {
            return Err(Refusal::ImagePciNumaPolicyForbidden);
        }
        let Some(given) = flavor.or(image) else { return Ok(None) };
        let known = PciPolicy::parse(given);
        known.map(Some).ok_or_else(|| Refusal::InvalidPciNumaAffinity { policy: given.to_owned() })
    }
}

/// Formats names as Python prints a tuple of them.
fn available(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("({})", quoted.join(", "))
}
