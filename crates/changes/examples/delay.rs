//! Measures how long an entry takes from its commit to the subscriber of another process's follower.
//!
//! `cargo run -p kilonova-changes --example delay -- postgresql:///empty_database [WRITERS] [SECONDS]`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement fails by a panic"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kilonova_changes::{Applied, Entry, Follower, MIGRATIONS, Subscriber, Topic, append};
use kilonova_store::Store;

struct Stopwatch {
    begun: Instant,
    delays: Mutex<Vec<Duration>>,
}

impl Subscriber for Stopwatch {
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a> {
        let now = self.begun.elapsed();
        let delay =
            |entry: &Entry| now.saturating_sub(Duration::from_micros(entry.number.unsigned_abs()));
        self.delays.lock().expect("no panic").extend(entries.iter().map(delay));
        Box::pin(std::future::ready(Ok(())))
    }

    fn reload(&self) -> Applied<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let url = arguments.first().ok_or("usage: delay DATABASE_URL [WRITERS] [SECONDS]")?;
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |n| n.parse());
    let (writers, seconds) = (number(1, 8)?, number(2, 10)?);
    let store = Store::open(&url.parse()?).await?;
    store.migrate(MIGRATIONS).await?;
    let mut follower = Follower::open(&Store::open(&url.parse()?).await?).await?;
    let watch = Arc::new(Stopwatch { begun: Instant::now(), delays: Mutex::default() });
    follower.subscribe(Arc::clone(&watch) as _);
    tokio::spawn(async move { match follower.run().await {} });
    let end = Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, watch) = (store.clone(), Arc::clone(&watch));
            tokio::spawn(async move {
                let mut turn = 0;
                while watch.begun.elapsed() < end {
                    // The entry carries the time just before its commit.
                    let begun = watch.begun;
                    let write = store.write(move |tx| {
                        let micros = i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX);
                        append(tx, Topic::Documents, "h", micros)
                    });
                    write.await.expect("the entry is appended");
                    turn += 1;
                    tokio::time::sleep(Duration::from_millis(1 + (writer * 7 + turn * 13) % 20))
                        .await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut delays = watch.delays.lock().expect("no panic").clone();
    delays.sort();
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{} entries of {writers} writers in {seconds} s: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
        delays.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
