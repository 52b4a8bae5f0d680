//! A data directory of format 2 belongs to a node of a cluster and keeps that through its life, as one of format 1
//! keeps that it does not.

use std::{fs, path::Path};

use proptest::prelude::*;
use sennit_journal::{DataDirectory, DirectorySettings, Fault, NODE_ID_MAX, NodeIdentity};

const ALONE: DirectorySettings = DirectorySettings {
    shards: 2,
    segment_bytes: 64 << 20,
    incarnation: 7_263_548_190_345,
    node: None,
};
const NODE: NodeIdentity =
    NodeIdentity { cluster: 16_045_690_984_503_098_046, id: 3, start_epoch: 0, peers: 0 };

/// FORMAT as each format is written, kept as files.
const GOLDEN: [(&str, Option<NodeIdentity>); 2] = [
    (include_str!("../golden/directories/FORMAT.v1"), None),
    (
        include_str!("../golden/directories/FORMAT.v2"),
        Some(NodeIdentity { start_epoch: 12, ..NODE }),
    ),
];

fn of_node(id: u16) -> DirectorySettings {
    DirectorySettings { node: Some(NodeIdentity { id, ..NODE }), ..ALONE }
}

fn format_of(path: &Path) -> String {
    fs::read_to_string(path.join("FORMAT")).unwrap()
}

#[test]
fn both_formats_are_read_and_written_as_ever() {
    for (text, node) in GOLDEN {
        let settings = DirectorySettings { node, ..ALONE };
        assert_eq!(DirectorySettings::parse(text, Path::new("data")).unwrap(), settings);
        assert_eq!(settings.to_string(), text);
    }
}

#[test]
fn the_examples_of_the_page_are_the_golden_files() {
    let page = include_str!("../../FORMAT.md");
    for (text, _) in GOLDEN {
        assert!(page.contains(&format!("```\n{text}```")), "the page has no example {text}");
    }
}

#[test]
fn a_directory_of_a_node_says_itself_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataDirectory::open(folder.path(), of_node(3)).unwrap());
    assert!(format_of(folder.path()).contains("format = 2\n"));
    // Another random number for the cluster is drawn at each start with the flag.
    let drawn = NodeIdentity { cluster: 1, ..NODE };
    for wanted in [ALONE, DirectorySettings { node: Some(drawn), ..ALONE }] {
        let directory = DataDirectory::open(folder.path(), wanted).unwrap();
        assert_eq!(directory.settings().node, Some(NODE));
    }
    let directory = DataDirectory::open_existing(folder.path()).unwrap();
    assert_eq!(directory.settings().node, Some(NODE));
}

#[test]
fn a_directory_is_refused_to_a_node_to_which_it_does_not_belong_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (alone, node) = (folder.path().join("alone"), folder.path().join("node"));
    drop(DataDirectory::open(&alone, ALONE).unwrap());
    drop(DataDirectory::open(&node, of_node(3)).unwrap());
    let before = [format_of(&alone), format_of(&node)];
    let refused = DataDirectory::open(&alone, of_node(4));
    assert!(matches!(refused, Err(Fault::NotOfACluster { wanted: 4, .. })), "{refused:?}");
    let refused = DataDirectory::open(&node, of_node(4));
    assert!(matches!(refused, Err(Fault::OtherNode { found: 3, wanted: 4, .. })), "{refused:?}");
    assert_eq!([format_of(&alone), format_of(&node)], before);
}

#[test]
fn each_start_of_a_node_has_an_epoch_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for epoch in 1..=3 {
        let mut directory = DataDirectory::open(folder.path(), of_node(3)).unwrap();
        directory.begin_start(0).unwrap();
        let raised = Some(NodeIdentity { start_epoch: epoch, ..NODE });
        assert_eq!(directory.settings().node, raised);
        drop(directory);
        // Looking at it is no start.
        let directory = DataDirectory::open_existing(folder.path()).unwrap();
        assert_eq!(directory.settings().node, raised);
    }
}

#[test]
fn a_node_that_has_had_peers_is_not_served_without_them() {
    let folder = tempfile::tempdir().unwrap();
    for epoch in 1..=2 {
        let mut directory = DataDirectory::open(folder.path(), of_node(3)).unwrap();
        directory.begin_start(2).unwrap();
        let node = NodeIdentity { start_epoch: epoch, peers: 2, ..NODE };
        assert_eq!(directory.settings().node, Some(node));
    }
    let text = format_of(folder.path());
    assert!(text.ends_with("start_epoch = 2\npeers = 2\n"), "{text}");
    let mut directory = DataDirectory::open(folder.path(), ALONE).unwrap();
    let refused = directory.begin_start(0);
    assert!(matches!(refused, Err(Fault::NeedsPeers { node: 3, peers: 2, .. })), "{refused:?}");
    assert_eq!(format_of(folder.path()), text);
}

#[test]
fn a_start_changes_nothing_in_a_directory_of_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let mut directory = DataDirectory::open(folder.path(), ALONE).unwrap();
    directory.begin_start(2).unwrap();
    assert_eq!(format_of(folder.path()), ALONE.to_string());
}

#[test]
fn a_node_has_a_possible_id_or_no_directory() {
    for id in [0, NODE_ID_MAX + 1] {
        let folder = tempfile::tempdir().unwrap();
        let refused = DataDirectory::open(folder.path(), of_node(id)).unwrap_err();
        assert!(refused.to_string().contains(&format!("node {id}; 1 to 4095")), "{refused}");
        assert!(!folder.path().join("FORMAT").exists());
        let read = DirectorySettings::parse(&of_node(id).to_string(), folder.path()).unwrap_err();
        assert!(matches!(read, Fault::NotADataDirectory { .. }), "{read}");
    }
}

proptest! {
    /// A line that is missing, or of which a part is, is refused and not guessed.
    #[test]
    fn a_format_file_that_was_cut_is_refused(end in 0..150_usize) {
        let text = of_node(3).to_string();
        let cut = &text[..end.min(text.len())];
        let read = DirectorySettings::parse(cut, Path::new("data"));
        // The last number has one digit; without the line's end it is still whole.
        let is_whole = cut.trim_end() == text.trim_end();
        prop_assert_eq!(read.is_ok(), is_whole);
    }

    /// Any text is read or refused.
    #[test]
    fn a_format_file_of_any_text_is_read_or_refused(
        lines in prop::collection::vec("(format|shards|segment_bytes|incarnation|cluster|node|start_epoch) = [0-9]{1,21}", 0..9),
    ) {
        let text = format!("sennit data directory\nformat = 2\n{}\n", lines.join("\n"));
        if let Ok(settings) = DirectorySettings::parse(&text, Path::new("data")) {
            let again = DirectorySettings::parse(&settings.to_string(), Path::new("data"));
            prop_assert_eq!(again.unwrap(), settings);
        }
    }
}
