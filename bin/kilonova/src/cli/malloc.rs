//! Configures glibc's `malloc` to return freed memory to the system.
//!
//! glibc adapts its thresholds to the allocations it sees: after one password hash (19 MiB in one
//! piece) it keeps up to twice as much at the end of each arena. Without `unsafe`, only the environment
//! can fix the thresholds, and glibc reads it at program start. So `serve` re-executes itself once, with
//! the same process id. Settings of the operator take precedence.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::Failure;

/// Freed allocations and free memory at the end of an arena are returned to the system from this size on.
const BYTES: &str = "131072";

/// The number of arenas; by default glibc has eight per core, and each keeps memory.
const ARENAS: &str = "2";

/// The environment variables of glibc's `malloc` for these settings.
const MMAP: &str = "MALLOC_MMAP_THRESHOLD_";
const TRIM: &str = "MALLOC_TRIM_THRESHOLD_";
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Re-executes this program with the settings, unless they are set. Returns if there is nothing to do
/// or it fails, which only costs memory.
pub(super) fn configure() {
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    if !cfg!(target_env = "gnu") || [MMAP, TRIM, ARENA_MAX, TUNABLES].iter().any(is_set) {
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
    let what = "cannot re-execute to configure malloc; memory use will be higher";
    Failure::failed(what, failed).print("kilonova");
}
