//! `POST /servers/{id}/action`: exactly one key names the action; a file for each family of actions.
//!
//! The table of actions ([`crate::app::actions`]) gives the rule, the microversions and the schema; a handler
//! gets a request that all three let through.

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

use crate::api::input;
use crate::app::actions::{RULE_OF_KEY, ServerAction, check_body};
use crate::db::servers::Server;
use crate::flows::ServerCommand;
use crate::{Compute, Error};

/// The keys that the body may have, and the rule of each.
pub(super) const ACTIONS: Guard = Guard::Action(&RULE_OF_KEY);

/// A request for an action.
#[derive(Clone)]
struct ActionRequest {
    compute: Compute,
    context: Context,
    /// The caller, who asks for the rule of the action.
    caller: Caller,
    version: Microversion,
    /// For links.
    base: Base,
    /// The id in the path, as it came.
    id: String,
    action: ServerAction,
    /// The value of the action's key; its schema has accepted it.
    argument: Value,
}

impl ActionRequest {
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

    /// 400 for the argument.
    fn wrong(&self, why: &str) -> Fault {
        Fault::bad_request(format!(
            "Invalid input for field/attribute {}. Value: {}. {why}",
            self.action.row().key().unwrap_or_default(),
            self.argument
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
    if name == "resetNetwork" {
        return Err(none::gone());
    }
    let Some((action, caller)) = ServerAction::of_key(name).zip(caller.with_action(name)) else {
        return Err(unknown(name));
    };
    let row = action.row();
    let caller = match row.host_rule {
        Some(host) if host.span.has(version) && names_host(argument) => caller.with_rule(host.rule),
        Some(_) | None => caller,
    };
    caller.may_route()?;
    input::within(version, row.span)?;
    check_body(action, version, argument)?;
    let (context, argument) = (caller.context.clone(), argument.clone());
    let request = ActionRequest { compute, context, caller, version, base, id, action, argument };
    match action {
        ServerAction::Start
        | ServerAction::Stop
        | ServerAction::Reboot
        | ServerAction::RebootHard => power::act(request).await,
        ServerAction::Lock | ServerAction::Unlock => lock::act(request).await,
        ServerAction::ForceDelete | ServerAction::Restore => delete::act(request).await,
        ServerAction::Pause => guest::act(request, ServerCommand::Pause).await,
        ServerAction::Unpause => guest::act(request, ServerCommand::Unpause).await,
        ServerAction::Suspend => guest::act(request, ServerCommand::Suspend).await,
        ServerAction::Resume => guest::act(request, ServerCommand::Resume).await,
        ServerAction::Unrescue => guest::act(request, ServerCommand::Unrescue).await,
        ServerAction::CrashDump => guest::act(request, ServerCommand::CrashDump).await,
        ServerAction::Rescue => guest::rescue(request).await,
        ServerAction::CreateImage | ServerAction::CreateBackup => image::act(request).await,
        ServerAction::Rebuild => rebuild::act(request).await,
        ServerAction::Shelve => shelve::shelve(request).await,
        ServerAction::ShelveOffload => shelve::offload(request).await,
        ServerAction::Unshelve => shelve::unshelve(request).await,
        ServerAction::ResetState => reset::act(request).await,
        ServerAction::ConsoleOutput => look::act(request).await,
        ServerAction::ChangePassword => none::password(request).await,
        ServerAction::InjectNetworkInfo => Err(none::gone()),
        ServerAction::AddFixedIp
        | ServerAction::RemoveFixedIp
        | ServerAction::AddFloatingIp
        | ServerAction::RemoveFloatingIp => none::addresses(request).await,
        ServerAction::AddSecurityGroup | ServerAction::RemoveSecurityGroup => {
            none::groups(request).await
        }
        ServerAction::VncConsole
        | ServerAction::SpiceConsole
        | ServerAction::RdpConsole
        | ServerAction::SerialConsole
        | ServerAction::MksConsole => none::console(request).await,
        ServerAction::Resize => resize::resize(request).await,
        ServerAction::ConfirmResize => resize::confirm(request).await,
        ServerAction::RevertResize => resize::revert(request).await,
        ServerAction::Migrate => migrate::migrate(request).await,
        ServerAction::Evacuate => migrate::evacuate(request).await,
        ServerAction::LiveMigrate => live::act(request).await,
        ServerAction::Delete
        | ServerAction::AbortLiveMigration
        | ServerAction::ForceComplete
        | ServerAction::AttachInterface
        | ServerAction::DetachInterface
        | ServerAction::ChangeMetadata
        | ServerAction::ChangeTags => Err(unknown(name)),
    }
}

/// 400 for a key that names no action.
fn unknown(name: &str) -> Fault {
    Fault::bad_request(format!("There is no such action: {}.", name.escape_debug()))
}

/// True if the argument names a host, which needs another rule.
fn names_host(argument: &Value) -> bool {
    argument["host"].as_str().is_some_and(|host| !host.is_empty())
}
