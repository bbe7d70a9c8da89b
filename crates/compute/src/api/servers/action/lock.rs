//! `lock` and `unlock`: set or clear the lock in the server's row, and record the instance action.

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
            if request.action == ServerAction::Lock {
                let by =
                    if server.project_id == request.context.project_id { "owner" } else { "admin" };
                let lock = Lock { by: by.to_owned(), reason: reason.clone() };
                servers::set_lock(tx, server.id, Some(&lock))?;
                return flows::record_action(tx, &request.context, server, Action::Lock, now);
            }
            let own = server.project_id == request.context.project_id;
            let expected = if own { "owner" } else { "admin" };
            if server.lock.as_ref().is_some_and(|lock| lock.by != expected) {
                const OVERRIDE: &str = "os_compute_api:os-lock-server:unlock:unlock_override";
                request.caller.may(OVERRIDE, &target(server))?;
            }
            servers::set_lock(tx, server.id, None)?;
            flows::record_action(tx, &request.context, server, Action::Unlock, now)
        })
        .await
}
