//! Programs: no shell, nothing to read, a limit on their time and on what is kept of what they say.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use crate::Error;

/// Bytes kept of what a program answers.
const ANSWER: usize = 256 * 1024;
/// Bytes kept of its complaints.
const COMPLAINT: usize = 2048;
/// What reads an image that nobody vouches for may take so much memory, and so many seconds of a
/// processor.
const UNTRUSTED: [&str; 2] = ["--as=1073741824", "--cpu=30"];
/// What unpacks such an image has buffers, and threads with their stacks.
const UNPACKING: &str = "--as=4294967296";

/// A program to run.
pub(crate) struct Run {
    program: OsString,
    arguments: Vec<OsString>,
    variable: Option<(&'static str, &'static str)>,
    limit: Duration,
    fine: &'static [i32],
}

impl Run {
    /// One that is done soon.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variable: None,
            limit: Duration::from_secs(120),
            fine: &[0],
        }
    }

    /// `qemu-img`, on something that nobody vouches for.
    pub fn guarded(program: &str) -> Self {
        Self::new("prlimit").args(UNTRUSTED).arg("--").arg(program)
    }

    /// The same, for what unpacks it into a file of at most so many bytes, within this time.
    pub fn bounded(program: &str, limit: Duration, bytes: u64) -> Self {
        let processor = format!("--cpu={}", limit.as_secs().max(1));
        let file = format!("--fsize={}", bytes.next_multiple_of(1 << 16));
        let run = Self::new("prlimit").args([UNPACKING, &processor, &file]);
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

    /// A variable of its environment, and its value.
    pub fn env(mut self, variable: (&'static str, &'static str)) -> Self {
        self.variable = Some(variable);
        self
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Its exit statuses that are no failure.
    pub fn fine(mut self, statuses: &'static [i32]) -> Self {
        self.fine = statuses;
        self
    }

    /// The name that it is spoken of by.
    fn name(&self) -> String {
        let guarded = self.program == "prlimit";
        let limits = self.arguments.iter().position(|argument| argument == "--");
        let program = limits.and_then(|at| self.arguments.get(at + 1)).filter(|_| guarded);
        Path::new(program.unwrap_or(&self.program)).display().to_string()
    }

    /// Runs it and gives what it answers. Dropped, it ends the program.
    pub async fn wait(self) -> Result<Vec<u8>, Error> {
        let name = self.name();
        let wrong = |why: String| Error::Program { program: name.clone(), why };
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
            std::io::ErrorKind::NotFound => wrong("is not on this host; install it".to_owned()),
            _ => wrong(format!("cannot be run: {error}")),
        })?;
        let (answer, complaint) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (answer, complaint, status) =
                tokio::join!(head(answer, ANSWER), head(complaint, COMPLAINT), child.wait());
            (answer, complaint, status)
        };
        match tokio::time::timeout(self.limit, work).await {
            Ok((answer, _, Ok(status)))
                if status.code().is_some_and(|n| self.fine.contains(&n)) =>
            {
                Ok(answer)
            }
            Ok((answer, complaint, Ok(status))) => {
                let said = if complaint.is_empty() { answer } else { complaint };
                let said = printable(&said);
                let full = said.contains("No space left on device");
                let hint = if full { " (the file system is full; make room there)" } else { "" };
                Err(wrong(format!("failed, {status}: {said}{hint}")))
            }
            Ok((_, _, Err(error))) => Err(wrong(format!("cannot be looked after: {error}"))),
            Err(_) => {
                end(&mut child).await;
                Err(wrong(format!("was ended: it took longer than {:?}", self.limit)))
            }
        }
    }
}

/// Ends a program with all that it started.
async fn end(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

/// The beginning of what is said; the rest is heard and forgotten, so that nobody has to wait to say
/// it.
async fn head(pipe: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    let Some(mut pipe) = pipe else { return kept };
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        let room = most.saturating_sub(kept.len()).min(count);
        kept.extend(&piece[..room]);
    }
    kept
}

/// Text that a log and a database can take.
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
    async fn it_answers_or_says_why_not() {
        let answer = shell("echo yes; echo but >&2").wait().await.expect("it succeeds");
        assert_eq!(answer, b"yes\n");
        let failed = shell("echo no such disk >&2; exit 3").wait().await.expect_err("it fails");
        assert_eq!(failed.to_string(), "/bin/sh: failed, exit status: 3: no such disk");
        let full = shell("echo write: No space left on device >&2; exit 1").wait().await;
        assert!(full.expect_err("it fails").to_string().contains("make room"));
        let absent = Run::new("/nowhere/qemu-img").wait().await.expect_err("it is not there");
        assert_eq!(absent.to_string(), "/nowhere/qemu-img: is not on this host; install it");
    }

    #[tokio::test]
    async fn it_has_its_time_and_is_not_made_to_wait() {
        let late = shell("sleep 60 & sleep 60").limit(Duration::from_millis(200));
        let late = late.wait().await.expect_err("it is ended");
        assert!(late.to_string().contains("took longer than 200ms"), "{late}");
        let loud = shell("head -c 3000000 /dev/zero").wait().await.expect("it succeeds");
        assert_eq!(loud.len(), ANSWER);
    }

    #[tokio::test]
    async fn what_is_not_trusted_has_little_memory() {
        let run = Run::guarded("/bin/sh").arg("-c").arg("ulimit -v; ulimit -t");
        assert_eq!(run.name(), "/bin/sh");
        assert_eq!(run.wait().await.expect("it succeeds"), b"1048576\n30\n");
    }

    #[tokio::test]
    async fn what_unpacks_writes_only_so_much() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "head -c 200000 /dev/zero > \"$0\"";
        let run =
            |bytes| Run::bounded("/bin/sh", Duration::from_secs(20), bytes).arg("-c").arg(script);
        let path = folder.path().join("file");
        assert_eq!(run(1).name(), "/bin/sh");
        run(200_000).arg(&path).wait().await.expect("it has room");
        run(100_000).arg(&path).wait().await.expect_err("it has none");
        assert!(std::fs::metadata(&path).expect("a file").len() <= 131_072);
    }
}
