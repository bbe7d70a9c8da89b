//! Runs programs without a shell and without input. Bounds their run time and the output that is
//! kept.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use crate::Error;

/// How much of a program's output is kept, in bytes.
const MAX_OUTPUT: usize = 256 * 1024;
/// How much of its error output is kept, in bytes.
const MAX_ERROR_OUTPUT: usize = 2048;
/// The program that runs another one under limits.
const LIMITS: &str = "prlimit";
/// Its exit code if the other program does not exist.
const NOT_FOUND: i32 = 127;
/// Memory and CPU time of programs that read an untrusted image.
const UNTRUSTED: [&str; 2] = ["--as=1073741824", "--cpu=30"];
/// Memory of programs that convert an untrusted image: they need buffers and threads.
const UNPACKING: &str = "--as=4294967296";

/// A program to run.
pub(crate) struct Run {
    program: OsString,
    arguments: Vec<OsString>,
    variable: Option<(&'static str, &'static str)>,
    limit: Duration,
    success_codes: &'static [i32],
}

impl Run {
    /// A short-running program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variable: None,
            limit: Duration::from_secs(120),
            success_codes: &[0],
        }
    }

    /// A program that reads untrusted data, under limits.
    pub fn untrusted(program: &str) -> Self {
        Self::new(LIMITS).args(UNTRUSTED).arg("--").arg(program)
    }

    /// A program that converts untrusted data, under limits: a file of at most `bytes`, in at most
    /// `limit`.
    pub fn untrusted_convert(program: &str, limit: Duration, bytes: u64) -> Self {
        let processor = format!("--cpu={}", limit.as_secs().max(1));
        let file = format!("--fsize={}", bytes.next_multiple_of(1 << 16));
        let run = Self::new(LIMITS).args([UNPACKING, &processor, &file]);
        run.arg("--").arg(program).limit(limit)
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|one| one.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, variable: (&'static str, &'static str)) -> Self {
        self.variable = Some(variable);
        self
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the exit codes that count as success.
    pub fn success_codes(mut self, statuses: &'static [i32]) -> Self {
        self.success_codes = statuses;
        self
    }

    /// True if `prlimit` starts the program.
    fn has_limits(&self) -> bool {
        self.program == LIMITS
    }

    /// The name of the program for error messages, without `prlimit`.
    fn name(&self) -> String {
        let limits = self.arguments.iter().position(|argument| argument == "--");
        let program =
            limits.and_then(|at| self.arguments.get(at + 1)).filter(|_| self.has_limits());
        Path::new(program.unwrap_or(&self.program)).display().to_string()
    }

    /// Runs the program and returns its output. Kills the program when dropped.
    pub async fn wait(self) -> Result<Vec<u8>, Error> {
        let (name, limits) = (self.name(), self.has_limits());
        let program_error = |why: String| Error::Program { program: name.clone(), why };
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("LC_ALL", "C")
            .envs(self.variable)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NotInstalled(name.clone()),
            _ => program_error(format!("could not be started: {error}")),
        })?;
        let (answer, complaint) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (answer, complaint, status) = tokio::join!(
                read_head(answer, MAX_OUTPUT),
                read_head(complaint, MAX_ERROR_OUTPUT),
                child.wait()
            );
            (answer, complaint, status)
        };
        match tokio::time::timeout(self.limit, work).await {
            Ok((answer, _, Ok(status)))
                if status.code().is_some_and(|n| self.success_codes.contains(&n)) =>
            {
                Ok(answer)
            }
            Ok((_, _, Ok(status))) if limits && status.code() == Some(NOT_FOUND) => {
                Err(Error::NotInstalled(name.clone()))
            }
            Ok((answer, complaint, Ok(status))) => {
                let message = if complaint.is_empty() { answer } else { complaint };
                let message = printable(&message);
                let full = message.contains("No space left on device");
                let hint = if full { " (the file system is full; free up space)" } else { "" };
                Err(program_error(format!("failed, {status}: {message}{hint}")))
            }
            Ok((_, _, Err(error))) => {
                Err(program_error(format!("could not be waited for: {error}")))
            }
            Err(_) => {
                kill(&mut child).await;
                Err(program_error(format!("killed after a timeout of {:?}", self.limit)))
            }
        }
    }
}

/// Kills a program and its process group.
async fn kill(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

/// Reads a pipe to its end and keeps the first `most` bytes, so that the program never blocks on
/// it.
async fn read_head(pipe: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    let Some(mut pipe) = pipe else { return kept };
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        let room = most.saturating_sub(kept.len()).min(count);
        kept.extend(&piece[..room]);
    }
    kept
}

/// Text without control characters, for logs and the database.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Run {
        Run::new("/bin/sh").arg("-c").arg(script).limit(Duration::from_secs(20))
    }

    #[tokio::test]
    async fn output_and_failures_are_reported() {
        let answer = shell("echo yes; echo but >&2").wait().await.expect("the program succeeds");
        assert_eq!(answer, b"yes\n");
        let failed =
            shell("echo no such disk >&2; exit 3").wait().await.expect_err("the program fails");
        assert_eq!(failed.to_string(), "/bin/sh: failed, exit status: 3: no such disk");
        let full = shell("echo write: No space left on device >&2; exit 1").wait().await;
        assert!(full.expect_err("the program fails").to_string().contains("free up space"));
        let absent =
            Run::new("/nowhere/qemu-img").wait().await.expect_err("the program does not exist");
        let text = "/nowhere/qemu-img is not installed on this host; `kilonova-agent check` names its package";
        assert_eq!(absent.to_string(), text);
        let absent = Run::untrusted("/nowhere/qemu-img").wait().await;
        assert_eq!(absent.expect_err("the program does not exist").to_string(), text);
    }

    #[tokio::test]
    async fn time_and_output_are_limited() {
        let late = shell("sleep 60 & sleep 60").limit(Duration::from_millis(200));
        let late = late.wait().await.expect_err("the program is killed");
        assert!(late.to_string().contains("a timeout of 200ms"), "{late}");
        let loud = shell("head -c 3000000 /dev/zero").wait().await.expect("the program succeeds");
        assert_eq!(loud.len(), MAX_OUTPUT);
    }

    #[tokio::test]
    async fn untrusted_data_is_read_under_limits() {
        let run = Run::untrusted("/bin/sh").arg("-c").arg("ulimit -v; ulimit -t");
        assert_eq!(run.name(), "/bin/sh");
        assert_eq!(run.wait().await.expect("the program succeeds"), b"1048576\n30\n");
    }

    #[tokio::test]
    async fn conversions_are_limited_in_size() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let script = "head -c 200000 /dev/zero > \"$0\"";
        let run = |bytes| {
            Run::untrusted_convert("/bin/sh", Duration::from_secs(20), bytes).arg("-c").arg(script)
        };
        let path = folder.path().join("file");
        assert_eq!(run(1).name(), "/bin/sh");
        run(200_000).arg(&path).wait().await.expect("the file is within the limit");
        run(100_000).arg(&path).wait().await.expect_err("the file exceeds the limit");
        assert!(std::fs::metadata(&path).expect("the file exists").len() <= 131_072);
    }
}
