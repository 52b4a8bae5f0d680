//! The words in the names of modules and public types. A stranger has to guess a name's meaning, so each word is a
//! term of docs/glossary.md, or one of the plain words and field terms in words.txt.

use std::{collections::BTreeSet, path::Path};

use crate::tree::{read, root, rust_files};

/// Riddles of earlier versions: nobody else in the field uses these words so.
const RIDDLES: [&str; 17] = [
    "asked",
    "bell",
    "given",
    "guest",
    "hall",
    "heard",
    "leaning",
    "lot",
    "manner",
    "neighbours",
    "roster",
    "seat",
    "sieve",
    "spot",
    "stirred",
    "told",
    "untaken",
];

/// A name's words in lower case: `slow_reader` and `SlowReader` are both `slow`, `reader`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && !before.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c != '_') {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The names of the module files below `source`.
fn module_names(source: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for path in rust_files(source) {
        let inside = path.strip_prefix(source).unwrap_or(&path).with_extension("");
        let parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
        names.extend(parts.filter(|part| !["lib", "main", "mod"].contains(&part.as_str())));
    }
    names
}

/// The name of the public type that a line of code declares.
fn public_type(line: &str) -> Option<&str> {
    let declared = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| declared.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric()).next().filter(|name| !name.is_empty())
}

/// Each word of a module or a public type of the crates, with the names that contain it.
fn names_by_word() -> Vec<(String, String)> {
    let mut found = BTreeSet::new();
    for entry in root().join("crates").read_dir().expect("crates/ is readable") {
        let source = entry.expect("a folder entry is readable").path().join("src");
        let texts: Vec<_> = rust_files(&source).iter().map(|path| read(path)).collect();
        let types = texts.iter().flat_map(|text| text.lines()).filter_map(public_type);
        let types: Vec<_> = types.map(str::to_owned).collect();
        for name in module_names(&source).into_iter().chain(types) {
            found.extend(words_of(&name).into_iter().map(|word| (word, name.clone())));
        }
    }
    assert!(found.len() > 500, "the scan found only {} words in names", found.len());
    found.into_iter().collect()
}

/// The words of the first column of the glossary's tables.
fn glossary_words() -> BTreeSet<String> {
    let page = read(&root().join("docs/glossary.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let words = rows.flat_map(|term| term.split(|c: char| !c.is_alphanumeric()));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// The plain words and field terms of words.txt, as they stand there.
fn plain_words() -> Vec<String> {
    let list = read(&root().join("crates/cli/tests/architecture/words.txt"));
    list.lines().map(str::to_owned).collect()
}

/// Whether `words` has the word, or it without the `s` of a plural.
fn has(words: &BTreeSet<String>, word: &str) -> bool {
    words.contains(word) || word.strip_suffix('s').is_some_and(|one| words.contains(one))
}

#[test]
fn a_name_is_split_into_its_words() {
    assert_eq!(words_of("slow_reader"), ["slow", "reader"]);
    assert_eq!(words_of("HttpOriginError"), ["http", "origin", "error"]);
    assert_eq!(words_of("Http1"), ["http1"]);
    assert_eq!(public_type("    pub enum Kind<T> {"), Some("Kind"));
    assert_eq!(public_type("pub(crate) struct Hidden;"), None);
}

#[test]
fn names_are_made_of_words_that_a_stranger_knows() {
    let (glossary, plain) = (glossary_words(), plain_words().into_iter().collect());
    let is_known = |word: &str| has(&glossary, word) || has(&plain, word);
    let unknown: Vec<_> = names_by_word()
        .into_iter()
        .filter(|(word, _)| RIDDLES.contains(&word.as_str()) || !is_known(word))
        .map(|(word, name)| format!("`{word}` of {name}"))
        .collect();
    assert!(
        unknown.is_empty(),
        "these words are not known: use a term of docs/glossary.md, or add the word there, or, if it is plain \
         English or a term of the field, to crates/cli/tests/architecture/words.txt: {unknown:#?}"
    );
}

#[test]
fn the_list_of_words_is_sorted_and_has_no_riddles_and_no_word_too_many() {
    let words = plain_words();
    assert!(words.is_sorted_by(|a, b| a < b), "words.txt is sorted, each word once");
    let riddles: Vec<_> = words.iter().filter(|word| RIDDLES.contains(&word.as_str())).collect();
    assert!(riddles.is_empty(), "words.txt contains riddles: {riddles:?}");
    let used: BTreeSet<_> = names_by_word().into_iter().map(|(word, _)| word).collect();
    let is_used = |word: &str| used.contains(word) || used.contains(&format!("{word}s"));
    let unused: Vec<_> = words.iter().filter(|word| !is_used(word)).collect();
    assert!(unused.is_empty(), "no name uses these words of words.txt, remove them: {unused:?}");
}
