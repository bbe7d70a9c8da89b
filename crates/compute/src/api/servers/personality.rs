//! `personality`: the files that a request puts on the guest's config drive, before microversion 2.57. The schema has
//! checked their fields.

use kilonova_compute_app::user_data;
use kilonova_node_api::InjectedFile;
use kilonova_wire::Refusal;
use serde_json::Value;

/// Maximum number of bytes of the files of a request, as JSON: what upstream's default maximum of a whole body allows
/// (`[oslo_middleware] max_request_body_size`). Each server of the request has them in its row and in its document, and the
/// quotas may be unlimited.
const LARGEST: usize = 112 * 1024;

/// Reads the files of a create or rebuild request.
///
/// # Errors
/// 400 if a content is not base64, or if the files are too large.
pub(super) fn read(server: &Value) -> Result<Vec<InjectedFile>, Refusal> {
    let Some(sent) = server["personality"].as_array().filter(|sent| !sent.is_empty()) else {
        return Ok(Vec::new());
    };
    if server["personality"].to_string().len() > LARGEST {
        return Err(Refusal::bad_request(format!(
            "Invalid input for field/attribute personality. The files may have at most {LARGEST} bytes."
        )));
    }
    let text = |file: &Value, key: &str| file[key].as_str().unwrap_or_default().to_owned();
    let files = sent
        .iter()
        .map(|file| InjectedFile { path: text(file, "path"), contents: text(file, "contents") });
    let files: Vec<InjectedFile> = files.collect();
    if files.iter().any(|file| user_data::decode(&file.contents).is_err()) {
        return Err(Refusal::bad_request(
            "Invalid input for field/attribute contents. It is not base64.",
        ));
    }
    Ok(files)
}
