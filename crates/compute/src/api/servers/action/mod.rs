//! `POST /servers/{id}/action`: the only key of the body names the action. Each family of actions has
//! its own file.
//!
//! The table of actions ([`kilonova_compute_app::actions`]) defines the rule, the microversions and the
//! schema of each action. A handler receives only requests that satisfy all three.

mod addresses;
mod console;
mod console_output;
mod delete;
mod guest;
mod image;
mod live;
mod lock;
mod migrate;
mod power;
mod rebuild;
mod reset;
mod resize;
mod shelve;
mod unavailable;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use kilonova_access::{Caller, Guard};
use kilonova_compute_app::actions::{RULE_OF_KEY, ServerAction, check_body};
use kilonova_compute_app::consoles::Protocol;
use kilonova_compute_app::flows::{self, ServerCommand};
use kilonova_compute_app::images::{PreparedImage, SeenImages, Snapshot};
use kilonova_compute_app::{Compute, Error, states};
use kilonova_compute_db::servers::Server;
use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::schema::MASK;
use kilonova_wire::{Context, JsonBody, Microversion, Refusal, time};
use serde_json::Value;

use crate::api::input;
use crate::api::links::Base;

/// The keys of the body, and their rules.
pub(super) const ACTIONS: Guard = Guard::Action(&RULE_OF_KEY);

/// A request for a server action.
#[derive(Clone)]
struct ActionRequest {
    compute: Compute,
    context: Context,
    /// The caller, with the rule of the action.
    caller: Caller,
    version: Microversion,
    /// The prefix of links.
    base: Base,
    /// The id in the path, as sent.
    id: String,
    action: ServerAction,
    /// The value of the action's key. It satisfies the action's schema.
    argument: Value,
}

