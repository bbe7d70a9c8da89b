//! Logging in to a PostgreSQL that accepts only TLS and SCRAM, and a client certificate for one
//! role; everything else must be refused with a helpful reason that does not contain the password.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kilonova_store::{Error, Options, Store, params};
use kilonova_testkit::cluster::Cluster;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

const HBA: &str = "hostssl kn kn 127.0.0.1/32 scram-sha-256
hostssl kn kn_cert 127.0.0.1/32 scram-sha-256 clientcert=verify-full";
const PASSWORD: &str = "sesame-word";

struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec!["localhost".into()]).expect("names are valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key is made");
        let pem = params.self_signed(&key).expect("the certificate signs itself").pem();
        Self { params, key, pem }
    }

    /// A certificate and its key, in PEM.
    fn sign(&self, name: &str) -> (String, String) {
        self.sign_until(name, 4096)
    }

    /// Like `sign`, but valid until the beginning of a year.
    fn sign_until(&self, name: &str, year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.into()]).expect("the name is valid");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key is made");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let made = params.signed_by(&key, &issuer).expect("the authority signs");
        (made.pem(), key.serialize_pem())
    }
}

async fn open(url: &str) -> Result<Store, Error> {
    let options = Options { max_retries: Some(0), ..Options::default() };
    Store::open_with(&url.parse()?, &options).await
}

/// The first column of a statement's row.
async fn ask(store: &Store, sql: &'static str) -> String {
    let row = store.read(move |tx| tx.row(sql, params![])).await.expect("the statement succeeds");
    row.expect("there is a row").string(0).expect("the column is text")
}

/// Opens the store, expects a permanent refusal, and returns its reason.
async fn refused(url: &str) -> String {
    match open(url).await {
        Err(Error::Open(why)) => {
            assert!(!why.contains(PASSWORD), "{why}");
            why
        }
        Err(other) => panic!("{url}: {other:?}"),
        Ok(_) => panic!("{url} is accepted"),
    }
}

fn place(folder: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the file is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
        .expect("the mode is set");
    path.to_str().expect("the path is UTF-8").to_owned()
}

