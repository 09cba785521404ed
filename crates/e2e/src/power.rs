//! A disk whose power can be cut: ext4 on a loop device. Root only.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// Tells ext4 to stop at once: `_IOR('X', 125, __u32)`.
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Without writing the journal out: what was not synced is gone.
const NO_LOG_FLUSH: u32 = 2;

/// A mounted file system of our own. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
    is_mounted: bool,
    _directory: TempDir,
}

impl Disk {
    pub fn make() -> Result<Disk> {
        let directory = tempfile::tempdir()?;
        let image = directory.path().join("image");
        let mount = directory.path().join("mount");
        std::fs::create_dir(&mount)?;
        File::create(&image)?.set_len(64 * 1024 * 1024)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let mut disk = Disk { image, mount, is_mounted: false, _directory: directory };
        disk.mount()?;
        Ok(disk)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// From here on nothing reaches the disk, and what had not been synced never will.
    pub fn cut_power(&self) -> Result<()> {
        let root = File::open(&self.mount)?;
        let flags = NO_LOG_FLUSH;
        // SAFETY: the descriptor is open, and the call reads one u32 that outlives it.
        #[allow(unsafe_code, reason = "there is no safe way to this call")]
        let done = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flags) };
        ensure!(done == 0, "cannot cut the power: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// The machine starts again. Nobody may have a file open.
    pub fn power_up(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> Result<()> {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.mount))?;
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        run(Command::new("umount").arg(&self.mount))?;
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.unmount();
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
