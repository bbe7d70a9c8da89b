//! The operator's data for guests, from a file (Nova: static vendor data).

use serde_json::{Map, Value};

use super::{File, Options};
use crate::Failure;

const PROVIDERS: &str = "vendordata_providers";
const FILE: &str = "vendordata_jsonfile_path";

/// Group and option.
pub const KNOWN: &Options = &[("api", PROVIDERS), ("api", FILE)];

/// True for each enabled provider: the static one (the file) and the dynamic one (the operator's
/// services).
fn providers(file: &File) -> Result<(bool, bool), Failure> {
    let providers = file.get("api", PROVIDERS).unwrap_or("StaticJSON");
    let (mut fixed, mut dynamic) = (false, false);
    for provider in providers.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match provider {
            "StaticJSON" => fixed = true,
            "DynamicJSON" => dynamic = true,
            other => {
                let why = format!("{other} is not a provider; expected StaticJSON or DynamicJSON");
                return Err(file.wrong("api", PROVIDERS, &why));
            }
        }
    }
    Ok((fixed, dynamic))
}

/// True if the operator's services are called.
///
/// # Errors
/// An unknown provider.
pub fn has_dynamic(file: &File) -> Result<bool, Failure> {
    Ok(providers(file)?.1)
}

/// The content of the operator's file; `None` if its provider is off.
///
/// # Errors
/// An unknown provider, or a file that is missing or is not JSON.
pub fn read(file: &File) -> Result<Option<Value>, Failure> {
    if !providers(file)?.0 {
        return Ok(None);
    }
    let Some(path) = file.path("api", FILE).filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(Some(Value::Object(Map::new())));
    };
    let wrong = |why: String| file.wrong("api", FILE, &format!("{}: {why}", path.display()));
    let text = std::fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let value =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    Ok(Some(value))
}
