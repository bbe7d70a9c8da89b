//! The first request of a host without a certificate.
//!
//! A controller may start later than the host, so the request is repeated while no controller can be
//! reached. It is never sent twice: a controller refuses a token that was used, also to the same host
//! with the same key.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use kilonova_ids::HostName;
use kilonova_node_api::{Credential, Join, Refusal, Renewal};
use kilonova_pki::Token;
use reqwest::Method;

use super::{Error, Remote, connect_error, parse, read, sent, unavailable, with_body};

/// How long a host tries to reach a controller in order to join.
pub const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// The longest pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Requests the first certificate of a host from the controller at `url`. Fails before sending
/// anything if the controller's authority does not match the token. If no controller can be
/// reached, tries again until `limit` ([`JOIN_LIMIT`]) has passed.
///
/// # Errors
/// The reason why no certificate was issued.
pub async fn join(
    url: &str,
    token: &Token,
    host: &HostName,
    request: Renewal,
    limit: Duration,
) -> Result<Credential, Refusal> {
    let rejected = |error: &dyn std::fmt::Display| Refusal::Rejected(error.to_string());
    let config = kilonova_pki::joining(token.authority).map_err(|error| rejected(&error))?;
    let remote = Remote::certified(url, config).map_err(|error: Error| rejected(&error))?;
    let message = Join { secret: token.secret.to_string(), host: host.to_owned(), request };
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        let (at, base) = remote.addresses.current();
        let request = with_body(remote.request_at(base, Method::POST, "/v1/join"), &message)?;
        let error = match sent(request).await {
            Ok(answer) => return parse(&read(answer).await?.1),
            Err(error) if connect_error::is_unreached(&error) => error,
            // The two sides do not trust each other or do not speak the same protocol.
            Err(error) if error.is_connect() => return Err(unavailable(error)),
            Err(error) => {
                return Err(Refusal::Unavailable(format!(
                    "{}; the controller may have used the token, which works only once: run \
                     the same command again, and if the token is refused, create a new one with \
                     `kilonova node enroll --host {host}`",
                    connect_error::explain(&error)
                )));
            }
        };
        let (why, pause) = (connect_error::explain(&error), pause(tries));
        if begun.elapsed() + pause > limit {
            return Err(Refusal::Unavailable(format!(
                "could not reach the controller within {} s: {why}; check the URL, the network \
                 and that a controller runs with [node] listen, then run the same command again: \
                 the token was not used",
                limit.as_secs()
            )));
        }
        tracing::warn!(
            %host, %why, retry_in = ?pause,
            "could not reach the controller in order to join; nothing was sent; trying again"
        );
        remote.addresses.leave(at);
        tokio::time::sleep(pause).await;
        tries += 1;
    }
}

/// The pause after this number of earlier failures: a random part, at least half, of the longest
/// one, so that hosts that start together spread out.
fn pause(tries: u32) -> Duration {
    let most = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
    let part = (RandomState::new().hash_one(tries) % 512) as u32;
    most / 2 + most / 1024 * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        for (tries, most) in [(0, 500), (1, 1_000), (4, 8_000), (5, 8_000), (99, 8_000)] {
            let most = Duration::from_millis(most);
            let pauses: Vec<Duration> = (0..50).map(|_| pause(tries)).collect();
            assert!(pauses.iter().all(|one| (most / 2..=most).contains(one)), "{pauses:?}");
            assert!(pauses.iter().any(|one| *one != pauses[0]), "{pauses:?}");
        }
    }
}
