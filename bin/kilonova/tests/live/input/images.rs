//! Image files that do not match their format, or that refer to other files of a host.

use serde_json::json;

use crate::kit::Cloud;
use crate::kit::cloud::{id, upload};

const MIB: u64 = 1024 * 1024;

/// A qcow2 header: version, backing file's offset and size, virtual size, incompatible features.
fn qcow2(version: u32, backing: (u64, u32), size: u64, incompatible: u64) -> Vec<u8> {
    let mut header = b"QFI\xfb".to_vec();
    header.extend(version.to_be_bytes());
    header.extend(backing.0.to_be_bytes());
    header.extend(backing.1.to_be_bytes());
    header.extend(16_u32.to_be_bytes());
    header.extend(size.to_be_bytes());
    header.extend([0; 40]);
    header.extend(incompatible.to_be_bytes());
    header.resize(4096, 0);
    header
}

#[test]
fn an_image_must_match_its_declared_format() {
    let mut vdi = vec![0; 4096];
    vdi[64..68].copy_from_slice(b"\x7f\x10\xda\xbe");
    let mut truncated = qcow2(3, (0, 0), MIB, 0);
    truncated.truncate(60);
    let cases = [
        ("qcow2", b"plain text".to_vec(), "qcow2"),
        ("qcow2", Vec::new(), "qcow2"),
        ("qcow2", b"QFI".to_vec(), "qcow2"),
        ("qcow2", truncated, "header"),
        ("qcow2", qcow2(9, (0, 0), MIB, 0), "header"),
        ("qcow2", qcow2(3, (0, 0), u64::MAX, 0), "header"),
        ("qcow2", qcow2(3, (104, 11), MIB, 0), "backing file"),
        ("qcow2", qcow2(2, (72, 4), MIB, 0), "backing file"),
        ("qcow2", qcow2(3, (0, 0), MIB, 1 << 2), "another file"),
        ("raw", qcow2(3, (0, 0), MIB, 0), "qcow2"),
        ("raw", b"KDMV with more behind it".to_vec(), "vmdk"),
        ("raw", b"# Disk DescriptorFile\nRW 1 FLAT \"/etc/passwd\"".to_vec(), "vmdk"),
        ("raw", vdi, "vdi"),
        ("iso", b"no file system".to_vec(), "ISO 9660"),
    ];
    for cloud in Cloud::all() {
        for (format, bytes, named) in &cases {
            let image = json!({"name": "i", "disk_format": format, "container_format": "bare"});
            let image = id(&cloud.admin.post("/image/v2/images", &image).ok(201));
            upload(&cloud.admin, &image, bytes).refused_saying(415, &[named]);
            let shown = cloud.admin.get(&format!("/image/v2/images/{image}")).ok(200);
            assert_eq!(shown["status"], "queued", "{format} {named}");
        }
        let left = std::fs::read_dir(cloud.place.state().join("images"))
            .expect("the directory is readable");
        let names = left.map(|entry| entry.expect("the entry is readable").file_name());
        let data = names.filter(|name| name != ".cloud").count();
        assert_eq!(data, 0, "a refused upload leaves no data");
    }
}

#[test]
fn image_data_is_accepted_once_and_as_octets() {
    for cloud in Cloud::all() {
        let image = json!({"name": "i", "disk_format": "qcow2", "container_format": "bare"});
        let image = id(&cloud.admin.post("/image/v2/images", &image).ok(201));
        let path = format!("/image/v2/images/{image}/file");
        cloud.admin.send("PUT", &path, "text/plain", b"x").refused_saying(415, &["octet-stream"]);
        upload(&cloud.admin, &image, &qcow2(3, (0, 0), 10 * MIB, 0)).ok(204);
        upload(&cloud.admin, &image, b"again").refused_saying(409, &[&image]);
        let shown = cloud.admin.get(&format!("/image/v2/images/{image}")).ok(200);
        assert_eq!(shown["virtual_size"], 10 * MIB);
        assert_eq!(shown["size"], 4096);
        assert_eq!(cloud.admin.get(&path).body, qcow2(3, (0, 0), 10 * MIB, 0));
    }
}

#[test]
fn an_image_without_a_name_is_not_the_collection() {
    for cloud in Cloud::all() {
        let image = cloud.image("here");
        for path in ["/image/v2/images/", "/image/v2/schemas/"] {
            cloud.admin.get(path).refused(404);
        }
        cloud.admin.delete("/image/v2/images/").refused(404);
        for path in ["/image/", "/image/v2/", "/image"] {
            cloud.anonymous().get(path).ok(300);
        }
        cloud.admin.get(&format!("/image/v2/images/{image}")).ok(200);
    }
}
