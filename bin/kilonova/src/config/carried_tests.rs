//! Tests of `config check` on whole files.

use super::*;

fn check(source: SourceFile, text: &str) -> Vec<Decision> {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let path = folder.path().join("file.conf");
    std::fs::write(&path, text).expect("the file is written");
    let files = carried(&[(source, &path)]).expect("the file is read");
    files.into_iter().next().expect("there is one file").decisions
}

fn refused(decisions: &[Decision]) -> Vec<String> {
    let each = decisions.iter().filter(|one| matches!(one.fate, Fate::Refused(_)));
    each.map(|one| format!("[{}] {}", one.group, one.option)).collect()
}

fn fate<'a>(decisions: &'a [Decision], group: &str, option: &str) -> &'a Fate {
    let found = decisions.iter().find(|one| one.group == group && one.option == option);
    &found.expect("the option is listed").fate
}

#[test]
fn a_controllers_nova_conf_is_refused_with_the_exact_list() {
    let text = include_str!("samples/nova.conf");
    let all = check(SourceFile::Nova, text);
    let lines = text.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(all.len(), lines, "every option is listed once: {all:#?}");
    assert_eq!(
        refused(&all),
        [
            "[quota] instances",
            "[quota] cores",
            "[quota] ram",
            "[quota] server_group_members",
            "[database] connection",
        ]
    );
    assert!(!format!("{all:?}").contains("sesame"), "no value is shown");
    assert_eq!(*fate(&all, "DEFAULT", "my_ip"), Fate::Used(Users::Agent));
    assert_eq!(*fate(&all, "keystone_authtoken", "auth_url"), Fate::Used(Users::Controller));
    assert_eq!(*fate(&all, "neutron", "auth_url"), Fate::Used(Users::Controller));
    assert!(matches!(fate(&all, "DEFAULT", "transport_url"), Fate::NoEffect { later: false, .. }));
}

#[test]
fn without_the_refused_lines_it_is_a_configuration_of_kilonova() {
    let mut group = "";
    let kept = include_str!("samples/nova.conf").lines().filter(|line| {
        if line.starts_with('[') {
            group = line;
        }
        !(line.contains(" = ") && ["[quota]", "[database]"].contains(&group))
    });
    let text: String = kept.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(refused(&check(SourceFile::Nova, &text)), Vec::<String>::new());
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let path = folder.path().join("nova.conf");
    std::fs::write(&path, text).expect("the file is written");
    let settings =
        crate::config::Settings::read(Some(&path), crate::config::CommandLine::default())
            .expect("kilonova serve accepts the file");
    assert_eq!(settings.state_dir, Path::new("/var/lib/nova"));
    let noted = |group: &str, option: &str| {
        settings.notes.iter().any(|note| note.group == group && note.option == option)
    };
    assert!(!noted("neutron", "auth_url") && noted("DEFAULT", "transport_url"));
    assert!(settings.neutron.is_some(), "its Neutron is used");
    assert!(noted("DEFAULT", "my_ip"), "the agent uses it, this program does not");
}

#[test]
fn files_of_installers_are_refused_with_the_exact_list() {
    assert_eq!(
        refused(&check(SourceFile::Nova, include_str!("samples/kolla.conf"))),
        [
            "[DEFAULT] default_schedule_zone",
            "[oslo_middleware] enable_proxy_headers_parsing",
            "[libvirt] images_type",
            "[database] connection",
        ]
    );
    let all = check(SourceFile::Nova, include_str!("samples/devstack.conf"));
    // The file names no Keystone whose tokens Cinder and Neutron would accept.
    assert_eq!(refused(&all), ["[cinder] auth_type", "[neutron] auth_plugin"]);
    assert_eq!(*fate(&all, "libvirt", "cpu_model"), Fate::Used(Users::Agent), "an old name");
}

#[test]
fn unknown_options_and_values_are_refused_once() {
    let all = check(
        SourceFile::Nova,
        "[DEFAULT]\nreboot_timeout = soon\nreboot_time = 1\n[nowhere]\n[api]\nlisten = here\n",
    );
    let lines: Vec<_> =
        all.iter().map(|one| (one.line, refused(std::slice::from_ref(one)))).collect();
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!(
        lines,
        [
            (Some(2), one("[DEFAULT] reboot_timeout")),
            (Some(3), one("[DEFAULT] reboot_time")),
            (Some(4), one("[nowhere] ")),
            (Some(6), one("[api] listen")),
        ]
    );
}

#[test]
fn of_two_files_with_one_option_the_first_applies() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    };
    let token = |user: &str| {
        format!(
            "[keystone_authtoken]\nauth_url = http://k:5000\nusername = {user}\npassword = x\n\
             project_name = service\n"
        )
    };
    let nova = write("nova.conf", &token("nova"));
    let cyborg = token("cyborg") + "[nova]\npassword = y\n[agent]\nenabled_drivers = fake_driver\n";
    let cyborg = write("cyborg.conf", &cyborg);
    let files = carried(&[(SourceFile::Nova, &nova), (SourceFile::Cyborg, &cyborg)])
        .expect("both are read");
    let (nova, cyborg) = (&files[0].decisions, &files[1].decisions);
    assert_eq!((refused(nova), refused(cyborg)), (Vec::new(), Vec::new()));
    assert_eq!(*fate(nova, "keystone_authtoken", "username"), Fate::Used(Users::Controller));
    assert!(matches!(fate(cyborg, "keystone_authtoken", "username"), Fate::NoEffect { .. }));
    assert_eq!(*fate(cyborg, "keystone_authtoken", "auth_url"), Fate::Used(Users::Controller));
    assert!(matches!(fate(cyborg, "nova", "password"), Fate::NoEffect { .. }));
    assert_eq!(*fate(cyborg, "agent", "enabled_drivers"), Fate::Used(Users::Both));
    let missing = carried(&[(SourceFile::Nova, Path::new("/nowhere/nova.conf"))]);
    assert!(missing.expect_err("the file is missing").to_string().contains("/nowhere/nova.conf"));
}
