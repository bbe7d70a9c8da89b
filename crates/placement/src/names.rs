//! The names of traits and resource classes. Standard names are constants of the program (os-traits
//! 3.9.0, os-resource-classes 1.1.0); custom names begin with `CUSTOM_` and are stored as rows.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Standard traits, sorted.
pub static TRAITS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("../data/traits.txt").lines().collect());
/// Standard resource classes in the order of their definition.
pub static CLASSES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("../data/resource_classes.txt").lines().collect());

static TRAIT_SET: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| TRAITS.iter().copied().collect());

/// Maximum length of either kind of name.
pub const MAX_NAME_LENGTH: usize = 255;

/// True if the trait is a standard one.
pub fn is_standard_trait(name: &str) -> bool {
    TRAIT_SET.contains(name)
}

/// True if the class is a standard one.
pub fn is_standard_class(name: &str) -> bool {
    CLASSES.contains(&name)
}

/// The position of a class in [`CLASSES`]; a custom class sorts after all of them.
pub fn class_rank(name: &str) -> usize {
    CLASSES.iter().position(|class| *class == name).unwrap_or(CLASSES.len())
}

/// True if a name has the length and the characters that traits, classes and consumer types allow.
pub fn is_wellformed(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_LENGTH
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// True if the name is valid for a custom trait or class.
pub fn is_custom(name: &str) -> bool {
    is_wellformed(name) && name.strip_prefix("CUSTOM_").is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_names_are_complete_and_well_formed() {
        assert_eq!((TRAITS.len(), CLASSES.len()), (377, 21));
        assert!(TRAITS.iter().chain(CLASSES.iter()).all(|name| is_wellformed(name)));
        assert!(is_standard_class("VGPU") && is_standard_trait("HW_CPU_X86_AVX2"));
        assert!(is_custom("CUSTOM_A1") && !is_custom("CUSTOM_") && !is_custom("CUSTOM_a"));
    }
}
