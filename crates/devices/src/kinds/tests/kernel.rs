//! A kernel that returns errors: refused writes report its reason, and a bus that cannot be listed
//! differs from an empty one.

use std::io;

use uuid::Uuid;

use super::driven;
use crate::testing::Fixture;
use crate::{Directory, Driver, Error, KernelObject, Mdev, NoMig, Sysfs, Vgpu, mdevs, vgpu_state};

/// A sysfs whose writes and bus listing fail with an error number.
struct Broken(Directory, i32);

impl Sysfs for Broken {
    fn read(&self, path: &str) -> io::Result<String> {
        self.0.read(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        if path == "bus/pci/devices" {
            return Err(io::Error::from_raw_os_error(self.1));
        }
        self.0.list(path)
    }

    fn write(&self, _path: &str, _value: &str) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(self.1))
    }

    fn exists(&self, path: &str) -> bool {
        self.0.exists(path)
    }

    fn real(&self, path: &str) -> io::Result<String> {
        self.0.real(path)
    }
}

/// Linux error numbers of EIO, EBUSY and ENOSPC, and their texts.
const ERRORS: [(i32, &str); 3] =
    [(5, "Input/output error"), (16, "Resource busy"), (28, "No space left on device")];

#[test]
fn refused_writes_report_the_reason_and_change_nothing() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    fixture.vgpu_function("0000:25:00.4", 0, &[(558, "NVIDIA A40-2Q")]);
    let there = fixture.mdev("devices/pci0000:84/0000:84:00.0", "nvidia-35");
    let mdev = |uuid| {
        let (parent, mdev_type) = ("0000:84:00.0".into(), "nvidia-35".into());
        KernelObject::Mdev(Mdev { uuid, parent, mdev_type })
    };
    let vgpu = Vgpu { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() };
    for (number, why) in ERRORS {
        let sysfs = Broken(fixture.sysfs(), number);
        let uuid = Uuid::new_v4();
        for (result, what) in [
            (mdev(uuid).make(&sysfs, &NoMig), uuid.to_string()),
            (mdev(there).unmake(&sysfs, &NoMig), there.to_string()),
            (KernelObject::Vgpu(vgpu.clone()).make(&sysfs, &NoMig), "nvidia-558".to_owned()),
        ] {
            let text = result.expect_err("the write is refused").to_string().to_lowercase();
            let os = io::Error::from_raw_os_error(number).to_string().to_lowercase();
            assert!(text.contains(&os) && text.contains(&what), "{why}: {text}");
        }
        assert_eq!(mdevs(&sysfs).expect("the mdevs are readable").len(), 1);
        let state = vgpu_state(&sysfs, &vgpu.address)
            .expect("the state is readable")
            .expect("the function has a vGPU driver");
        assert_eq!(state.current, None);
    }
}

#[test]
fn a_bus_that_cannot_be_listed_is_an_error_and_not_an_empty_host() {
    let sysfs = Broken(Fixture::new().sysfs(), 5);
    let looked = driven(Driver::NvidiaGpu).scan(&sysfs, &|_| false);
    assert!(matches!(&looked, Err(Error::Read { path, .. }) if path == "bus/pci/devices"));
}
