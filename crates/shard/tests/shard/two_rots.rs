//! Rot of any two blocks of a shard's files: a start is refused only if both are of the journal, and otherwise
//! behaves as with one. `SENNIT_TORTURE_SECONDS` tests every pair; otherwise random ones, which `SENNIT_ROT_SEED`
//! repeats.
#![expect(clippy::print_stderr, reason = "the seed, and the pair that fails")]

use std::{
    env,
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    thread,
};

use sennit_journal::{BLOCK_BYTES, Disk, disk::MemoryDisk, verify};
use sennit_shard::{RecoverError, Repaired, find_references, repair};

use crate::{
    broker::{Broker, NOW, SEGMENT_BYTES},
    rot::Story,
};

/// Pairs that are drawn.
const DRAWN: usize = 400;

/// A block of a file.
type Block = (PathBuf, usize);

/// What fails by itself says nothing of the pair.
struct SaidIfItPanics<'a>(&'a str);

impl Drop for SaidIfItPanics<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// All blocks that hold something.
fn blocks(story: &Story) -> Vec<Block> {
    let of_file = |path: PathBuf| {
        let bytes = story.disk.bytes_of(&path).unwrap();
        let held = bytes.chunks(BLOCK_BYTES).enumerate();
        let held = held.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        held.map(|(block, _)| (path.clone(), block)).collect::<Vec<_>>()
    };
    story.files().into_iter().flat_map(of_file).collect()
}

/// The pairs to try: all, or some.
fn pairs(count: usize) -> Vec<(usize, usize)> {
    let all = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    if env::var_os("SENNIT_TORTURE_SECONDS").is_some() {
        return all.collect();
    }
    let seed = env::var("SENNIT_ROT_SEED").map(|seed| seed.parse().unwrap());
    let mut random = seed.unwrap_or_else(|_| RandomState::new().hash_one(0_u8));
    eprintln!("SENNIT_ROT_SEED={random}");
    let mut all: Vec<_> = all.collect();
    let draw = |_| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        all.swap_remove((random >> 33) as usize % all.len())
    };
    (0..DRAWN).map(draw).collect()
}

fn write(disk: &MemoryDisk, (path, block): &Block, bytes: &[u8]) {
    let mut file = disk.bytes_of(path).unwrap();
    file[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].copy_from_slice(bytes);
    disk.insert_file(path, file);
}

fn read(disk: &MemoryDisk, (path, block): &Block) -> Option<Vec<u8>> {
    let file = disk.bytes_of(path)?;
    Some(file[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].to_vec())
}

/// Whether the pair takes the last frame with records and the only one that says that it was durable: that
/// cannot be told from a write that was torn.
fn looks_torn(story: &Story, [(one, first), (other, second)]: [&Block; 2]) -> bool {
    let newest = story.newest();
    let bytes = story.disk.bytes_of(&newest).unwrap();
    let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
    let frames = blocks.filter(|(_, block)| block.starts_with(b"SNFR")).map(|(block, _)| block);
    let frames: Vec<_> = frames.collect();
    let [.., last, mark] = frames[..] else { panic!("{frames:?}") };
    *one == newest && *other == newest && *first >= last && *second == mark
}

#[test]
fn the_headers_of_the_two_newest_segments_cost_nothing_though_the_replay_begins_in_the_last() {
    let story = Story::told();
    let disk = story.copy_of(&story.disk);
    for path in story.two_newest() {
        write(&disk, &(path, 0), &[0; BLOCK_BYTES]);
    }
    let (lost, first) = story.take_all_with(&disk, "two headers", &[]);
    let (still_lost, _) = story.take_all_with(&disk, "two headers, once more", &[first]);
    assert_eq!((lost, still_lost), (0, 0));
}

#[test]
fn any_two_blocks_that_rot_cost_what_lay_in_them_and_nothing_else() {
    let story = Story::told();
    let blocks = blocks(&story);
    let (mut opened, mut refused) = (0, 0);
    for (one, other) in pairs(blocks.len()) {
        let pair = [&blocks[one], &blocks[other]];
        if looks_torn(&story, pair) {
            continue;
        }
        let problem = format!("{pair:?}");
        let _said = SaidIfItPanics(&problem);
        let disk = story.copy_of(&story.disk);
        pair.iter().for_each(|block| write(&disk, block, &[0; BLOCK_BYTES]));
        let rotten = story.copy_of(&disk);
        let config = Broker::config(SEGMENT_BYTES);
        match find_references(&disk, config.clone(), NOW) {
            Ok(_) => opened += 1,
            Err(RecoverError::Checkpoint { .. }) => {
                let is_pack = |(path, _): &&Block| path.extension().is_some_and(|e| e == "pack");
                assert!(!pair.iter().any(is_pack), "{problem}: a pack holds no checkpoint");
                assert!(repair(&disk, &config, NOW).is_err(), "{problem}");
                refused += 1;
                continue;
            }
            Err(error) => panic!("{problem}: {error}"),
        }
        let (lost, first) = story.take_all_with(&disk, &problem, &[]);
        let again = format!("{problem}, once more");
        let (still_lost, second) = story.take_all_with(&disk, &again, &[first]);
        assert_eq!(still_lost, lost, "{problem}");
        // What can be read again after all brings back no offset.
        let mut later = vec![first, second];
        for block in pair {
            if read(&disk, block).is_some_and(|now| now.iter().all(|byte| *byte == 0)) {
                write(&disk, block, &read(&story.disk, block).unwrap());
                let healed = format!("{problem}, healed {block:?}");
                later.push(story.take_all_with(&disk, &healed, &later).1);
            }
        }
        let repaired = repair(&rotten, &config, NOW).unwrap();
        for path in &repaired.to_quarantine {
            rotten.remove(path).unwrap();
        }
        assert_eq!(verify(&rotten, &config).unwrap().damage, [], "{problem}: {repaired:?}");
        assert_eq!(repair(&rotten, &config, NOW).unwrap(), Repaired::default(), "{problem}");
        let left = story.take_all_with(&rotten, &format!("{problem}, repaired"), &[]);
        assert_eq!(left.0, lost, "{problem}, repaired");
    }
    assert!(opened > refused, "{opened} starts, {refused} refused");
}
