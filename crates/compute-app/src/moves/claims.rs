//! Moving claims between a server and its migration.

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::fits;
use kilonova_compute_db::moves::{self, Move};
use kilonova_compute_db::port_claims;
use kilonova_compute_db::servers::Server;
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use crate::boot::{self, abandon_of, consumer_of};
use crate::{Compute, Error, numa};

/// The claims of a server and of its migration.
#[derive(Debug, Clone, Copy)]
struct Sides {
    server: ConsumerId,
    migration: ConsumerId,
    /// True if one of the claims may have a NUMA topology.
    has_topology: bool,
    /// True if one of the claims may be for ports.
    has_ports: bool,
}

impl Sides {
    fn of(server: &Server, migration: &Move) -> Self {
        let properties = &server.spec.image_properties;
        let flavors = [&migration.old_flavor, &migration.new_flavor];
        let has_topology = flavors.iter().any(|flavor| numa::is_requested(flavor, properties));
        Self {
            server: consumer_of(server.id),
            migration: migration.id,
            has_topology,
            has_ports: server.spec.networked,
        }
    }

    fn hand_over(
        self,
        tx: &mut Tx<'_>,
        from: ConsumerId,
        to: ConsumerId,
        consumer_type: &str,
    ) -> Result<(), Error> {
        if self.has_topology {
            fits::hand_over(tx, from, to)?;
        }
        if self.has_ports {
            port_claims::hand_over(tx, from, to)?;
        }
        placement::hand_over(tx, from, to, consumer_type)?;
        Ok(devices::hand_over(tx, from, to)?)
    }
}

/// Moves the server's claim to the migration, so that the server can claim resources on another
/// host.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn move_to_migration(
    tx: &mut Tx<'_>,
    server: &Server,
    migration: &Move,
    host: &HostName,
) -> Result<(), Error> {
    let sides = Sides::of(server, migration);
    sides.hand_over(tx, sides.server, sides.migration, "MIGRATION")?;
    Ok(moves::set_held(tx, migration.id, Some(host))?)
}

/// Moves the claim back to the server, which must have none.
pub fn move_to_server(tx: &mut Tx<'_>, server: &Server, migration: &Move) -> Result<(), Error> {
    let sides = Sides::of(server, migration);
    sides.hand_over(tx, sides.migration, sides.server, "INSTANCE")?;
    Ok(moves::set_held(tx, migration.id, None)?)
}

/// Exchanges the claims of server and migration; the server's former claim is on `host`.
pub fn swap(
    tx: &mut Tx<'_>,
    server: &Server,
    migration: &Move,
    host: &HostName,
) -> Result<(), Error> {
    let (sides, aside) = (Sides::of(server, migration), ConsumerId::new_v4());
    sides.hand_over(tx, sides.server, aside, "MIGRATION")?;
    sides.hand_over(tx, sides.migration, sides.server, "INSTANCE")?;
    sides.hand_over(tx, aside, sides.migration, "MIGRATION")?;
    Ok(moves::set_held(tx, migration.id, Some(host))?)
}

/// Releases the claims of a server's migrations on a host, once the host has removed the guest.
pub fn release_claims_of_migrations(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    let held = moves::held_on(tx, server, host)?;
    drop_moves(tx, compute, server, host, held)
}

/// [`release_claims_of_migrations`] for the given migrations.
pub fn drop_moves(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
    held: Vec<Move>,
) -> Result<(), Error> {
    for held in held {
        boot::expect_held(tx, held.id)?;
        devices::expect_left_dirty(tx, held.id)?;
        boot::expect_initiator_of(tx, server)?;
        let claims = boot::held(tx, held.id)?;
        let is_dirty = devices::left_dirty(tx, held.id)?;
        let actor = boot::initiator_of(tx, server)?;
        boot::release_held(tx, compute, &actor, held.id, claims)?;
        if is_dirty {
            boot::reclaim(tx, compute, host, held.id)?;
        }
        moves::set_held(tx, held.id, None)?;
    }
    Ok(())
}

/// [`release_claims_of_migrations`] for an unreachable host: the devices stay dirty until the host has reported.
pub fn abandon_claims_of_migrations(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    for held in moves::held_on(tx, server, host)? {
        abandon_of(tx, compute, server, held.id)?;
    }
    Ok(())
}
