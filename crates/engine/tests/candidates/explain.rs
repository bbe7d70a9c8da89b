//! The sentences of explanations.

use kilonova_engine::{Alike, Group, Query};

use crate::build::{With, forest, gpu_host, group, id, provider, query};

#[test]
fn conditions_are_counted_in_order() {
    let mut disabled = gpu_host(1, 1, 4);
    disabled[0] = disabled[0].clone().is("COMPUTE_STATUS_DISABLED");
    let mut full = gpu_host(101, 1, 4);
    full[1].inventories[0].1.used = 4;
    let plain = vec![provider(201, None).has("VCPU", 1).has("MEMORY_MB", 1)];
    let snapshot = forest([disabled, full, plain, gpu_host(301, 1, 4)]);
    let wanting = |required: &[&str]| Query {
        root_forbidden: vec!["COMPUTE_STATUS_DISABLED".into()],
        ..query(vec![Group {
            required: required.iter().map(|t| vec![(*t).to_owned()]).collect(),
            ..group("1", &[("VGPU", 1)])
        }])
    };
    let fits = snapshot.explain(&wanting(&[]));
    assert_eq!(
        fits.to_string(),
        "1 of 4 hosts has room. 1 of 4 hosts is disabled. 1 of the remaining 3 hosts does not offer \
         VGPU. 1 of the remaining 2 hosts does not have 1 VGPU free."
    );
    let constraints: Vec<&str> = fits.steps.iter().map(|step| &*step.constraint).collect();
    assert_eq!(
        constraints,
        ["root_required=!COMPUTE_STATUS_DISABLED", "resources1=VGPU:1", "resources1=VGPU:1"]
    );
    let none = snapshot.explain(&wanting(&["CUSTOM_FAST"]));
    assert_eq!(none.left, 0);
    let nearest = none.nearest.unwrap();
    assert_eq!((nearest.root, &*nearest.name), (id(301), "p301"));
    assert_eq!(nearest.constraint, "required1=CUSTOM_FAST");
    assert_eq!(nearest.lacks, "does not have VGPU with trait CUSTOM_FAST");
}

/// A provider with one of several forbidden traits does not fit.
#[test]
fn forbidden_traits_are_listed() {
    let mut host = gpu_host(1, 1, 4);
    host[1] = host[1].clone().is("CUSTOM_A");
    let snapshot = forest([host]);
    for (forbidden, sentence) in [
        (&["CUSTOM_A"][..], "The only host does not have VGPU without trait CUSTOM_A."),
        (
            &["CUSTOM_A", "CUSTOM_B"],
            "The only host does not have VGPU without any of the traits CUSTOM_A and CUSTOM_B.",
        ),
    ] {
        let forbidden = forbidden.iter().map(|name| (*name).to_owned()).collect();
        let group = Group { forbidden, ..group("1", &[("VGPU", 1)]) };
        let why = snapshot.explain(&query(vec![group])).to_string();
        assert!(why.contains(sentence), "{why}");
    }
}

#[test]
fn joint_conditions_are_told_apart() {
    let snapshot = forest([gpu_host(1, 2, 2)]);
    let groups = |n: usize, units| -> Vec<Group> {
        ["1", "2", "3"][..n].iter().map(|suffix| group(suffix, &[("VGPU", units)])).collect()
    };
    let constraint = |query: &Query| snapshot.explain(query).steps[0].constraint.clone();
    assert_eq!(constraint(&query(groups(3, 2))), "room for all groups at once");
    let apart = Query { isolate: true, ..query(groups(3, 1)) };
    assert_eq!(constraint(&apart), "group_policy=isolate");
    let together = Query {
        isolate: true,
        same_subtree: vec![vec!["1".into(), "2".into()]],
        ..query(groups(2, 1))
    };
    assert_eq!(constraint(&together), "same_subtree");
    let alike = Query {
        isolate: true,
        alike: vec![Alike {
            groups: vec!["1".into(), "2".into()],
            prefix: "CUSTOM_SWITCH_".into(),
            constraint: "topology=same-switch".into(),
            description: "the devices below one switch".into(),
            ..Alike::default()
        }],
        ..query(groups(2, 1))
    };
    assert_eq!(constraint(&alike), "topology=same-switch");
    let why = snapshot.explain(&alike).to_string();
    assert!(why.contains("The only host does not have the devices below one switch."), "{why}");
}

