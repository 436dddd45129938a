//! A loop device that clears itself: found, attached and released by ioctl.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::BedError;

/// `LOOP_CTL_GET_FREE` of linux/loop.h.
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
/// `LOOP_CONFIGURE` of linux/loop.h.
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How often another process may snatch the device that was free.
const ATTEMPTS: u32 = 64;

/// `struct loop_config` of linux/loop.h with `struct loop_info64` inside.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 8 + 232 + 64);

/// An attached loop device. Holds it until it is released.
#[derive(Debug)]
pub struct LoopDevice {
    name: String,
    /// What sysfs calls the image: tells it from the next one on this number.
    backing: String,
    holder: Option<File>,
}

impl LoopDevice {
    /// Attaches an image, or another device, to a free loop device with
    /// autoclear and, where what lies below can, direct I/O.
    pub fn attach(image: &impl AsFd) -> Result<Self, BedError> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .map_err(|reason| BedError::NoLoopDriver { reason })?;
        for _ in 0..ATTEMPTS {
            let number = get_free(&control).map_err(|error| BedError::NoFreeLoop {
                why: format!("LOOP_CTL_GET_FREE: {error}"),
            })?;
            let name = format!("loop{number}");
            let path = format!("/dev/{name}");
            let device = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| BedError::NoFreeLoop {
                    why: format!("{path}: {error}"),
                })?;
            match configure(&device, image) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => continue,
                Err(reason) => {
                    return Err(BedError::Attach {
                        device: path,
                        reason,
                    });
                }
            }
            // Hold it for reading only: kernels without BLK_DEV_WRITE_MOUNTED
            // refuse to mount what somebody has open for writing.
            let holder = File::open(&path).map_err(|reason| BedError::Attach {
                device: path,
                reason,
            })?;
            drop(device);
            return Ok(Self {
                backing: backing_file(&name).unwrap_or_default(),
                name,
                holder: Some(holder),
            });
        }
        Err(BedError::NoFreeLoop {
            why: format!("{ATTEMPTS} times another process took the free one"),
        })
    }

    /// Its name below /sys/block.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another on top of it, which keeps it attached.
    pub fn stack(&self) -> Result<Self, BedError> {
        let path = self.path();
        let below = OpenOptions::new().read(true).write(true).open(&path);
        let below = below.map_err(|reason| BedError::Attach {
            device: path,
            reason,
        })?;
        Self::attach(&below)
    }

    /// Its path below /dev.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Whether it does direct I/O on the image.
    pub fn direct_io(&self) -> bool {
        let file = format!("/sys/block/{}/loop/dio", self.name);
        fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
    }

    /// Lets it go: the kernel clears it once nothing else uses it.
    pub fn release(&mut self) {
        self.holder = None;
    }

    /// Whether its image is still attached to it.
    pub fn is_attached(&self) -> bool {
        backing_file(&self.name).is_some_and(|now| now == self.backing)
    }
}

/// The name of the image that is attached to a loop device, if one is.
fn backing_file(name: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

fn get_free(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and touches no memory of
    // ours; the descriptor is open for the length of the call.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

fn configure(device: &File, image: &impl AsFd) -> io::Result<()> {
    let config = LoopConfig {
        fd: image.as_fd().as_raw_fd() as u32,
        // The kernel's choice.
        block_size: 0,
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one struct loop_config, whose layout
    // LoopConfig has, from a pointer that is valid for the length of the call.
    let result = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            LOOP_CONFIGURE,
            std::ptr::from_ref(&config),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
