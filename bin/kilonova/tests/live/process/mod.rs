//! The process: how it starts, what it refuses, what it writes and prints, and how it ends.

mod dev;
mod doctor;
mod joining;
mod logs;
mod metrics;
mod nodes;
mod operators;
mod refusals;
mod services;
mod starts;
mod stops;
