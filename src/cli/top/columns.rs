//! Tables that fit a width: some columns are truncated, some left out.

/// A column of a table.
pub(super) struct Column {
    pub title: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, truncated if needed.
    Text,
    /// The same, truncated in the middle: names of one program often differ at their ends.
    Name,
    /// Never truncated; aligned to the right.
    Number,
    /// The same; left out if there is no space, the later ones first.
    Extra,
}

/// Shortest truncation: before columns are left out, and when no further ones can be.
const READABLE: usize = 10;
const SHORTEST: usize = 8;

/// Returns the title and the rows, with lines of at most `width` characters if that is possible.
pub(super) fn fit(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let gap = if width.is_some_and(|width| width < 100) { 1 } else { 2 };
    let mut places: Vec<usize> = (0..columns.len()).collect();
    let mut widths: Vec<usize> =
        columns.iter().enumerate().map(|(place, column)| widest(column, rows, place)).collect();
    let width = width.unwrap_or(usize::MAX);
    let least = |place: usize, widths: &[usize], text: usize| match columns[place].kind {
        Kind::Text | Kind::Name => widths[place].min(text),
        Kind::Number | Kind::Extra => widths[place],
    };
    let gaps = |places: &[usize]| gap * places.len().saturating_sub(1);
    while gaps(&places) + places.iter().map(|place| least(*place, &widths, READABLE)).sum::<usize>() > width {
        match places.iter().rposition(|place| columns[*place].kind == Kind::Extra) {
            Some(out) => drop(places.remove(out)),
            None => break,
        }
    }
    while gaps(&places) + places.iter().map(|place| widths[*place]).sum::<usize>() > width {
        let texts = places.iter().copied().filter(|place| widths[*place] > least(*place, &widths, SHORTEST));
        match texts.max_by_key(|place| widths[*place]) {
            Some(longest) => widths[longest] -= 1,
            None => break,
        }
    }
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let line = |row: &Vec<String>| {
        let cell = |place: &usize| pad(&row[*place], widths[*place], columns[*place].kind);
        places.iter().map(cell).collect::<Vec<_>>().join(&" ".repeat(gap)).trim_end().to_owned()
    };
    [&titles].into_iter().chain(rows).map(line).collect()
}

fn widest(column: &Column, rows: &[Vec<String>], place: usize) -> usize {
    let cells = rows.iter().map(|row| row[place].chars().count());
    cells.max().unwrap_or(0).max(column.title.chars().count())
}

fn pad(text: &str, width: usize, kind: Kind) -> String {
    match kind {
        Kind::Text => format!("{:<width$}", cut(text, width)),
        Kind::Name => format!("{:<width$}", cut_within(text, width)),
        Kind::Number | Kind::Extra => format!("{text:>width$}"),
    }
}

/// Returns at most so many characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Returns at most so many characters, of the beginning and the end.
fn cut_within(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let end = width.saturating_sub(1) / 2;
    let begin = cut(text, width - end);
    begin.chars().chain(text.chars().skip(count - end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { title: "NAME", kind: Kind::Name },
        Column { title: "WHO", kind: Kind::Text },
        Column { title: "N", kind: Kind::Number },
        Column { title: "MORE", kind: Kind::Extra },
    ];

    fn shown(width: Option<usize>) -> Vec<String> {
        let rows = [["a lock with a long name", "somebody else", "17", "x"], ["b", "me", "3", "long"]];
        fit(&COLUMNS, &rows.map(|row| row.map(String::from).to_vec()), width)
    }

    #[test]
    fn there_is_room_for_all_of_it() {
        let expected = [
            "NAME                     WHO             N  MORE",
            "a lock with a long name  somebody else  17     x",
            "b                        me              3  long",
        ];
        assert_eq!(shown(None), expected);
        assert_eq!(shown(Some(120)), expected);
    }

    #[test]
    fn texts_are_cut_then_columns_left_out() {
        assert_eq!(shown(Some(30))[1], "a loc… name somebody … 17    x");
        assert_eq!(shown(Some(21))[1], "a lo…name somebod… 17");
        // In a width that is too small the texts stay readable, and the terminal cuts the lines.
        assert_eq!(shown(Some(5))[1], "a lo…ame somebod… 17");
        assert!(shown(Some(30)).iter().all(|line| line.chars().count() <= 30));
    }
}
