//! How much memory do NVIDIA's devices use, and how busy are they?
//!
//! The answer comes from NVML, whose library is opened at run time. Without that library or a device there is no answer,
//! and never a zero.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::sync::Arc;

/// Where drivers put the library; the name without a version is there only where programs are built.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Which of the machine's devices a program sees, in which order (CUDA's variable).
pub const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// What one device says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceStatus {
    /// The agent's number of it.
    pub device: u32,
    /// Its own name, which no other device has.
    pub uuid: String,
    /// Memory in use by anybody, in bytes; none if it is not known.
    pub memory_used: Option<u64>,
    /// All of its memory, in bytes; none if it is not known.
    pub memory_total: Option<u64>,
    /// Part of the driver's last sample period (up to 1 s) in which it ran anything, 0 to 1; none if it is not known.
    pub utilisation: Option<f64>,
}

/// One entry of [`VISIBLE_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// By place on the bus.
    Index(u32),
    /// By (the beginning of) its UUID.
    Uuid(String),
}

/// The devices that variants run on, with their memory and utilisation. Without a library there are none.
#[derive(Clone, Default)]
pub struct Devices(Option<Arc<Opened>>);

struct Opened {
    nvml: Nvml,
    names: Vec<Name>,
}

/// Why nothing is known of the devices.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// The library is not there, or no driver is behind it.
    #[error("{LIBRARY}: {0}")]
    Library(NvmlError),
    /// The library does not count the devices.
    #[error("{0}")]
    Count(NvmlError),
}

impl Devices {
    /// The first `count` of the devices that `visible` (the value of [`VISIBLE_VARIABLE`]) lets this process see. CUDA
    /// numbers them by their place on the bus, as NVML does, if `CUDA_DEVICE_ORDER` is `PCI_BUS_ID` or all are alike.
    ///
    /// # Errors
    /// [`DevicesError`] by cause.
    pub fn open(visible: Option<&str>, count: u32) -> Result<Self, DevicesError> {
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init().map_err(DevicesError::Library)?;
        let mut names = match visible {
            Some(list) => names(list),
            None => (0..nvml.device_count().map_err(DevicesError::Count)?).map(Name::Index).collect(),
        };
        names.truncate(count as usize);
        Ok(Self(Some(Arc::new(Opened { nvml, names }))))
    }

    /// What each device says now; may take some milliseconds.
    #[must_use]
    pub fn read_all(&self) -> Vec<DeviceStatus> {
        let Some(opened) = &self.0 else { return Vec::new() };
        (0..).zip(&opened.names).filter_map(|(device, name)| opened.read(device, name).ok()).collect()
    }

    /// The name of the model of a device, for example `Tesla T4`; `None` if it is not known.
    #[must_use]
    pub fn name(&self, device: u32) -> Option<String> {
        let opened = self.0.as_ref()?;
        opened.find(opened.names.get(device as usize)?).ok()?.name().ok()
    }

    /// The version of the driver; `None` if it is not known.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        self.0.as_ref()?.nvml.sys_driver_version().ok()
    }
}

impl Opened {
    fn find(&self, name: &Name) -> Result<Device<'_>, NvmlError> {
        match name {
            Name::Index(index) => self.nvml.device_by_index(*index),
            Name::Uuid(uuid) => self.nvml.device_by_uuid(uuid.as_str()),
        }
    }

    fn read(&self, number: u32, name: &Name) -> Result<DeviceStatus, NvmlError> {
        let device = self.find(name)?;
        let memory = device.memory_info().ok();
        Ok(DeviceStatus {
            device: number,
            uuid: device.uuid()?,
            memory_used: memory.as_ref().map(|m| m.used),
            memory_total: memory.as_ref().map(|m| m.total),
            utilisation: device.utilization_rates().ok().map(|u| f64::from(u.gpu) / 100.0),
        })
    }
}

/// The devices of such a list; CUDA sees none from the first that it cannot read on.
fn names(list: &str) -> Vec<Name> {
    let name = |text: &str| match text.trim() {
        uuid if uuid.starts_with("GPU-") || uuid.starts_with("MIG-") => Some(Name::Uuid(uuid.to_owned())),
        index => index.parse().ok().map(Name::Index),
    };
    list.split(',').map_while(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_read_as_cuda_reads_them() {
        let uuid = |text: &str| Name::Uuid(text.into());
        assert_eq!(names("2, 0"), [Name::Index(2), Name::Index(0)]);
        assert_eq!(names("GPU-8f6c,1"), [uuid("GPU-8f6c"), Name::Index(1)]);
        assert_eq!(names("0,-1,1"), [Name::Index(0)]);
        assert_eq!(names(""), []);
    }

    #[test]
    fn devices_are_unknown_without_the_nvml_library() {
        assert_eq!(Devices::default().read_all(), []);
        assert_eq!((Devices::default().name(0), Devices::default().driver_version()), (None, None));
        match Devices::open(None, 1) {
            Err(error) => assert!(error.to_string().contains(LIBRARY), "{error}"),
            Ok(devices) => {
                let is_sane = |s: &DeviceStatus| s.memory_used <= s.memory_total && s.utilisation.is_none_or(|u| u <= 1.0);
                assert!(devices.read_all().iter().all(is_sane), "{:?}", devices.read_all());
            }
        }
    }
}
