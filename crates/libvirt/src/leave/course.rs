//! When a guest that is leaving may stand still for how long, and when it has taken too long.
//!
//! Pure: time is handed in. A guest first has to be ready to go within a short pause; the pause it is
//! allowed grows step by step to what the options say, later for more memory and disk. After its time
//! is up it stays, or stands still until it is there.
//!
//! How large the state of a guest's devices is, nobody tells: the kernel says it to QEMU alone, and
//! libvirt knows what has been sent of it, which is nothing for a device that must stand still first.
//! But where the memory that is left would fit into the pause, and the guest does not go all the
//! same, it is its devices that do not fit. The pause then grows sooner, and further than the options
//! say, up to a bound.

use std::time::Duration;

use crate::config::{Config, TimeoutAction};

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Let the guest stand still for so long, milliseconds.
    Downtime(u64),
    /// Bring it over, whatever it takes.
    Force,
    /// Call it off.
    Abort,
}

/// How many times `live_migration_downtime` a guest may stand still for the sake of its devices.
const MOST: u64 = 10;
/// The longest pause that QEMU takes, milliseconds.
const LONGEST: u64 = 2_000_000;
/// How long the memory must fit into the pause before its devices are taken for what does not.
const FITS: Duration = Duration::from_secs(10);

/// What is seen of a departure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Bytes of memory and disks that are left.
    pub remaining: u64,
    /// Bytes a second.
    pub speed: u64,
}

/// The course of one departure.
#[derive(Debug)]
pub(crate) struct Course {
    /// When each step is due, and the pause from then on.
    steps: Vec<(Duration, u64)>,
    /// How many have been taken.
    taken: usize,
    limit: Option<Duration>,
    action: TimeoutAction,
    /// It has been forced, or called off.
    decided: bool,
    /// The pause that the guest is allowed now, milliseconds.
    pause: u64,
    /// The longest for the sake of its devices; none for a guest without.
    most: Option<u64>,
    /// The highest speed that was seen.
    speed: u64,
    /// Since when the memory fits into the pause.
    fits: Option<Duration>,
}

