//! `POST /servers/{id}/action`: exactly one key names the action; a file per family of actions.

mod delete;
mod guest;
mod image;
mod live;
mod lock;
mod look;
mod migrate;
mod none;
mod power;
mod rebuild;
mod reset;
mod resize;
mod shelve;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use kilonova_access::{Caller, Guard};
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Base, Context, Fault, JsonBody, Microversion};
use serde_json::Value;

use crate::db::servers::Server;
use crate::{Compute, Error};

/// What the body may name, and the rule of each.
pub(super) const ACTIONS: Guard = Guard::Action(&[
    ("os-start", "os_compute_api:servers:start"),
    ("os-stop", "os_compute_api:servers:stop"),
    ("reboot", "os_compute_api:servers:reboot"),
    ("lock", "os_compute_api:os-lock-server:lock"),
    ("unlock", "os_compute_api:os-lock-server:unlock"),
    ("forceDelete", "os_compute_api:os-deferred-delete:force"),
    ("restore", "os_compute_api:os-deferred-delete:restore"),
    ("pause", "os_compute_api:os-pause-server:pause"),
    ("unpause", "os_compute_api:os-pause-server:unpause"),
    ("suspend", "os_compute_api:os-suspend-server:suspend"),
    ("resume", "os_compute_api:os-suspend-server:resume"),
    ("rescue", "os_compute_api:os-rescue"),
    ("unrescue", "os_compute_api:os-unrescue"),
    ("trigger_crash_dump", "os_compute_api:servers:trigger_crash_dump"),
    ("createImage", "os_compute_api:servers:create_image"),
    ("createBackup", "os_compute_api:os-create-backup"),
    ("rebuild", "os_compute_api:servers:rebuild"),
    ("shelve", "os_compute_api:os-shelve:shelve"),
    ("shelveOffload", "os_compute_api:os-shelve:shelve_offload"),
    ("unshelve", "os_compute_api:os-shelve:unshelve"),
    ("os-resetState", "os_compute_api:os-admin-actions:reset_state"),
    ("os-getConsoleOutput", "os_compute_api:os-console-output"),
    ("changePassword", "os_compute_api:os-admin-password"),
    ("injectNetworkInfo", "os_compute_api:os-admin-actions:inject_network_info"),
    ("addFixedIp", "os_compute_api:os-multinic:add"),
    ("removeFixedIp", "os_compute_api:os-multinic:remove"),
    ("addFloatingIp", "os_compute_api:os-floating-ips:add"),
    ("removeFloatingIp", "os_compute_api:os-floating-ips:remove"),
    ("addSecurityGroup", "os_compute_api:os-security-groups:add"),
    ("removeSecurityGroup", "os_compute_api:os-security-groups:remove"),
    ("os-getVNCConsole", "os_compute_api:os-remote-consoles"),
    ("os-getSPICEConsole", "os_compute_api:os-remote-consoles"),
    ("os-getRDPConsole", "os_compute_api:os-remote-consoles"),
    ("os-getSerialConsole", "os_compute_api:os-remote-consoles"),
    ("os-getMKSConsole", "os_compute_api:os-remote-consoles"),
    ("resize", "os_compute_api:servers:resize"),
    ("confirmResize", "os_compute_api:servers:confirm_resize"),
    ("revertResize", "os_compute_api:servers:revert_resize"),
    ("migrate", "os_compute_api:os-migrate-server:migrate"),
    ("evacuate", "os_compute_api:os-evacuate"),
    ("os-migrateLive", "os_compute_api:os-migrate-server:migrate_live"),
]);

/// What is asked, and by whom.
#[derive(Clone)]
struct Asked {
    compute: Compute,
    context: Context,
    /// The caller, who asks for the rule of the action.
    caller: Caller,
    version: Microversion,
    /// For links.
    base: Base,
    /// The id in the path, as it came.
    id: String,
    /// The key of the body.
    name: String,
    /// What the key stands for.
    argument: Value,
}

