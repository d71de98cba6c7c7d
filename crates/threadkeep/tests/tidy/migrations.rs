//! The schema only grows, and by the same steps on both engines.

use super::repository::{assert_none, files, text};

const FOLDER: &str = "crates/threadkeep/migrations";

/// Every migration with the BLAKE3 of its text. A store refuses a text that differs from the one it was made by, so one that
/// has been released is never edited: write the next one. Until then its line here is brought up to date with it.
const PINNED: &[(&str, &str)] = &[
    ("postgres/0001_log.sql", "9aac81c78ea25efee6c0066cce86b133bb032f262d205395d734b0297fe5db61"),
    ("postgres/0002_seals.sql", "251e8183ed92b32cd4dca14cd7ccc7a4dac2cbc112d45072937026707adedfcc"),
    ("postgres/0003_redactions.sql", "8f07cc85d715ddc0fef5f7e35a212ef22e322bc37fd69fc29f318cddef6aa1e4"),
    ("postgres/0004_search.sql", "fe1382e42be21dc6021926ce6742382dd1bc6409b9301b189369bdcae89d3059"),
    ("postgres/0005_state.sql", "28449b5b152fe8f9e5ce4aad9eba442864321a83ff1b3624f0b0e1b1e02ba58f"),
    ("postgres/0006_work.sql", "35c9dfede153f38670aceac61c78585d8bccb0c5b16a5b1749329e02a75e48c3"),
    ("postgres/0007_steering.sql", "1ec3be1d14337bf13763ae8873bf1d8c8dc11d5227e68f95bda904ec6409feae"),
    ("postgres/0008_receipts.sql", "4d875d462b437e1313d1f0c61380fd61c94e6fb6cba61fa784adb4153167b229"),
    ("postgres/0009_retention.sql", "49d31bbb483fd4bddb2908fde2e74ad786249dff639cbad5e168cbce0ecdf558"),
    ("postgres/0010_dictionary.sql", "27f4b1c2b81a978e8a4e29eebb458c9c7360c9a4d2796f6bc5a4366f05caaf6c"),
    ("sqlite/0001_log.sql", "85aa73d96985edadba97a97a6e73141f3eee05d305efcbe73621584c4e7d42cf"),
    ("sqlite/0002_seals.sql", "a97647a06e36d99aaa6b7a74c1089ba3552193956a12f4085c4ac13948867975"),
    ("sqlite/0003_redactions.sql", "32510f72f386c7ca9c70ebc8afab8279edac6a36589c4a6028d57456751817c6"),
    ("sqlite/0004_search.sql", "794c60cc46fcddb484056ac1ce3e24a4b425bf37ecb1615b1889275047861f77"),
    ("sqlite/0005_state.sql", "b3d786c491f92adbba212cfa0618d27057af75fc0d5533347637154d42d1737c"),
    ("sqlite/0006_work.sql", "a9046536d162b8723cf664f55cee86d95cc73a85253c1b3dd61ab2ade674fb38"),
    ("sqlite/0007_steering.sql", "d33b1c81c1b15ea07312da4c13803bfa90b2e3be1f28acc01d797ea7e020c5ca"),
    ("sqlite/0008_receipts.sql", "c8808c007e5c8087d9376a4dbe024d1d6c3c700e2130fe71c4fca6de31db90bd"),
    ("sqlite/0009_retention.sql", "3f1298cd623f847e7f947e11bcbb08d659bf34de01e18365450f50e2cca98aec"),
    ("sqlite/0010_dictionary.sql", "27f4b1c2b81a978e8a4e29eebb458c9c7360c9a4d2796f6bc5a4366f05caaf6c"),
];

#[test]
fn both_engines_have_the_same_steps() {
    assert_eq!(steps("sqlite"), steps("postgres"));
    for (index, step) in steps("sqlite").iter().enumerate() {
        assert!(
            step.starts_with(&format!("{:04}_", index + 1)) && step.ends_with(".sql"),
            "{step}: its number is {}",
            index + 1
        );
    }
}

#[test]
fn no_released_step_was_edited() {
    let found = files(FOLDER).into_iter().filter_map(|file| {
        let name = file.trim_start_matches(FOLDER).trim_start_matches('/').to_owned();
        let hash = blake3::hash(text(&file).unwrap().as_bytes()).to_hex().to_string();
        let is_pinned = PINNED.contains(&(name.as_str(), hash.as_str()));
        (!is_pinned).then(|| format!("(\"{name}\", \"{hash}\"),"))
    });
    assert_none(found, "these differ from what is pinned");
    assert_eq!(files(FOLDER).len(), PINNED.len(), "a pinned migration is gone");
}

#[test]
fn the_library_carries_every_step() {
    let code = text("crates/threadkeep/src/db/migrations.rs").unwrap();
    for engine in ["sqlite", "postgres"] {
        let named = |step: &String| code.contains(&format!("migrations/{engine}/{step}\""));
        let forgotten = steps(engine).into_iter().filter(|step| !named(step));
        assert_none(forgotten, "the lists of migrations lack these");
    }
}

fn steps(engine: &str) -> Vec<String> {
    let folder = format!("{FOLDER}/{engine}/");
    files(&folder).iter().map(|file| file.trim_start_matches(&folder).to_owned()).collect()
}
