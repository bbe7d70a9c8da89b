//! The downtime schedule and timeout of a live migration. Pure: the caller passes the time.
//!
//! The allowed downtime starts short and grows in steps up to `live_migration_downtime`; the steps
//! are longer for a larger guest. After the completion timeout the migration is aborted or forced.
//!
//! No interface reports the size of the device state: only QEMU learns it from the kernel, and
//! libvirt only counts the bytes already sent, which is zero for a device that must be stopped
//! first. But if the remaining memory would fit into the downtime and the guest still does not
//! switch over, its devices do not fit. The downtime then grows earlier, and up to a bound beyond
//! the option.

use std::time::Duration;

use crate::config::{LibvirtConfig, TimeoutAction};

/// A change to a running migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adjustment {
    /// Set the allowed downtime, in milliseconds.
    Downtime(u64),
    /// Complete the migration by pausing the guest or by post-copy.
    Force,
    /// Abort the migration.
    Abort,
}

/// The largest multiple of `live_migration_downtime` that a guest with devices is allowed.
const MAX_DOWNTIME_FACTOR: u64 = 10;
/// QEMU's maximum downtime, milliseconds.
const QEMU_MAX_DOWNTIME: u64 = 2_000_000;
/// How long the memory must fit into the downtime before the devices are considered the obstacle.
const FIT_PERIOD: Duration = Duration::from_secs(10);

/// A measurement of a running migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TransferSample {
    /// Bytes of memory and disks that remain.
    pub remaining: u64,
    /// Bytes per second.
    pub throughput: u64,
}

/// The schedule of one migration.
#[derive(Debug)]
pub(crate) struct DowntimeSchedule {
    /// The time and the downtime of each step.
    steps: Vec<(Duration, u64)>,
    /// Number of steps taken.
    taken: usize,
    limit: Option<Duration>,
    action: TimeoutAction,
    /// True if the migration has been forced or aborted.
    finished: bool,
    /// The downtime allowed now, milliseconds.
    downtime: u64,
    /// The upper bound of the downtime for a guest with devices; `None` without devices.
    most: Option<u64>,
    /// The highest throughput seen.
    throughput: u64,
    /// The time since which the remaining memory has fit into the downtime.
    fits_since: Option<Duration>,
}

impl DowntimeSchedule {
    /// The schedule for a guest with `gib` GiB of memory and disks. With `devices`, the downtime
    /// may exceed the option.
    pub(crate) fn new(config: &LibvirtConfig, gib: u64, devices: bool) -> Self {
        let gib = gib.max(2);
        let (most, count) =
            (config.live_migration_downtime, config.live_migration_downtime_steps.max(1));
        let first = most / count;
        let delay = config.live_migration_downtime_delay * gib;
        let steps = (0..=count)
            .map(|step| (Duration::from_secs(delay * step), first + (most - first) * step / count))
            .collect();
        let limit = config.live_migration_completion_timeout * gib;
        Self {
            steps,
            taken: 0,
            limit: (limit > 0).then(|| Duration::from_secs(limit)),
            action: config.live_migration_timeout_action,
            finished: false,
            downtime: 0,
            most: devices
                .then(|| most.saturating_mul(MAX_DOWNTIME_FACTOR).min(QEMU_MAX_DOWNTIME).max(most)),
            throughput: 0,
            fits_since: None,
        }
    }

    /// The completion timeout.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// The adjustment due after `elapsed`; each is returned once.
    pub(crate) fn next(&mut self, elapsed: Duration, force: bool) -> Option<Adjustment> {
        if self.finished {
            return None;
        }
        let late = self.limit.is_some_and(|limit| elapsed >= limit);
        if force || (late && self.action == TimeoutAction::ForceComplete) {
            self.finished = true;
            return Some(Adjustment::Force);
        }
        if late {
            self.finished = true;
            return Some(Adjustment::Abort);
        }
        let due = self.steps.iter().take_while(|(at, _)| elapsed >= *at).count();
        if due <= self.taken {
            return None;
        }
        self.taken = due;
        self.downtime = self.steps[due - 1].1;
        self.fits_since = None;
        Some(Adjustment::Downtime(self.downtime))
    }

