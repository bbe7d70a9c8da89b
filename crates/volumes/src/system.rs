//! The host as the other modules see it: programs, sysfs and `/dev`.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use kilonova_node_api::Secret;
use tokio::process::Command;

use crate::config::VolumesConfig;

/// The time limit of a program, and of a write. It is long because a login waits for a target that does not answer.
const LIMIT: Duration = Duration::from_secs(150);

/// An argument of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Text.
    Plain(String),
    /// A secret, which messages never contain.
    Secret(Secret),
}

impl<T: Into<String>> From<T> for Argument {
    fn from(text: T) -> Self {
        Self::Plain(text.into())
    }
}

/// Arguments from texts.
pub(crate) fn arguments(texts: &[&str]) -> Vec<Argument> {
    texts.iter().map(|text| Argument::from(*text)).collect()
}

/// A program that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its exit code, if it ran to its end.
    pub code: Option<i32>,
    /// The reason, for the operator, without secrets.
    pub message: String,
}

/// The future of a program's output.
pub(crate) type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + Send + 'a>>;

/// The future of a write.
pub(crate) type WriteFuture<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// The host. A step that waits for a device or for a server is a future with a time limit: the agent has few threads.
pub(crate) trait System: Send + Sync + 'static {
    /// Runs a program without a shell and returns its output.
    fn run<'a>(&'a self, program: &'a str, arguments: Vec<Argument>) -> RunFuture<'a>;
    /// Reads a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes to a file that exists, such as an attribute in sysfs.
    fn write<'a>(&'a self, path: &'a Path, text: &'a str) -> WriteFuture<'a>;
    /// Names in a directory, sorted; none if it does not exist.
    fn list(&self, path: &Path) -> Vec<String>;
    /// The path with all symbolic links resolved. Fails if it does not exist.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;
    /// Creates a directory.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
}

/// Exists if udev runs.
pub(crate) const UDEV: &str = "/run/udev/control";

/// The path of a device that survives a restart of the host: one of `lasting`. udev creates it a moment after the kernel
/// has created the device's node, which is the answer if udev does not run or is too late. The caller holds no lock.
pub(crate) async fn lasting_path(
    system: &dyn System,
    config: &VolumesConfig,
    lasting: &[PathBuf],
    node: PathBuf,
) -> PathBuf {
    for attempt in 0..=config.scan_tries {
        if attempt > 0 {
            tokio::time::sleep(config.look).await;
        }
        let found = lasting.iter().find(|path| system.resolve(path).is_ok_and(|to| to == node));
        if let Some(found) = found {
            return found.clone();
        }
        if system.resolve(UDEV.as_ref()).is_err() {
            break;
        }
    }
    node
}

/// This machine.
pub(crate) struct Host;

impl System for Host {
    fn run<'a>(&'a self, program: &'a str, arguments: Vec<Argument>) -> RunFuture<'a> {
        Box::pin(run(program, arguments))
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn write<'a>(&'a self, path: &'a Path, text: &'a str) -> WriteFuture<'a> {
        use io::Write as _;
        let (path, text) = (path.to_owned(), text.to_owned());
        Box::pin(within(LIMIT, move || {
            std::fs::File::options().write(true).open(path)?.write_all(text.as_bytes())
        }))
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }
}

/// Runs a step that the kernel may block, on a thread of its own. Such a step cannot be cancelled: after the limit it
/// continues unattended.
async fn within<T: Send + 'static>(
    limit: Duration,
    step: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(step)).await {
        Ok(done) => done.unwrap_or_else(|error| Err(io::Error::other(error))),
        Err(_) => {
            let why = format!("the kernel did not answer within {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

async fn run(program: &str, arguments: Vec<Argument>) -> Result<String, Failure> {
    let failed = |message: String| Failure { code: None, message };
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    for argument in &arguments {
        match argument {
            Argument::Plain(text) => command.arg(text),
            Argument::Secret(secret) => command.arg(secret.reveal()),
        };
    }
    let output = tokio::time::timeout(LIMIT, command.output()).await;
    let output = match output {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(failed(format!("{program} is not installed on this host")));
        }
        Ok(Err(error)) => return Err(failed(format!("cannot run {program}: {error}"))),
        Err(_) => return Err(failed(format!("{program} was killed after a timeout of {LIMIT:?}"))),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = message(program, &arguments, &output.stderr, &output.stdout);
    let message = format!("{message} ({})", output.status);
    Err(Failure { code: output.status.code(), message })
}

/// The command and the beginning of the program's output, without the secrets among its arguments.
fn message(program: &str, arguments: &[Argument], errors: &[u8], output: &[u8]) -> String {
    let said = if errors.is_empty() { output } else { errors };
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> =
        said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let mut text = program.to_owned();
    let mut said = lines.join("; ");
    for argument in arguments {
        text.push(' ');
        match argument {
            Argument::Plain(plain) => text.push_str(plain),
            Argument::Secret(secret) => {
                text.push_str("***");
                if !secret.is_empty() {
                    said = said.replace(secret.reveal(), "***");
                }
            }
        }
    }
    let said: String = said.chars().filter(|c| !c.is_control()).take(500).collect();
    format!("{text}: {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, more: Vec<Argument>) -> Vec<Argument> {
        let mut all = arguments(&["-c", script, "sh"]);
        all.extend(more);
        all
    }

    #[tokio::test]
    async fn a_step_that_the_kernel_blocks_is_left_alone() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let stuck = within(Duration::from_millis(20), move || {
            wait.recv().ok();
            Ok(())
        });
        let error = stuck.await.expect_err("the step is not released in time");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(release);
        assert_eq!(within(LIMIT, || Ok(7)).await.ok(), Some(7));
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("scan");
        let absent = Host.write(&path, "1").await.expect_err("there is no such file");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "").expect("the file is written");
        Host.write(&path, "- - 1").await.expect("the file is written");
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("- - 1"));
    }

    #[tokio::test]
    async fn output_and_failures_are_reported_without_secrets() {
        let said = run("/bin/sh", shell("echo yes", Vec::new())).await;
        assert_eq!(said.as_deref(), Ok("yes\n"));
        let secret = Argument::Secret(Secret::new("open sesame"));
        let failed = run("/bin/sh", shell("echo no $1 >&2; exit 15", vec![secret])).await;
        let failed = failed.expect_err("the program fails");
        assert_eq!(failed.code, Some(15));
        assert!(failed.message.contains("no ***") && !failed.message.contains("sesame"));
        let absent =
            run("/nowhere/iscsiadm", Vec::new()).await.expect_err("the program does not exist");
        assert_eq!(absent.message, "/nowhere/iscsiadm is not installed on this host");
    }
}
