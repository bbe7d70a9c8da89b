//! Fixture directories in the form of `/sys`, with the kernel's links.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::{Directory, PciAddress};

/// A fixture.
pub struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary directory is created") }
    }

    pub fn sysfs(&self) -> Directory {
        Directory(self.root().to_owned())
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().expect("the path has a parent"))
            .expect("the directory is created");
        std::fs::write(path, content).expect("the file is written");
    }

    pub fn link(&self, from: &str, to: &str) {
        let from = self.root().join(from);
        std::fs::create_dir_all(from.parent().expect("the path has a parent"))
            .expect("the directory is created");
        let _ = std::fs::remove_file(&from);
        symlink(self.root().join(to), from).expect("the link is created");
    }

    /// Adds a PCI function; returns its directory.
    pub fn function(
        &self,
        address: &str,
        ids: (&str, &str, &str),
        numa_node: i64,
        driver: &str,
    ) -> String {
        let path = format!("devices/pci{}/{address}", &address[..7]);
        self.write(&format!("{path}/vendor"), &format!("0x{}\n", ids.0));
        self.write(&format!("{path}/device"), &format!("0x{}\n", ids.1));
        self.write(&format!("{path}/class"), &format!("0x{}\n", ids.2));
        self.write(&format!("{path}/numa_node"), &format!("{numa_node}\n"));
        std::fs::create_dir_all(self.root().join(format!("bus/pci/drivers/{driver}")))
            .expect("the directory is created");
        self.link(&format!("{path}/driver"), &format!("bus/pci/drivers/{driver}"));
        self.link(&format!("bus/pci/devices/{address}"), &path);
        path
    }

    /// Adds virtual functions of a card from the given address on, linked both ways.
    pub fn virtual_functions(
        &self,
        card: &str,
        first: &str,
        count: u32,
        ids: (&str, &str, &str),
        driver: &str,
    ) -> Vec<String> {
        let first = PciAddress::parse(first).expect("the address is valid");
        let mut addresses = Vec::new();
        for number in 0..count {
            let address = first.plus(number).expect("the address is in range").to_string();
            let path = self.function(&address, ids, 0, driver);
            let card = format!("devices/pci{}/{card}", &card[..7]);
            self.link(&format!("{card}/virtfn{number}"), &path);
            self.link(&format!("{path}/physfn"), &card);
            addresses.push(address);
        }
        addresses
    }

    /// Makes a file unreadable by replacing it with a directory, like a driver that returns an
    /// error.
    pub fn spoil(&self, path: &str) {
        let path = self.root().join(path);
        std::fs::remove_file(&path).expect("the file exists");
        std::fs::create_dir(&path).expect("the directory is created");
    }

    /// Adds a GPU with mdev types and their available instances.
    pub fn gpu(&self, address: &str, types: &[(&str, &str, u32)]) {
        let path = self.function(address, ("10de", "13bd", "030000"), 1, "nvidia");
        self.types(&path, types);
        self.link(&format!("class/mdev_bus/{address}"), &path);
    }

    /// Adds a virtual function of NVIDIA's VFIO driver with its current type number and the
    /// creatable types.
    pub fn vgpu_function(&self, address: &str, current: u32, creatable: &[(u32, &str)]) {
        let path = self.function(address, ("10de", "2235", "030200"), 0, "nvidia");
        self.vgpu_files(&path, current, creatable);
    }

    /// Adds the files of NVIDIA's VFIO driver to a function's directory.
    pub fn vgpu_files(&self, path: &str, current: u32, creatable: &[(u32, &str)]) {
        let mut text = "ID    : vGPU Name\n".to_owned();
        for (number, name) in creatable {
            text.push_str(&format!("{number:<5} : {name}\n"));
        }
        self.write(&format!("{path}/nvidia/creatable_vgpu_types"), &text);
        self.write(&format!("{path}/nvidia/current_vgpu_type"), &format!("{current}\n"));
    }

    /// Adds the kernel's `mtty` sample driver.
    pub fn mtty(&self, available: u32) {
        self.types("devices/virtual/mtty/mtty", &[("mtty-1", "Single port serial", available)]);
        self.link("class/mdev_bus/mtty", "devices/virtual/mtty/mtty");
    }

    pub fn types(&self, path: &str, types: &[(&str, &str, u32)]) {
        for (id, name, available) in types {
            let path = format!("{path}/mdev_supported_types/{id}");
            self.write(&format!("{path}/name"), &format!("{name}\n"));
            self.write(&format!("{path}/device_api"), "vfio-pci\n");
            self.write(&format!("{path}/available_instances"), &format!("{available}\n"));
            self.write(&format!("{path}/create"), "");
        }
    }

    /// Adds an existing mdev to a device directory such as `devices/pci0000:84/0000:84:00.0`.
    pub fn mdev(&self, device: &str, mdev_type: &str) -> Uuid {
        let uuid = Uuid::new_v4();
        let path = format!("{device}/{uuid}");
        self.write(&format!("{path}/remove"), "");
        self.link(
            &format!("{path}/mdev_type"),
            &format!("{device}/mdev_supported_types/{mdev_type}"),
        );
        self.link(&format!("bus/mdev/devices/{uuid}"), &path);
        uuid
    }

    pub fn content(&self, path: &str) -> String {
        let path: PathBuf = self.root().join(path);
        std::fs::read_to_string(path).expect("the file is readable")
    }
}
