//! The engine against a naive reference on random forests, and the cases worth naming.

mod build;
mod explain;
mod joint;
mod order;
mod random;
mod reference;
mod scale;
mod semantics;
mod usage;
