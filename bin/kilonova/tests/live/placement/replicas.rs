//! Two processes on one PostgreSQL.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ALONE, admin, alone, candidates, claim, host};
use crate::kit::{Environment, Serve, Session};

/// Two places that share a database; none without PostgreSQL.
fn pair() -> Option<(Environment, Environment)> {
    let with_postgres = |place: &Environment| place.database.is_some();
    let Some(mut one) = Environment::all().into_iter().find(with_postgres) else {
        kilonova_testkit::skip(
            "two processes need PostgreSQL; KILONOVA_TEST_POSTGRES names no server",
        );
        return None;
    };
    let mut two = alone();
    two.database.clone_from(&one.database);
    one.config = Some(ALONE.into());
    Some((one, two))
}

fn signal(serve: &Serve, signal: Signal) {
    let pid =
        i32::try_from(serve.pid()).ok().and_then(Pid::from_raw).expect("the process id is valid");
    kill_process(pid, signal).expect("the signal is sent");
}

/// Waits until `so` holds. Returns how long that took.
fn until(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    begun.elapsed()
}

fn knows(who: &Session, host: &str) -> bool {
    !candidates(who)[host].is_null()
}

#[test]
fn controllers_see_each_others_commits() {
    let Some((here, there)) = pair() else { return };
    let one = here.start();
    there.share_seal(&here);
    let two = there.start();
    let (a, b) = (admin(&one), admin(&two));
    let mut took: Vec<Duration> = Vec::new();
    for n in 0..10 {
        let new = host(&a, &format!("h{n}"), 4);
        took.push(until("the new host is seen", || knows(&b, &new)));
        let consumer = uuid::Uuid::new_v4().to_string();
        claim(&b, &consumer, &new, 4).ok(204);
        took.push(until("the full host is no longer a candidate", || !knows(&a, &new)));
        let late = claim(&a, &uuid::Uuid::new_v4().to_string(), &new, 1);
        assert!(late.refused(409).contains("would exceed the capacity"));
        b.delete(&format!("/allocations/{consumer}")).ok(204);
        took.push(until("the freed host is a candidate again", || knows(&a, &new)));
    }
    took.sort();
    let (middle, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!("seen by the other process after {middle:?}, at worst {worst:?}");
    assert!(middle < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_stopped_controller_catches_up_without_stale_claims() {
    let Some((here, there)) = pair() else { return };
    let one = here.start();
    there.share_seal(&here);
    let two = there.start();
    let (a, b) = (admin(&one), admin(&two));
    let full = host(&a, "full", 4);
    until("the first host is seen", || knows(&b, &full));
    signal(&two, Signal::STOP);
    let new: Vec<String> = (0..20).map(|n| host(&a, &format!("h{n}"), 4)).collect();
    claim(&a, &uuid::Uuid::new_v4().to_string(), &full, 4).ok(204);
    std::thread::sleep(Duration::from_secs(2));
    signal(&two, Signal::CONT);
    let late = claim(&b, &uuid::Uuid::new_v4().to_string(), &full, 1);
    assert!(late.refused(409).contains("would exceed the capacity"));
    let took = until("all changes are seen", || {
        let shown = candidates(&b);
        new.iter().all(|host| !shown[host].is_null()) && shown[&full].is_null()
    });
    println!("caught up after {took:?}");
    assert_eq!(candidates(&a), candidates(&b));
}
