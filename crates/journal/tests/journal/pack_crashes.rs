//! After a crash at any point of writing and removing packs: a finished pack is whole until its removal begins, a
//! removed pack does not come back, and the rest is garbage that can be removed.

use proptest::prelude::*;
use sennit_journal::{
    Container, Disk, Fault,
    disk::{FaultPlan, FaultyDisk},
    packs, remove_pack,
};

use crate::world::{Entry, World, body, config, walk, write_pack};

/// What is known of the packs 1 to 3.
#[derive(Default)]
struct Known {
    /// Finished, and what they hold; their removal was not begun.
    finished: Vec<(u32, Vec<Entry>)>,
    /// Removed for good.
    removed: Vec<u32>,
}

fn bodies(number: u32) -> Vec<Vec<u8>> {
    let long = [700_000, 1_200_000, 9000][number as usize - 1];
    vec![body(number.into(), 400), body(number.into(), long), body(number.into(), 30)]
}

fn remove(disk: &FaultyDisk, number: u32) -> Result<(), Fault> {
    let mut removal = remove_pack(disk, &config(), number)?;
    while !removal.step()? {}
    Ok(())
}

/// Makes three packs and removes two of them in between.
fn course(disk: &FaultyDisk, known: &mut Known) -> Result<(), Fault> {
    World::open(disk)?.write(1, b"the lane")?;
    for (number, removes) in [(1, None), (2, Some(1)), (3, Some(2))] {
        let (_, entries) = write_pack(disk, number, &bodies(number))?;
        known.finished.push((number, entries));
        if let Some(gone) = removes {
            known.finished.retain(|(number, _)| *number != gone);
            remove(disk, gone)?;
            known.removed.push(gone);
        }
    }
    Ok(())
}

fn check(disk: &FaultyDisk, known: &Known, context: &str) {
    let mut world = World::open(disk).unwrap_or_else(|fault| panic!("{context}: {fault}"));
    let listed = packs(disk, &config()).unwrap_or_else(|fault| panic!("{context}: {fault}"));
    for (number, entries) in &known.finished {
        let pack = listed.iter().find(|pack| pack.number == *number);
        assert!(pack.is_some_and(|pack| pack.is_whole), "{context}: pack {number} of {listed:?}");
        let (found, damage) = walk(&mut world.reader, Container::Pack(*number)).unwrap();
        assert!(found == *entries && damage.is_empty(), "{context}: pack {number}");
        for entry in entries {
            let bytes = world.reader.read(entry.position, entry.body.len()).unwrap();
            assert_eq!(bytes, entry.body, "{context}: pack {number}");
        }
    }
    for number in &known.removed {
        let comes_back = listed.iter().any(|pack| pack.number == *number);
        assert!(!comes_back, "{context}: pack {number} came back");
    }
    // A pack that says that it is whole is whole, whoever refers to it.
    for pack in listed.iter().filter(|pack| pack.is_whole) {
        let (_, damage) = walk(&mut world.reader, Container::Pack(pack.number)).unwrap();
        assert!(damage.is_empty(), "{context}: {pack:?}: {damage:?}");
    }
    // What nobody refers to goes, and the numbers can be had again.
    for pack in &listed {
        if !known.finished.iter().any(|(number, _)| *number == pack.number) {
            remove(disk, pack.number).unwrap();
        }
    }
    for number in (1..=3).filter(|number| !known.finished.iter().any(|held| held.0 == *number)) {
        assert!(write_pack(disk, number, &[body(9, 40)]).unwrap().0.is_whole, "{context}");
    }
    world.write(1, b"the lane goes on").unwrap();
}

/// Returns whether the course came to its end.
fn course_with_a_failing_call(nth: u64, seed: u64, plan: FaultPlan, pulls_the_plug: bool) -> bool {
    let disk = FaultyDisk::new(seed, FaultPlan { failing_call: nth, ..plan });
    let mut known = Known::default();
    let went = course(&disk, &mut known);
    if let Err(fault) = &went {
        assert!(matches!(fault, Fault::Io { .. }), "call {nth}: {fault}");
    }
    if pulls_the_plug {
        disk.crash()
    } else {
        disk.kill()
    }
    disk.set_plan(FaultPlan::default());
    check(&disk, &known, &format!("call {nth}, seed {seed}, plug pulled: {pulls_the_plug}"));
    went.is_ok()
}

