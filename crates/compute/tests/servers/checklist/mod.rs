//! Upstream's functional tests of servers with accelerators and vGPUs. Each is a test here, in a file
//! named after its class and under its own name without `test_`. Its assertions use the Placement API,
//! the accelerator API and the guest's domain XML ([`inspect`]). A test notes if an operation that
//! upstream refuses works here.
//!
//! Upstream's tests of servers whose accelerators come from ports with device profiles are in `ports`.
//!
//! Scenarios that depend on upstream's implementation, and their replacements:
//!
//! | upstream | behaviour there | here |
//! |---|---|---|
//! | `AcceleratorServerOpsTest.test_evacuate_old_compute`, `test_rebuild_old_compute`, `test_shelve_old_compute` | a service version below 53 or 54 anywhere refuses the action | a host's agent receives documents, not calls, so an action is the same for every version. [`old_computes`]: an agent of an older version is served, an agent with another protocol is refused |
//! | `test_shelve_with_compute_rpc_pin_5_0` | an RPC pin refuses to shelve | no pins: `shelve_and_unshelve_ok` |
//! | `test_shelve_instance_5_13` | works with this pin | `shelve_and_unshelve_ok` |
//! | `test_shelve_offload_instance_5_0`, `_5_13` | works with either pin | `shelve_offload_and_unshelve_ok` |
//! | `test_unshelve_instance_5_0`, `_5_2`, `_5_13` | works with each pin | `shelve_offload_and_unshelve_ok` |
//! | `TestCreateServerVgpuVolume` (bug 2074219): attach and detach of a volume | a device alias in the XML of a guest with a vGPU | `volumes::attach::a_volume_is_attached_shown_and_detached`, with a vGPU |
//! | bug 2098892: `test_update_available_resource` | the periodic pass through libvirt's proxies | `vgpu_tests::update_available_resource`: a host that reports again changes nothing |

mod accelerator_server_ops_test;
mod accelerator_server_resched_test;
mod accelerator_server_test;
mod different_mdev_classes_tests;
mod gpus;
pub mod inspect;
mod old_computes;
mod vgpu_live_migration_tests;
mod vgpu_multiple_types_tests;
mod vgpu_reshape_tests;
mod vgpu_tests;

/// The devices of upstream's first host: three FPGAs of two units each.
const FIRST: &str = r#"fake = [
    { name = "FakeDevice0", address = "0000:0c:00.0", count = 2 },
    { name = "FakeDevice1", address = "0000:0d:00.0", count = 2 },
    { name = "FakeDevice2", address = "0000:0e:00.0", count = 2 },
]"#;
/// The devices of upstream's second host: one FPGA of two units.
const SECOND: &str = r#"fake = [{ name = "FakeDevice3", address = "0000:0c:00.0", count = 2 }]"#;
/// The resources of the flavor `fpga`.
const ONE: &[(&str, i64)] = &[("FPGA", 1)];
