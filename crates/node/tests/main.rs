//! The node agent against a control plane of the tests.

mod agent;
mod devices;
mod health;
