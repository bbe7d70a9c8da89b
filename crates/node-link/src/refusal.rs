//! Maps unsuccessful answers to refusals.

use kilonova_node_api::Refusal;
use reqwest::StatusCode;
use serde_json::Value;

/// The refusal for a status and a body. A status that is not known to be final means retry.
pub(super) fn read(status: StatusCode, body: &[u8]) -> Refusal {
    let why = message(body).unwrap_or_else(|| format!("the controller answered {status}"));
    match status {
        StatusCode::CONFLICT => Refusal::Fenced,
        StatusCode::BAD_REQUEST
        | StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => Refusal::Rejected(why),
        _ => Refusal::Unavailable(why),
    }
}

/// The refusal of a server that has no port for hosts at this address. An operator may enable it later.
pub(super) fn not_for_hosts() -> Refusal {
    Refusal::Unavailable(
        "the server takes no hosts at this address, which may be the API's port: hosts join at the URL that \
         `kilonova node list` prints, and [node] token = true admits hosts with a token at the API's port"
            .to_owned(),
    )
}

/// The message in `{"name": {"message": …}}`.
fn message(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.as_object()?.values().find_map(|fault| fault["message"].as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_refusals_stop_an_agent() {
        let body = br#"{"unprocessable": {"code": 422, "message": "no such host"}}"#;
        assert_eq!(read(StatusCode::CONFLICT, body), Refusal::Fenced);
        let rejected = Refusal::Rejected("no such host".into());
        assert_eq!(read(StatusCode::UNPROCESSABLE_ENTITY, body), rejected);
        assert_eq!(read(StatusCode::UNAUTHORIZED, body), rejected);
        for status in [500, 502, 503, 504, 404, 429] {
            let status = StatusCode::from_u16(status).expect("the status is valid");
            assert_eq!(read(status, body), Refusal::Unavailable("no such host".into()));
        }
    }

    #[test]
    fn a_body_without_a_message_is_described_by_its_status() {
        for body in [&b"<html>"[..], b"", b"[]", b"{}", b"{\"a\": 1}"] {
            let Refusal::Unavailable(why) = read(StatusCode::BAD_GATEWAY, body) else {
                panic!("not final");
            };
            assert!(why.contains("502"), "{why}");
        }
    }
}
