//! Tables of figures, as text and as JSON.

use serde_json::{Value, json};

/// A line of figures, one for each column.
struct Row {
    what: String,
    unit: &'static str,
    aim: Option<Aim>,
    /// True if the column's factor applies.
    scaled: bool,
    figures: Vec<Option<f64>>,
}

/// The bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// No more than this.
    Most(f64),
    /// No less than this.
    Least(f64),
}

impl Aim {
    fn is_met(self, figure: f64, factor: f64) -> bool {
        match self {
            Self::Most(most) => figure <= most / factor,
            Self::Least(least) => figure >= least * factor,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Most(most) => format!("<= {}", hundredths(most)),
            Self::Least(least) => format!(">= {}", hundredths(least)),
        }
    }
}

/// Figures of one kind; a column for each size.
pub struct Table {
    title: String,
    columns: Vec<String>,
    factors: Vec<f64>,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = String>) -> Self {
        let columns = columns.into_iter().collect();
        Self { title: title.into(), columns, factors: Vec::new(), rows: Vec::new() }
    }

    /// Factors by which each column's aims are relaxed: with 0.5 a figure may be half as good.
    #[must_use]
    pub fn with_factors(self, factors: impl IntoIterator<Item = f64>) -> Self {
        Self { factors: factors.into_iter().collect(), ..self }
    }

    /// Adds a row; a figure that was not measured is `None`.
    pub fn row(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        aim: Option<Aim>,
        figures: impl IntoIterator<Item = Option<f64>>,
    ) {
        let figures = figures.into_iter().collect();
        self.rows.push(Row { what: what.into(), unit, aim, scaled: false, figures });
    }

    /// Applies the factors to the last row.
    pub fn scaled(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.scaled = true;
        }
    }

    /// As one JSON value.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let aim = row.aim.map(Aim::text);
            json!({"what": row.what, "unit": row.unit, "aim": aim, "figures": row.figures})
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({"title": self.title, "columns": self.columns, "rows": rows})
    }

    /// As text. A figure that misses its aim is marked with `*`.
    pub fn lines(&self) -> String {
        let mut text = format!("{}\n  {:50} {:8} {:>8}", self.title, "", "", "aim");
        for column in &self.columns {
            text.push_str(&format!(" {column:>13} "));
        }
        text.truncate(text.trim_end().len());
        for Row { what, unit, aim, scaled, figures } in &self.rows {
            let aim_text = aim.map_or_else(String::new, Aim::text);
            text.push_str(&format!("\n  {what:50} {unit:8} {aim_text:>8}"));
            for (at, figure) in figures.iter().enumerate() {
                let factor = self.factors.get(at).filter(|_| *scaled).copied().unwrap_or(1.0);
                let missed =
                    figure.zip(*aim).is_some_and(|(figure, aim)| !aim.is_met(figure, factor));
                let mark = if missed { '*' } else { ' ' };
                text.push_str(&format!(
                    " {:>13}{mark}",
                    figure.map_or("-".into(), |figure| short(figure, unit))
                ));
            }
            text.truncate(text.trim_end().len());
        }
        text.push('\n');
        text
    }
}

/// Rounds to two decimal places.
fn hundredths(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// The figure with its significant digits.
fn short(figure: f64, unit: &str) -> String {
    match figure.abs() {
        _ if unit == "%" => format!("{figure:.2}"),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Aim, Table};

    fn table() -> Table {
        let mut table = Table::new("Boots", ["100 hosts".to_owned(), "1000 hosts".to_owned()]);
        table.row("servers booted", "/s", Some(Aim::Least(500.0)), [Some(778.4), Some(499.0)]);
        table.row("CPU per boot", "ms", Some(Aim::Most(4.0)), [Some(1.61), None]);
        table
    }

    #[test]
    fn a_figure_that_misses_its_aim_has_a_star() {
        let text = table().lines();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Boots");
        assert!(lines[1].ends_with("100 hosts     1000 hosts"), "{text}");
        assert!(lines[2].ends_with(">= 500           778            499*"), "{text}");
        assert!(lines[3].ends_with("<= 4          1.61              -"), "{text}");
    }

    #[test]
    fn a_larger_cloud_may_be_half_as_good() {
        let columns = ["1000 hosts".to_owned(), "10000 hosts".to_owned()];
        let mut table = Table::new("Boots", columns).with_factors([1.0, 0.5]);
        table.row("boots", "/s", Some(Aim::Least(500.0)), [Some(300.0), Some(300.0)]);
        table.scaled();
        table.row("list", "ms", Some(Aim::Most(30.0)), [Some(40.0), Some(40.0)]);
        let text = table.lines();
        let stars = text.lines().map(|line| line.matches('*').count());
        assert_eq!(stars.collect::<Vec<_>>(), [0, 0, 1, 2], "{text}");
    }

    #[test]
    fn programs_get_the_figures_as_they_are() {
        let json = table().json();
        assert_eq!(json["columns"][1], "1000 hosts");
        assert_eq!(json["rows"][0]["figures"][0], 778.4);
        assert_eq!(json["rows"][0]["aim"], ">= 500");
        assert!(json["rows"][1]["figures"][1].is_null());
    }
}