/// The explanation for `hosts` hosts, the first of which has a GPU with `units` VGPU.
fn text_of(query: &Query, hosts: usize) -> String {
    let all: Vec<_> = (0..hosts).map(|n| gpu_host(1 + 100 * n as u128, 1, 4)).collect();
    forest(all).explain(query).to_string()
}

#[test]
fn each_condition_has_a_sentence_for_one_host_and_for_several() {
    let of = |group| query(vec![group]);
    let vgpu = || group("1", &[("VGPU", 1)]);
    for (query, hosts, sentence) in [
        (of(group("1", &[("VGPUS", 1)])), 2, "None of 2 hosts offers VGPUS. Nearest: p"),
        (of(group("1", &[("VGPUS", 1)])), 1, "The only host does not offer VGPUS. Nearest: p1, "),
        (
            of(group("1", &[("VGPU", 5)])),
            2,
            "None of 2 hosts has 5 VGPU free for one server. Nearest: p",
        ),
        (
            of(group("1", &[("VGPU", 1), ("VCPU", 1)])),
            2,
            "None of 2 hosts offers VGPU and VCPU on one device. Nearest: p",
        ),
        (
            of(Group { required: vec![vec!["A".into()], vec!["B".into(), "C".into()]], ..vgpu() }),
            2,
            "None of 2 hosts has VGPU with traits A and one of B or C. Nearest: p",
        ),
        (
            of(Group { member_of: vec![vec![uuid::Uuid::nil()]], ..vgpu() }),
            2,
            "None of 2 hosts has VGPU in the requested aggregates. Nearest: p",
        ),
        (
            of(Group { in_tree: Some(id(9)), ..vgpu() }),
            2,
            "None of 2 hosts has VGPU in the tree of provider",
        ),
        (
            Query { root_required: vec!["COMPUTE_NODE".into()], ..of(vgpu()) },
            3,
            "None of 3 hosts has trait COMPUTE_NODE. Nearest: p",
        ),
        (of(vgpu()), 1, "The only host has room."),
        (of(vgpu()), 3, "All 3 hosts have room."),
        (of(vgpu()), 0, "There is no host."),
    ] {
        let text = text_of(&query, hosts);
        assert!(text.starts_with(sentence), "{text:?} starts with {sentence:?}");
    }
}

#[test]
fn nonsense_is_said_to_be_nonsense() {
    let snapshot = forest([gpu_host(1, 1, 1)]);
    let explanation = snapshot.explain(&Query::default());
    assert_eq!(explanation.to_string(), "the query asks for no resources.");
}

/// The nearest of several hosts is the one with the largest free amount. The text names its device with the most free,
/// and the limit.
#[test]
fn the_nearest_host_says_how_much_it_has() {
    let full = |first: u128, used: i64| {
        let mut host = gpu_host(first, 2, 8);
        host[1].inventories[0].1.used = used + 1;
        host[2].inventories[0].1.used = used;
        host
    };
    let nearest = |hosts: Vec<Vec<_>>, amount| {
        let explanation = forest(hosts).explain(&query(vec![group("1", &[("VGPU", amount)])]));
        let nearest = explanation.nearest.expect("no host has room");
        (nearest.name.to_string(), nearest.lacks)
    };
    let of = |name: &str, lacks: &str| (name.to_owned(), lacks.to_owned());
    assert_eq!(
        nearest(vec![full(1, 7), full(101, 4), full(201, 6)], 5),
        of("p101", "has only 4 VGPU free on p103")
    );
    assert_eq!(nearest(vec![full(1, 8)], 1), of("p1", "has no VGPU free"));

    let limited = |change: fn(&mut kilonova_engine::Inventory)| {
        let mut host = vec![provider(1, None).has("VCPU", 16)];
        change(&mut host[0].inventories[0].1);
        host
    };
    let text = |host, amount| {
        let explanation = forest([host]).explain(&query(vec![group("", &[("VCPU", amount)])]));
        explanation.nearest.expect("the host does not fit").lacks
    };
    let at_most = limited(|inventory| inventory.max_unit = 8);
    assert_eq!(text(at_most, 12), "gives one server at most 8 VCPU (max_unit)");
    let at_least = limited(|inventory| inventory.min_unit = 2);
    assert_eq!(text(at_least, 1), "gives one server at least 2 VCPU (min_unit)");
    let steps = limited(|inventory| inventory.step_size = 4);
    assert_eq!(text(steps, 6), "gives VCPU in multiples of 4 (step_size)");
}
