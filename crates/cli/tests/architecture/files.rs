//! The files of a crate do not depend on each other in circles, and the files of the server keep to the layers of
//! ARCHITECTURE.md. A scan of the text, not of the syntax: it reads paths that begin with `crate::`, `super::` or
//! `self::`, and ignores comments and tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    modules::{code_of, name_at, no_crate_turns_in_circles},
    tree::{read, root, rust_files},
    walls::{Graph, table},
};

/// Names on the pages that are no files of a crate's `src`: folders beside, and doors that are to come.
const NO_FILES: [&str; 6] = [
    "sim/",
    "bench/src",
    "doors/live",
    "doors/admin",
    "protocol/schema/control.proto",
    "engine/tests/engine/<behaviour>.rs",
];

/// Adds each path of the tree that `text` begins with, below `before`; returns what follows it.
fn add_paths<'a>(text: &'a str, before: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start();
            if rest.is_empty() || rest.starts_with('}') {
                return rest.strip_prefix('}').unwrap_or(rest);
            }
            let left = add_paths(rest, before, paths).trim_start();
            let next = left.strip_prefix(',').unwrap_or(left);
            if next.len() == rest.len() {
                return rest; // no tree of paths
            }
            rest = next;
        }
    }
    let name = name_at(text);
    let rest = &text[name.len()..];
    let path = [before, std::slice::from_ref(&name)].concat();
    if name.is_empty() {
        paths.push(before.to_vec());
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    if let Some(more) = rest.strip_prefix("::") {
        return add_paths(more, &path, paths);
    }
    paths.push(path);
    match rest.trim_start().strip_prefix("as ") {
        Some(alias) => &alias.trim_start()[name_at(alias).len()..],
        None => rest,
    }
}

/// All paths of `code` that begin with `crate`, `super` or `self`, each as its names.
fn paths_of(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for start in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c)) {
                add_paths(&code[at..], &[], &mut paths);
            }
        }
    }
    paths
}

/// The module of a file, as its names from the crate's root.
fn module_of(inside: &Path) -> Vec<String> {
    let names = inside.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !["lib", "main", "mod"].contains(&name.as_str())).collect()
}

/// The module that a path of the code of `here` leads to: as far as there are files.
fn led_to(path: &[String], here: &[String], modules: &BTreeSet<Vec<String>>) -> Vec<String> {
    let mut at = here.to_vec();
    let mut names = path;
    while let [first, rest @ ..] = names {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ => break,
        }
        names = rest;
    }
    for name in names {
        at.push(name.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    at
}

/// The files of the crate in `source`, as their modules, and which of the others each names. A file and those
/// in its folder are one concept, and may name each other.
fn file_graph(source: &Path) -> Graph {
    let of_tests = |name: &String| name == "tests" || name.ends_with("_tests");
    let files: BTreeMap<Vec<String>, String> = rust_files(source)
        .iter()
        .map(|path| (module_of(path.strip_prefix(source).unwrap_or(path)), read(path)))
        .filter(|(module, _)| !module.iter().any(of_tests))
        .collect();
    let modules: BTreeSet<_> = files.keys().cloned().collect();
    let name = |module: &[String]| module.join("/");
    let edges = |module: &Vec<String>, text: &String| {
        let paths = paths_of(&code_of(text));
        let named = paths.iter().map(|path| led_to(path, module, &modules));
        let others = named.filter(|named| !named.starts_with(module) && !module.starts_with(named));
        others.map(|named| name(&named)).collect()
    };
    files.iter().map(|(module, text)| (name(module), edges(module, text))).collect()
}

#[test]
fn paths_are_read_from_trees() {
    let code = "use crate::{a::{self, X}, b as c};\nlet d = super::e::f::<G>();\nnot_crate::h;";
    let joined: Vec<_> = paths_of(code).iter().map(|path| path.join("::")).collect();
    assert_eq!(joined, ["crate::a::self", "crate::a::X", "crate::b", "super::e::f"]);
}

#[test]
fn a_path_leads_to_the_deepest_file_on_its_way() {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let modules = BTreeSet::from([owned(&[]), owned(&["a"]), owned(&["a", "b"]), owned(&["c"])]);
    let led = |path: &[&str]| led_to(&owned(path), &owned(&["a", "b"]), &modules);
    assert_eq!(led(&["crate", "a", "b", "X"]), owned(&["a", "b"]));
    assert_eq!(led(&["super", "X"]), owned(&["a"]));
    assert_eq!(led(&["super", "super", "c", "y"]), owned(&["c"]));
}

#[test]
fn files_do_not_turn_in_circles() {
    no_crate_turns_in_circles(file_graph, 500);
}

/// The layer of a file of the server: the longest row of the table that its module begins with.
fn layer_of<'a>(module: &str, layers: &'a Graph) -> &'a str {
    let lies_in =
        |layer: &&String| module == layer.as_str() || module.starts_with(&format!("{layer}/"));
    let longest = layers.keys().filter(lies_in).max_by_key(|layer| layer.len());
    longest.map_or("composition", String::as_str)
}

/// What stands in backquotes on a page.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

/// Where the file of a name lies: `crates/...` as it stands, `engine/record` in that crate, all others in a
/// layer of the server.
fn file_of(name: &str) -> PathBuf {
    let (first, inside) = name.split_once('/').unwrap_or((name, ""));
    match root().join("crates").join(first) {
        _ if first == "crates" => root().join(name),
        of_crate if of_crate.is_dir() => of_crate.join("src").join(inside),
        _ => root().join("crates/server/src").join(name),
    }
}

#[test]
fn the_map_and_the_tour_name_files_that_are_there() {
    let mut named = 0;
    for page in ["ARCHITECTURE.md", "docs/tour.md"] {
        let text = read(&root().join(page));
        let names = quoted(&text).filter(|name| name.contains('/') && !name.contains(' '));
        for name in names.filter(|name| !NO_FILES.contains(name)) {
            let path = file_of(name);
            let is_there = path.exists() || path.with_extension("rs").exists();
            assert!(is_there, "{page} names {name}, which is not there");
            named += 1;
        }
    }
    assert!(named > 100, "the scan found only {named} names");
}

#[test]
fn the_server_lies_in_the_layers_of_architecture_md() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let layers = table(&page, "## Layers of the server");
    assert!(layers.contains_key("composition"), "the table has a row for the files of the root");
    let graph = file_graph(&root().join("crates/server/src"));
    for layer in layers.keys().filter(|layer| *layer != "composition") {
        assert!(graph.contains_key(layer), "there is no layer {layer}");
    }
    let mut violations = Vec::new();
    for (module, named) in &graph {
        let layer = layer_of(module, &layers);
        for named in named {
            let other = layer_of(named, &layers);
            if other != layer && !layers[layer].contains(other) {
                violations.push(format!("{module} ({layer}) names {named} ({other})"));
            }
        }
    }
    assert!(violations.is_empty(), "walls are broken: {violations:#?}");
}
