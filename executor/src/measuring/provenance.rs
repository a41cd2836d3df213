//! On which device, and with which programs, was a variant measured?

use crate::backend::{BackendKind, BackendLoader, Provider};
use crate::devices::{Devices, VISIBLE_VARIABLE};
use apportion_domain::pipeline::OTHER_SERVER;

/// Version of this program. Builders of packages may name another one, such as a version with a commit, by
/// `APPORTION_COMMIT`.
pub const VERSION: &str = match option_env!("APPORTION_COMMIT") {
    Some(commit) => commit,
    None => env!("CARGO_PKG_VERSION"),
};

/// Where and with which programs something was measured. A text is empty if nobody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProvenance {
    /// The device, as its driver or its system names it.
    pub device: String,
    /// The driver and the library.
    pub software: String,
}

impl DeviceProvenance {
    /// That of a loader's device with this number.
    #[must_use]
    pub fn of(loader: &BackendLoader, device: u32) -> Self {
        match (loader, loader.kind()) {
            (_, BackendKind::Emulated) => Self { device: "emulated".to_owned(), software: String::new() },
            (BackendLoader::Remote(url), _) => Self { device: url.clone(), software: OTHER_SERVER.to_owned() },
            _ => {
                let provider = loader.provider().unwrap_or_default();
                let devices = open_devices(provider, device);
                let driver = devices.driver_version().map(|version| format!("driver {version}"));
                let library = match loader {
                    BackendLoader::Onnx { library, .. } => Some(library_text(library)),
                    _ => None,
                };
                let parts: Vec<String> = driver.into_iter().chain(library).collect();
                Self { device: device_name(provider, &devices, device), software: parts.join(", ") }
            }
        }
    }
}

/// The devices of a provider that has any, at least up to this number. Without a driver there are none.
fn open_devices(provider: Provider, device: u32) -> Devices {
    let visible = std::env::var(VISIBLE_VARIABLE).ok();
    match provider {
        Provider::Cpu => Devices::default(),
        Provider::Cuda | Provider::TensorRt => {
            Devices::open(visible.as_deref(), device.saturating_add(1)).unwrap_or_default()
        }
    }
}

/// The name of the library's file behind its links, which has the version.
fn library_text(library: &std::path::Path) -> String {
    let file = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a device.
fn device_name(provider: Provider, devices: &Devices, device: u32) -> String {
    match provider {
        Provider::Cuda | Provider::TensorRt => devices.name(device).unwrap_or_default(),
        Provider::Cpu => processor_name(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
    }
}

/// The processor's name in the text of `/proc/cpuinfo`; empty if it has none.
fn processor_name(text: &str) -> String {
    let named = text.lines().find_map(|line| line.strip_prefix("model name"));
    named.and_then(|rest| rest.split_once(':')).map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_the_name_of_its_system() {
        assert_eq!(processor_name("processor\t: 0\nmodel name\t: Fast 9000 @ 3 GHz\n"), "Fast 9000 @ 3 GHz");
        assert_eq!(processor_name("CPU implementer\t: 0x41\n"), "");
    }

    #[test]
    fn emulated_devices_and_other_servers_say_so() {
        let of = |loader: &BackendLoader| DeviceProvenance::of(loader, 0).device;
        assert_eq!(of(&BackendLoader::Emulated), "emulated");
        assert_eq!(of(&BackendLoader::Remote("http://triton:8000".into())), "http://triton:8000");
    }
}
