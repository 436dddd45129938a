//! Mounts by the descriptor-based calls (fsopen and its kin, Linux 5.2): a bad
//! option is named by the kernel itself, and nothing is in the namespace
//! before everything is right.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::BedError;

/// On every mount of ours.
const ALWAYS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Options of a mount, taken apart.
#[derive(Debug)]
pub struct Options {
    text: String,
    attributes: MountAttrFlags,
    /// For the filesystem, in order: a key with a value, or a flag.
    settings: Vec<(String, Option<String>)>,
}

impl Options {
    /// Takes apart what would stand in fstab.
    pub fn parse(text: &str) -> Result<Self, BedError> {
        let mut attributes = ALWAYS;
        let mut settings = Vec::new();
        for option in text.split(',').map(str::trim).filter(|o| !o.is_empty()) {
            match option {
                "defaults" | "rw" | "nosuid" | "nodev" | "noexec" | "relatime" => {}
                "noatime" => attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME,
                "strictatime" => attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME,
                "nodiratime" => attributes |= MountAttrFlags::MOUNT_ATTR_NODIRATIME,
                "suid" | "dev" | "exec" => {
                    return Err(BedError::MountOption {
                        option: option.to_owned(),
                        why: "not allowed, an image is always nosuid,nodev,noexec".into(),
                    });
                }
                _ => {
                    let (key, value) = match option.split_once('=') {
                        Some((key, value)) => (key, Some(value.to_owned())),
                        None => (option, None),
                    };
                    settings.push((key.to_owned(), value));
                }
            }
        }
        Ok(Self {
            text: text.to_owned(),
            attributes,
            settings,
        })
    }
}

/// A mounted filesystem.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
}

impl Mount {
    /// Mounts the ext4 filesystem on `device` at `point`, gives its root
    /// directory to `owner` and writes that out.
    pub fn new(
        device: &str,
        options: &Options,
        owner: Option<(u32, u32)>,
        point: &Path,
    ) -> Result<Self, BedError> {
        let fail = |why: String| BedError::Mount {
            device: device.to_owned(),
            options: options.text.clone(),
            why,
        };
        let call = |call: &'static str| move |errno: Errno| fail(format!("{call}: {errno}"));
        let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC).map_err(call("fsopen"))?;
        fsconfig_set_string(&context, "source", device).map_err(call("source"))?;
        for (key, value) in &options.settings {
            let set = match value {
                Some(value) => fsconfig_set_string(&context, key, value),
                None => fsconfig_set_flag(&context, key),
            };
            set.map_err(|errno| BedError::MountOption {
                option: value
                    .as_ref()
                    .map_or_else(|| key.clone(), |value| format!("{key}={value}")),
                why: said(&context, errno),
            })?;
        }
        fsconfig_create(&context).map_err(|errno| fail(said(&context, errno)))?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, options.attributes)
            .map_err(|errno| fail(said(&context, errno)))?;
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(
                &mount,
                "",
                Some(uid),
                Some(gid),
                rustix::fs::AtFlags::EMPTY_PATH,
            )
            .map_err(call("chown"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&mount, ".", flags, Mode::empty()).map_err(call("open"))?;
        rustix::fs::syncfs(&root).map_err(call("syncfs"))?;
        move_mount(
            &mount,
            "",
            CWD,
            point,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .map_err(call("move_mount"))?;
        Ok(Self {
            point: point.to_owned(),
        })
    }

    /// Unmounts it, or gives it back with the reason.
    pub fn umount(self) -> Result<(), (Self, BedError)> {
        match rustix::mount::unmount(&self.point, UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(errno) => {
                let error = BedError::Umount {
                    path: self.point.clone(),
                    reason: errno.into(),
                };
                Err((self, error))
            }
        }
    }

    /// Unmounts it; if it is busy, takes it out of the tree at least, so that
    /// it goes with its last user.
    pub fn detach(self) {
        if let Err((mount, _)) = self.umount() {
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
            // Fails only where it cannot be seen; it goes with the namespace.
            let _ = rustix::mount::unmount(&mount.point, flags);
        }
    }
}

/// Mounts a small tmpfs over the directory `over`.
pub fn tmpfs(over: &OwnedFd) -> io::Result<()> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", "64k"), ("nr_inodes", "256"), ("mode", "0755")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, ALWAYS)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", over, "", flags)?;
    Ok(())
}

/// What the kernel said about the last failure on `context`, else the errno.
fn said(context: &OwnedFd, errno: Errno) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0_u8; 1024];
    // One message a read, each after a letter for its kind and a space.
    if let Ok(fd) = context.as_fd().try_clone_to_owned() {
        let mut file = File::from(fd);
        while let Ok(length) = file.read(&mut buffer) {
            if length == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&buffer[..length]);
            messages.push(text.get(2..).unwrap_or_default().trim().to_owned());
        }
    }
    if messages.is_empty() {
        return io::Error::from(errno).to_string();
    }
    format!("{} ({errno})", messages.join("; "))
}
