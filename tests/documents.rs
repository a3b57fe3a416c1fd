//! Checks references: links from documents to documents and sources, and from comments to sections of
//! documents.

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
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
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

#[test]
fn comments_cite_sections_that_exist() {
    let documents = documents();
    let sources = ["src", "tests", "benches", "examples", "proto"];
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
        }
    }
    assert!(looked_at > 10, "only {looked_at} references were found");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
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
