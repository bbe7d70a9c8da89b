//! An invalid setup is refused with exit code 2 and one sentence that names the cause, before
//! anything changes.

use std::net::TcpListener;

use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

/// Checks that `serve` exits with 2, prints one sentence with all the words, and writes nothing.
#[track_caller]
fn refuses(place: &Environment, options: &[&str], words: &[&str]) {
    let output = place.run("serve", options);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert_eq!(printed.trim_end().lines().count(), 1, "one sentence: {printed}");
    assert!(printed.starts_with("kilonova: "), "{printed}");
    for word in words {
        assert!(printed.contains(word), "{word:?} is not in: {printed}");
    }
    assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    assert!(!place.state().exists(), "the state directory was created: {printed}");
}

#[test]
fn configuration_errors_name_file_line_group_and_option() {
    let cases: [(&str, &[&str]); 17] = [
        ("[nonsense]\n", &["kilonova.conf:1: ", "[nonsense]", "group is not known"]),
        ("\n[nonsense]\nx = 1\n", &["kilonova.conf:3: ", "[nonsense] x", "group is not known"]),
        ("[api]\n# why\nlissten = x\n", &["kilonova.conf:3: ", "[api] lissten", "not known"]),
        ("[API]\nlisten = 127.0.0.1:1\n", &["kilonova.conf:2: ", "[API] listen", "not known"]),
        ("stray = 1\n", &["kilonova.conf:1: ", "[DEFAULT] stray", "option is not known"]),
        ("[DEFAULT]\ndebug\n", &["kilonova.conf:2: ", "[DEFAULT] debug", "missing value"]),
        ("[DEFAULT]\ndebug = maybe\n", &["kilonova.conf:2: ", "[DEFAULT] debug", "maybe"]),
        ("[DEFAULT]\ndebug = true # yes\n", &["kilonova.conf:2: ", "debug", "true # yes"]),
        ("[api]\nlisten = 8774\n", &["kilonova.conf:2: ", "[api] listen", "ADDRESS:PORT"]),
        ("[api]\nlisten = localhost:x\n", &["kilonova.conf:2: ", "[api] listen", "localhost:x"]),
        ("[api]\nservices = nova\n", &["kilonova.conf:2: ", "[api] services", "nova", "compute"]),
        ("[api]\nservices = ,\n", &["kilonova.conf:2: ", "[api] services", "no service"]),
        ("[api]\nauth_strategy = none\n", &["kilonova.conf:2: ", "auth_strategy", "none"]),
        ("[database]\nconnection = mysql://x/y\n", &["kilonova.conf:2: ", "connection", "mysql"]),
        ("[database]\nconnection = here\n", &["kilonova.conf:2: ", "connection", "sqlite:///"]),
        ("[database]\nconnection = sqlite://\n", &["kilonova.conf:2: ", "connection", "file"]),
        ("[api\nlisten = 127.0.0.1:0\n", &["kilonova.conf", "1"]),
    ];
    for (text, words) in cases {
        refuses(&Environment::configured(text), &[], words);
    }
    let mut place = Environment::configured("");
    place.config = None;
    let binary = place.write("binary.conf", b"\xff\xfe\x00");
    let binary = binary.to_str().expect("the path is UTF-8");
    refuses(&place, &["--config", binary], &["cannot read", "binary.conf", "UTF-8"]);
    refuses(&place, &["--config", "/nowhere/k.conf"], &["cannot read", "/nowhere/k.conf"]);
    let folder = place.file("");
    refuses(&place, &["--config", folder.to_str().expect("the path is UTF-8")], &["cannot read"]);
}

#[test]
fn noauth_requires_a_loopback_address() {
    let place = Environment::configured("[api]\nlisten = 0.0.0.0:0\nauth_strategy = noauth2\n");
    refuses(&place, &[], &["kilonova.conf:3: ", "[api] auth_strategy", "noauth2", "0.0.0.0"]);
    let place = Environment::configured("[api]\nauth_strategy = noauth2\n");
    refuses(&place, &["--listen", "[::]:0"], &["kilonova.conf:2: ", "noauth2", "::"]);
}

