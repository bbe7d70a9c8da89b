//! The process: how it starts, what it refuses, what it writes and prints, and how it ends.

mod carried;
mod database;
mod dev;
mod doctor;
mod health;
mod invalid_setup;
mod join;
mod logs;
mod metadata;
mod metrics;
mod nodes;
mod operators;
mod output;
mod rotation;
mod secrets;
mod services;
mod shutdown;
mod start;
