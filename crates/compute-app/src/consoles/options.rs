//! The operator's settings for consoles, with the names and defaults of nova.conf.

use jiff::SignedDuration;

/// The settings for consoles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// `[vnc] enabled`.
    pub vnc: bool,
    /// `[vnc] novncproxy_base_url`; this cloud's own page if `None`.
    pub vnc_base_url: Option<String>,
    /// `[serial_console] enabled`.
    pub serial: bool,
    /// `[serial_console] base_url`; this cloud's own websocket if `None`.
    pub serial_base_url: Option<String>,
    /// `[consoleauth] token_ttl`.
    pub token_ttl: SignedDuration,
    /// `[consoleauth] enforce_session_timeout`: true if a session ends when its token expires.
    pub enforce_session_timeout: bool,
    /// `[console] allowed_origins`: further hosts, besides this cloud's own, whose pages may
    /// connect.
    pub allowed_origins: Vec<String>,
    /// `[console] frame_ancestors`: the sites that may frame the page, in the syntax of its content
    /// security policy.
    pub frame_ancestors: String,
    /// `[console] max_consoles`: the maximum number of consoles that are open on a controller.
    pub max_consoles: usize,
    /// `[console] max_consoles_per_user`: the maximum per user.
    pub max_consoles_per_user: usize,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            vnc: true,
            vnc_base_url: None,
            serial: false,
            serial_base_url: None,
            token_ttl: SignedDuration::from_mins(10),
            enforce_session_timeout: false,
            allowed_origins: Vec::new(),
            frame_ancestors: "*".into(),
            max_consoles: 1024,
            max_consoles_per_user: 64,
        }
    }
}
