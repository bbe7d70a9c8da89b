//! `lock` and `unlock`: set or clear the lock in the server's row, and record the instance action.
//!
//! As upstream (`lock` in `nova/compute/api.py`), a locked server stays as it is if its owner locks it again, and an
//! administrator's lock without a reason keeps the reason of the previous lock.

use axum::response::Response;
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows;
use kilonova_compute_app::flows::operation::Action;
use kilonova_compute_app::microversions::LOCK_REASON;
use kilonova_compute_db::servers::{self, Lock};
use kilonova_wire::Refusal;

use super::super::find::target;
use super::ActionRequest;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let reason = match request.version >= LOCK_REASON {
        true => request.argument["locked_reason"].as_str().map(str::to_owned),
        false => None,
    };
    request
        .accept(move |tx, request, server, now| {
            let own = server.project_id == request.context.project_id;
            let expected = if own { "owner" } else { "admin" };
            if request.action == ServerAction::Lock {
                // The owner's lock must not replace an administrator's: the owner could remove it.
                if own && server.lock.is_some() {
                    return Ok(());
                }
                let before = server.lock.as_ref().and_then(|lock| lock.reason.clone());
                let reason = reason.clone().filter(|reason| !reason.is_empty()).or(before);
                let lock = Lock { by: expected.to_owned(), reason };
                servers::set_lock(tx, server.id, Some(&lock))?;
                return flows::record_action(tx, &request.context, server, Action::Lock, now);
            }
            if server.lock.as_ref().is_some_and(|lock| lock.by != expected) {
                const OVERRIDE: &str = "os_compute_api:os-lock-server:unlock:unlock_override";
                request.caller.may(OVERRIDE, &target(server))?;
            }
            servers::set_lock(tx, server.id, None)?;
            flows::record_action(tx, &request.context, server, Action::Unlock, now)
        })
        .await
}
