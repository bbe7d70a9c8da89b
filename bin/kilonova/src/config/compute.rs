//! What nova.conf says of servers: `[DEFAULT]` and `[scheduler]`.

use std::fmt::Display;
use std::str::FromStr;

use kilonova_compute::Options;

use super::{File, scheduler};
use crate::failure::Failure;

pub(super) fn read(file: &File) -> Result<Options, Failure> {
    let usual = Options::default();
    let yes = |option, usual| {
        Ok::<_, Failure>(file.parse("DEFAULT", option, "true or false")?.unwrap_or(usual))
    };
    let seconds = |option, least, usual| number(file, "DEFAULT", option, least, usual);
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
        instance_build_timeout: seconds("instance_build_timeout", 0, usual.instance_build_timeout)?,
        resume_guests_state_on_host_boot: yes(
            "resume_guests_state_on_host_boot",
            usual.resume_guests_state_on_host_boot,
        )?,
        scheduler: scheduler::read(file)?,
        max_attempts: number(file, "scheduler", "max_attempts", 1, usual.max_attempts)?,
        nova_elsewhere: ["endpoint_override", "auth_url"]
            .iter()
            .any(|option| file.get("nova", option).is_some()),
    })
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
    let expected = format!("a whole number, {least} or more");
    match file.parse::<T>(group, option, &expected)? {
        None => Ok(usual),
        Some(value) if value >= least => Ok(value),
        Some(value) => {
            let why = format!("{value} is not a value for it; expected {expected}");
            Err(file.wrong(group, option, &why))
        }
    }
}
