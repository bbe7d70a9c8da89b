//! `kilonova node enroll`, `list` and `revoke` manage the hosts of a cloud over its API, with an
//! administrator's credentials.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::Format;
use super::examples;
use crate::cloud::{CloudArgs, Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::text::{plain, segment};

const PATH: &str = "/kilonova/enrollments";

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a join token for one machine and print the command to run there.
    #[command(after_help = examples::ENROLL)]
    Enroll(Enroll),
    /// List certificates of hosts and unused join tokens.
    #[command(after_help = examples::LIST)]
    List(List),
    /// Revoke a host's certificates and join tokens, or the join tokens that name no host.
    #[command(after_help = examples::REVOKE)]
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub(super) struct Enroll {
    /// Restrict the token to this host; required for a host that joined before.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Let the machine take over the name, guests and devices of an existing host without a
    /// certificate.
    #[arg(long, requires = "host")]
    replace: bool,
    /// Validity of the token: 90s, 30m, 1h, 2d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    valid: i64,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    /// Host name. Example: host1.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new(),
        required_unless_present = "tokens")]
    host: Option<String>,
    /// Revoke all unused join tokens that name no host.
    #[arg(long, conflicts_with = "host")]
    tokens: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let wrong = || "expected a number with s, m, h or d, such as 1h".to_owned();
    let (number, unit) =
        text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

pub(super) fn run(command: Command) -> Result<ExitCode, Failure> {
    let is_read = matches!(command, Command::List(_));
    let output = super::runtime()?.block_on(async {
        match command {
            Command::Enroll(options) => enroll(options).await,
            Command::List(options) => list(options).await,
            Command::Revoke(options) => revoke(options).await,
        }
    })?;
    let said = if is_read { super::say(&output) } else { super::say_done(&output) };
    said?;
    Ok(ExitCode::SUCCESS)
}

async fn enroll(options: Enroll) -> Result<String, Failure> {
    let compute = Compute::open(&options.cloud).await?;
    let body = json!({"enrollment": {"host": options.host, "valid": options.valid,
        "replace": options.replace}});
    let made = compute.ask(Method::POST, PATH, Some(&body)).await.map_err(ComputeError::fatal)?;
    let made = &made["enrollment"];
    if options.format == Format::Json {
        return Ok(format!("{made}\n"));
    }
    let text = |key: &str| made[key].as_str().unwrap_or_default();
    let whose =
        options.host.map_or_else(|| "one machine".to_owned(), |host| format!("host {host}"));
    Ok(format!(
        "Run this as root on the joining machine. The token is valid once, for {whose}, until {}:\n\n    \
                 kilonova-agent join {} {}\n",
        text("expires_at"),
        text("url"),
        text("token")
    ))
}

async fn list(options: List) -> Result<String, Failure> {
    let compute = Compute::open(&options.cloud).await?;
    let all = compute.get(PATH).await.map_err(ComputeError::fatal)?;
    match options.format {
        Format::Json => Ok(format!("{all}\n")),
        Format::Table => Ok(table(&all)),
    }
}

fn table(all: &Value) -> String {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let mut page = format!(
        "Hosts join at {}; the certificate authority is {}.\n",
        text(&all["url"]),
        text(&all["authority"])
    );
    let certificates = all["certificates"].as_array().map(Vec::as_slice).unwrap_or_default();
    if certificates.is_empty() {
        page.push_str("No host has a certificate.\n");
    } else {
        let longest = certificates.iter().map(|one| text(&one["host"]).len()).max().unwrap_or(0);
        let width = longest.max(4);
        page.push_str(&format!("\n{:width$}  {:7}  {:20}  addresses\n", "host", "state", "until"));
        for one in certificates {
            let addresses = one["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
            let addresses: Vec<String> = addresses.iter().map(text).collect();
            let line = format!(
                "{:width$}  {:7}  {:20}  {}",
                text(&one["host"]),
                text(&one["state"]),
                text(&one["expires_at"]),
                addresses.join(" ")
            );
            page.push_str(line.trim_end());
            page.push('\n');
        }
    }
    for token in all["tokens"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let host = token["host"].as_str().map_or_else(|| "any host".to_owned(), plain);
        page.push_str(&format!(
            "\nAn unused join token for {host} is valid until {}.\n",
            text(&token["expires_at"])
        ));
    }
    page
}

async fn revoke(options: Revoke) -> Result<String, Failure> {
    let compute = Compute::open(&options.cloud).await?;
    let path = match &options.host {
        Some(host) => format!("{PATH}/{}", segment(host)),
        None => format!("{PATH}?host=none"),
    };
    let done = compute.ask(Method::DELETE, &path, None).await.map_err(ComputeError::fatal)?;
    if options.format == Format::Json {
        return Ok(format!("{done}\n"));
    }
    Ok(revoked(options.host.as_deref(), &done["revoked"]))
}

fn revoked(host: Option<&str>, done: &Value) -> String {
    let count = |key: &str| done[key].as_i64().unwrap_or_default();
    let (certificates, tokens) = (count("certificates"), count("tokens"));
    let Some(host) = host.map(plain) else {
        return format!("{tokens} join token(s) that name no host are revoked.\n");
    };
    if certificates == 0 {
        return format!(
            "{tokens} join token(s) for host {host} are revoked; it has no valid certificate.\n"
        );
    }
    format!(
        "Host {host} is revoked ({certificates} certificate(s), {tokens} join token(s)). Its guests keep \
         running. To let it join again: kilonova node enroll --host {host}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, is) in [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800)] {
            assert_eq!(seconds(text), Ok(is));
        }
        for wrong in ["", "h", "1", "0s", "-1h", "1w", "1ü", "99999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_revocation_names_its_kind() {
        let text = revoked(Some("a"), &json!({"certificates": 1, "tokens": 2}));
        assert!(text.contains("Host a is revoked (1 certificate(s), 2 join token(s))"), "{text}");
        let text = revoked(Some("a"), &json!({"certificates": 0, "tokens": 2}));
        assert!(text.starts_with("2 join token(s) for host a are revoked"), "{text}");
        let text = revoked(None, &json!({"tokens": 3}));
        assert!(text.starts_with("3 join token(s) that name no host are revoked"), "{text}");
    }

    #[test]
    fn a_list_is_readable() {
        let all = json!({"url": "https://c:1", "authority": "ab", "tokens": [
            {"host": null, "expires_at": "T"}], "certificates": [
            {"host": "gpu-1", "state": "valid", "expires_at": "2027", "addresses": ["192.0.2.1"]}]});
        let text = table(&all);
        assert!(text.contains("gpu-1  valid    2027                  192.0.2.1\n"), "{text}");
        assert!(text.contains("An unused join token for any host is valid until T."), "{text}");
        assert!(table(&json!({})).contains("No host has a certificate."));
    }
}
