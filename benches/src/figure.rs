//! One measured figure, as a row of a table or a line of JSON.

use anyhow::Result;
use serde::Serialize;

/// What was measured, against what, and what it must reach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Its name, as in `sqlite durable cycle`.
    pub(crate) figure: String,
    /// What was measured.
    pub(crate) value: f64,
    /// The unit of the value and the baseline.
    pub(crate) unit: String,
    /// The same work done bare, where there is such a thing.
    pub(crate) baseline: Option<f64>,
    /// Value over baseline.
    pub(crate) ratio: Option<f64>,
    /// What it must reach, in words, as in `ratio <= 1.25`.
    pub(crate) goal: Option<String>,
    /// Whether it does; none where there is no goal.
    pub(crate) met: Option<bool>,
}

impl Figure {
    /// Whether no goal is missed.
    pub(crate) fn is_met(&self) -> bool {
        self.met != Some(false)
    }

    fn cells(&self) -> [String; 7] {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        [
            self.figure.clone(),
            number(Some(self.value)),
            self.unit.clone(),
            number(self.baseline),
            number(self.ratio),
            self.goal.clone().unwrap_or("-".to_owned()),
            met.to_owned(),
        ]
    }
}

/// One object a line; every key is always there.
pub(crate) fn json_lines(figures: &[Figure]) -> Result<String> {
    let mut text = String::new();
    for figure in figures {
        text.push_str(&serde_json::to_string(figure)?);
        text.push('\n');
    }
    Ok(text)
}

/// Columns for people.
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["figure", "value", "unit", "baseline", "ratio", "goal", "met"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(figures.iter().map(Figure::cells)).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:0$}", width(column).unwrap_or(0)));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle() -> Figure {
        Figure {
            figure: "cycle".to_owned(),
            value: 1.5,
            unit: "ms".to_owned(),
            baseline: Some(1.25),
            ratio: Some(1.2),
            goal: Some("ratio <= 1.25".to_owned()),
            met: Some(true),
        }
    }

    #[test]
    fn a_line_of_json_has_every_key_in_its_order() {
        let bare = Figure { baseline: None, ratio: None, goal: None, met: None, ..cycle() };
        let expected = concat!(
            r#"{"figure":"cycle","value":1.5,"unit":"ms","baseline":1.25,"ratio":1.2,"goal":"ratio <= 1.25","met":true}"#,
            "\n",
            r#"{"figure":"cycle","value":1.5,"unit":"ms","baseline":null,"ratio":null,"goal":null,"met":null}"#,
            "\n",
        );
        assert_eq!(json_lines(&[cycle(), bare]).unwrap(), expected);
    }

    #[test]
    fn a_table_lines_up_and_shows_a_missed_goal() {
        let missed = Figure { figure: "long name".to_owned(), met: Some(false), ..cycle() };
        let expected = "\
figure     value  unit  baseline  ratio  goal           met
cycle      1.50   ms    1.25      1.20   ratio <= 1.25  yes
long name  1.50   ms    1.25      1.20   ratio <= 1.25  NO
";
        assert_eq!(table(&[cycle(), missed.clone()]), expected);
        assert!(!missed.is_met());
    }
}
