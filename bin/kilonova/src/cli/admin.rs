//! `kilonova admin password`: a new password for the administrator of a cloud whose credentials are lost.
//! It needs the database and the sealing key; a running controller notices the change itself.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use kilonova_identity::{Identity, TokenKeys};
use serde_json::json;

use super::keys::ControllerArgs;
use super::{Format, examples};
use crate::config::{AuthStrategy, ServiceName};
use crate::failure::Failure;
use crate::serve::entrance;
use crate::state::Credentials;

/// Arguments of `admin`.
#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set a new password for the user admin and rewrite openrc and clouds.yaml, as keystone-manage
    /// bootstrap does. Its earlier tokens become invalid. Run this as the user of the service.
    #[command(after_help = examples::ADMIN)]
    Password(Password),
}

#[derive(Debug, Args)]
struct Password {
    #[command(flatten)]
    place: ControllerArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: AdminArgs) -> Result<ExitCode, Failure> {
    let Command::Password(options) = options.command;
    kilonova_program::logs::start(false, None);
    let output = super::runtime()?.block_on(password(options))?;
    super::say_done(&output)?;
    Ok(ExitCode::SUCCESS)
}

async fn password(options: Password) -> Result<String, Failure> {
    let (settings, vault) = options.place.open().await?;
    if settings.auth != AuthStrategy::Keystone || !settings.runs(ServiceName::Identity) {
        let why = "the users of this cloud are not in Kilonova: set the password in its Keystone";
        return Err(Failure::Refused(why.into()));
    }
    let directory = &settings.state_dir;
    let (url, cacert) = entrance(&settings)?;
    // As at the first start, the files come first: a crash never leaves an unknown password.
    let credentials = Credentials::renew(directory, &url, cacert.as_deref())?;
    let changed = async {
        let keys = TokenKeys::open(vault.clone(), &directory.join("keys")).await?;
        let identity =
            Identity::open(vault.store().clone(), keys, settings.identity.clone()).await?;
        identity.recover_admin(&credentials.password).await
    };
    if let Err(error) = changed.await {
        Credentials::withdraw(directory);
        return Err(Failure::failed("cannot change the password", error));
    }
    let (openrc, clouds) = (directory.join("openrc"), directory.join("clouds.yaml"));
    let (openrc, clouds) = (openrc.display(), clouds.display());
    let auth_url = format!("{url}/identity/v3");
    Ok(match options.format {
        Format::Json => {
            let files = json!({"openrc": openrc.to_string(), "clouds": clouds.to_string(),
                "auth_url": auth_url});
            format!("{files}\n")
        }
        Format::Table => format!(
            "The user admin has a new password, in {openrc} and {clouds}. Its earlier tokens are invalid, \
             and openrc and clouds.yaml on other controllers no longer work.\nThe files name {auth_url}, as the \
             configuration says; the next start of this controller corrects that if it serves another URL.\n"
        ),
    })
}
