//! Upstream's functional tests of servers whose ports have accelerators: a file for each class, a test
//! for each of its tests. Where an operation that upstream refuses works here, the test says so.

mod inspect;
mod port_accelerator_server_create_reject_test;
mod port_accelerator_server_ops_test;
mod port_and_flavor_accels_server_create_test;
mod two_ports_accelerator_server_ops_test;

/// The devices of upstream's first host, and of the second.
const FIRST: &str = r#"fake = [
    { name = "FakeDevice0", address = "0000:0c:00.0", count = 2 },
    { name = "FakeDevice1", address = "0000:0d:00.0", count = 2 },
]"#;
const SECOND: &str = r#"fake = [{ name = "FakeDevice3", address = "0000:0e:00.0", count = 2 }]"#;
