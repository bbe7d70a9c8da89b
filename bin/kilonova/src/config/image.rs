//! Options of the image service: Glance's in `[DEFAULT]`, and limits on transfers in `[image]`, which
//! Glance leaves to the web server in front of it.

use std::time::Duration;

use kilonova_image::{ImageOptions, Rate, TransferLimit};

use super::{File, compute::number, image_store};
use crate::failure::Failure;

const GROUP: &str = "image";

/// The known options.
pub(super) const KNOWN: [(&str, &str); 18] = [
    ("DEFAULT", "api_limit_max"),
    ("DEFAULT", "image_location_quota"),
    ("DEFAULT", "image_member_quota"),
    ("DEFAULT", "image_property_quota"),
    ("DEFAULT", "image_size_cap"),
    ("DEFAULT", "image_tag_quota"),
    ("DEFAULT", "limit_param_default"),
    ("DEFAULT", "user_storage_quota"),
    (GROUP, "leftover_age"),
    (GROUP, "max_images_per_project"),
    (GROUP, "max_concurrent_uploads"),
    (GROUP, "max_concurrent_uploads_per_project"),
    (GROUP, "max_concurrent_downloads"),
    (GROUP, "max_concurrent_downloads_per_project"),
    (GROUP, "max_concurrent_snapshots"),
    (GROUP, "max_concurrent_snapshots_per_host"),
    (GROUP, "min_transfer_rate"),
    (GROUP, "transfer_rate_window"),
];

pub(super) fn read(file: &File) -> Result<ImageOptions, Failure> {
    let usual = ImageOptions::default();
    let most = |total, each, usual: TransferLimit| {
        Ok::<_, Failure>(TransferLimit {
            total: number(file, GROUP, total, 1, usual.total)?,
            each: number(file, GROUP, each, 1, usual.each)?,
        })
    };
    // Images have no locations here, so this is only validated.
    quota(file, "DEFAULT", "image_location_quota", Some(10))?;
    Ok(ImageOptions {
        storage: storage(file)?,
        images: quota(file, GROUP, "max_images_per_project", usual.images)?,
        members: quota(file, "DEFAULT", "image_member_quota", usual.members)?,
        properties: quota(file, "DEFAULT", "image_property_quota", usual.properties)?,
        tags: quota(file, "DEFAULT", "image_tag_quota", usual.tags)?,
        default_page: number(file, "DEFAULT", "limit_param_default", 1, usual.default_page)?,
        max_page: number(file, "DEFAULT", "api_limit_max", 1, usual.max_page)?,
        size_cap: number(file, "DEFAULT", "image_size_cap", 1, usual.size_cap)?,
        uploads: most(
            "max_concurrent_uploads",
            "max_concurrent_uploads_per_project",
            usual.uploads,
        )?,
        downloads: most(
            "max_concurrent_downloads",
            "max_concurrent_downloads_per_project",
            usual.downloads,
        )?,
        snapshots: most(
            "max_concurrent_snapshots",
            "max_concurrent_snapshots_per_host",
            usual.snapshots,
        )?,
        rate: Rate {
            minimum: number(file, GROUP, "min_transfer_rate", 0, usual.rate.minimum)?,
            window: Duration::from_secs(number(
                file,
                GROUP,
                "transfer_rate_window",
                1,
                usual.rate.window.as_secs(),
            )?),
        },
        leftover_age: Duration::from_secs(number(
            file,
            GROUP,
            "leftover_age",
            0,
            usual.leftover_age.as_secs(),
        )?),
        stores: image_store::read(file, |name| std::env::var(name).ok())?,
    })
}

/// A number; negative means unlimited.
fn quota(
    file: &File,
    group: &str,
    option: &str,
    usual: Option<usize>,
) -> Result<Option<usize>, Failure> {
    let number = file.parse::<i64>(group, option, "an integer; negative means unlimited")?;
    Ok(number.map_or(usual, |number| usize::try_from(number).ok()))
}

/// `user_storage_quota`: bytes, or a number with a unit; 0 means unlimited.
fn storage(file: &File) -> Result<Option<u64>, Failure> {
    const OPTION: &str = "user_storage_quota";
    let Some(text) = file.get("DEFAULT", OPTION) else { return Ok(None) };
    let bytes = bytes(text).ok_or_else(|| {
        let why =
            format!("{text} is not a valid value; expected a number with B, KB, MB, GB or TB");
        file.wrong("DEFAULT", OPTION, &why)
    })?;
    Ok((bytes > 0).then_some(bytes))
}

fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = match unit {
        "" | "B" => 0,
        "KB" => 1,
        "MB" => 2,
        "GB" => 3,
        "TB" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024_u64.pow(power))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("0"), Some(0));
        assert_eq!(bytes("1000"), Some(1000));
        assert_eq!(bytes("2KB"), Some(2048));
        assert_eq!(bytes("10GB"), Some(10 << 30));
        for wrong in ["", "GB", "-1", "1 GB", "1gb", "99999999TB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
