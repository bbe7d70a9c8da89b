//! The fault formats of the services, all written from the same [`Fault`].
//!
//! Sources: Nova `api/openstack/wsgi.py` (fault names by status), Placement `util.py`
//! (`errors` list), Cyborg (`error_message` with JSON as text), Keystone (`error`), Glance and
//! Neutron as their clients parse them.

use http::StatusCode;
use serde_json::{Value, json};

use crate::refusal::UNDEFINED_CODE;
use crate::{Fault, Refusal};

/// The body format of a service's faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `{"itemNotFound": {"code", "message"}}`.
    Compute,
    /// `{"errors": [{"status", "title", "detail", "code", "request_id"}]}`.
    Placement,
    /// `{"error_message": "{\"faultcode\", …}"}`.
    Accelerator,
    /// `{"error": {"code", "title", "message"}}`.
    Identity,
    /// `{"code", "title", "message"}`.
    Image,
    /// `{"NeutronError": {"type", "message", "detail"}}`.
    Network,
}

impl Dialect {
    /// The body for a fault.
    pub fn body(self, fault: &Fault, request_id: &str, code_shown: bool) -> Value {
        let Refusal { message, code, extra, .. } = &fault.refusal;
        let (status, title) = (fault.status().as_u16(), title(fault.status()));
        match self {
            Self::Compute => {
                json!({ compute_name(status): {"code": status, "message": message} })
            }
            Self::Placement => {
                let mut error = json!({
                    "status": status,
                    "title": title,
                    "detail":
                        format!("{}\n\n {}  ", explanation(status), one_line(message)),
                    "request_id": request_id,
                });
                if code_shown {
                    error["code"] = (*code).into();
                }
                for (key, value) in extra {
                    error[*key] = value.as_str().into();
                }
                json!({"errors": [error]})
            }
            Self::Accelerator if fault.unrouted => {
                json!({"error_message": format!("{status} {title}\n\n{message}\n\n   ")})
            }
            Self::Accelerator => {
                let side = if status < 500 { "Client" } else { "Server" };
                let inner = json!({"faultcode": side, "faultstring": message, "debuginfo": null});
                json!({"error_message": inner.to_string()})
            }
            Self::Identity => {
                json!({"error": {"code": status, "title": title, "message": message}})
            }
            Self::Image => json!({
                "code": format!("{status} {title}"), "title": title, "message": message,
            }),
            Self::Network => json!({"NeutronError": {
                "type": network_type(code, title), "message": message, "detail": "",
            }}),
        }
    }
}

impl Dialect {
    /// A fault as HTML or plain text, for Placement and Glance. Glance's clients extract the message from
    /// the HTML.
    pub fn written(self, fault: &Fault, as_page: bool) -> String {
        let code = fault.status().as_u16();
        let status = format!("{code} {}", title(fault.status()));
        let text = match self {
            Self::Image => None,
            _ => Some(explanation(code)),
        };
        if !as_page {
            let text = text.map(|text| format!("{text}\n\n")).unwrap_or_default();
            return format!("{status}\n\n{text}{}\n", one_line(&fault.refusal.message));
        }
        let message = escaped(&fault.refusal.message);
        match text {
            None => format!(
                "<html>\n <head>\n  <title>{status}</title>\n </head>\n <body>\n  \
                 <h1>{status}</h1>\n  {message}<br /><br />\n\n\n </body>\n</html>"
            ),
            Some(text) => format!(
                "<html><head><title>{status}</title></head>\n<body><h1>{status}</h1>\n<p>{text}</p>\n\
                 <p>{message}</p></body></html>\n"
            ),
        }
    }
}

/// The message on one line, as webob writes it for Placement: osc-placement prints only the last line
/// of `detail`.
fn one_line(message: &str) -> String {
    message.replace('\r', "").replace('\n', " ")
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

/// The type of a Neutron error: its own name or, for a refusal by the framework below Neutron, the
/// name of the status.
fn network_type(code: &str, title: &str) -> String {
    if code == UNDEFINED_CODE { format!("HTTP{}", title.replace(' ', "")) } else { code.to_owned() }
}

fn compute_name(status: u16) -> &'static str {
    match status {
        400 => "badRequest",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "itemNotFound",
        405 => "badMethod",
        409 => "conflictingRequest",
        413 | 429 => "overLimit",
        415 => "badMediaType",
        501 => "notImplemented",
        503 => "serviceUnavailable",
        _ => "computeFault",
    }
}

/// The stock sentence that Placement puts before the message.
fn explanation(status: u16) -> &'static str {
    match status {
        400 => {
            "The server could not comply with the request since it is either malformed or \
             otherwise incorrect."
        }
        401 => {
            "This server could not verify that you are authorized to access the document you \
             requested."
        }
        403 => "Access was denied to this resource.",
        404 => "The resource could not be found.",
        405 => "The method specified is not allowed for this resource.",
        406 => "The resource could not be generated that was acceptable to your browser.",
        409 => "There was a conflict when trying to complete your request.",
        413 => "The body of your request was too large for this server.",
        415 => "The request media type is not supported by this server.",
        _ => "The server has either erred or is incapable of performing the requested operation.",
    }
}
