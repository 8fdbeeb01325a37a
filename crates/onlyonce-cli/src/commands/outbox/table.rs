//! Rows for people.

use crate::words::plain;

/// Aligned columns, with a line of heads.
pub(super) fn of<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.into_iter().map(|row| row.map(|cell| plain(&cell))));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<_> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let line = |cells: &[String; N]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_a_key_cannot_move_the_cursor() {
        let row = |key: &str| [key.to_owned(), "id".to_owned()];
        let table = super::of(["KEY", "ID"], vec![row("\u{1b}[2J"), row("k")]);
        assert_eq!(table, "KEY        ID\n\\u{1b}[2J  id\nk          id\n");
    }
}
