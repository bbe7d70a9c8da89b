//! Compute options of nova.conf: `[DEFAULT]`, `[scheduler]` and `[pci] alias`.

use std::fmt::Display;
use std::str::FromStr;

use jiff::SignedDuration;
use kilonova_compute_app::aliases::{Alias, Aliases};
use kilonova_compute_app::numa::Strategy;
use kilonova_compute_app::{Options, Orphans};
use kilonova_node::devices::PciAlias;

use super::{File, scheduler, sources};
use crate::failure::Failure;

pub(super) fn read(file: &File) -> Result<Options, Failure> {
    let usual = Options::default();
    let yes = |option, usual| {
        Ok::<_, Failure>(file.parse("DEFAULT", option, "true or false")?.unwrap_or(usual))
    };
    let seconds = |option, least, usual: SignedDuration| {
        let seconds = number(file, "DEFAULT", option, least, usual.as_secs());
        seconds.map(SignedDuration::from_secs)
    };
    Ok(Options {
        allow_resize_to_same_host: yes(
            "allow_resize_to_same_host",
            usual.allow_resize_to_same_host,
        )?,
        resize_confirm_window: seconds("resize_confirm_window", 0, usual.resize_confirm_window)?,
        reclaim_instance_interval: seconds(
            "reclaim_instance_interval",
            0,
            usual.reclaim_instance_interval,
        )?,
        shelved_offload_time: seconds("shelved_offload_time", -1, usual.shelved_offload_time)?,
        shelved_poll_interval: seconds("shelved_poll_interval", 0, usual.shelved_poll_interval)?,
        reboot_timeout: seconds("reboot_timeout", 0, usual.reboot_timeout)?,
        rescue_timeout: seconds("rescue_timeout", 0, usual.rescue_timeout)?,
        max_concurrent_live_migrations: number(
            file,
            "DEFAULT",
            "max_concurrent_live_migrations",
            0,
            usual.max_concurrent_live_migrations,
        )?,
        sync_power_state_interval: seconds(
            "sync_power_state_interval",
            -1,
            usual.sync_power_state_interval,
        )?,
        running_deleted_instance_action: orphans(file)?,
        running_deleted_instance_timeout: seconds(
            "running_deleted_instance_timeout",
            0,
            usual.running_deleted_instance_timeout,
        )?,
        instance_build_timeout: seconds("instance_build_timeout", 0, usual.instance_build_timeout)?,
        resume_guests_state_on_host_boot: yes(
            "resume_guests_state_on_host_boot",
            usual.resume_guests_state_on_host_boot,
        )?,
        scheduler: scheduler::read(file)?,
        pci_aliases: aliases(file)?,
        max_attempts: number(file, "scheduler", "max_attempts", 1, usual.max_attempts)?,
        nova_elsewhere: ["endpoint_override", "auth_url"]
            .iter()
            .any(|option| file.get("nova", option).is_some()),
        numa_strategy: numa_strategy(file)?,
        rebalance: super::rebalance::read(file)?,
        consoles: super::console::read(file)?,
        newest_microversion: usual.newest_microversion,
    })
}

fn numa_strategy(file: &File) -> Result<Strategy, Failure> {
    let option = "packing_host_numa_cells_allocation_strategy";
    let packs: Option<bool> = file.parse("compute", option, "true or false")?;
    Ok(if packs == Some(true) { Strategy::Pack } else { Strategy::Spread })
}

fn aliases(file: &File) -> Result<Aliases, Failure> {
    let each = sources::aliases(file)?.into_iter().map(|one| {
        let PciAlias { name, resource_class, required, forbidden, numa_policy } = one;
        (name, Alias { resource_class, required, forbidden, numa_policy })
    });
    Ok(each.collect())
}

fn orphans(file: &File) -> Result<Orphans, Failure> {
    const OPTION: &str = "running_deleted_instance_action";
    match file.get("DEFAULT", OPTION) {
        None | Some("reap") => Ok(Orphans::Reap),
        Some("log") => Ok(Orphans::Log),
        Some("noop") => Ok(Orphans::Noop),
        Some(other) => {
            let why = format!(
                "{other} is not a valid value; expected reap, log or noop (the guest of a deleted \
                 server holds devices, so shutdown is not supported)"
            );
            Err(file.wrong("DEFAULT", OPTION, &why))
        }
    }
}

pub(super) fn number<T>(
    file: &File,
    group: &str,
    option: &str,
    least: T,
    usual: T,
) -> Result<T, Failure>
where
    T: FromStr + PartialOrd + Display + Copy,
{
    let expected = format!("an integer of at least {least}");
    match file.parse::<T>(group, option, &expected)? {
        None => Ok(usual),
        Some(value) if value >= least => Ok(value),
        Some(value) => {
            let why = format!("{value} is not a valid value; expected {expected}");
            Err(file.wrong(group, option, &why))
        }
    }
}
