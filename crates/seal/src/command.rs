//! Runs the operator's command that prints the sealing keys, within limits of time and output.
//!
//! A shell runs it without input, like PostgreSQL's `ssl_passphrase_command`. Its standard error is
//! the controller's. In every case the call ends by killing the process group, reaping the shell
//! and closing the pipe: no process of the group outlives the call, and a process that left the
//! group cannot block a thread. If this process is killed, a guard in the group sees the end of a
//! pipe and kills the group.

use std::io::{ErrorKind, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use zeroize::Zeroizing;

use crate::source::MOST;

/// The interval of checks for output and for the end of the command.
const LOOK: Duration = Duration::from_millis(10);

/// Starts the command `$1` and the guard, a member of the group that waits for the end of this
/// process. Only this process holds the other end of the standard input.
const GUARDED: &str = "exec 3<&0 </dev/null
(read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 &
exec 3<&-
exec /bin/sh -c \"$1\"";

/// The output of a command. The error names the command's result, never its output.
pub(crate) fn output(command: &str, limit: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let deadline = Instant::now() + limit;
    let child = Command::new("/bin/sh")
        .args(["-c", GUARDED, "sh", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    let mut group = Group(child);
    let read = match group.0.stdout.take() {
        Some(stdout) => read(&group, stdout, deadline),
        None => Err("has no standard output".to_owned()),
    };
    let status = group.end();
    let bytes = read?.ok_or_else(|| format!("did not end within {} s", limit.as_secs_f64()))?;
    let status = status.map_err(|error| format!("could not be waited for: {error}"))?;
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    Ok(bytes)
}

/// The complete output of a command that has ended; `None` if it has not ended by the deadline.
fn read(
    group: &Group,
    mut stdout: ChildStdout,
    deadline: Instant,
) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let unread = |error: std::io::Error| format!("could not be read: {error}");
    rustix::fs::fcntl_setfl(&stdout, OFlags::NONBLOCK).map_err(|error| unread(error.into()))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST + 1));
    let mut chunk = Zeroizing::new([0; 4096]);
    let mut open = true;
    loop {
        while open {
            match stdout.read(&mut *chunk) {
                Ok(0) => open = false,
                Ok(length) if bytes.len() + length > MOST => {
                    return Err(format!("printed more than {MOST} bytes"));
                }
                Ok(length) => bytes.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(unread(error)),
            }
        }
        if !open && group.has_ended()? {
            return Ok(Some(bytes));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// The shell that leads the process group, with the pipe that the guard reads. The id of the group cannot be reused
/// until the shell is reaped.
struct Group(Child);

impl Group {
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.0.id()).ok().and_then(Pid::from_raw)
    }

    /// True if the shell has ended. Does not reap it.
    fn has_ended(&self) -> Result<bool, String> {
        let Some(pid) = self.pid() else { return Ok(true) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), look)
            .map(|ended| ended.is_some())
            .map_err(|error| format!("could not be waited for: {error}"))
    }

    /// Kills the remaining processes of the group, and reaps the shell.
    fn end(mut self) -> std::io::Result<std::process::ExitStatus> {
        if let Some(group) = self.pid() {
            // Fails, harmlessly, if only the ended shell remains.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        self.0.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// The state of a process, as `/proc` shows it; `None` if there is none.
    fn state(pid: &str) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        stat.rsplit(") ").next()?.split(' ').next().map(str::to_owned)
    }

    fn has_died(pid: &str) -> bool {
        let begun = Instant::now();
        while state(pid).is_some_and(|state| state != "Z") {
            if begun.elapsed() > Duration::from_secs(10) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    #[test]
    fn nothing_of_a_command_outlives_it() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let file = folder.path().join("pid");
        let short = Duration::from_millis(300);
        for (command, limit, words) in [
            // A child keeps the output open after the shell has ended.
            ("sleep 600 & echo $! >FILE", short, Some("did not end within")),
            ("sleep 600 & echo $! >FILE; exit 3", short, Some("did not end within")),
            ("sleep 600 >/dev/null & echo $! >FILE; echo key", LONG, None),
            ("echo $$ >FILE; exec sleep 600", short, Some("did not end within")),
            // A process that left the group ends when its output no longer has a reader.
            ("setsid sh -c 'echo $$ >FILE; exec yes' & wait", LONG, Some("printed more than")),
        ] {
            let command = command.replace("FILE", &file.display().to_string());
            let said = output(&command, limit);
            match words {
                Some(words) => {
                    let said = said.expect_err(&command);
                    assert!(said.contains(words), "{command}: {said}");
                }
                None => assert_eq!(**said.expect(&command), *b"key\n"),
            }
            let pid = std::fs::read_to_string(&file).expect("the command has written its id");
            assert!(has_died(&pid), "{command}: {:?}", state(&pid));
            std::fs::remove_file(&file).expect("the file is removed");
        }
    }

    #[test]
    fn a_command_is_bounded_in_time_and_output() {
        assert_eq!(**output("printf abc", LONG).expect("it succeeds"), *b"abc");
        for (command, limit, words) in [
            ("printf secret; exit 3", LONG, "exit status: 3"),
            ("yes secret", LONG, "printed more than"),
            ("printf secret; sleep 600 & wait", Duration::from_millis(200), "did not end within"),
            ("exec >&-; sleep 600", Duration::from_millis(200), "did not end within"),
            ("kill -9 $$", LONG, "signal: 9"),
            ("/nowhere/command 2>/dev/null", LONG, "exit status: 127"),
        ] {
            let said = output(command, limit).expect_err(command);
            assert!(said.contains(words) && !said.contains("secret"), "{command}: {said}");
        }
    }
}
