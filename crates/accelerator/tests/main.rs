//! The tests of this crate that need a database: one program, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod api_arqs;
mod api_arqs_input;
mod api_devices;
mod api_networks;
mod api_profiles;
mod api_roles;
mod api_versions;
mod common;
mod device_orders;
mod external_instances;
mod faults_devices;
mod faults_requests;
mod golden;
mod handle_changes;
mod isolation;
mod ledger_bind;
mod ledger_exclusions;
mod ledger_health;
mod ledger_mig;
mod ledger_mixed_cards;
mod ledger_order_of_types;
mod ledger_report;
mod ledger_states;
mod nova_events;
mod nova_tls;
mod statements;
mod tally;
