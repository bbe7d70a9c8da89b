//! A standard output that cannot be written: commands fail with one line, and `serve` serves.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::kit::Environment;
use crate::kit::client::Session;
use crate::kit::environment::stderr;

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("it is writable")
}

/// A pipe whose reader has ended.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("the pipe is made");
    drop(reader);
    writer.into()
}

#[test]
fn commands_fail_without_their_output() {
    let place = Environment::new();
    place.start().terminate();
    let state = place.state();
    let state = state.to_str().expect("the path is UTF-8");
    for words in [
        &["discover", "--sysfs", "/sys"][..],
        &["discover", "--sysfs", "/sys", "--format", "json"],
        &["doctor", "--state-dir", state],
        &["keys", "list", "--state-dir", state],
        &["completion", "bash"],
    ] {
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
            command.args(words).stdin(Stdio::null()).env("RUST_LOG", "error");
            command.stderr(Stdio::piped());
            command
        };
        let output = command().stdout(full()).spawn().expect("the program starts");
        let output = output.wait_with_output().expect("the program ends");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.starts_with("kilonova: cannot write the output: "), "{words:?}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{words:?}: {printed}");
        let output = command().stdout(unread()).spawn().expect("the program starts");
        let output = output.wait_with_output().expect("the program ends");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""), "{words:?}");
    }
}

/// A command that has changed something says so, also when nobody reads its output.
#[test]
fn changes_are_not_silent_without_their_output() {
    let place = Environment::new();
    place.start().terminate();
    for out in [full().into(), unread()] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.args(["keys", "fernet-rotate", "--state-dir"]).arg(place.state());
        command.stdin(Stdio::null()).env("RUST_LOG", "error").stderr(Stdio::piped()).stdout(out);
        let output = command.spawn().expect("the program starts");
        let output = output.wait_with_output().expect("the program ends");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let words = "kilonova: the command is done, but cannot write its output: ";
        assert!(printed.starts_with(words), "{printed}");
    }
}

#[test]
fn serve_needs_neither_output_nor_log() {
    let place = Environment::new();
    // The port is not known from the output.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port is bound");
    let address = free.local_addr().expect("the address is known");
    drop(free);
    for (out, log) in [(Stdio::from(full()), Stdio::from(full())), (unread(), unread())] {
        let mut command = place.command("serve");
        command.args(["--listen", &address.to_string()]).stdout(out).stderr(log);
        let mut child = command.spawn().expect("the program starts");
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            let ended = child.try_wait().expect("the state is readable");
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(begun.elapsed() < Duration::from_secs(30), "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Session::anonymous(address).get("/identity/v3").ok(200);
        child.kill().expect("the process is killed");
        child.wait().expect("the process ends");
    }
}