    /// The longer downtime that the guest's devices need, judged by a measurement after `elapsed`.
    pub(crate) fn observe(
        &mut self,
        elapsed: Duration,
        sample: TransferSample,
    ) -> Option<Adjustment> {
        let most = self.most.filter(|_| !self.finished && self.taken > 0)?;
        self.throughput = self.throughput.max(sample.throughput);
        let room = u128::from(self.throughput) * u128::from(self.downtime) / 1000;
        if self.throughput == 0 || u128::from(sample.remaining) > room {
            self.fits_since = None;
            return None;
        }
        let since = *self.fits_since.get_or_insert(elapsed);
        if elapsed.saturating_sub(since) < FIT_PERIOD {
            return None;
        }
        let next = match self.steps.get(self.taken) {
            Some((_, downtime)) => {
                self.taken += 1;
                *downtime
            }
            None => self.downtime.saturating_mul(2).min(most),
        };
        if next <= self.downtime {
            return None;
        }
        (self.downtime, self.fits_since) = (next, None);
        Some(Adjustment::Downtime(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The adjustments in a time span with one poll per second.
    fn adjustments(schedule: &mut DowntimeSchedule, from: u64, to: u64) -> Vec<(u64, Adjustment)> {
        (from..=to)
            .filter_map(|s| schedule.next(seconds(s), false).map(|adjustment| (s, adjustment)))
            .collect()
    }

    #[test]
    fn the_downtime_grows_to_the_option() {
        let config = LibvirtConfig {
            live_migration_downtime: 400,
            live_migration_downtime_steps: 4,
            live_migration_downtime_delay: 30,
            ..LibvirtConfig::default()
        };
        let mut schedule = DowntimeSchedule::new(&config, 3, false);
        let down = Adjustment::Downtime;
        assert_eq!(
            adjustments(&mut schedule, 0, 800),
            [(0, down(100)), (90, down(175)), (180, down(250)), (270, down(325)), (360, down(400))]
        );
    }

    #[test]
    fn a_late_poll_takes_only_the_last_step() {
        let config =
            LibvirtConfig { live_migration_completion_timeout: 0, ..LibvirtConfig::default() };
        let mut schedule = DowntimeSchedule::new(&config, 1, true);
        assert_eq!(schedule.next(seconds(1_000_000), false), Some(Adjustment::Downtime(500)));
        assert_eq!(schedule.next(seconds(2_000_000), false), None, "there is no timeout");
    }

    #[test]
    fn the_timeout_acts_once() {
        for (action, adjustment) in [
            (TimeoutAction::Abort, Adjustment::Abort),
            (TimeoutAction::ForceComplete, Adjustment::Force),
        ] {
            let config = LibvirtConfig {
                live_migration_completion_timeout: 10,
                live_migration_timeout_action: action,
                ..LibvirtConfig::default()
            };
            let mut schedule = DowntimeSchedule::new(&config, 4, true);
            assert_eq!(schedule.limit(), Some(seconds(40)));
            assert_eq!(
                adjustments(&mut schedule, 1, 100),
                [(1, Adjustment::Downtime(50)), (40, adjustment)]
            );
        }
    }

    #[test]
    fn a_forced_completion_happens_once() {
        let mut schedule = DowntimeSchedule::new(&LibvirtConfig::default(), 1, true);
        assert_eq!(schedule.next(seconds(0), true), Some(Adjustment::Force));
        assert_eq!(schedule.next(seconds(1), true), None);
        assert_eq!(
            schedule.next(seconds(100_000), false),
            None,
            "a forced migration is not aborted"
        );
    }
    /// The downtimes set by the schedule or by a measurement, with one poll per second.
    fn downtimes(
        schedule: &mut DowntimeSchedule,
        from: u64,
        to: u64,
        sample: impl Fn(u64) -> TransferSample,
    ) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for second in from..=to {
            let adjustment = schedule.next(seconds(second), false);
            if let Some(adjustment) =
                adjustment.or_else(|| schedule.observe(seconds(second), sample(second)))
            {
                let Adjustment::Downtime(downtime) = adjustment else { panic!("{adjustment:?}") };
                all.push((second, downtime));
            }
        }
        all
    }

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn devices_that_do_not_fit_get_a_longer_downtime() {
        let config = LibvirtConfig {
            live_migration_downtime: 400,
            live_migration_downtime_steps: 4,
            live_migration_downtime_delay: 30,
            live_migration_completion_timeout: 0,
            ..LibvirtConfig::default()
        };
        // 5 MiB fit into 100 ms at 100 MiB/s; the throughput drops when nothing is left to send.
        let idle = |second| TransferSample {
            remaining: if second < 20 { 50 * MIB } else { 5 * MIB },
            throughput: if second < 20 { 100 * MIB } else { 1 },
        };
        let mut schedule = DowntimeSchedule::new(&config, 3, true);
        assert_eq!(
            downtimes(&mut schedule, 0, 400, idle),
            [
                (0, 100),
                (30, 175),
                (41, 250),
                (52, 325),
                (63, 400),
                (74, 800),
                (85, 1600),
                (96, 3200),
                (107, 4000)
            ],
            "at most ten times the option"
        );
        let mut without = DowntimeSchedule::new(&config, 3, false);
        let usual = [(0, 100), (90, 175), (180, 250), (270, 325), (360, 400)];
        assert_eq!(downtimes(&mut without, 0, 400, idle), usual);
    }

    #[test]
    fn memory_that_does_not_fit_does_not_count_as_devices() {
        let config =
            LibvirtConfig { live_migration_completion_timeout: 0, ..LibvirtConfig::default() };
        for sample in [
            TransferSample::default(),
            TransferSample { remaining: 0, throughput: 0 },
            TransferSample { remaining: 100 * MIB, throughput: 100 * MIB },
        ] {
            let mut schedule = DowntimeSchedule::new(&config, 2, true);
            assert_eq!(downtimes(&mut schedule, 0, 149, |_| sample), [(0, 50)], "{sample:?}");
        }
        // The memory fits only now and then, as the guest writes to it.
        let restless =
            |second| TransferSample { remaining: (second % 8) * MIB, throughput: 100 * MIB };
        let mut schedule = DowntimeSchedule::new(&config, 2, true);
        assert_eq!(downtimes(&mut schedule, 0, 149, restless), [(0, 50)]);
    }

    #[test]
    fn a_forced_migration_is_not_adjusted() {
        let mut schedule = DowntimeSchedule::new(&LibvirtConfig::default(), 2, true);
        schedule.next(seconds(0), true);
        let fits_since = TransferSample { remaining: 0, throughput: MIB };
        assert_eq!(
            schedule.observe(seconds(1), fits_since).or(schedule.observe(seconds(100), fits_since)),
            None
        );
    }
}
