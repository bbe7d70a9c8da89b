//! Disks as files, created by the real programs. Tests whose program is not installed are skipped.

mod cache;
mod host;
mod made;
mod peer;
mod refused;
