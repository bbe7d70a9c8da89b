//! `kilonova ca`: the cloud's certificate authority and its rotation, on one of the controllers.
//! Running controllers and the hosts' agents pick up the change automatically.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use kilonova_enroll::{Authorities, AuthorityState, Error};
use kilonova_ids::HostName;
use kilonova_wire::time::zulu;
use serde_json::json;

use super::keys::ControllerArgs;
use super::node_join::seconds;
use super::{Format, examples};
use crate::failure::Failure;
use crate::state::write_secret;

/// Arguments of `ca`.
#[derive(Debug, Args)]
pub struct CaArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the authorities that the cloud has had.
    #[command(after_help = examples::CA_LIST)]
    List(Plain),
    /// Begin a rotation: create an authority, and distribute it to the hosts.
    #[command(after_help = examples::CA_ROTATE)]
    Rotate(Plain),
    /// Sign with the new authority from now on. Hosts renew their certificates. Refused while a host
    /// does not trust it.
    #[command(after_help = examples::CA_ACTIVATE)]
    Activate(Activate),
    /// Stop trusting the old authority. Refused while a host uses it.
    #[command(after_help = examples::CA_RETIRE)]
    Retire(Retire),
    /// Cancel a rotation whose authority does not sign yet.
    #[command(after_help = examples::CA_CANCEL)]
    Cancel(Plain),
    /// Write the authority's certificate and key to a new directory.
    #[command(after_help = examples::CA_EXPORT)]
    Export(Export),
}

#[derive(Debug, Args)]
struct Plain {
    #[command(flatten)]
    place: ControllerArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
struct Activate {
    /// How long the old authority stays trusted: 12h, 30d. Default: [node] certificate_days, after
    /// which all its certificates have expired.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    overlap: Option<i64>,
    /// Activate even though hosts do not trust the new authority yet.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    plain: Plain,
}

#[derive(Debug, Args)]
struct Retire {
    /// Retire even though hosts use the old authority. They have to join again.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    plain: Plain,
}

#[derive(Debug, Args)]
struct Export {
    /// Directory for ca.crt and ca.key; it must not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    place: ControllerArgs,
}

pub(super) fn run(options: CaArgs) -> Result<ExitCode, Failure> {
    kilonova_program::logs::start(false, None);
    let is_read = matches!(options.command, Command::List(_));
    let output = super::runtime()?.block_on(async {
        match options.command {
            Command::List(options) => list(options).await,
            Command::Rotate(options) => rotate(options).await,
            Command::Activate(options) => activate(options).await,
            Command::Retire(options) => retire(options).await,
            Command::Cancel(options) => cancel(options).await,
            Command::Export(options) => export(options).await,
        }
    })?;
    let said = if is_read { super::say(&output) } else { super::say_done(&output) };
    said?;
    Ok(ExitCode::SUCCESS)
}

fn refused(error: Error) -> Failure {
    Failure::Refused(error.to_string())
}

async fn list(options: Plain) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let all = Authorities::list(&vault).await.map_err(refused)?;
    if options.format == Format::Json {
        let all = all.iter().map(|one| {
            json!({"number": one.number, "fingerprint": one.fingerprint, "state": one.state.as_str(),
                "made_at": zulu(one.made_at), "trusted_until": one.trusted_until.map(zulu)})
        });
        return Ok(format!("{}\n", json!({"authorities": all.collect::<Vec<_>>()})));
    }
    if all.is_empty() {
        return Ok("This cloud has no certificate authority yet. Set [node] listen and restart kilonova serve.\n".into());
    }
    let mut text = String::from("number  state     created               fingerprint\n");
    for one in &all {
        let until = match (one.state, one.trusted_until) {
            (AuthorityState::Outgoing, Some(until)) => format!("  trusted until {}", zulu(until)),
            _ => String::new(),
        };
        text.push_str(&format!(
            "{:6}  {:8}  {}  {}{until}\n",
            one.number,
            one.state.as_str(),
            zulu(one.made_at),
            one.fingerprint
        ));
    }
    Ok(text)
}

async fn rotate(options: Plain) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let fingerprint = Authorities::rotate(&vault).await.map_err(refused)?.to_string();
    Ok(match options.format {
        Format::Json => format!("{}\n", json!({"staged": fingerprint})),
        Format::Table => format!(
            "Authority {fingerprint} is staged. Agents request it every five minutes. When all hosts \
             trust it, run: kilonova ca activate\n"
        ),
    })
}

fn listed(hosts: &[HostName]) -> String {
    hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

async fn activate(options: Activate) -> Result<String, Failure> {
    let (settings, vault) = options.plain.place.open().await?;
    let usual = || settings.node_listener.as_ref().map_or(kilonova_enroll::VALID, |one| one.valid);
    let overlap = options.overlap.map_or_else(usual, SignedDuration::from_secs);
    let activated = Authorities::activate(&vault, overlap, options.force).await;
    let (until, late) = activated.map_err(refused)?;
    let until = zulu(until);
    if options.plain.format == Format::Json {
        return Ok(format!("{}\n", json!({"trusted_until": until, "hosts": late})));
    }
    let mut text = format!(
        "The new authority signs. Agents renew their certificates within a few minutes. The old one is \
         trusted until {until}; to end that earlier, run: kilonova ca retire\n"
    );
    if !late.is_empty() {
        text.push_str(&format!("These hosts do not trust the new one yet: {}.\n", listed(&late)));
    }
    Ok(text)
}

async fn retire(options: Retire) -> Result<String, Failure> {
    let (_, vault) = options.plain.place.open().await?;
    let late = Authorities::retire(&vault, options.force).await.map_err(refused)?;
    if options.plain.format == Format::Json {
        return Ok(format!("{}\n", json!({"hosts": late})));
    }
    let mut text =
        String::from("The old authority is no longer trusted, and its key is deleted.\n");
    if !late.is_empty() {
        text.push_str(&format!(
            "These hosts have to join again (kilonova node enroll --host HOST): {}.\n",
            listed(&late)
        ));
    }
    text.push_str("The rotation is complete. To begin another one, run: kilonova ca rotate\n");
    Ok(text)
}

async fn cancel(options: Plain) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    Authorities::cancel(&vault).await.map_err(refused)?;
    Ok(match options.format {
        Format::Json => "{}\n".to_owned(),
        Format::Table => {
            "The rotation is cancelled. Hosts stop trusting the staged authority within minutes. To begin \
             another one, run: kilonova ca rotate\n"
                .to_owned()
        }
    })
}

async fn export(options: Export) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let pem = Authorities::export(&vault).await.map_err(refused)?;
    let shown = options.directory.display();
    let failed = |e: std::io::Error| Failure::failed(&format!("cannot write to {shown}"), e);
    let made = std::fs::DirBuilder::new().mode(0o700).create(&options.directory);
    made.map_err(|e| Failure::Refused(format!("cannot create {shown}: {e}")))?;
    write_secret(&options.directory.join("ca.key"), &pem.key).map_err(failed)?;
    write_secret(&options.directory.join("ca.crt"), &pem.certificate).map_err(failed)?;
    Ok(format!(
        "Wrote {shown}/ca.crt and {shown}/ca.key. The key can sign certificates for any host: keep it \
         offline.\n"
    ))
}