#[test]
fn a_topology_that_is_none_is_named_by_file_and_key() {
    let cases: [(&str, &[&str]); 5] = [
        ("[[host]\n", &["nodes.toml", "1"]),
        ("[[host]]\n", &["nodes.toml", "name"]),
        ("colour = 1\n", &["nodes.toml", "colour"]),
        ("[[host]]\nname = \"h\"\nvcpus = \"many\"\n", &["nodes.toml", "line 3", "many"]),
        (
            "[[host]]\nname = \"h\"\nvcpus = 1\nmemory_mb = 1\ndisk_gb = 1\n\
             [[host.card]]\ncard = \"none-such\"\naddresses = [\"0000:01:00.0\"]\n",
            &["nodes.toml", "none-such"],
        ),
    ];
    for (text, words) in cases {
        let place = Environment::new();
        let file = place.write("nodes.toml", text);
        refuses(&place, &["--nodes", file.to_str().expect("the path is UTF-8")], words);
    }
    refuses(&Environment::new(), &["--nodes", "/nowhere/n.toml"], &["/nowhere/n.toml"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port is bound");
    let address = taken.local_addr().expect("the address is known").to_string();
    refuses(
        &Environment::new(),
        &["--listen", &address],
        &["cannot listen on", &address, "--listen"],
    );
    refuses(
        &Environment::new(),
        &["--listen", "192.0.2.1:80"],
        &["cannot listen on", "192.0.2.1:80", "does not have this address", "another --listen"],
    );
}

#[test]
fn a_directory_in_use_is_left_as_it_is() {
    let cloud = Cloud::new(Environment::new());
    let output = cloud.place.run("serve", &["--listen", "127.0.0.1:0"]);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let state = cloud.place.state();
    let state = state.to_str().expect("the path is UTF-8");
    assert!(printed.contains(state) && printed.contains("running instance"), "{printed}");
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    let address = cloud.serve.address.to_string();
    let output = cloud.place.run("serve", &["--listen", &address]);
    assert!(stderr(&output).contains("running instance"), "the lock is named rather than the port");
    cloud.admin.get("/compute/v2.1/servers").ok(200);
}

#[test]
fn an_invalid_state_directory_is_named() {
    let place = Environment::new();
    place.write("state", "a file");
    let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("state directory") && printed.contains("/state"), "{printed}");
    assert!(printed.contains("not a directory") && !printed.contains("chmod"), "{printed}");
}

#[test]
fn a_database_that_cannot_be_reached_is_named_without_its_password() {
    let url = "postgresql://kn:sesame-word@127.0.0.1:1/kn?connect_timeout=2";
    let place = Environment::configured("[database]\nmax_retries = 0\n");
    let output = place.run("serve", &["--listen", "127.0.0.1:0", "--database", url]);
    let printed = stderr(&output);
    // With this code, the service manager restarts the program.
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("127.0.0.1:1"), "{printed}");
    assert!(!printed.contains("sesame-word"), "{printed}");
    assert!(printed.to_lowercase().contains("postgresql"), "{printed}");
}

#[test]
fn the_command_line_is_refused_alike() {
    for options in [&["--listen", "nowhere"][..], &["--colour"][..], &["--listen"][..]] {
        let output = Environment::new().run("serve", options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn a_state_directory_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Environment::new();
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.state(), mode).expect("the mode is set");
    };
    std::fs::create_dir(place.state()).expect("the directory is created");
    set(0o755);
    drop(place.start());
    let folder =
        std::fs::metadata(place.state()).expect("the file exists").permissions().mode() & 0o777;
    assert_eq!(folder, 0o700, "an empty directory is made private");
    for entry in std::fs::read_dir(place.state()).expect("the directory is readable").flatten() {
        let mode = entry.metadata().expect("the file exists").permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{:?}", entry.path());
    }
    set(0o755);
    let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains(&format!("chmod 700 {}", place.state().display())), "{printed}");
}

#[test]
fn a_directory_without_sysfs_is_an_error() {
    let place = Environment::new();
    let folder = place.file("elsewhere");
    std::fs::create_dir(&folder).expect("the directory is created");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kilonova"))
        .args(["discover", "--sysfs"])
        .arg(&folder)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains("is not a sysfs") && printed.contains("--sysfs"), "{printed}");
}

#[test]
fn a_damaged_database_is_named_with_a_remedy() {
    let place = Environment::new();
    place.start().terminate();
    let file = place.state().join("kilonova.db");
    // The log may contain all pages.
    for name in ["kilonova.db-wal", "kilonova.db-shm"] {
        drop(std::fs::remove_file(place.state().join(name)));
    }
    std::fs::write(&file, "this is not a database, whatever it is called").expect("it is written");
    let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for words in [file.to_str().expect("the path is UTF-8"), "is damaged", "the last good backup"] {
        assert!(printed.contains(words), "{words:?} is not in: {printed}");
    }
}
