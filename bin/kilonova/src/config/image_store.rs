//! `[glance_store]`: the storage of image data. The options are Glance's, as far as they apply.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_image::{LEAST_PART, S3Options, Secret, StoreName, StoreOptions};

use super::File;
use crate::failure::Failure;

const GROUP: &str = "glance_store";

/// The known options.
pub(super) const KNOWN: [(&str, &str); 18] = [
    (GROUP, "stores"),
    (GROUP, "default_backend"),
    (GROUP, "default_store"),
    (GROUP, "filesystem_store_chunk_size"),
    (GROUP, "filesystem_store_datadir"),
    (GROUP, "s3_store_access_key"),
    (GROUP, "s3_store_bucket"),
    (GROUP, "s3_store_bucket_url_format"),
    (GROUP, "s3_store_cacert"),
    (GROUP, "s3_store_create_bucket_on_put"),
    (GROUP, "s3_store_host"),
    (GROUP, "s3_store_large_object_chunk_size"),
    (GROUP, "s3_store_large_object_size"),
    (GROUP, "s3_store_object_buffer_dir"),
    (GROUP, "s3_store_region_name"),
    (GROUP, "s3_store_secret_key"),
    (GROUP, "s3_store_secret_key_file"),
    (GROUP, "s3_store_thread_pools"),
];

/// Maximum wait for an answer of the object store.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Glance's default size of a part, in MB.
const PART: u64 = 10;

/// Reads the group. `variable` reads an environment variable.
pub(super) fn read(
    file: &File,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<StoreOptions, Failure> {
    let stores = stores(file)?;
    let default = default(file, &stores)?;
    let s3 = stores.contains(&StoreName::S3).then(|| s3(file, variable)).transpose()?;
    Ok(StoreOptions {
        files: stores.contains(&StoreName::File),
        directory: file.path(GROUP, "filesystem_store_datadir"),
        s3,
        default,
    })
}

fn stores(file: &File) -> Result<Vec<StoreName>, Failure> {
    let text = file.get(GROUP, "stores").unwrap_or("file");
    let mut stores = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match StoreName::parse(word) {
            Some(store) => stores.push(store),
            // Part of Glance's default: images by URL, which this service does not support.
            None if word == "http" => {}
            None => {
                let why = format!("{word} is not a store; expected file or s3");
                return Err(file.wrong(GROUP, "stores", &why));
            }
        }
    }
    if stores.is_empty() {
        return Err(file.wrong(GROUP, "stores", "it names neither file nor s3"));
    }
    Ok(stores)
}

/// The store of new images: the named one, or the first.
fn default(file: &File, stores: &[StoreName]) -> Result<StoreName, Failure> {
    for option in ["default_backend", "default_store"] {
        let Some(word) = file.get(GROUP, option) else { continue };
        return match StoreName::parse(word).filter(|store| stores.contains(store)) {
            Some(store) => Ok(store),
            None => Err(file.wrong(GROUP, option, &format!("{word} is not among stores"))),
        };
    }
    Ok(stores.first().copied().unwrap_or(StoreName::File))
}

fn s3(file: &File, variable: impl Fn(&str) -> Option<String>) -> Result<S3Options, Failure> {
    let needed = |option: &str| match file.get(GROUP, option) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(file.wrong(GROUP, "stores", &format!("the store s3 requires {option}"))),
    };
    let host = needed("s3_store_host")?;
    let endpoint = if host.contains("://") { host } else { format!("https://{host}") };
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(file.wrong(GROUP, "s3_store_host", "it must begin with http:// or https://"));
    }
    let aws = endpoint.trim_end_matches('/').ends_with(".amazonaws.com");
    let virtual_hosted = match file.get(GROUP, "s3_store_bucket_url_format").unwrap_or("auto") {
        "auto" => aws,
        "virtual" => true,
        "path" => false,
        other => {
            let why = format!("{other} is not a format; expected auto, virtual or path");
            return Err(file.wrong(GROUP, "s3_store_bucket_url_format", &why));
        }
    };
    const PART_OPTION: &str = "s3_store_large_object_chunk_size";
    let part = file.parse::<u64>(GROUP, PART_OPTION, "a number of MB")?.unwrap_or(PART);
    if !(LEAST_PART >> 20..=1024).contains(&part) {
        return Err(file.wrong(GROUP, PART_OPTION, "it must be 5 to 1024 (MB)"));
    }
    let access_key = match file.get(GROUP, "s3_store_access_key") {
        Some(key) => key.to_owned(),
        None => variable("AWS_ACCESS_KEY_ID").ok_or_else(|| {
            let why = "the store s3 requires s3_store_access_key, or AWS_ACCESS_KEY_ID in the environment";
            file.wrong(GROUP, "stores", why)
        })?,
    };
    let region = file.get(GROUP, "s3_store_region_name").filter(|region| !region.is_empty());
    Ok(S3Options {
        endpoint,
        region: region.unwrap_or("us-east-1").to_owned(),
        bucket: needed("s3_store_bucket")?,
        virtual_hosted,
        create_bucket: file
            .parse(GROUP, "s3_store_create_bucket_on_put", "true or false")?
            .unwrap_or(false),
        access_key,
        secret_key: Secret::new(secret(file, variable)?),
        cacert: file.path(GROUP, "s3_store_cacert").filter(|path| *path != PathBuf::new()),
        part_size: part << 20,
        timeout: TIMEOUT,
    })
}

