//! Checks references: links from documents to documents and sources, from comments to sections of documents,
//! and from each promise of docs/guarantees.md to the tests that hold it, and back.

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

/// Returns the tests that a promise names: a name, and a path below the root.
fn tests_of(promise: &str) -> impl Iterator<Item = (&str, PathBuf)> {
    between(promise, "[`", &[')']).filter_map(|link| {
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

#[test]
fn promises_and_their_tests_name_each_other() {
    let text = fs::read_to_string(root().join(GUARANTEES)).expect("the document is readable");
    let promises = promises(&text);
    let (mut faults, mut named) = (Vec::new(), 0);
    for Promise { section, text } in &promises {
        let (first, mut tests) = (text.lines().next().unwrap_or_default(), 0);
        for (name, path) in tests_of(text) {
            tests += 1;
            let source = fs::read_to_string(root().join(&path)).unwrap_or_default();
            if !has_test(&source, name) {
                faults.push(format!("{first}: there is no {name} in {}", path.display()));
            }
            // Tests of the sources hold sections of docs/algorithm, too, and name those.
            let back = format!("{GUARANTEES}#{section}");
            if path.starts_with("tests") && !heads(&path).contains(&back) {
                faults.push(format!("{}: its head does not name {back}, which names {name}", path.display()));
            }
        }
        named += tests;
        // No test shows that something is not promised.
        if tests == 0 && !text.starts_with("- **Not promised**") {
            faults.push(format!("{first}: no test holds it"));
        }
    }
    assert!(promises.len() > 30 && named > 80, "{} promises name {named} tests", promises.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_promise_without_its_test_is_found() {
    let text = "## One two\n- **A.** It\n  holds.\n\n  Tests: [`a`](../tests/a.rs),\n  [`B`](../src/b.rs).\n- C.\nno more\n";
    let found = promises(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].section.as_str(), found[1].text.as_str()), ("one-two", "- C.\n"));
    let tests: Vec<_> = tests_of(&found[0].text).collect();
    assert_eq!(tests, [("a", PathBuf::from("tests/a.rs")), ("B", PathBuf::from("src/b.rs"))]);
    let source = "fn a() {}\n\n#[tokio::test]\n#[ignore]\nasync fn b() {\n}\nfn c() { FailureKind::Late }\n";
    let names = ["a", "b", "c", "d", "Late", "La"].map(|name| has_test(source, name));
    assert_eq!(names, [false, true, false, false, true, false]);
}

const EVIDENCE: &str = "docs/evidence.md";

/// Returns the second cells of a table's rows: the tests that hold each fix.
fn cells(section: &str) -> impl Iterator<Item = &str> {
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what was"));
    rows.filter_map(|row| row.split('|').nth(2))
}

/// Returns the tests that a cell names, each with its module or file. `a::{b, c}` names two, and `a::b, ::c`
/// two of one module.
fn cited(cell: &str) -> Vec<(String, String)> {
    let (mut braced, mut text) = (false, String::new());
    for c in cell.chars().filter(|c| *c != '`') {
        braced = (braced || c == '{') && c != '}';
        text.push(if braced && c == ' ' { '\u{a0}' } else { c });
    }
    let (mut found, mut module) = (Vec::new(), String::new());
    for word in text.split([' ', ';', '(', ')']) {
        let word = word.trim_end_matches([',', ':', '.']);
        let Some((before, names)) = word.rsplit_once("::") else { continue };
        if !matches!(before, "" | "..") {
            module = before.to_owned();
        }
        let names = names.trim_matches(['{', '}']).split(',').map(|name| name.trim_matches('\u{a0}'));
        found.extend(names.map(|name| (module.clone(), name.to_owned())));
    }
    found
}

/// Returns the file of a module, and the modules within the file.
fn file_of(module: &str) -> Option<(PathBuf, Vec<&str>)> {
    if let Some((file, inner)) = module.split_once(".rs") {
        return Some((root().join(format!("{file}.rs")), inner.split("::").skip(1).collect()));
    }
    let mut parts: Vec<&str> = module.split("::").collect();
    let folder = match parts[0] {
        "geolock_client" => "client/src",
        "geolock_api" => "api/src",
        "geolock_recipes" => "recipes/src",
        _ => "src",
    };
    if folder != "src" {
        parts.remove(0);
    }
    (1..=parts.len()).rev().find_map(|end| {
        let path = root().join(folder).join(parts[..end].join("/"));
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        let file = files.into_iter().find(|file| file.exists())?;
        Some((file, parts[end..].to_vec()))
    })
}

/// Returns true if there is such a test, or such a module of tests.
fn is_there(module: &str, name: &str) -> bool {
    let is_module = |path: &str| file_of(path).is_some_and(|(_, inner)| inner.is_empty());
    if name == "*" || is_module(&format!("{module}::{name}")) {
        return is_module(module) || name != "*";
    }
    let Some((file, inner)) = file_of(module) else { return false };
    let source = fs::read_to_string(&file).unwrap_or_default();
    let hunt = format!("\n    {name}: ");
    let is_inner = inner.iter().all(|inner| source.contains(&format!("mod {inner} {{")));
    let is_module = name == "tests" && source.contains("mod tests {");
    is_inner
        && (is_module
            || has_test(&source, name)
            || file.ends_with("sim/mutations.rs") && source.contains(&hunt))
}

#[test]
fn tests_that_the_evidence_names_are_there() {
    let text = fs::read_to_string(root().join(EVIDENCE)).expect("the document is readable");
    let from = text.split_once("\n## Faults that reviews found").expect("the section is there").1;
    let section = from.split("\n## ").next().expect("a text has a first part");
    let (mut faults, mut named) = (Vec::new(), 0);
    for cell in cells(section) {
        for (module, name) in cited(cell) {
            named += 1;
            if !is_there(&module, &name) {
                faults.push(format!("{module}::{name}"));
            }
        }
    }
    assert!(named > 150, "only {named} tests were found");
    assert!(faults.is_empty(), "{} tests are not there:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let cell = "a::tests::{b, c} (seen), d/e.rs::f, ::g; by hand: `x --y`";
    let found = cited(cell);
    let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    assert_eq!(found, [("a::tests", "b"), ("a::tests", "c"), ("d/e.rs", "f"), ("d/e.rs", "g")]);
    assert!(is_there("access::log_limit::tests", "a_second_has_one_line"));
    assert!(is_there("sim::mutations", "e_no_grace") && is_there("replica::tests::work", "*"));
    assert!(!is_there("access::log_limit::tests", "a_second_has_two_lines"));
    assert!(!is_there("access::nothing::tests", "a_second_has_one_line"));
}

/// Returns the variants of an enum in a source.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(&format!("enum {name} {{")).expect("the source has this enum");
    let body = body.split("\n}").next().expect("a text has a first part");
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter_map(|line| line.strip_suffix(',')).collect()
}

/// Returns true if the source has this word.
fn has_word(source: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let ends = |before: &str, after: &str| !before.ends_with(is_part) && !after.starts_with(is_part);
    source.match_indices(word).any(|(at, _)| ends(&source[..at], &source[at + word.len()..]))
}

#[test]
fn each_deliberate_bug_is_asked_for_and_caught() {
    let read = |path: &Path| fs::read_to_string(path).expect("a source is readable");
    let bugs = read(&root().join("src/base/bugs.rs"));
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let hunts = read(&root().join("src/sim/mutations.rs"));
    let hunts = hunts.split_once("\nhunts! {").expect("the hunts are one macro call").1;
    let (mut stories, mut core) = (String::new(), String::new());
    for path in files("src", &["rs"]).into_iter().filter(|path| !path.ends_with("base/bugs.rs")) {
        if is_test(&path) {
            stories += &read(&path);
        } else if !path.ends_with("sim/mutations.rs") {
            core += &read(&path);
        }
    }
    let variants = variants(&bugs, "Bug");
    assert!(variants.len() > 40, "{variants:?}");
    for bug in variants {
        let named = format!("Bug::{bug}");
        assert!(has_word(&core, &named), "no code has the deliberate bug {bug}: delete it");
        let is_caught = has_word(hunts, bug) || has_word(&stories, &named);
        assert!(is_caught, "no hunt of src/sim/mutations.rs and no story is caught with the bug {bug}");
    }
}
