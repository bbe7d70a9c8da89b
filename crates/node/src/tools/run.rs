//! Runs a program without a shell and without input, under a time limit that covers its child
//! processes, and keeps the end of its output.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::ToolError;

/// Maximum number of output bytes that are kept.
const KEPT: usize = 4096;
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long child processes may keep writing after the program has ended.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// A program to run.
pub(super) struct Run {
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    pub limit: Duration,
}

impl Run {
    /// Runs the program on a blocking thread. Its exit status determines success.
    pub(super) async fn wait(self) -> Result<String, ToolError> {
        match tokio::task::spawn_blocking(move || self.run()).await {
            Ok(result) => result,
            Err(error) => Err(ToolError::new(format!("the run was interrupted: {error}"))),
        }
    }

    fn run(self) -> Result<String, ToolError> {
        let program = self.program.clone();
        let cannot =
            |error: std::io::Error| ToolError::new(format!("cannot run {program}: {error}"));
        let (mut reader, writer) = std::io::pipe().map_err(cannot)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(cannot)?)
            .stderr(writer)
            .process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                ToolError::new(format!("{program} is not installed on this host"))
            }
            _ => cannot(error),
        })?;
        drop(command);
        let text = Arc::new(Mutex::new(VecDeque::new()));
        let (silent, listening) = mpsc::channel::<()>();
        let kept = Arc::clone(&text);
        std::thread::spawn(move || {
            let _silent = silent;
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&piece[..count]);
                let excess = kept.len().saturating_sub(KEPT);
                kept.drain(..excess);
            }
        });
        let status = self.status(child);
        let _ = listening.recv_timeout(OUTPUT_GRACE);
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let output = printable(text);
        let failed = |message: String| Err(ToolError { message, output: output.clone() });
        match status {
            Ok(Some(status)) if status.success() => Ok(output),
            Ok(Some(status)) => failed(format!("{program} failed: {status}")),
            Ok(None) => failed(format!("{program} was killed after a timeout of {:?}", self.limit)),
            Err(error) => failed(format!("could not wait for {program}: {error}")),
        }
    }

    /// The exit status; `None` if the program was killed after its timeout.
    fn status(&self, mut child: Child) -> std::io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if begun.elapsed() >= self.limit {
                let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
                let ended = group.map(|group| {
                    rustix::process::kill_process_group(group, rustix::process::Signal::KILL)
                });
                if !matches!(ended, Some(Ok(()))) {
                    child.kill()?;
                }
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Text without control characters, for terminals and the database.
fn printable(bytes: Vec<u8>) -> String {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let keep = |c: char| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c };
    text.trim().chars().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        Run {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("KILONOVA_ADDRESS", "0000:01:00.0".into())],
            limit,
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_end_of_the_output_is_kept() {
        let run = shell("echo to $KILONOVA_ADDRESS; echo and here >&2", LONG);
        assert_eq!(run.run().as_deref(), Ok("to 0000:01:00.0\nand here"));
        let loud = shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done", LONG);
        let output = loud.run().expect("the program succeeds");
        assert!(output.len() <= KEPT && output.ends_with("line 2999"), "{} bytes", output.len());
        let odd = shell(r"printf 'a\033[2Jb\000c\377'", LONG).run().expect("the program succeeds");
        assert!(!odd.contains(['\u{1b}', '\0']), "{odd:?}");
    }

    #[test]
    fn a_failure_contains_the_output() {
        let failed = shell("echo no such card; exit 3", LONG).run().expect_err("the program fails");
        assert_eq!(failed.output, "no such card");
        assert!(failed.message.contains('3'), "{}", failed.message);
        let absent = Run { program: "/nowhere/fpgaconf".into(), ..shell("", LONG) };
        let failed = absent.run().expect_err("the program is missing");
        assert!(failed.message.contains("/nowhere/fpgaconf is not installed"));
    }

    #[test]
    fn a_timeout_kills_the_process_group() {
        let begun = Instant::now();
        let late = shell("echo begun; sleep 60 & sleep 60", Duration::from_millis(200));
        let failed = late.run().expect_err("the program is killed");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(failed.output, "begun");
        assert!(failed.message.contains("timeout of 200ms"), "{}", failed.message);
    }

    #[test]
    fn background_processes_are_not_waited_for() {
        let begun = Instant::now();
        assert_eq!(shell("echo done; sleep 5 &", LONG).run().as_deref(), Ok("done"));
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
}