#[tokio::test]
async fn a_server_that_accepts_tls_and_scram_alone() {
    let (ours, other) = (Authority::new("authority of the test"), Authority::new("another"));
    let conf = "ssl = off\npassword_encryption = scram-sha-256\nlog_connections = on";
    let Some(server) = Cluster::start(conf, HBA) else { return };
    for role in ["kn", "kn_cert"] {
        server.sql("postgres", &format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"));
    }
    server.sql("postgres", "CREATE DATABASE kn");
    let port = server.port();
    let own = tempfile::tempdir().expect("a temporary directory is created");
    let url = |user: &str, more: &str| {
        let host = format!("localhost:{port}");
        format!("postgresql://{user}@{host}/kn?hostaddr=127.0.0.1&{more}")
    };
    let login = format!("kn:{PASSWORD}");

    // Before the server has TLS.
    let message = refused(&url(&login, "sslmode=require")).await;
    assert!(message.contains("it has no TLS: set ssl = on"), "{message}");

    let (certificate, key) = ours.sign("localhost");
    let certificate = server.write("server.crt", &certificate);
    let key = server.write("server.key", &key);
    let authorities = server.write("clients.crt", &ours.pem);
    let set = |name: &str, file: &Path| {
        server.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{}'", file.display()));
    };
    set("ssl_cert_file", &certificate);
    set("ssl_key_file", &key);
    set("ssl_ca_file", &authorities);
    server.sql("postgres", "ALTER SYSTEM SET ssl = on");
    reload(&server).await;

    let root = place(own.path(), "root.pem", &ours.pem, 0o644);
    let wrong_root = place(own.path(), "other.pem", &other.pem, 0o644);
    let full = format!("sslmode=verify-full&sslrootcert={root}");

    // Each mode that TLS satisfies. Channel binding ties SCRAM to the TLS session.
    for more in [
        "sslmode=prefer",
        "sslmode=require",
        "sslmode=require&channel_binding=require",
        &format!("sslmode=verify-ca&sslrootcert={root}&channel_binding=require"),
        &full,
    ] {
        let store = open(&url(&login, more)).await.unwrap_or_else(|e| panic!("{more}: {e}"));
        let version = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(ask(&store, version).await, "TLSv1.3", "{more}");
        let name = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        assert_eq!(ask(&store, name).await, "kilonova");
    }
    for (more, part) in [
        ("sslmode=disable", "no encryption; see pg_hba.conf".to_owned()),
        (
            &format!("sslmode=verify-ca&sslrootcert={wrong_root}"),
            format!("sslrootcert {wrong_root} must hold"),
        ),
        // As in libpq, a named authority is verified although the mode does not require it.
        (
            &format!("sslmode=require&sslrootcert={wrong_root}"),
            format!("sslrootcert {wrong_root} must hold"),
        ),
        ("sslmode=verify-ca&sslrootcert=/nowhere.pem", "sslrootcert /nowhere.pem: No such".into()),
        (&format!("sslmode=require&sslcert={root}&sslkey=/nowhere"), "sslkey /nowhere: No".into()),
        ("sslmode=verify-full&sslrootcert=system", "in sslrootcert".into()),
    ] {
        let message = refused(&url(&login, more)).await;
        assert!(message.contains(&part), "{more}: {message}");
        assert!(message.contains(&format!("localhost:{port}")), "{message}");
    }
    // The certificate contains the host's name but not its address.
    let by_address = format!("postgresql://{login}@127.0.0.1:{port}/kn?");
    let message = refused(&format!("{by_address}{full}")).await;
    assert!(
        message.contains("127.0.0.1") && message.contains("use a name of the certificate"),
        "{message}"
    );
    let ca = full.replace("verify-full", "verify-ca");
    open(&format!("{by_address}{ca}")).await.expect("verify-ca does not check the name");

    // The socket works without TLS and without a password.
    let message = refused(&format!("{}&channel_binding=require", server.url("kn"))).await;
    assert!(message.contains("see channel_binding in the URL"), "{message}");

    // The sources of the password.
    let message = refused(&url("kn:wrong-word", &full)).await;
    assert!(message.contains("28P01") && message.contains("check the password"), "{message}");
    let message = refused(&url("kn", &full)).await;
    assert!(message.contains("it asks for a password, and there is none"), "{message}");
    let line = format!("# the cloud's\nelsewhere:*:*:*:no\nlocalhost:{port}:kn:kn:{PASSWORD}\n");
    let passfile = place(own.path(), "pass", &line, 0o600);
    open(&url("kn", &format!("{full}&passfile={passfile}"))).await.expect("the line matches");
    let open_to_all = place(own.path(), "readable", &line, 0o644);
    let message = refused(&url("kn", &format!("{full}&passfile={open_to_all}"))).await;
    assert!(message.contains("others can read it (0644); chmod 600"), "{message}");
    let elsewhere = place(own.path(), "elsewhere", &format!("db:*:kn:kn:{PASSWORD}\n"), 0o600);
    let message = refused(&url("kn", &format!("{full}&passfile={elsewhere}"))).await;
    assert!(message.contains("a line host:port:database:user:password"), "{message}");

    // A role that also needs a client certificate.
    let certified = format!("kn_cert:{PASSWORD}");
    let message = refused(&url(&certified, &full)).await;
    assert!(message.contains("client certificate"), "{message}");
    for (name, accepted) in [("kn_cert", true), ("kn", false)] {
        let (certificate, key) = ours.sign(name);
        let certificate = place(own.path(), "own.pem", &certificate, 0o644);
        let private = place(own.path(), "own.key", &key, 0o600);
        let shown = format!("{full}&sslcert={certificate}&sslkey={private}");
        match accepted {
            true => {
                drop(open(&url(&certified, &shown)).await.expect("the certificate is the role's"))
            }
            false => {
                let message = refused(&url(&certified, &shown)).await;
                assert!(
                    message.contains("28P01") && message.contains("whether sslcert is"),
                    "{message}"
                );
            }
        }
        let readable = place(own.path(), "readable.key", &key, 0o644);
        let shown = format!("{full}&sslcert={certificate}&sslkey={readable}");
        let message = refused(&url(&certified, &shown)).await;
        assert!(message.contains("sslkey") && message.contains("chmod 600"), "{message}");
    }
    let (foreign, key) = other.sign("kn_cert");
    let foreign = place(own.path(), "foreign.pem", &foreign, 0o644);
    let key = place(own.path(), "foreign.key", &key, 0o600);
    let shown = format!("{full}&sslcert={foreign}&sslkey={key}");
    let message = refused(&url(&certified, &shown)).await;
    let part = format!("the server refused sslcert {foreign}");
    assert!(message.contains(&part) && message.contains("ssl_ca_file"), "{message}");

    // Several hosts: the first does not answer.
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("the listener has an address").port()
    };
    let hosts = format!("postgresql://{login}@127.0.0.1:{closed},127.0.0.1:{port}/kn?{ca}");
    open(&hosts).await.expect("the second host answers");

    // An expired certificate.
    let (expired, key) = ours.sign_until("localhost", 2001);
    let expired = server.write("server.crt", &expired);
    let key = server.write("server.key", &key);
    set("ssl_cert_file", &expired);
    set("ssl_key_file", &key);
    reload(&server).await;
    let message = refused(&url(&login, &full)).await;
    assert!(message.contains("renew the server's certificate"), "{message}");
    assert!(message.contains(&format!("localhost:{port}")), "{message}");

    // A self-signed certificate, as PostgreSQL's manual makes one, is its own authority.
    let certificate = server.write("server.crt", &other.pem);
    let key = server.write("server.key", &other.key.serialize_pem());
    set("ssl_cert_file", &certificate);
    set("ssl_key_file", &key);
    reload(&server).await;
    let itself = format!("sslmode=verify-full&sslrootcert={wrong_root}&channel_binding=require");
    open(&url(&login, &itself)).await.expect("the certificate is the named one");
    let message = refused(&url(&login, &full)).await;
    assert!(message.contains("TLS failed"), "{message}");
}

/// Waits until the server uses its new files, which it reads some time after the signal.
async fn reload(server: &Cluster) {
    let logged = server.log().matches("parameter \"ssl").count();
    server.sql("postgres", "SELECT pg_reload_conf()");
    let begun = std::time::Instant::now();
    while server.log().matches("received SIGHUP").count() == 0
        || server.log().matches("parameter \"ssl").count() == logged
            && begun.elapsed().as_secs() < 3
    {
        assert!(begun.elapsed().as_secs() < 60, "{}", server.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
