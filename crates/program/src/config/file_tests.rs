//! Tests of the decisions about options.

use super::*;

const KNOWN: &[&Options] = &[&[
    ("DEFAULT", "state_path"),
    ("DEFAULT", "instances_path"),
    ("DEFAULT", "my_ip"),
    ("image_cache", "manager_interval"),
    ("nova", "password"),
    ("own", "word"),
]];

fn with<T>(text: &str, read: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let path = folder.path().join("k.conf");
    std::fs::write(&path, text).expect("the file is written");
    read(&path)
}

fn read(text: &str) -> Result<File, String> {
    with(text, |path| File::read(path, KNOWN).map_err(|failure| failure.to_string()))
}

#[test]
fn options_of_upstream_are_accepted_or_refused_by_the_table() {
    let file = read(
        "[DEFAULT]\ntransport_url = rabbit://x\n[glance]\nverify-glance-signatures = false\n[vnc]\n",
    )
    .expect("the file is accepted");
    let notes: Vec<_> = file.notes().iter().map(|one| (&*one.option, one.later)).collect();
    assert_eq!(notes, [("transport_url", false), ("verify-glance-signatures", false)]);
    for (text, part) in [
        (
            "[glance]\nverify_glance_signatures = yes\n",
            "k.conf:2: [glance] verify_glance_signatures: ",
        ),
        (
            "[glance]\nverify_glance_signature = no\n",
            "k.conf:2: [glance] verify_glance_signature: this option is not known",
        ),
        ("[glanse]\nx = no\n", "k.conf:2: [glanse] x: this group is not known"),
        ("[glanse]\n", "k.conf:1: [glanse]: this group is not known"),
    ] {
        let message = read(text).expect_err(text);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_old_name_sets_the_current_option() {
    let text = "[DEFAULT]\n\nimage_cache_manager_interval = 7x\n";
    let file = read(text).expect("the file is accepted");
    assert_eq!(file.get("image_cache", "manager_interval"), Some("7x"));
    let wrong = file.parse::<u32>("image_cache", "manager_interval", "seconds");
    let message = wrong.expect_err("it is not a number").to_string();
    assert!(message.contains("k.conf:3: "), "the line of the old name: {message}");
    let both = format!("{text}[image_cache]\nmanager_interval = 8\n");
    let message = read(&both).expect_err("both names are set");
    assert!(
        message.contains("k.conf:3: [DEFAULT] image_cache_manager_interval: it is an old name of"),
        "{message}"
    );
}

#[test]
fn references_to_other_options_are_replaced() {
    let text = "[DEFAULT]\nstate_path = /s\ninstances_path = $state_path/i\nmy_ip = ${own.word}\n\
                [own]\nword = 5$ a$b $nobody\n";
    let message = read(text).expect_err("a chain is refused");
    assert!(message.contains("k.conf:4: [DEFAULT] my_ip: it refers to $own.word"), "{message}");
    let file = read(&text.replace("${own.word}", "x")).expect("the file is accepted");
    assert_eq!(file.get("DEFAULT", "instances_path"), Some("/s/i"));
    assert_eq!(file.get("own", "word"), Some("5$ a$b $nobody"), "these name no option");
    let message = read("[DEFAULT]\ninstances_path = $state_path/i\n").expect_err("it is not set");
    assert!(message.contains("which this file does not set"), "{message}");
}

#[test]
fn an_option_has_the_meaning_of_its_file() {
    let outcome = |source| {
        let text = "[nova]\npassword = x\n";
        let (_, entries) =
            with(text, |path| File::examine(path, KNOWN, source)).expect("the file is read");
        entries.into_iter().next().expect("there is one option").outcome
    };
    assert_eq!(outcome(None), Outcome::Used(Users::Controller));
    assert!(matches!(outcome(Some(SourceFile::Cyborg)), Outcome::NoEffect { .. }));
    assert_eq!(outcome(Some(SourceFile::Nova)), Outcome::Used(Users::Controller));
}
