//! Checks references: links from documents to documents and sources, from comments to sections of documents,
//! and from each promise of docs/guarantees.md to the tests that hold it, and back. The module `faults`: from
//! each fault of docs/faults.md to its tests.

#[path = "documents/faults.rs"]
mod faults;
#[path = "fixture/files.rs"]
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use files::{files, root};

/// Returns all documents, by path below the root.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut paths = files("docs", &["md"]);
    let at_top = fs::read_dir(root()).expect("the root is readable").filter_map(Result::ok);
    paths.extend(at_top.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a document is readable");
        (path.strip_prefix(root()).expect("it was found below the root").to_owned(), text)
    };
    paths.into_iter().map(read).collect()
}

/// Returns the text without code blocks, which may contain anything.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// Returns the anchors of a document, as GitHub generates them from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// Returns the anchor of a heading.
fn anchor(line: &str) -> String {
    let heading = line.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns every text between two delimiters.
fn between<'a>(text: &'a str, before: &'a str, after: &'a [char]) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split_once(after).map(|(link, _)| link))
}

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leads out of the repository", path.display()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns an error if a link has no target. `path`: below the root.
fn fault(documents: &BTreeMap<PathBuf, String>, path: &Path, anchor: Option<&str>) -> Option<String> {
    if !root().join(path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let anchor = anchor?;
    let Some(text) = documents.get(path) else { return Some(format!("{} has no sections", path.display())) };
    (!anchors(text).contains(anchor)).then(|| format!("{} has no section #{anchor}", path.display()))
}

fn split(link: &str) -> (&str, Option<&str>) {
    link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)))
}

#[test]
fn links_of_documents_lead_somewhere() {
    let documents = documents();
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    for (from, text) in &documents {
        let prose = prose(text);
        for link in between(&prose, "](", &[')']).filter(|link| !link.contains("://")) {
            looked_at += 1;
            let (path, anchor) = split(link);
            let folder = from.parent().expect("a file is in a folder");
            let target = if path.is_empty() { from.clone() } else { plain(&folder.join(path)) };
            faults.extend(
                fault(&documents, &target, anchor).map(|f| format!("{}: {link}: {f}", from.display())),
            );
        }
    }
    assert!(looked_at > 100, "only {looked_at} links were found");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Returns the lines of a document that were to be filled in later.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let is_open = |line: &&str| {
        let mut words = line.split('@').skip(1).step_by(2);
        let is_name =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        words.any(is_name) || ["TODO", "TBD", "the commit of this row"].iter().any(|open| line.contains(open))
    };
    text.lines().filter(is_open)
}

#[test]
fn documents_are_complete() {
    let open: Vec<String> = documents()
        .iter()
        .flat_map(|(path, text)| placeholders(text).map(move |line| format!("{}: {line}", path.display())))
        .collect();
    assert!(open.is_empty(), "these were to be filled in:\n{}", open.join("\n"));
}

#[test]
fn a_placeholder_is_found() {
    let text = "a @FIGURE@ b\nann@batch1 and bob@batch2\nmeasured on the commit of this row\nplain";
    assert_eq!(placeholders(text).count(), 2);
}

