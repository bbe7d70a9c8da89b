//! Runs the operator's command that prints the sealing keys, within limits of time and output.
//!
//! A shell runs it, as it runs PostgreSQL's `ssl_passphrase_command`, with no input. Its errors go
//! to the controller's own standard error. At the end of the time the whole process group dies.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

use crate::source::MOST;

/// The interval at which the end of the command is looked for, after the end of its output.
const LOOK: Duration = Duration::from_millis(10);

/// The output of a command. The error says what the command did, and shows no output.
pub(crate) fn output(command: &str, limit: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let deadline = Instant::now() + limit;
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let end = || {
        if let Some(group) = group {
            // It fails if the group has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    };
    let Some(stdout) = child.stdout.take() else {
        end();
        return Err("has no standard output".to_owned());
    };
    let (done, read) = mpsc::sync_channel(1);
    // The thread ends with the output, at the latest when the process group is killed.
    let reader = std::thread::Builder::new().name("seal-command".to_owned()).spawn(move || {
        let mut bytes = Zeroizing::new(Vec::with_capacity(MOST + 1));
        let outcome = stdout.take(MOST as u64 + 1).read_to_end(&mut bytes);
        drop(done.send(outcome.map(|_| bytes)));
    });
    let outcome = match reader {
        Err(error) => Err(format!("could not be read: {error}")),
        Ok(_) => match read.recv_timeout(limit) {
            Ok(Ok(bytes)) if bytes.len() > MOST => Err(format!("printed more than {MOST} bytes")),
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(format!("could not be read: {error}")),
            Err(_) => Err(late(limit)),
        },
    };
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if outcome.is_ok() && Instant::now() < deadline => std::thread::sleep(LOOK),
            Ok(None) => {
                end();
                drop(child.wait());
                break Err(late(limit));
            }
            Err(error) => break Err(format!("could not be waited for: {error}")),
        }
    };
    let bytes = outcome?;
    let status = ended?;
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    Ok(bytes)
}

fn late(limit: Duration) -> String {
    format!("did not end within {} s", limit.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

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
