//! The language: `role:admin or (role:reader and project_id:%(project_id)s)`.
//!
//! Tokens are separated by white space. Parentheses are recognized at the beginning or the end of a
//! word, so that those inside `%(name)s` remain. `not` binds tightest, then `and`, then `or`. The
//! depth is bounded, so that no text can exhaust the stack when it is parsed or evaluated.

use std::iter::Peekable;
use std::vec::IntoIter;

use regex::Regex;

use crate::{ATTRIBUTES, Check, FieldMatch, Pattern, Problem};

/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 64;

#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Open,
    Close,
    And,
    Or,
    Not,
    Check(&'a str),
}

/// Parses a rule. An empty one allows everyone.
///
/// # Errors
/// The first error in it.
pub fn parse(text: &str) -> Result<Check, Problem> {
    if text.is_empty() {
        return Ok(Check::Anyone);
    }
    let mut tokens = tokens(text).into_iter().peekable();
    let check = any(&mut tokens, MAX_DEPTH)?;
    match tokens.next() {
        None => Ok(check),
        Some(Token::Close) => Err(syntax("a ) without (")),
        Some(_) => Err(syntax("two checks follow each other without `and` or `or`")),
    }
}

/// Parses the older form: a list of alternatives, each one check or a list of checks that must all
/// hold. An empty list allows everyone.
///
/// # Errors
/// The first error in one of the checks.
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

/// A list contains single checks: several words in one entry would be read as a name with spaces.
fn entry(text: &str) -> Result<Check, Problem> {
    if text.contains(char::is_whitespace) {
        return Err(Problem::NotACheck(text.to_owned()));
    }
    single(text)
}

fn syntax(why: &str) -> Problem {
    Problem::Syntax(why.to_owned())
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for part in text.split_whitespace() {
        let core = part.trim_start_matches('(');
        tokens.extend((core.len()..part.len()).map(|_| Token::Open));
        let bare = core.trim_end_matches(')');
        match bare.to_lowercase().as_str() {
            "" => {}
            "and" => tokens.push(Token::And),
            "or" => tokens.push(Token::Or),
            "not" => tokens.push(Token::Not),
            _ => tokens.push(Token::Check(bare)),
        }
        tokens.extend((bare.len()..core.len()).map(|_| Token::Close));
    }
    tokens
}

type Tokens<'a> = Peekable<IntoIter<Token<'a>>>;

fn one_or(mut checks: Vec<Check>, many: fn(Vec<Check>) -> Check) -> Check {
    match checks.len() {
        1 => checks.remove(0),
        _ => many(checks),
    }
}

fn any(tokens: &mut Tokens<'_>, depth: usize) -> Result<Check, Problem> {
    let mut parts = vec![all(tokens, depth)?];
    while tokens.next_if_eq(&Token::Or).is_some() {
        parts.push(all(tokens, depth)?);
    }
    Ok(one_or(parts, Check::Any))
}

fn all(tokens: &mut Tokens<'_>, depth: usize) -> Result<Check, Problem> {
    let mut parts = vec![negated(tokens, depth)?];
    while tokens.next_if_eq(&Token::And).is_some() {
        parts.push(negated(tokens, depth)?);
    }
    Ok(one_or(parts, Check::All))
}

fn negated(tokens: &mut Tokens<'_>, depth: usize) -> Result<Check, Problem> {
    let Some(deeper) = depth.checked_sub(1) else {
        return Err(syntax("the expression is nested too deeply"));
    };
    match tokens.next() {
        Some(Token::Not) => Ok(Check::Not(Box::new(negated(tokens, deeper)?))),
        Some(Token::Open) => {
            let inner = any(tokens, deeper)?;
            match tokens.next() {
                Some(Token::Close) => Ok(inner),
                Some(_) => Err(syntax("two checks follow each other without `and` or `or`")),
                None => Err(syntax("a ( without )")),
            }
        }
        Some(Token::Check(text)) => single(text),
        Some(Token::And | Token::Or) => Err(syntax("`and` and `or` need a check on either side")),
        Some(Token::Close) => Err(syntax("expected a check before )")),
        None => Err(syntax("expected a check at the end")),
    }
}

/// Parses one check.
fn single(text: &str) -> Result<Check, Problem> {
    match text {
        "@" => return Ok(Check::Anyone),
        "!" => return Ok(Check::Nobody),
        _ => {}
    }
    let (kind, value) = text.split_once(':').ok_or_else(|| Problem::NotACheck(text.to_owned()))?;
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

/// Parses `RESOURCE:NAME=VALUE`; the name may contain colons.
fn field(text: &str, rest: &str) -> Result<Check, Problem> {
    let wrong = || Problem::Field(text.to_owned());
    let (resource, rest) = rest.split_once(':').ok_or_else(wrong)?;
    let (name, value) = rest.split_once('=').ok_or_else(wrong)?;
    let wanted = match value.strip_prefix('~') {
        None => FieldMatch::Equals(value.to_owned()),
        Some(expression) => {
            let anchored = Regex::new(&format!(r"\A(?:{expression})"));
            FieldMatch::Prefix(anchored.map_err(|_| wrong())?)
        }
    };
    Ok(Check::Field(resource.to_owned(), name.to_owned(), wanted))
}

/// A quoted text, an integer, or one of Python's `True`, `False` and `None`.
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
    fn invalid_rules_are_named() {
        for (text, why) in [
            ("role:a role:b", "two checks follow each other"),
            ("role:a and", "expected a check at the end"),
            ("or role:a", "need a check on either side"),
            ("(role:a", "a ( without )"),
            ("role:a)", "a ) without ("),
            ("()", "expected a check before )"),
            ("   ", "expected a check at the end"),
            ("admin", "`admin` is not a check"),
            ("'admin'", "`'admin'` is not a check"),
            ("http://there/%(x)s", "http: checks are not supported"),
            ("role:a or https://there", "https: checks are not supported"),
            ("projekt_id:%(project_id)s", "no attribute `projekt_id`"),
            ("'a:%(x)s", "no attribute `'a`"),
            ("role:%x", "a % must be followed by"),
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
            parse_list(&list).expect("the list is valid").to_string()
        };
        assert_eq!(list(&[]), "@");
        assert_eq!(list(&[&[]]), "!");
        assert_eq!(list(&[&["role:a"]]), "role:a");
        assert_eq!(list(&[&["role:a", "role:b"], &["@"]]), "((role:a and role:b) or @)");
        let tokens = parse_list(&[vec!["role:a and role:b".into()]]);
        assert_eq!(tokens, Err(Problem::NotACheck("role:a and role:b".into())));
    }
}