#[test]
fn comments_cite_sections_that_exist() {
    let documents = documents();
    let sources = ["src", "api", "client", "recipes", "tests", "benches", "examples", "proto"];
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    for path in sources.iter().flat_map(|folder| files(folder, &["rs", "proto", "toml"])) {
        let text = fs::read_to_string(&path).expect("a source is readable");
        let shown = path.strip_prefix(root()).expect("it was found below the root").display();
        if text.lines().any(|line| line.contains(concat!("protocol", " section "))) {
            faults.push(format!("{shown}: cites a section by its number only"));
        }
        let ends = [' ', '`', ')', ',', ';', '\n', '"', '\'', ']', '<'];
        for cited in between(&text, concat!("docs", "/"), &ends) {
            let cited = cited.trim_end_matches(['.', ':']);
            let (path, anchor) = split(cited);
            if !path.ends_with(".md") {
                continue;
            }
            looked_at += 1;
            let found = fault(&documents, &Path::new("docs").join(path), anchor);
            faults.extend(found.map(|f| format!("{shown}: docs/{cited}: {f}")));
            let is_page = path.starts_with("algorithm/") && path != "algorithm/README.md";
            if is_page && !anchor.is_some_and(|anchor| anchor.starts_with(|c: char| c.is_ascii_digit())) {
                faults.push(format!("{shown}: docs/{cited}: cites no numbered section"));
            }
        }
    }
    assert!(looked_at > 10, "only {looked_at} references were found");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

const ALGORITHM: &str = "docs/algorithm";

/// Returns the number of a section at the end of a link's text, such as `1.3` in `log 1.3`, and the text
/// before.
fn cited_number(text: &str) -> Option<(&str, &str)> {
    let (before, number) = text.rsplit_once(char::is_whitespace).unwrap_or(("", text));
    let is_number =
        number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    is_number.then_some((before.trim_end(), number))
}

/// Returns an error if the text of a link to a page of the algorithm names another page or section than the
/// link leads to. `page`: of the target. `is_same`: the link stands on that page.
fn misnamed(text: &str, page: &str, is_same: bool, anchor: &str) -> Option<String> {
    let (named, number) = cited_number(text)?;
    let is_right = anchor.starts_with(&format!("{}-", number.replace('.', "")))
        && (named == page || is_same && matches!(named, "" | "section"));
    (!is_right).then(|| format!("[{text}] leads to {page}#{anchor}"))
}

#[test]
fn sections_of_the_algorithm_are_named_by_page_and_number() {
    let documents = documents();
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    for (from, text) in &documents {
        let prose = prose(text);
        for (before, link) in prose.split("](").zip(between(&prose, "](", &[')'])) {
            let (path, Some(anchor)) = split(link) else { continue };
            let target = if path.is_empty() { from.clone() } else { from.with_file_name("").join(path) };
            let target = plain(&target);
            if target.parent() == Some(Path::new(ALGORITHM)) {
                looked_at += 1;
                let text = before.rsplit_once('[').map_or("", |(_, text)| text);
                let page = target.file_stem().and_then(|stem| stem.to_str()).expect("a page has a name");
                let found = misnamed(text, page, &target == from, anchor);
                faults.extend(found.map(|f| format!("{}: {f}", from.display())));
            }
        }
        if from.parent() == Some(Path::new(ALGORITHM)) && !from.ends_with("README.md") {
            faults.extend(out_of_order(&prose).map(|line| format!("{}: {line}: its number", from.display())));
        }
    }
    assert!(looked_at > 100, "only {looked_at} links were found");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Returns the headings whose numbers do not follow the number of the heading before.
fn out_of_order(prose: &str) -> impl Iterator<Item = &str> {
    let (mut chapter, mut section) = (0, 0);
    prose.lines().filter(|line| line.starts_with("##")).filter(move |line| {
        let due = if line.starts_with("## ") {
            (chapter, section) = (chapter + 1, 0);
            format!("## {chapter}. ")
        } else {
            section += 1;
            format!("### {chapter}.{section} ")
        };
        !line.starts_with(&due)
    })
}

#[test]
fn a_section_that_is_named_wrongly_is_found() {
    let is_wrong = |text, page, is_same| misnamed(text, page, is_same, "13-output-commit").is_some();
    let right = [("log 1.3", false), ("1.3", true), ("section 1.3", true), ("log\n  1.3", false)];
    assert!(right.iter().all(|(text, is_same)| !is_wrong(text, "log", *is_same)));
    let wrong = [("log 1.4", false), ("1.3", false), ("grants 1.3", true), ("13", false)];
    assert!(wrong.iter().all(|(text, is_same)| is_wrong(text, "log", *is_same)));
    let headings = "# A\n## 1. B\n### 1.1 C\n### 1.3 D\n## 2. E\n## F";
    assert_eq!(out_of_order(headings).collect::<Vec<_>>(), ["### 1.3 D", "## F"]);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# One two\n## 4.3 Output `commit`!\n```\n# no heading\n```\n".to_owned();
    assert_eq!(anchors(&text).into_iter().collect::<Vec<_>>(), ["43-output-commit", "one-two"]);
    let documents = BTreeMap::from([(PathBuf::from("README.md"), text)]);
    let of = |path: &str, anchor| fault(&documents, Path::new(path), anchor);
    assert_eq!(of("README.md", Some("43-output-commit")), None);
    assert!(of("README.md", Some("no-heading")).is_some() && of("README.ms", None).is_some());
    assert_eq!(of("Cargo.toml", None), None);
}

const GUARANTEES: &str = "docs/guarantees.md";

/// A promise: a bullet of a document.
struct Promise {
    /// The anchor of the nearest heading.
    section: String,
    text: String,
}

/// Returns the top bullets of a document, each with all lines that are indented below it.
fn promises(text: &str) -> Vec<Promise> {
    let (mut promises, mut section, mut is_open) = (Vec::<Promise>::new(), String::new(), false);
    for line in prose(text).lines() {
        if line.starts_with('#') {
            section = anchor(line);
        }
        if line.starts_with("- ") {
            promises.push(Promise { section: section.clone(), text: String::new() });
            is_open = true;
        } else if !line.is_empty() && !line.starts_with("  ") {
            is_open = false;
        }
        if let Some(promise) = promises.last_mut().filter(|_| is_open) {
            promise.text += line;
            promise.text.push('\n');
        }
    }
    promises
}

/// A row of the index: tests that hold a promise.
struct Holds<'a> {
    /// The anchor of the promise's section.
    section: &'a str,
    /// The first words of the promise.
    name: &'a str,
    tests: &'a str,
}

impl Holds<'_> {
    /// Returns true if it is about this promise.
    fn is_of(&self, promise: &Promise) -> bool {
        let words: Vec<&str> = promise.text.split_whitespace().collect();
        promise.section == self.section && words.join(" ").contains(&format!("**{}", self.name))
    }
}

