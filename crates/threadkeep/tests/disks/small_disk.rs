//! A small file system of its own, to be filled.

use std::path::Path;
use std::process::Command;

/// A file system in memory; it is gone when this is dropped.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount; in CI that is a failure.
    pub(crate) fn mount(mebibytes: u32, test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "threadkeep-test"]).arg(folder.path());
        let mounted = command.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("SKIP {test}: no right to mount a small file system");
            assert!(std::env::var_os("CI").is_none(), "{test} was skipped");
        }
        mounted.then_some(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}
