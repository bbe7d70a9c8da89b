//! Outgoing live migration of a simulated guest: it takes the duration of the step, after which the
//! guest is no longer on the source. The destination assumes the arrival. After a planned failure,
//! the guest may have arrived although the source reports an error; this host then puts it into the
//! destination's directory next to its own.
//!
//! A migration in progress is kept in memory only, because that of a real hypervisor also ends with
//! its process.

use std::time::Instant;

use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{OutgoingMigration, Progress};

use super::files::Files;
use super::{GuestLocation, Simulated, failed, unknown};
use crate::{DomainState, Error, MigrationState, Step};

impl Simulated {
    pub(super) fn migrate(
        &self,
        server: ServerId,
        migration: &OutgoingMigration,
    ) -> Result<MigrationState, Error> {
        let step = Step::Migrate;
        let Some((name, state)) = self.guest(server) else { return Err(unknown(step, server)) };
        if state == DomainState::MigratedOut {
            return Ok(MigrationState::Completed);
        }
        if !state.is_up() {
            return Err(Error::new(step, format!("{name} is not running")));
        }
        let begun = *self.migrations().entry(server).or_insert_with(Instant::now);
        let (spent, time) = (begun.elapsed(), self.plan.time(step));
        if spent < time && !migration.force {
            let share = spent.as_secs_f64() / time.as_secs_f64();
            return Ok(MigrationState::InProgress(self.progress(server, share)?));
        }
        self.migrations().remove(&server);
        if let Some((guest, error)) = self.plan.due(step, &name) {
            if guest != GuestLocation::Source {
                self.arrive_unreported(server, &migration.to.host, guest)?;
            }
            return Err(error);
        }
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        self.files.set_state(server, state, DomainState::MigratedOut).map_err(failed(step))?;
        guest.state = DomainState::MigratedOut;
        self.consoles.end(server);
        Ok(MigrationState::Completed)
    }

    /// Moves the guest to the waiting destination although the source reports a failure. The guest
    /// runs on at most one of the hosts at any time.
    fn arrive_unreported(
        &self,
        server: ServerId,
        host: &HostName,
        location: GuestLocation,
    ) -> Result<(), Error> {
        let step = Step::Migrate;
        let there = self
            .files
            .beside(host)
            .filter(|there| matches!(there.state(server), Ok(DomainState::Incoming)));
        let there: Files =
            there.ok_or_else(|| Error::new(step, format!("no incoming domain on {host}")))?;
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        let left = if location == GuestLocation::Both {
            DomainState::Paused
        } else {
            DomainState::Shutoff
        };
        self.files.set_state(server, guest.state, DomainState::Paused).map_err(failed(step))?;
        there.set_state(server, DomainState::Incoming, guest.state).map_err(failed(step))?;
        self.files.set_state(server, DomainState::Paused, left).map_err(failed(step))?;
        guest.state = left;
        self.consoles.end(server);
        Ok(())
    }

    fn progress(&self, server: ServerId, share: f64) -> Result<Progress, Error> {
        let total =
            self.definition(server, Step::Migrate)?.config.memory_mb.saturating_mul(1024 * 1024);
        let processed = (total as f64 * share) as i64;
        Ok(Progress {
            memory_total: total,
            memory_processed: processed,
            memory_remaining: total - processed,
            ..Progress::default()
        })
    }
}
