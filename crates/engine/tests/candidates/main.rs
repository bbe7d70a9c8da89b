//! Compares the engine with a naive reference on random forests, and covers particular cases.

mod build;
mod explain;
mod joint;
mod order;
mod random;
mod reference;
mod scale;
mod semantics;
mod usage;
