//! URLs of databases: libpq's parameters, and refusals that show no part of a password.

use kilonova_store::DatabaseUrl;

fn refusal(url: &str) -> String {
    url.parse::<DatabaseUrl>().expect_err(url).to_string()
}

#[test]
fn urls_of_oslo_and_of_libpq_are_accepted() {
    for url in [
        "sqlite:////var/lib/k.db",
        "postgresql+psycopg2://kn:word@db.example/kn",
        "postgres://kn@[::1]:5433/kn?sslmode=disable",
        "postgresql:///kn?user=kn&host=/var/run/postgresql",
        "postgresql://kn@%2Frun%2Fpg/kn",
        "postgresql://kn@a:1,b:2,c:3/kn?target_session_attrs=read-write",
        "postgresql:///kn?host=a,b&port=5432&hostaddr=10.0.0.1,10.0.0.2&target_session_attrs=primary",
        "postgresql://kn@db/kn?sslrootcert=system",
        "postgresql://kn@db/kn?sslmode=verify-ca&sslrootcert=%2Fetc%2Fca.pem&sslcert=/a&sslkey=/b",
        "postgresql://kn@db/kn?passfile=/etc/kilonova/pass&application_name=k&connect_timeout=3",
        "postgresql://kn@db/kn?channel_binding=require&keepalives_idle=30&tcp_user_timeout=9000",
        "postgresql://kn@a,b/kn?load_balance_hosts=disable&options=-c%20work_mem%3D8MB",
        "postgresql://kn@db/kn?sslmode=verify-full&sslrootcert=/a&sslnegotiation=direct",
    ] {
        url.parse::<DatabaseUrl>().unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn wrong_urls_are_explained() {
    for (url, part) in [
        ("mysql://kn@db/kn", "scheme mysql is not supported"),
        ("postgresql:///kn", "it names no host"),
        ("postgresql://kn@db/kn?sslmode=on", "sslmode must be disable, prefer"),
        ("postgresql://kn@db/kn?sslmode=verify-full", "need sslrootcert=FILE"),
        ("postgresql://kn@db/kn?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
        ("postgresql://kn@db/kn?sslmode=disable&sslrootcert=/a", "no effect with sslmode=disable"),
        ("postgresql://kn@db/kn?sslcert=/a", "sslcert needs sslkey too"),
        ("postgresql://kn@db/kn?sslkey=/a", "sslkey needs sslcert too"),
        ("postgresql://kn@db/kn?target_session_attrs=standby", "because kilonova writes"),
        ("postgresql:///kn?host=a,b&port=1,2,3", "one for each host"),
        ("postgresql://kn@a/kn?port=1", "names ports twice"),
        ("postgresql://kn@a/kn?host=b", "names hosts twice"),
        ("postgresql://kn@a,b/kn?hostaddr=10.0.0.1", "one address for each host"),
        ("postgresql://kn@db/kn?sslcrl=/a", "the parameter sslcrl is not supported"),
        ("postgresql://kn@db/kn?sslcrl=/a", "would have no effect; remove it"),
        ("postgresql://kn@a,b/kn?load_balance_hosts=random", "load_balance_hosts is not supported"),
        ("postgresql://kn@a,b/kn?load_balance_hosts=random", "remove it"),
        (
            "postgresql://kn@db/kn?options=-c%20statement_timeout%3D9000",
            "set [database] statement_timeout instead",
        ),
        (
            "postgresql://kn@db/kn?options=-cidle_in_transaction_session_timeout%3D9",
            "[database] statement_timeout sets it",
        ),
        ("postgresql://kn@db/kn?connect_timeout=0", "connect_timeout must be at least 1 second"),
        ("postgresql:///kn?host=/run/pg&hostaddr=10.0.0.1", "hostaddr cannot be combined"),
        ("postgresql:///kn?host=a&host=b", "the parameter host twice"),
        ("postgresql://kn@db/kn?sslnegotiation=direct", "sslnegotiation=direct needs sslmode"),
        ("postgresql://kn@db/kn?passfile=%zz", "passfile is not percent-encoded"),
        ("postgresql://kn@db/kn?passfile", "a parameter has no value"),
        ("postgresql://kn@db:99999/kn", "port"),
    ] {
        let message = refusal(url);
        assert!(message.contains(part), "{url}: {message}");
    }
}

#[test]
fn no_refusal_shows_a_part_of_a_password() {
    for url in [
        "postgresql://kn:se?same=word@db/kn",
        "postgresql://kn:se?sameword@db/kn",
        "postgresql://kn:se/sameword@db/kn?sslmode=on",
        "postgresql://kn:sesame:word@db:x/kn",
        "mysql://kn:sesameword@db/kn",
    ] {
        let message = refusal(url);
        assert!(!message.contains("same") && !message.contains("word@"), "{url}: {message}");
    }
    let url: DatabaseUrl = "postgresql://kn:sesame@db/kn".parse().expect("the URL is valid");
    assert!(!format!("{url:?}").contains("sesame"));
}