impl ActionRequest {
    /// Runs `act`, which changes no guest, on the server in one transaction and answers 202.
    async fn accept<F>(self, act: F) -> Result<Response, Refusal>
    where
        F: Fn(&mut Tx<'_>, &Self, &Server, Timestamp) -> Result<(), Error> + Send + 'static,
    {
        self.write(act).await?;
        Ok(StatusCode::ACCEPTED.into_response())
    }

    /// Runs `act`, which changes the guest, on the server in one transaction and answers 202.
    async fn begin<F>(self, act: F) -> Result<Response, Refusal>
    where
        F: Fn(&mut Tx<'_>, &Self, &Server, Timestamp) -> Result<(), Error> + Send + 'static,
    {
        self.write_with(flows::expect_change, act).await?;
        Ok(StatusCode::ACCEPTED.into_response())
    }

    /// Runs `act` on the server in one transaction and returns its result.
    async fn write<T, F>(self, act: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>, &Self, &Server, Timestamp) -> Result<T, Error> + Send + 'static,
    {
        self.write_with(|_, _| Ok(()), act).await
    }

    /// Like [`ActionRequest::write`], with the reads that `announce` announces.
    async fn write_with<T, A, F>(mut self, announce: A, act: F) -> Result<T, Refusal>
    where
        A: Fn(&mut Tx<'_>, ServerId) -> Result<(), Error> + Send + 'static,
        T: Send + 'static,
        F: Fn(&mut Tx<'_>, &Self, &Server, Timestamp) -> Result<T, Error> + Send + 'static,
    {
        let compute = self.compute.explaining();
        self.compute = compute.clone();
        let answer = compute
            .write(move |tx| {
                let server = super::find::find_with(tx, &self.caller, &self.id, &announce)?;
                act(tx, &self, &server, time::now())
            })
            .await?;
        Ok(answer)
    }

    /// Looks up the server's own image, for checks that need more than the server's row.
    async fn look_up_own(&self) -> Result<SeenImages, Refusal> {
        if self.compute.images.glance().is_none() {
            return Ok(SeenImages::InRows);
        }
        // The image is needed only if the flavor's disk is 0: any other disk has limited the image's size at boot.
        let own = |_: &Self, server: &Server| {
            Ok(server.spec.image.filter(|_| server.spec.flavor.disk == 0))
        };
        let image = self.clone().read(own).await?;
        Ok(self.compute.images.look_up(&self.context, image).await?)
    }

    /// The server, if it is volume-backed and the cloud has a Cinder. The caller must then also satisfy `rule`.
    ///
    /// # Errors
    /// 403 for a caller that the rule refuses; 409 if the server's state does not allow the action.
    async fn volume_backed(&self, rule: Option<&'static str>) -> Result<Option<Server>, Refusal> {
        if self.compute.volumes.is_none() {
            return Ok(None);
        }
        let check = move |request: &Self, server: &Server| {
            if server.spec.image.is_some() {
                return Ok(None);
            }
            if let Some(rule) = rule {
                request.caller.may(rule, &super::find::target(server))?;
            }
            states::allow(&request.context, server, request.action)?;
            Ok(Some(server.clone()))
        };
        self.clone().read(check).await
    }

    /// Prepares the snapshot image that `describe` defines, before the transaction that begins the operation.
    async fn prepare_image<F>(&self, describe: F) -> Result<PreparedImage, Refusal>
    where
        F: FnOnce(&Server) -> Snapshot,
    {
        if self.compute.images.glance().is_none() {
            return Ok(PreparedImage::InTransaction);
        }
        let check = |request: &Self, server: &Server| {
            states::allow(&request.context, server, request.action)?;
            Ok(server.clone())
        };
        let server = self.clone().read(check).await?;
        if server.spec.image.is_none() {
            // For a volume-backed server, no image is created in advance.
            return Ok(PreparedImage::InTransaction);
        }
        let (images, store) = (&self.compute.images, &self.compute.store);
        Ok(images.prepare(store, &self.context, &server, &describe(&server)).await?)
    }

    /// Runs `inspect` on the server in a read transaction and returns its result.
    async fn read<T, F>(self, inspect: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Fn(&Self, &Server) -> Result<T, Error> + Send + 'static,
    {
        let store = self.compute.store.clone();
        let answer = store
            .read(move |tx| {
                let server = super::find::find(tx, &self.caller, &self.id)?;
                inspect(&self, &server)
            })
            .await?;
        Ok(answer)
    }

    /// 400 for an invalid argument, which may contain a password.
    fn invalid_argument(&self, why: &str) -> Refusal {
        let name = self.action.row().key().unwrap_or_default();
        let text = |value: &dyn std::fmt::Display| {
            format!("Invalid input for field/attribute {name}. Value: {value}. {why}")
        };
        Refusal::bad_request(text(&self.argument)).with_logged(text(&MASK))
    }
}

pub(super) async fn action(
    State(compute): State<Compute>,
    caller: Caller,
    base: Base,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Refusal> {
    let Some((name, argument)) =
        body.as_object().filter(|keys| keys.len() == 1).and_then(|keys| keys.iter().next())
    else {
        return Err(Refusal::bad_request(
            "Malformed request body: it must name exactly one action.",
        ));
    };
    if name == "resetNetwork" {
        return Err(unavailable::gone());
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
    input::check_microversion(version, row.span)?;
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
        ServerAction::Guest(verb) => guest::act(request, ServerCommand::Guest(verb)).await,
        ServerAction::Rescue => guest::rescue(request).await,
        ServerAction::CreateImage | ServerAction::CreateBackup => image::act(request).await,
        ServerAction::Rebuild => rebuild::act(request).await,
        ServerAction::Shelve => shelve::shelve(request).await,
        ServerAction::ShelveOffload => shelve::offload(request).await,
        ServerAction::Unshelve => shelve::unshelve(request).await,
        ServerAction::ResetState => reset::act(request).await,
        ServerAction::ConsoleOutput => console_output::act(request).await,
        ServerAction::ChangePassword => unavailable::password(request).await,
        ServerAction::InjectNetworkInfo => Err(unavailable::gone()),
        ServerAction::AddFixedIp | ServerAction::RemoveFixedIp => addresses::act(request).await,
        ServerAction::AddFloatingIp | ServerAction::RemoveFloatingIp => {
            unavailable::addresses(request).await
        }
        ServerAction::AddSecurityGroup | ServerAction::RemoveSecurityGroup => {
            unavailable::groups(request).await
        }
        ServerAction::VncConsole => console::act(request, Protocol::Vnc).await,
        ServerAction::SpiceConsole => console::act(request, Protocol::Spice).await,
        ServerAction::RdpConsole => Err(unavailable::gone()),
        ServerAction::SerialConsole => console::act(request, Protocol::Serial).await,
        ServerAction::MksConsole => console::act(request, Protocol::Mks).await,
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
        | ServerAction::AttachVolume
        | ServerAction::DetachVolume
        | ServerAction::Update
        | ServerAction::ChangeMetadata
        | ServerAction::ChangeTags => Err(unknown(name)),
    }
}

/// 400 for an unknown action.
fn unknown(name: &str) -> Refusal {
    Refusal::bad_request(format!("There is no such action: {}.", name.escape_debug()))
}

/// True if the argument names a host, which requires a stricter rule.
fn names_host(argument: &Value) -> bool {
    argument["host"].as_str().is_some_and(|host| !host.is_empty())
}
