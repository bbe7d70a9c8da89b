//! How a simulated guest goes to another host: it is on its way for as long as the step takes, and
//! then gone. That it arrived there is for the other host to believe, unless it goes unheard: then it
//! is put into the other host's folder, which lies beside this one's.
//!
//! A departure under way is in memory only, as that of a real hypervisor ends with its process.

use std::time::Instant;

use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, Progress};

use super::files::Files;
use super::{Fate, Simulated, failed, unknown};
use crate::{Error, Life, Step, Transfer};

impl Simulated {
    pub(super) fn leave(&self, server: ServerId, departure: &Departure) -> Result<Transfer, Error> {
        let step = Step::Migrate;
        let Some((name, life)) = self.guest(server) else { return Err(unknown(step, server)) };
        if life == Life::Left {
            return Ok(Transfer::Gone);
        }
        if !life.is_up() {
            return Err(Error::new(step, format!("{name} does not run")));
        }
        let begun = *self.leaving().entry(server).or_insert_with(Instant::now);
        let (spent, time) = (begun.elapsed(), self.plan.time(step));
        if spent < time && !departure.force {
            let share = spent.as_secs_f64() / time.as_secs_f64();
            return Ok(Transfer::Going(self.progress(server, share)?));
        }
        self.leaving().remove(&server);
        if let Some((fate, error)) = self.plan.due(step, &name) {
            if fate != Fate::Stays {
                self.go_unheard(server, &departure.to.host, fate)?;
            }
            return Err(error);
        }
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        self.files.set_life(server, life, Life::Left).map_err(failed(step))?;
        guest.life = Life::Left;
        Ok(Transfer::Gone)
    }

    /// The guest goes on at the other host, which waits for it, and runs on one of them at most
    /// meanwhile.
    fn go_unheard(&self, server: ServerId, host: &str, fate: Fate) -> Result<(), Error> {
        let step = Step::Migrate;
        let there = self
            .files
            .beside(host)
            .filter(|there| matches!(there.life(server), Ok(Life::Incoming)));
        let there: Files =
            there.ok_or_else(|| Error::new(step, format!("nobody waits for it on {host}")))?;
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        let left = if fate == Fate::Stands { Life::Paused } else { Life::Off };
        self.files.set_life(server, guest.life, Life::Paused).map_err(failed(step))?;
        there.set_life(server, Life::Incoming, guest.life).map_err(failed(step))?;
        self.files.set_life(server, Life::Paused, left).map_err(failed(step))?;
        guest.life = left;
        Ok(())
    }

    fn progress(&self, server: ServerId, share: f64) -> Result<Progress, Error> {
        let total = self.definition(server, Step::Migrate)?.memory_mb.saturating_mul(1024 * 1024);
        let processed = (total as f64 * share) as i64;
        Ok(Progress {
            memory_total: total,
            memory_processed: processed,
            memory_remaining: total - processed,
            ..Progress::default()
        })
    }
}
