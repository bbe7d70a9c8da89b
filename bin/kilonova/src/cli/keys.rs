//! `kilonova keys`: the token keys and the sealing keys of a cloud, on one of its controllers. The
//! commands use the database and the sealing key; a running controller notices the change itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kilonova_identity::TokenKeys;
use kilonova_seal::Vault;
use kilonova_store::{DatabaseUrl, Options, Store};
use kilonova_wire::time::zulu;
use serde_json::json;

use super::{Format, examples};
use crate::config::{CommandLine, Settings};
use crate::failure::Failure;
use crate::serve::{migrations, secrets};

/// Arguments of `keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the token keys and the sealing keys. Never shows the keys themselves.
    #[command(after_help = examples::KEYS_LIST)]
    List(List),
    /// Rotate the token keys, as `keystone-manage fernet_rotate` does. Tokens stay valid.
    #[command(after_help = examples::KEYS_FERNET_ROTATE)]
    FernetRotate(List),
    /// Add a new sealing key to the key file of this controller. It does not seal yet.
    #[command(after_help = examples::KEYS_SEAL_ADD)]
    SealAdd(List),
    /// Reseal all secrets with the newest sealing key.
    #[command(after_help = examples::KEYS_SEAL_ROTATE)]
    SealRotate(List),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: ControllerArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// The controller whose database and sealing key a command uses.
#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    /// Configuration file of the controller. Default: none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State directory of the controller. Default: kilonova-state.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Database URL. Default: SQLite in the state directory.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl ControllerArgs {
    /// Opens the settings and the secrets of the controller; creates nothing.
    pub(super) async fn open(self) -> Result<(Settings, Vault), Failure> {
        let arguments = CommandLine {
            state_dir: self.state_dir,
            database: self.database,
            ..CommandLine::default()
        };
        let settings = Settings::read(self.config.as_deref(), arguments)?;
        let url = settings.database_url()?;
        if let DatabaseUrl::Sqlite(file) = &url
            && !file.exists()
        {
            return Err(Failure::Refused(format!(
                "no database at {}; set --state-dir to that of a controller",
                file.display()
            )));
        }
        let opened = Store::open_with(&url, &Options::for_command()).await;
        let store = opened.map_err(|e| Failure::Refused(e.to_string()))?;
        let applied = store.applied().await.map_err(|e| Failure::Refused(e.to_string()))?;
        if migrations().iter().any(|one| !applied.iter().any(|name| name == one.name)) {
            return Err(Failure::Refused(
                "the schema belongs to an older kilonova: start kilonova serve of this version first"
                    .into(),
            ));
        }
        let vault = secrets::open_existing(&settings, store).await?;
        Ok((settings, vault))
    }
}

pub(super) fn run(options: KeysArgs) -> Result<ExitCode, Failure> {
    kilonova_program::logs::start(false, None);
    let is_read = matches!(options.command, Command::List(_));
    let output = super::runtime()?.block_on(async {
        match options.command {
            Command::List(options) => list(options).await,
            Command::FernetRotate(options) => fernet_rotate(options).await,
            Command::SealAdd(options) => seal_add(options).await,
            Command::SealRotate(options) => seal_rotate(options).await,
        }
    })?;
    let said = if is_read { super::say(&output) } else { super::say_done(&output) };
    said?;
    Ok(ExitCode::SUCCESS)
}

fn identity(error: kilonova_identity::Error) -> Failure {
    Failure::Refused(error.to_string())
}

async fn list(options: List) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let tokens = TokenKeys::list(vault.store()).await.map_err(identity)?;
    let (current, sealed) = vault.list().await.map_err(secrets::failure)?;
    let ring = vault.ring();
    let used = |id: &str| {
        sealed.iter().filter(|one| one.sealed_with().is_ok_and(|with| with.as_str() == id)).count()
    };
    if options.format == Format::Json {
        let tokens = tokens.iter().map(|key| {
            json!({"number": key.number, "role": key.role.as_str(), "made_at": zulu(key.made_at),
                "retired_at": key.retired_at.map(zulu)})
        });
        let seals = ring.ids().map(|id| {
            json!({"id": id.as_str(), "seals": Some(id.as_str()) == current.as_deref(),
                "secrets": used(id.as_str())})
        });
        let all = json!({"token_keys": tokens.collect::<Vec<_>>(),
            "sealing_keys": seals.collect::<Vec<_>>()});
        return Ok(format!("{all}\n"));
    }
    let mut text = String::from("token key  role       created               signed until\n");
    for key in &tokens {
        let until = key.retired_at.map(zulu).unwrap_or_default();
        let line =
            format!("{:9}  {:9}  {}  {until}", key.number, key.role.as_str(), zulu(key.made_at));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!("\nSealing keys in {}:\n", ring.place()));
    for id in ring.ids() {
        let does = match (Some(id.as_str()) == current.as_deref(), used(id.as_str())) {
            (true, count) => format!("seals; {count} secret(s)"),
            (false, 0) => "not used".to_owned(),
            (false, count) => format!("{count} secret(s)"),
        };
        text.push_str(&format!("{id}  {does}\n"));
    }
    Ok(text)
}

async fn fernet_rotate(options: List) -> Result<String, Failure> {
    let (settings, vault) = options.place.open().await?;
    let expiration = settings.identity.token_expiration;
    let rotated = TokenKeys::rotate(&vault, settings.seal.active_keys, expiration).await;
    let rotated = rotated.map_err(identity)?;
    if options.format == Format::Json {
        let said =
            json!({"primary": rotated.primary, "deleted": rotated.deleted, "kept": rotated.kept});
        return Ok(format!("{said}\n"));
    }
    let listed = |keys: &[i64]| keys.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "Token key {} signs from now on; running controllers notice within seconds.\n",
        rotated.primary
    );
    if !rotated.deleted.is_empty() {
        text.push_str(&format!("Deleted: {}.\n", listed(&rotated.deleted)));
    }
    if !rotated.kept.is_empty() {
        text.push_str(&format!(
            "Kept beyond [fernet_tokens] max_active_keys, because tokens that they signed may be valid: \
             {}. A later rotation deletes them.\n",
            listed(&rotated.kept)
        ));
    }
    Ok(text)
}

async fn seal_add(options: List) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let id = vault.add_key().await.map_err(secrets::failure)?;
    Ok(match options.format {
        Format::Json => format!("{}\n", json!({"added": id.as_str()})),
        Format::Table => format!(
            "Added sealing key {id} to {}. Copy the file to every controller, then run: kilonova keys \
             seal-rotate\n",
            vault.ring().place()
        ),
    })
}

async fn seal_rotate(options: List) -> Result<String, Failure> {
    let (_, vault) = options.place.open().await?;
    let resealed = vault.reseal().await.map_err(secrets::failure)?;
    let (id, count) = (resealed.key.as_str(), resealed.secrets);
    Ok(match options.format {
        Format::Json => format!("{}\n", json!({"seals": id, "secrets": count})),
        Format::Table => format!(
            "Key {id} seals all {count} secret(s). Older keys are needed for older backups only.\n"
        ),
    })
}