#[test]
fn whichever_call_fails_finished_packs_stay_and_removed_ones_do_not_come_back() {
    for (pulls_the_plug, crash_keeps) in [(true, 500), (true, 0), (true, 1000), (false, 0)] {
        let plan = FaultPlan { crash_keeps, crash_tears: 300, ..Default::default() };
        let mut nth = 1;
        while !course_with_a_failing_call(nth, nth, plan, pulls_the_plug) {
            nth += 1;
        }
        assert!(nth > 25, "only {nth} calls");
    }
}

#[test]
fn whichever_call_of_a_removal_in_steps_fails_it_can_be_begun_again() {
    for (nth, crash_keeps) in (1..=4).flat_map(|nth| [0, 500, 1000].map(|keeps| (nth, keeps))) {
        let plan = FaultPlan { crash_keeps, ..Default::default() };
        let disk = FaultyDisk::new(nth, plan);
        World::open(&disk).unwrap();
        let mut known = Known::default();
        known.finished.push((1, write_pack(&disk, 1, &bodies(1)).unwrap().1));
        write_pack(&disk, 2, &[body(2, 17 << 20)]).unwrap();
        disk.set_plan(FaultPlan { failing_call: disk.calls() + nth, ..plan });
        let went = remove(&disk, 2);
        assert_eq!(went.is_ok(), nth == 4, "a cut, a removal, a sync");
        known.removed.extend(went.ok().map(|()| 2));
        disk.crash();
        disk.set_plan(FaultPlan::default());
        check(&disk, &known, &format!("call {nth}, keeps {crash_keeps}"));
    }
}

/// Wherever the power goes between frame, sync, last frame, sync and sync of the directory.
#[test]
fn a_last_frame_that_a_crash_kept_says_the_truth() {
    let mut whole = 0;
    for (seed, nth) in (0..100).flat_map(|seed| (1..=5).map(move |nth| (seed, nth))) {
        let plan = FaultPlan { crash_keeps: 700, ..Default::default() };
        let disk = FaultyDisk::new(seed, plan);
        World::open(&disk).unwrap();
        disk.set_plan(FaultPlan { failing_call: disk.calls() + nth, ..plan });
        write_pack(&disk, 1, &[body(1, 3000)]).unwrap_err();
        disk.crash();
        disk.set_plan(FaultPlan::default());
        let mut reader = World::open(&disk).unwrap().reader;
        if packs(&disk, &config()).unwrap().first().is_some_and(|pack| pack.is_whole) {
            let (found, damage) = walk(&mut reader, Container::Pack(1)).unwrap();
            assert_eq!((found.len(), damage), (1, vec![]), "seed {seed}, call {nth}");
            whole += 1;
        }
    }
    assert!(whole > 50, "{whole} of 500");
}

#[test]
fn a_pack_that_was_finished_survives_whatever_is_not_synced() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    World::open(&disk).unwrap();
    let (pack, _) = write_pack(&disk, 1, &bodies(1)).unwrap();
    disk.crash();
    assert_eq!(packs(&disk, &config()).unwrap(), [pack]);
}

#[test]
fn a_removal_that_a_crash_cut_short_can_be_begun_again() {
    let plan = FaultPlan { crash_keeps: 500, ..Default::default() };
    let disk = FaultyDisk::new(5, plan);
    World::open(&disk).unwrap();
    write_pack(&disk, 2, &[body(2, 17 << 20)]).unwrap();
    assert!(!remove_pack(&disk, &config(), 2).unwrap().step().unwrap());
    disk.crash();
    remove(&disk, 2).unwrap();
    disk.crash();
    assert_eq!(disk.list(&crate::world::directory()).unwrap(), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn whatever_a_crash_keeps_of_an_unfinished_pack_the_finished_ones_are_there(
        seed: u64,
        nth in 1..35u64,
        crash_keeps in 0..1000u32,
        crash_tears in 0..1000u32,
    ) {
        let plan = FaultPlan { crash_keeps, crash_tears, ..Default::default() };
        course_with_a_failing_call(nth, seed, plan, true);
    }
}
