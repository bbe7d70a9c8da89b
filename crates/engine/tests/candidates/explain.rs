//! What an explanation says.

use kilonova_engine::{Group, Query};

use crate::build::{With, forest, gpu_host, group, id, provider, query};

#[test]
fn conditions_are_counted_in_order() {
    let mut disabled = gpu_host(1, 1, 4);
    disabled[0] = disabled[0].clone().is("COMPUTE_STATUS_DISABLED");
    let mut full = gpu_host(101, 1, 4);
    full[1].inventories[0].1.used = 4;
    let plain = vec![provider(201, None).has("VCPU", 1).has("MEMORY_MB", 1)];
    let world = forest([disabled, full, plain, gpu_host(301, 1, 4)]);
    let wanting = |required: &[&str]| Query {
        root_forbidden: vec!["COMPUTE_STATUS_DISABLED".into()],
        ..query(vec![Group {
            required: required.iter().map(|t| vec![(*t).to_owned()]).collect(),
            ..group("1", &[("VGPU", 1)])
        }])
    };
    let fits = world.explain(&wanting(&[]));
    assert_eq!(
        fits.to_string(),
        "1 of 4 hosts can take it. root_required=!COMPUTE_STATUS_DISABLED removed 1, leaving 3. \
         resources1=VGPU:1: offered at all removed 1, leaving 2. \
         resources1=VGPU:1: free, in units that are allowed removed 1, leaving 1."
    );
    let none = world.explain(&wanting(&["CUSTOM_FAST"]));
    assert_eq!(none.left, 0);
    let nearest = none.nearest.unwrap();
    assert_eq!((nearest.root, &*nearest.name), (id(301), "p301"));
    assert_eq!(nearest.constraint, "required1=CUSTOM_FAST for VGPU:1");
}

#[test]
fn joint_conditions_are_told_apart() {
    let world = forest([gpu_host(1, 2, 2)]);
    let groups = |n: usize, units| -> Vec<Group> {
        ["1", "2", "3"][..n].iter().map(|suffix| group(suffix, &[("VGPU", units)])).collect()
    };
    let said = |query: &Query| world.explain(query).steps[0].constraint.clone();
    assert_eq!(said(&query(groups(3, 2))), "room for all groups at once");
    let apart = Query { isolate: true, ..query(groups(3, 1)) };
    assert_eq!(said(&apart), "group_policy=isolate");
    let together = Query {
        isolate: true,
        same_subtree: vec![vec!["1".into(), "2".into()]],
        ..query(groups(2, 1))
    };
    assert_eq!(said(&together), "same_subtree");
}

#[test]
fn nonsense_is_said_to_be_nonsense() {
    let world = forest([gpu_host(1, 1, 1)]);
    let explanation = world.explain(&Query::default());
    assert_eq!(explanation.to_string(), "the query asks for no resources.");
}
