//! The repository as a tree of files, and as Cargo describes it. Knows no rule.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The folder that holds the workspace. Asked at run time: checkouts that share a target
/// directory share the compiled test, too.
pub fn root() -> PathBuf {
    let cli = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&cli)
        .ancestors()
        .nth(2)
        .expect("crates/cli lies two folders below the root")
        .to_owned()
}

/// The text at `path`.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below `folder`, build outputs left out, in order.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder entry is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All Rust files of the repository, the fuzz targets with them.
pub fn workspace_rust_files() -> Vec<PathBuf> {
    let files: Vec<_> = ["crates", "sim", "bench", "fuzz"]
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .collect();
    assert!(files.len() > 20, "the walk over the workspace found only {} files", files.len());
    files
}

/// The workspace's packages and their direct dependencies.
pub fn cargo_metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}