impl Asked {
    /// Runs `act` on the server in one transaction; 202 when it let itself be begun.
    async fn begin<F>(self, act: F) -> Result<Response, Fault>
    where
        F: Fn(&mut Tx<'_>, &Self, &Server, i64) -> Result<(), Error> + Send + 'static,
    {
        self.write(act).await?;
        Ok(StatusCode::ACCEPTED.into_response())
    }

    /// Runs `act` on the server in one transaction and gives its answer.
    async fn write<T, F>(mut self, act: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>, &Self, &Server, i64) -> Result<T, Error> + Send + 'static,
    {
        let compute = self.compute.explaining();
        self.compute = compute.clone();
        let answer = compute
            .write(move |tx| {
                let server = super::find::find(tx, &self.caller, &self.id)?;
                act(tx, &self, &server, now_micros())
            })
            .await?;
        Ok(answer)
    }

    /// Looks at the server without changing anything.
    async fn read<T, F>(self, look: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Self, &Server) -> Result<T, Error> + Send + 'static,
    {
        let store = self.compute.store.clone();
        let answer = store
            .read(move |tx| {
                let server = super::find::find(tx, &self.caller, &self.id)?;
                look(&self, &server)
            })
            .await?;
        Ok(answer)
    }

    /// Refuses an argument where the action takes none.
    fn nothing(&self) -> Result<(), Fault> {
        if self.argument.is_null()
            || self.argument.as_object().is_some_and(serde_json::Map::is_empty)
        {
            return Ok(());
        }
        Err(self.wrong("The action takes no argument."))
    }

    /// 400 for the argument.
    fn wrong(&self, why: &str) -> Fault {
        Fault::bad_request(format!(
            "Invalid input for field/attribute {}. Value: {}. {why}",
            self.name, self.argument
        ))
    }
}

pub(super) async fn action(
    State(compute): State<Compute>,
    caller: Caller,
    base: Base,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Fault> {
    let Some((name, argument)) =
        body.as_object().filter(|keys| keys.len() == 1).and_then(|keys| keys.iter().next())
    else {
        return Err(Fault::bad_request("Malformed request body: it must name exactly one action."));
    };
    let (name, argument) = (name.clone(), argument.clone());
    if name == "resetNetwork" {
        return Err(none::gone());
    }
    let Some(caller) = caller.with_action(&name) else {
        return Err(Fault::bad_request(format!(
            "There is no such action: {}.",
            name.escape_debug()
        )));
    };
    // Whoever names a host is asked for another rule, when it is known whether one is named.
    if !matches!(name.as_str(), "migrate" | "os-migrateLive") {
        caller.may_route()?;
    }
    let context = caller.context.clone();
    let asked = Asked { compute, context, caller, version, base, id, name, argument };
    match asked.name.as_str() {
        "os-start" | "os-stop" | "reboot" => power::act(asked).await,
        "lock" | "unlock" => lock::act(asked).await,
        "forceDelete" | "restore" => delete::act(asked).await,
        "pause" | "unpause" | "suspend" | "resume" | "rescue" | "unrescue"
        | "trigger_crash_dump" => guest::act(asked).await,
        "createImage" | "createBackup" => image::act(asked).await,
        "rebuild" => rebuild::act(asked).await,
        "shelve" | "shelveOffload" | "unshelve" => shelve::act(asked).await,
        "os-resetState" => reset::act(asked).await,
        "os-getConsoleOutput" => look::act(asked).await,
        "changePassword"
        | "injectNetworkInfo"
        | "addFixedIp"
        | "removeFixedIp"
        | "addFloatingIp"
        | "removeFloatingIp"
        | "addSecurityGroup"
        | "removeSecurityGroup"
        | "os-getVNCConsole"
        | "os-getSPICEConsole"
        | "os-getRDPConsole"
        | "os-getSerialConsole"
        | "os-getMKSConsole" => none::act(asked).await,
        "resize" | "confirmResize" | "revertResize" => resize::act(asked).await,
        "migrate" | "evacuate" => migrate::act(asked).await,
        "os-migrateLive" => live::act(asked).await,
        other => {
            Err(Fault::bad_request(format!("There is no such action: {}.", other.escape_debug())))
        }
    }
}
