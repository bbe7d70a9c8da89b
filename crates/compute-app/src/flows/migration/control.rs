//! Control of a live migration that is in progress: abort, force complete.

use jiff::Timestamp;
use kilonova_compute_db::moves::{self, Kind, Move};
use kilonova_compute_db::servers::Server;
use kilonova_node_api::Progress;
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind as RefusalKind;
use kilonova_wire::{Context, Refusal};

use super::super::journal::{self, OpenOperation};
use super::super::operation::{Action, Attempts, LiveMigration, Operation, Transit};
use super::super::record_action;
use super::roll_back::{self, FailedMove};
use super::{FlowContext, live, locate_guest};
use crate::actions::ServerAction;
use crate::{Compute, Error, states};

/// A request to control a live migration.
#[derive(Clone, Copy)]
enum Control {
    Abort,
    ForceComplete,
}

impl Control {
    /// The name in refusals.
    fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort live migration",
            Self::ForceComplete => "force complete",
        }
    }

    /// The kind of the refusal for a migration that does not exist. (Upstream: `delete` and `_force_complete` in
    /// `nova/api/openstack/compute/server_migrations.py`.)
    fn missing(self) -> RefusalKind {
        match self {
            Self::Abort => RefusalKind::NotFound,
            Self::ForceComplete => RefusalKind::BadRequest,
        }
    }
}

/// The live migration with this number, if it is in progress.
fn in_progress(
    tx: &mut Tx<'_>,
    server: &Server,
    number: &str,
    control: Control,
) -> Result<(OpenOperation, Move), Error> {
    let wanted = number.parse::<i64>().ok();
    let all = moves::of_server(tx, server.id)?;
    let Some(migration) = all.into_iter().find(|known| Some(known.number) == wanted) else {
        let number = number.escape_debug();
        let why = format!("Migration {number} not found for instance {}", server.id);
        return Err(Refusal::new(control.missing(), why).into());
    };
    let open = journal::open_of(tx, server.id)?
        .filter(|open| matches!(open.state, Operation::LiveMigration(_)));
    match open {
        Some(open) if migration.open && migration.kind == Kind::Live => Ok((open, migration)),
        Some(_) | None => Err(wrong_state(server, &migration, control)),
    }
}

fn wrong_state(server: &Server, migration: &Move, control: Control) -> Error {
    let method = control.as_str();
    Refusal::bad_request(format!(
        "Migration {} state of instance {} is {}. Cannot {method} while the migration is in this state.",
        migration.number, server.id, migration.status
    ))
    .into()
}

/// A live migration that can be aborted.
enum Abortable {
    /// Nothing was written for the destination.
    Queued(Attempts),
    /// The destination is preparing.
    Receiving(Attempts),
    /// The guest may be leaving.
    Transferring(Transit),
}

impl Abortable {
    fn of(state: &Operation) -> Option<Self> {
        let Operation::LiveMigration(live) = state else { return None };
        match live {
            LiveMigration::Queued(attempts) => Some(Self::Queued(attempts.clone())),
            LiveMigration::Receive(attempts) => Some(Self::Receiving(attempts.clone())),
            LiveMigration::Transfer(transit) => Some(Self::Transferring(transit.clone())),
            LiveMigration::Begin
            | LiveMigration::Abort(_)
            | LiveMigration::Locate(_)
            | LiveMigration::Arrive(_)
            | LiveMigration::DropDest(_)
            | LiveMigration::Restore(_) => None,
        }
    }
}

/// Aborts a live migration. Before the transfer this requires `early` (2.65).
///
/// # Errors
/// 404, 400 or 409, with Nova's message, when it is not in progress.
pub fn abort(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: &str,
    early: bool,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::AbortLiveMigration)?;
    let (open, migration) = in_progress(tx, server, number, Control::Abort)?;
    let abortable = Abortable::of(&open.state)
        .filter(|state| early || matches!(state, Abortable::Transferring(_)));
    let Some(abortable) = abortable else {
        return Err(wrong_state(server, &migration, Control::Abort));
    };
    record_action(tx, context, server, Action::LiveMigrationCancel, now)?;
    let ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    let cancelled = |attempts: Attempts| {
        let reason = Some("The live migration was aborted.".to_owned());
        let attempts = Attempts { reason, ..attempts };
        FailedMove::Live(Transit { cancelled: true, ..attempts.into() })
    };
    match abortable {
        Abortable::Queued(attempts) => {
            roll_back::release_untouched_dest(tx, &ctx, cancelled(attempts))
        }
        Abortable::Receiving(attempts) => roll_back::drop_dest(tx, &ctx, cancelled(attempts)),
        Abortable::Transferring(transit) => {
            let transit = Transit { cancelled: true, sent: true, ..transit };
            locate_guest::ask_source(tx, &ctx, transit)
        }
    }
}

/// Makes a live migration complete soon, even if the guest must be paused for a while.
///
/// # Errors
/// 400 or 409, with Nova's message, when it is not in progress.
pub fn force_complete(
    tx: &mut Tx<'_>,
    compute: &Compute,
    context: &Context,
    server: &Server,
    number: &str,
    now: Timestamp,
) -> Result<(), Error> {
    states::allow(context, server, ServerAction::ForceComplete)?;
    let (open, migration) = in_progress(tx, server, number, Control::ForceComplete)?;
    let Operation::LiveMigration(LiveMigration::Transfer(transit)) = &open.state else {
        return Err(wrong_state(server, &migration, Control::ForceComplete));
    };
    record_action(tx, context, server, Action::LiveMigrationForceComplete, now)?;
    let ctx = FlowContext { compute, open: &open, server: server.clone(), migration, now };
    live::send(tx, &ctx, &transit.attempts.devices, true, None)?;
    // The new version of the row makes a concurrent abort or force-complete fail.
    ctx.advance(tx, &open.state)
}

/// The progress of a migration that has reported none yet.
pub fn initial_progress(ram_mb: i64) -> Progress {
    let memory = ram_mb.saturating_mul(1024 * 1024);
    Progress { memory_total: memory, memory_remaining: memory, ..Progress::default() }
}
