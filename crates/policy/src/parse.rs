//! The language: `role:admin or (role:reader and project_id:%(project_id)s)`.
//!
//! Words are split at white space; parentheses stand at the beginning or the end of a word, so that
//! those inside `%(name)s` stay. `not` binds tightest, then `and`, then `or`. The depth is bounded,
//! so that no text can exhaust the stack, here or when it is asked.

use std::iter::Peekable;
use std::vec::IntoIter;

use regex::Regex;

use crate::{ATTRIBUTES, Check, Pattern, Problem, Wanted};

/// Parentheses and `not` within each other.
const DEPTH: usize = 64;

#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    Open,
    Close,
    And,
    Or,
    Not,
    Check(&'a str),
}

/// Reads a rule. An empty one lets anyone.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Check, Problem> {
    if text.is_empty() {
        return Ok(Check::Anyone);
    }
    let mut words = words(text).into_iter().peekable();
    let check = any(&mut words, DEPTH)?;
    match words.next() {
        None => Ok(check),
        Some(Word::Close) => Err(syntax("a ) has no (")),
        Some(_) => Err(syntax("two checks follow each other without `and` or `or`")),
    }
}

/// Reads the older form: a list of which any must hold, each entry one check or a list of checks
/// that must all hold. An empty list lets anyone.
///
/// # Errors
/// What is wrong with one of the checks.
pub fn parse_list(list: &[Vec<String>]) -> Result<Check, Problem> {
    if list.is_empty() {
        return Ok(Check::Anyone);
    }
    let mut alternatives = Vec::new();
    for all in list.iter().filter(|all| !all.is_empty()) {
        let checks = all.iter().map(|text| entry(text)).collect::<Result<_, _>>()?;
        alternatives.push(one_or(checks, Check::All));
    }
    match alternatives.is_empty() {
        true => Ok(Check::Nobody),
        false => Ok(one_or(alternatives, Check::Any)),
    }
}

/// A list holds single checks: words in one entry would be taken for a name with spaces.
fn entry(text: &str) -> Result<Check, Problem> {
    if text.contains(char::is_whitespace) {
        return Err(Problem::NoCheck(text.to_owned()));
    }
    single(text)
}

fn syntax(why: &str) -> Problem {
    Problem::Syntax(why.to_owned())
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let core = part.trim_start_matches('(');
        words.extend((core.len()..part.len()).map(|_| Word::Open));
        let bare = core.trim_end_matches(')');
        match bare.to_lowercase().as_str() {
            "" => {}
            "and" => words.push(Word::And),
            "or" => words.push(Word::Or),
            "not" => words.push(Word::Not),
            _ => words.push(Word::Check(bare)),
        }
        words.extend((bare.len()..core.len()).map(|_| Word::Close));
    }
    words
}

type Words<'a> = Peekable<IntoIter<Word<'a>>>;

fn one_or(mut checks: Vec<Check>, many: fn(Vec<Check>) -> Check) -> Check {
    match checks.len() {
        1 => checks.remove(0),
        _ => many(checks),
    }
}

fn any(words: &mut Words<'_>, depth: usize) -> Result<Check, Problem> {
    let mut parts = vec![all(words, depth)?];
    while words.next_if_eq(&Word::Or).is_some() {
        parts.push(all(words, depth)?);
    }
    Ok(one_or(parts, Check::Any))
}

fn all(words: &mut Words<'_>, depth: usize) -> Result<Check, Problem> {
    let mut parts = vec![negated(words, depth)?];
    while words.next_if_eq(&Word::And).is_some() {
        parts.push(negated(words, depth)?);
    }
    Ok(one_or(parts, Check::All))
}

fn negated(words: &mut Words<'_>, depth: usize) -> Result<Check, Problem> {
    let Some(deeper) = depth.checked_sub(1) else {
        return Err(syntax("it is nested too deeply"));
    };
    match words.next() {
        Some(Word::Not) => Ok(Check::Not(Box::new(negated(words, deeper)?))),
        Some(Word::Open) => {
            let inner = any(words, deeper)?;
            match words.next() {
                Some(Word::Close) => Ok(inner),
                Some(_) => Err(syntax("two checks follow each other without `and` or `or`")),
                None => Err(syntax("a ( has no )")),
            }
        }
        Some(Word::Check(text)) => single(text),
        Some(Word::And | Word::Or) => Err(syntax("`and` and `or` need a check on either side")),
        Some(Word::Close) => Err(syntax("a ) stands where a check is expected")),
        None => Err(syntax("a check is missing at the end")),
    }
}

/// One check.
fn single(text: &str) -> Result<Check, Problem> {
    match text {
        "@" => return Ok(Check::Anyone),
        "!" => return Ok(Check::Nobody),
        _ => {}
    }
    let (kind, value) = text.split_once(':').ok_or_else(|| Problem::NoCheck(text.to_owned()))?;
    match kind {
        "rule" => Ok(Check::Rule(value.to_owned())),
        "role" => Ok(Check::Role(Pattern::parse(value)?)),
        "field" => field(text, value),
        "http" | "https" => Err(Problem::Unsupported(kind.to_owned())),
        _ => match literal(kind) {
            Some(text) => Ok(Check::Literal(text, Pattern::parse(value)?)),
            None if ATTRIBUTES.contains(&kind) => {
                Ok(Check::Attribute(kind.to_owned(), Pattern::parse(value)?))
            }
            None => Err(Problem::Attribute { name: kind.to_owned(), known: ATTRIBUTES.join(", ") }),
        },
    }
}