/// The key: from the option, the file that an option names, or the environment.
fn secret(file: &File, variable: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    const FROM_FILE: &str = "s3_store_secret_key_file";
    if let Some(key) = file.get(GROUP, "s3_store_secret_key") {
        return Ok(key.to_owned());
    }
    if let Some(path) = file.path(GROUP, FROM_FILE) {
        let text = std::fs::read_to_string(&path).map_err(|e| {
            file.wrong(GROUP, FROM_FILE, &format!("cannot read {}: {e}", path.display()))
        })?;
        return match text.trim() {
            "" => Err(file.wrong(GROUP, FROM_FILE, &format!("{} is empty", path.display()))),
            key => Ok(key.to_owned()),
        };
    }
    variable("AWS_SECRET_ACCESS_KEY").ok_or_else(|| {
        let why = "the store s3 requires s3_store_secret_key, s3_store_secret_key_file, or \
                   AWS_SECRET_ACCESS_KEY in the environment";
        file.wrong(GROUP, "stores", why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str, variables: &[(&str, &str)]) -> Result<StoreOptions, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kilonova.conf");
        std::fs::write(folder.path().join("key"), "from a file\n").expect("the file is written");
        let text = text.replace("HERE", &folder.path().display().to_string());
        std::fs::write(&path, format!("[glance_store]\n{text}\n")).expect("the file is written");
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        File::read(&path, crate::config::KNOWN)
            .and_then(|file| read(&file, variable))
            .map_err(|failure| failure.to_string())
    }

    const BUCKET: &str =
        "stores = file,http,s3\ns3_store_host = s3.example:9000\ns3_store_bucket = images\n";

    #[test]
    fn files_are_the_default() {
        let options = section("", &[]).expect("the section is valid");
        assert!(options.files && options.s3.is_none());
        assert_eq!((options.default, options.directory), (StoreName::File, None));
        let options = section("filesystem_store_datadir = /srv/images", &[]);
        assert_eq!(options.expect("valid").directory, Some("/srv/images".into()));
    }

    #[test]
    fn the_section_of_a_usual_glance_is_accepted() {
        let more = "default_store = s3\ns3_store_access_key = id\ns3_store_secret_key = key\n\
                    s3_store_region_name = here\ns3_store_bucket_url_format = auto\n\
                    s3_store_create_bucket_on_put = True\ns3_store_large_object_size = 100\n\
                    s3_store_large_object_chunk_size = 20\ns3_store_object_buffer_dir = /tmp\n\
                    s3_store_thread_pools = 10\ns3_store_cacert = /etc/ca.pem";
        let options = section(&format!("{BUCKET}{more}"), &[]).expect("the section is valid");
        assert!(options.files);
        assert_eq!(options.default, StoreName::S3);
        let s3 = options.s3.expect("S3 is configured");
        assert_eq!(s3.endpoint, "https://s3.example:9000");
        assert_eq!((s3.region.as_str(), s3.bucket.as_str()), ("here", "images"));
        assert!(!s3.virtual_hosted && s3.create_bucket);
        assert_eq!((s3.part_size, s3.cacert.clone()), (20 << 20, Some("/etc/ca.pem".into())));
        assert!(!format!("{s3:?}").contains("key\""), "{s3:?}");
    }

    #[test]
    fn the_key_may_be_in_a_file_or_in_the_environment() {
        let variables = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "variable")];
        let key = |more: &str| {
            let options = section(&format!("{BUCKET}{more}"), &variables);
            options.expect("the section is valid").s3.expect("S3 is configured").secret_key
        };
        assert_eq!(key(""), Secret::new("variable".into()));
        assert_eq!(key("s3_store_secret_key_file = HERE/key"), Secret::new("from a file".into()));
        assert_eq!(key("s3_store_secret_key = option"), Secret::new("option".into()));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let full = format!("{BUCKET}s3_store_access_key = i\ns3_store_secret_key = k\n");
        for (text, part) in [
            ("stores = rbd".to_owned(), "rbd is not a store"),
            ("stores = http".to_owned(), "neither file nor s3"),
            ("stores = s3".to_owned(), "requires s3_store_host"),
            (BUCKET.to_owned(), "AWS_ACCESS_KEY_ID"),
            (format!("{BUCKET}s3_store_access_key = i"), "AWS_SECRET_ACCESS_KEY"),
            ("default_backend = s3".to_owned(), "s3 is not among stores"),
            (format!("{full}s3_store_large_object_chunk_size = 1"), "5 to 1024"),
            (format!("{full}s3_store_bucket_url_format = odd"), "auto, virtual or path"),
            (full.replace("s3.example", "ftp://s3"), "must begin with http"),
        ] {
            let said = section(&text, &[]).expect_err("the section is refused");
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