impl Course {
    /// For a guest with so much memory and disk to bring over, in GiB.
    /// Host devices of the guest's may be given more time than the options say.
    pub(crate) fn new(config: &Config, gib: u64, devices: bool) -> Self {
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
            decided: false,
            pause: 0,
            most: devices.then(|| most.saturating_mul(MOST).min(LONGEST).max(most)),
            speed: 0,
            fits: None,
        }
    }

    /// How long it may take.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// What is due, so long after the beginning; each thing once.
    pub(crate) fn next(&mut self, elapsed: Duration, force: bool) -> Option<Act> {
        if self.decided {
            return None;
        }
        let late = self.limit.is_some_and(|limit| elapsed >= limit);
        if force || (late && self.action == TimeoutAction::ForceComplete) {
            self.decided = true;
            return Some(Act::Force);
        }
        if late {
            self.decided = true;
            return Some(Act::Abort);
        }
        let due = self.steps.iter().take_while(|(at, _)| elapsed >= *at).count();
        if due <= self.taken {
            return None;
        }
        self.taken = due;
        self.pause = self.steps[due - 1].1;
        self.fits = None;
        Some(Act::Downtime(self.pause))
    }

    /// The longer pause that the guest's devices need, by what is seen so long after the beginning.
    pub(crate) fn heed(&mut self, elapsed: Duration, sight: Sight) -> Option<Act> {
        let most = self.most.filter(|_| !self.decided && self.taken > 0)?;
        self.speed = self.speed.max(sight.speed);
        let room = u128::from(self.speed) * u128::from(self.pause) / 1000;
        if self.speed == 0 || u128::from(sight.remaining) > room {
            self.fits = None;
            return None;
        }
        let since = *self.fits.get_or_insert(elapsed);
        if elapsed.saturating_sub(since) < FITS {
            return None;
        }
        let next = match self.steps.get(self.taken) {
            Some((_, pause)) => {
                self.taken += 1;
                *pause
            }
            None => self.pause.saturating_mul(2).min(most),
        };
        if next <= self.pause {
            return None;
        }
        (self.pause, self.fits) = (next, None);
        Some(Act::Downtime(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What is done in a time in which it is looked at each second.
    fn played(course: &mut Course, from: u64, to: u64) -> Vec<(u64, Act)> {
        (from..=to).filter_map(|s| course.next(seconds(s), false).map(|act| (s, act))).collect()
    }

    #[test]
    fn the_pause_grows_to_what_is_allowed() {
        let config = Config {
            live_migration_downtime: 400,
            live_migration_downtime_steps: 4,
            live_migration_downtime_delay: 30,
            ..Config::default()
        };
        let mut course = Course::new(&config, 3, false);
        let down = Act::Downtime;
        assert_eq!(
            played(&mut course, 0, 800),
            [(0, down(100)), (90, down(175)), (180, down(250)), (270, down(325)), (360, down(400))]
        );
    }

    #[test]
    fn one_look_after_a_long_time_takes_the_last_step_alone() {
        let config = Config { live_migration_completion_timeout: 0, ..Config::default() };
        let mut course = Course::new(&config, 1, true);
        assert_eq!(course.next(seconds(1_000_000), false), Some(Act::Downtime(500)));
        assert_eq!(course.next(seconds(2_000_000), false), None, "it may take for ever");
    }

    #[test]
    fn it_takes_too_long_once() {
        for (action, act) in
            [(TimeoutAction::Abort, Act::Abort), (TimeoutAction::ForceComplete, Act::Force)]
        {
            let config = Config {
                live_migration_completion_timeout: 10,
                live_migration_timeout_action: action,
                ..Config::default()
            };
            let mut course = Course::new(&config, 4, true);
            assert_eq!(course.limit(), Some(seconds(40)));
            assert_eq!(played(&mut course, 1, 100), [(1, Act::Downtime(50)), (40, act)]);
        }
    }

    #[test]
    fn whoever_is_impatient_is_heard_once() {
        let mut course = Course::new(&Config::default(), 1, true);
        assert_eq!(course.next(seconds(0), true), Some(Act::Force));
        assert_eq!(course.next(seconds(1), true), None);
        assert_eq!(course.next(seconds(100_000), false), None, "it is not called off then");
    }
    /// What is done of itself or because of what is seen, each second.
    fn watched(
        course: &mut Course,
        from: u64,
        to: u64,
        sight: impl Fn(u64) -> Sight,
    ) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for second in from..=to {
            let act = course.next(seconds(second), false);
            if let Some(act) = act.or_else(|| course.heed(seconds(second), sight(second))) {
                let Act::Downtime(pause) = act else { panic!("{act:?}") };
                all.push((second, pause));
            }
        }
        all
    }

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn devices_that_do_not_fit_are_given_longer() {
        let config = Config {
            live_migration_downtime: 400,
            live_migration_downtime_steps: 4,
            live_migration_downtime_delay: 30,
            live_migration_completion_timeout: 0,
            ..Config::default()
        };
        // 5 MiB fit into 100 ms at 100 MiB a second; the speed falls when nothing is left to send.
        let idle = |second| Sight {
            remaining: if second < 20 { 50 * MIB } else { 5 * MIB },
            speed: if second < 20 { 100 * MIB } else { 1 },
        };
        let mut course = Course::new(&config, 3, true);
        assert_eq!(
            watched(&mut course, 0, 400, idle),
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
            "ten times what the options say, and no more"
        );
        let mut without = Course::new(&config, 3, false);
        let usual = [(0, 100), (90, 175), (180, 250), (270, 325), (360, 400)];
        assert_eq!(watched(&mut without, 0, 400, idle), usual);
    }

    #[test]
    fn memory_that_does_not_fit_is_not_its_devices_fault() {
        let config = Config { live_migration_completion_timeout: 0, ..Config::default() };
        for sight in [
            Sight::default(),
            Sight { remaining: 0, speed: 0 },
            Sight { remaining: 100 * MIB, speed: 100 * MIB },
        ] {
            let mut course = Course::new(&config, 2, true);
            assert_eq!(watched(&mut course, 0, 149, |_| sight), [(0, 50)], "{sight:?}");
        }
        // It fits now and then, as the guest writes to it.
        let restless = |second| Sight { remaining: (second % 8) * MIB, speed: 100 * MIB };
        let mut course = Course::new(&config, 2, true);
        assert_eq!(watched(&mut course, 0, 149, restless), [(0, 50)]);
    }

    #[test]
    fn one_that_is_decided_is_left_alone() {
        let mut course = Course::new(&Config::default(), 2, true);
        course.next(seconds(0), true);
        let fits = Sight { remaining: 0, speed: MIB };
        assert_eq!(course.heed(seconds(1), fits).or(course.heed(seconds(100), fits)), None);
    }
}