/// `RESOURCE:NAME=VALUE`; the name may hold colons.
fn field(text: &str, rest: &str) -> Result<Check, Problem> {
    let wrong = || Problem::Field(text.to_owned());
    let (resource, rest) = rest.split_once(':').ok_or_else(wrong)?;
    let (name, value) = rest.split_once('=').ok_or_else(wrong)?;
    let wanted = match value.strip_prefix('~') {
        None => Wanted::Is(value.to_owned()),
        Some(expression) => {
            let anchored = Regex::new(&format!(r"\A(?:{expression})"));
            Wanted::Begins(anchored.map_err(|_| wrong())?)
        }
    };
    Ok(Check::Field(resource.to_owned(), name.to_owned(), wanted))
}

/// A quoted text, a whole number, or one of Python's three names for yes, no and nothing.
fn literal(kind: &str) -> Option<String> {
    for quote in ['\'', '"'] {
        let inner = kind.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(text) = inner.filter(|text| !text.contains([quote, '\\'])) {
            return Some(text.to_owned());
        }
    }
    if matches!(kind, "True" | "False" | "None") {
        return Some(kind.to_owned());
    }
    let number: i64 = kind.parse().ok()?;
    Some(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match parse(text) {
            Ok(check) => check.to_string(),
            Err(problem) => format!("wrong: {problem}"),
        }
    }

    #[test]
    fn not_binds_tighter_than_and_and_that_tighter_than_or() {
        for (text, tree) in [
            ("", "@"),
            ("!", "!"),
            ("role:a", "role:a"),
            ("role:a or role:b and role:c", "(role:a or (role:b and role:c))"),
            ("role:a and role:b or role:c", "((role:a and role:b) or role:c)"),
            ("(role:a or role:b) and role:c", "((role:a or role:b) and role:c)"),
            ("NOT role:a And role:b", "(not role:a and role:b)"),
            ("not not role:a", "not not role:a"),
            ("not (role:a or @)", "not (role:a or @)"),
            ("((role:a))", "role:a"),
            ("( role:a )", "role:a"),
            ("project_id:%(project_id)s", "project_id:%(project_id)s"),
            (
                "(user_id:%(user_id)s or 'member':%(role.name)s)",
                "(user_id:%(user_id)s or 'member':%(role.name)s)",
            ),
            ("True:%(enabled)s", "'True':%(enabled)s"),
            ("07:%(n)s", "'7':%(n)s"),
            ("rule:a:b", "rule:a:b"),
            ("field:networks:router:external=True", "field:networks:router:external=True"),
            ("field:port:device_owner=~^net:", r"field:port:device_owner=~\A(?:^net:)"),
        ] {
            assert_eq!(shown(text), tree, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("role:a role:b", "two checks follow each other"),
            ("role:a and", "a check is missing"),
            ("or role:a", "need a check on either side"),
            ("(role:a", "a ( has no )"),
            ("role:a)", "a ) has no ("),
            ("()", "a ) stands where a check is expected"),
            ("   ", "a check is missing"),
            ("admin", "`admin` is no check"),
            ("'admin'", "`'admin'` is no check"),
            ("http://there/%(x)s", "http: checks are not supported"),
            ("role:a or https://there", "https: checks are not supported"),
            ("projekt_id:%(project_id)s", "no attribute `projekt_id`"),
            ("'a:%(x)s", "no attribute `'a`"),
            ("role:%x", "after a % comes"),
            ("field:networks", "RESOURCE:NAME=VALUE"),
            ("field:port:owner=~[", "RESOURCE:NAME=VALUE"),
        ] {
            assert!(shown(text).contains(why), "{text}: {}", shown(text));
        }
        assert!(shown(&"(".repeat(100_000)).contains("nested too deeply"));
        assert!(shown(&"not ".repeat(100_000)).contains("nested too deeply"));
    }

    #[test]
    fn the_older_form_is_an_or_of_ands() {
        let list = |entries: &[&[&str]]| -> String {
            let list: Vec<Vec<String>> = entries
                .iter()
                .map(|all| all.iter().map(|text| (*text).to_owned()).collect())
                .collect();
            parse_list(&list).expect("well formed").to_string()
        };
        assert_eq!(list(&[]), "@");
        assert_eq!(list(&[&[]]), "!");
        assert_eq!(list(&[&["role:a"]]), "role:a");
        assert_eq!(list(&[&["role:a", "role:b"], &["@"]]), "((role:a and role:b) or @)");
        let words = parse_list(&[vec!["role:a and role:b".into()]]);
        assert_eq!(words, Err(Problem::NoCheck("role:a and role:b".into())));
    }
}
