//! The modules of a crate do not depend on each other in circles. A scan of the text, not of the syntax: it reads
//! `crate::NAME`, follows the re-exports of the crate's root, and ignores comments and tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    tree::{read, root, rust_files},
    walls::Graph,
};

/// `text` without comments and without the tests at its end.
pub fn code_of(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The name `text` begins with, or nothing.
pub fn name_at(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first name of each path that follows `prefix` in `code`; a group in braces has many.
fn first_names(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c)) {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(name_at(rest));
            continue;
        };
        names.push(name_at(group));
        let mut depth = 1;
        for (index, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => names.push(name_at(&group[index + 1..])),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Which module each name comes from that the crate's root brings in or re-exports.
fn reexports(root_code: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for module in modules {
        for name in first_names(root_code, &format!("{module}::")) {
            from.insert(name, module.clone());
        }
    }
    from
}

/// The modules at the top of the crate in `source` and which of the others each one names.
fn module_graph(source: &Path) -> Graph {
    let files = rust_files(source);
    let module_of = |path: &Path| -> Option<String> {
        let first = path.strip_prefix(source).ok()?.components().next()?;
        let name = first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        (!["lib", "main", "bin", "tests"].contains(&name.as_str())).then_some(name)
    };
    let modules: BTreeSet<_> = files.iter().filter_map(|path| module_of(path)).collect();
    let root_code: String = ["lib.rs", "main.rs"]
        .iter()
        .filter_map(|name| fs::read_to_string(source.join(name)).ok())
        .map(|text| code_of(&text))
        .collect();
    let reexports = reexports(&root_code, &modules);

    let mut graph: Graph = modules.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for path in &files {
        let Some(module) = module_of(path) else { continue };
        let inside = path.strip_prefix(source).unwrap_or(path);
        let of_tests = |part: &Path| part == Path::new("tests") || part == Path::new("tests.rs");
        if inside.iter().any(|part| of_tests(Path::new(part))) {
            continue;
        }
        let code = code_of(&read(path));
        let mut names = first_names(&code, "crate::");
        if path.parent() == Some(source) || inside.ends_with("mod.rs") {
            names.extend(first_names(&code, "super::"));
        }
        for name in names {
            let named = if modules.contains(&name) { Some(&name) } else { reexports.get(&name) };
            if let Some(named) = named.filter(|named| **named != module) {
                graph.entry(module.clone()).or_default().insert(named.clone());
            }
        }
    }
    graph
}

/// A circle in `graph`, as the names along it, if there is one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|name| circle_from(graph, name, &mut Vec::new(), &mut done))
}

fn circle_from(
    graph: &Graph,
    name: &str,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|step| step == name) {
        return Some(path[start..].to_vec());
    }
    if done.contains(name) {
        return None;
    }
    path.push(name.to_owned());
    let found = graph[name].iter().find_map(|next| circle_from(graph, next, path, done));
    path.pop();
    done.insert(name.to_owned());
    found
}

#[test]
fn a_circle_is_found_and_a_diamond_is_none() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        edges.iter().map(|&(name, to)| (name.to_owned(), owned(to))).collect()
    };
    let diamond = graph(&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &[])]);
    assert_eq!(circle(&diamond), None);
    let turning = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]);
    assert_eq!(circle(&turning), Some(vec!["b".to_owned(), "c".to_owned()]));
}

#[test]
fn names_are_found_in_paths_and_in_groups() {
    let code = "use crate::{\n  a::X,\n  b::{Y, Z},\n  Name,\n};\nuse crate::c;\nother_crate::e";
    assert_eq!(first_names(code, "crate::"), ["a", "b", "Name", "c"]);
    let modules = BTreeSet::from(["batch".to_owned()]);
    let from = reexports("mod batch;\npub use batch::{Batch, Other};", &modules);
    assert_eq!(from.keys().collect::<Vec<_>>(), ["Batch", "Other"]);
}

#[test]
fn comments_and_tests_do_not_count() {
    let text = "//! [`crate::a`]\nfn b() {} // crate::c\n#[cfg(test)]\nmod tests { use crate::d; }";
    assert!(first_names(&code_of(text), "crate::").is_empty());
}

/// Looks at the graph of each crate: it has no circle, and the scan has found more than so many edges.
pub fn no_crate_turns_in_circles(graph_of: impl Fn(&Path) -> Graph, edges_min: usize) {
    let folders = fs::read_dir(root().join("crates")).expect("crates/ is readable");
    let mut crates: Vec<_> = folders.map(|entry| entry.expect("readable").path()).collect();
    crates.extend([root().join("sim"), root().join("bench")]);
    let mut edges = 0;
    let mut circles = Vec::new();
    for path in crates {
        let graph = graph_of(&path.join("src"));
        edges += graph.values().map(BTreeSet::len).sum::<usize>();
        circles.extend(circle(&graph).map(|names| (path, names)));
    }
    assert!(circles.is_empty(), "these name each other: {circles:#?}");
    assert!(edges > edges_min, "the scan found only {edges} edges");
}

#[test]
fn modules_do_not_turn_in_circles() {
    no_crate_turns_in_circles(module_graph, 5);
}
