//! Runs a program without a shell, with a time limit, input, and bounded output.

use std::io::{ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit.
const LIMIT: Duration = Duration::from_secs(20);
/// Maximum output in bytes.
const MOST: u64 = 32 * 1024 * 1024;
/// The end of the error for a program that the host lacks.
const MISSING: &str = " is not installed on this host";
/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);

/// The output of a successful program; otherwise the first lines of its error output.
pub(crate) async fn run(
    program: &str,
    arguments: &[String],
    input: &[u8],
) -> Result<Vec<u8>, String> {
    let (program, arguments, input) = (program.to_owned(), arguments.to_vec(), input.to_vec());
    match tokio::task::spawn_blocking(move || here(&program, &arguments, input, LIMIT)).await {
        Ok(result) => result,
        Err(error) => Err(format!("the run was interrupted: {error}")),
    }
}

/// The arguments of a command.
pub(crate) fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// True if a program did not run because the host lacks it.
pub(crate) fn is_missing(why: &str) -> bool {
    why.ends_with(MISSING)
}

fn here(
    program: &str,
    arguments: &[String],
    input: Vec<u8>,
    limit: Duration,
) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => format!("{program}{MISSING}"),
        _ => format!("cannot run {program}: {error}"),
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let writer = std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input reports its own failure.
            let _ = stdin.write_all(&input);
        }
    });
    let printed = listen(stdout);
    let complained = listen(stderr);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if begun.elapsed() >= limit {
            child.kill().map_err(cannot)?;
            child.wait().map_err(cannot)?;
            return Err(format!("{program} was killed after a timeout of {limit:?}"));
        }
        std::thread::sleep(LOOK);
    };
    let _ = writer.join();
    let left = limit.saturating_sub(begun.elapsed());
    let printed = printed
        .recv_timeout(left.max(LOOK))
        .map_err(|_| format!("{program} exited, but a child process keeps its output open"))?;
    if status.success() {
        return Ok(printed);
    }
    let words = complained.recv_timeout(left.max(LOOK)).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let first: Vec<&str> =
        words.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let what = arguments.iter().take(12).map(String::as_str).collect::<Vec<_>>().join(" ");
    Err(format!("{program} {what}: {} ({status})", first.join("; ")))
}

fn listen(from: Option<impl Read + Send + 'static>) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (output, listener) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(from) = from {
            let _ = from.take(MOST).read_to_end(&mut text);
        }
        // The caller may have given up after a timeout.
        let _ = output.send(text);
    });
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &[u8], limit: Duration) -> Result<Vec<u8>, String> {
        here("/bin/sh", &words(&["-c", script]), input.to_vec(), limit)
    }

    #[test]
    fn input_output_and_errors() {
        let long = Duration::from_secs(20);
        assert_eq!(shell("cat; echo aside >&2", b"one\n", long).as_deref(), Ok(&b"one\n"[..]));
        let failed = shell("echo; echo 'no such link' >&2; exit 2", b"", long);
        let failed = failed.expect_err("the program fails");
        assert!(failed.contains("no such link") && failed.contains('2'), "{failed}");
        let large = vec![b'x'; 300_000];
        assert_eq!(shell("cat", &large, long).map(|text| text.len()), Ok(300_000));
        let absent =
            here("/nowhere/nft", &[], Vec::new(), long).expect_err("the program is missing");
        assert_eq!(absent, "/nowhere/nft is not installed on this host");
        let late = shell("exec sleep 60", b"", Duration::from_millis(100));
        assert!(late.expect_err("the program is killed").contains("a timeout of"));
    }
}
