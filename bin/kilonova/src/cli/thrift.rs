//! Freed memory goes back to the system.
//!
//! glibc learns from what is freed: after one password's hash (19 MiB in one piece) it keeps up to
//! twice as much at the end of each of its arenas, for good. How much it keeps can be said without
//! `unsafe` in the environment alone, and that is read when a program starts. So `serve` puts itself,
//! with the same process id, in its own place once. An operator who has said it differently is obeyed.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Pieces from this size on are given back at once, and so is what is free at the end of an arena.
const BYTES: &str = "131072";

/// Arenas: each keeps some for itself, and there would be eight for each core.
const ARENAS: &str = "2";

/// The variables of glibc's `malloc` that speak of this.
const MMAP: &str = "MALLOC_MMAP_THRESHOLD_";
const TRIM: &str = "MALLOC_TRIM_THRESHOLD_";
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Starts this program anew in its own place, unless that has been done. It returns where there is
/// nothing to do or it cannot be done, which costs memory and nothing else.
pub(super) fn begin() {
    let said = |name: &&str| std::env::var_os(name).is_some();
    if !cfg!(target_env = "gnu") || [MMAP, TRIM, ARENA_MAX, TUNABLES].iter().any(said) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(MMAP, BYTES).env(TRIM, BYTES).env(ARENA_MAX, ARENAS);
    let failed = command.exec();
    eprintln!("kilonova: freed memory will be kept: cannot start anew: {failed}");
}