/// Returns the rows of the index: a link to the section, the first words of the promise, links to tests.
fn index(text: &str) -> impl Iterator<Item = Holds<'_>> {
    text.lines().filter(|line| line.starts_with("| [")).map(|line| {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).splitn(3, " | ").collect();
        let &[section, name, tests] = cells.as_slice() else { panic!("no row of three cells: {line}") };
        let section = section.split_once("](#").and_then(|(_, anchor)| anchor.strip_suffix(')'));
        Holds { section: section.unwrap_or_else(|| panic!("no section: {line}")), name, tests }
    })
}

/// Returns the tests that a row names: a name, and a path below the root.
fn tests_of(row: &str) -> impl Iterator<Item = (&str, PathBuf)> {
    between(row, "[`", &[')']).filter_map(|link| {
        let (name, path) = link.split_once("`](")?;
        path.ends_with(".rs").then(|| (name, plain(&Path::new("docs").join(path))))
    })
}

/// Returns true if the source has a test of that name. A name with a capital letter is a verdict of the
/// simulator, which the source gives.
fn has_test(source: &str, name: &str) -> bool {
    if name.starts_with(char::is_uppercase) {
        let verdict = format!("FailureKind::{name}");
        let mut ends = source.split(&verdict).skip(1).map(|rest| rest.chars().next());
        return ends.any(|end| !end.is_some_and(|c| c.is_alphanumeric() || c == '_'));
    }
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else { return false };
    // Tests within a module are indented.
    let before = before.trim_end_matches(' ');
    let attributes = before.lines().rev().take_while(|line| !matches!(line.trim(), "" | "}"));
    let is_test = |line: &str| ["#[test]", "#[tokio::test"].iter().any(|test| line.trim().starts_with(test));
    attributes.into_iter().any(is_test)
}

