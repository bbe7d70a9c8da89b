//! The tables of a statement by their aliases, which are the only names in SQLite's plans.

use std::collections::HashMap;

/// Words that may follow a table and are not aliases.
const WORDS: [&str; 16] = [
    "SET",
    "WHERE",
    "JOIN",
    "ON",
    "ORDER",
    "LEFT",
    "USING",
    "GROUP",
    "LIMIT",
    "CROSS",
    "UNION",
    "VALUES",
    "INNER",
    "SELECT",
    "RETURNING",
    "AND",
];

/// The tables of a statement, by alias and by their own name.
pub(crate) fn of(sql: &str, tables: &[String]) -> HashMap<String, String> {
    let spaced: String =
        sql.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { ' ' }).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut names = HashMap::new();
    for pair in words.windows(2) {
        let [table, name] = pair else { continue };
        if !tables.iter().any(|known| known == table) {
            continue;
        }
        names.insert((*table).to_owned(), (*table).to_owned());
        let is_name = !WORDS.contains(name) && name.chars().next().is_some_and(char::is_alphabetic);
        if is_name && *name != "AS" {
            names.entry((*name).to_owned()).or_insert_with(|| (*table).to_owned());
        }
    }
    if let Some(last) = words.last().filter(|last| tables.iter().any(|known| known == *last)) {
        names.insert((*last).to_owned(), (*last).to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_have_their_own_name_and_the_given_one() {
        let tables = ["moves".to_owned(), "servers".to_owned()];
        let sql = "SELECT 1 FROM moves m JOIN servers s ON s.id = m.id, servers";
        let names = super::of(sql, &tables);
        assert_eq!(names["m"], "moves");
        assert_eq!(names["s"], "servers");
        assert_eq!(names["servers"], "servers");
        assert!(!names.contains_key("JOIN"));
    }
}