/// Returns the documentation at the top of a source and, if it is a module of a test binary, of that binary.
fn heads(path: &Path) -> String {
    let main = path.with_file_name("main.rs");
    let sources = [path, &main].map(|path| fs::read_to_string(root().join(path)).unwrap_or_default());
    let lines = sources.iter().flat_map(|source| source.lines().take_while(|line| line.starts_with("//!")));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the sections of the promises that the head of a source names.
fn sections_named(head: &str) -> impl Iterator<Item = &str> {
    let ends = [' ', '`', ')', ',', ';', '\n', ':'];
    let named = head.split(concat!("docs/", "guarantees.md#")).skip(1);
    named.map(move |rest| rest.split(ends).next().unwrap_or_default().trim_end_matches('.'))
}

#[test]
fn promises_and_their_tests_name_each_other() {
    let text = fs::read_to_string(root().join(GUARANTEES)).expect("the document is readable");
    let promises = promises(&text);
    let (mut faults, mut named) = (Vec::new(), 0);
    let mut holding = BTreeSet::new();
    for row in index(&text) {
        let of = promises.iter().filter(|promise| row.is_of(promise)).count();
        if of != 1 {
            faults.push(format!("#{}: {of} promises say \"{}\"", row.section, row.name));
        }
        for (name, path) in tests_of(row.tests) {
            named += 1;
            let source = fs::read_to_string(root().join(&path)).unwrap_or_default();
            if !has_test(&source, name) {
                faults.push(format!("{}: there is no {name} in {}", row.name, path.display()));
            }
            // Tests of the sources hold sections of docs/algorithm, too, and name those.
            if path.starts_with("tests") && !sections_named(&heads(&path)).any(|named| named == row.section) {
                let back = format!("{GUARANTEES}#{}", row.section);
                faults.push(format!("{}: its head does not name {back}, which names {name}", path.display()));
            }
            holding.insert((row.section.to_owned(), path));
        }
    }
    for promise in &promises {
        // No test shows that something is not promised.
        let is_held = index(&text).any(|row| row.is_of(promise) && tests_of(row.tests).next().is_some());
        if !is_held && !promise.text.starts_with("- **Not promised**") {
            faults.push(format!("{}: no test holds it", promise.text.lines().next().unwrap_or_default()));
        }
    }
    // The head of a binary names chapters.
    let is_module = |path: &PathBuf| !path.ends_with("main.rs");
    for path in files("tests", &["rs"]).into_iter().filter(is_module) {
        let source = fs::read_to_string(&path).expect("a test is readable");
        let path = path.strip_prefix(root()).expect("it was found below the root").to_owned();
        let head: Vec<&str> = source.lines().take_while(|line| line.starts_with("//!")).collect();
        for section in sections_named(&head.join("\n")) {
            if !holding.contains(&(section.to_owned(), path.clone())) {
                faults.push(format!("{}: #{section} names no test of it", path.display()));
            }
        }
    }
    assert!(promises.len() > 60 && named > 200, "{} promises name {named} tests", promises.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_promise_without_its_test_is_found() {
    let text = "## One two\n- **A.** It\n  holds.\n\n  More of\n  it.\n- **C c** d.\nno more\n";
    let found = promises(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].section.as_str(), found[1].text.as_str()), ("one-two", "- **C c** d.\n"));
    let row = "| section | promise | tests |\n| [One](#one-two) | C c | [`a`](../tests/a.rs), [`B`](../src/b.rs) |\n";
    let rows: Vec<_> = index(row).collect();
    let are_of: Vec<bool> = found.iter().map(|promise| rows[0].is_of(promise)).collect();
    assert_eq!((rows.len(), are_of), (1, vec![false, true]));
    let tests: Vec<_> = tests_of(rows[0].tests).collect();
    assert_eq!(tests, [("a", PathBuf::from("tests/a.rs")), ("B", PathBuf::from("src/b.rs"))]);
    let head = format!("//! Of docs{}#one-two, and of docs{0}#three.", "/guarantees.md");
    assert_eq!(sections_named(&head).collect::<Vec<_>>(), ["one-two", "three"]);
    let source = "fn a() {}\n\n#[tokio::test]\n#[ignore]\nasync fn b() {\n}\nfn c() { FailureKind::Late }\n";
    let names = ["a", "b", "c", "d", "Late", "La"].map(|name| has_test(source, name));
    assert_eq!(names, [false, true, false, false, true, false]);
}
