//! A headless Chromium, told what to do through its driver (WebDriver, and Chromium's own commands behind it).

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(90);
/// Ticks of the processor times in `/proc`: Linux counts 100 in a second on each of its platforms (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// The accessibility tester axe-core, which is run on the page.
const AXE: &str = include_str!("../tests/axe/axe.min.js");
/// Runs the tester, and gives what is serious: rule, and where.
const AXE_RUN: &str = "const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']}).then(
        (found) => done(found.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) =>
            `${v.id} (${v.impact}): ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.target.join(' ')).join('; ')}`)),
        (error) => done([String(error)]));";

/// How the page looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// `light` or `dark`.
    pub scheme: &'static str,
    /// Width of the window in pixels.
    pub width: u32,
    /// Height of the window in pixels.
    pub height: u32,
}

/// The processor times of the browser's processes at a moment, in ticks by process number.
#[derive(Debug)]
pub struct ProcessorTimes(BTreeMap<u32, u64>);

impl ProcessorTimes {
    /// The time that living processes have used since `earlier`, in seconds. The last moments of a process that has ended
    /// since are not in it.
    #[must_use]
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        let used = |(process, ticks): (&u32, &u64)| ticks - earlier.0.get(process).unwrap_or(&0).min(ticks);
        self.0.iter().map(used).sum::<u64>() as f64 / TICKS_PER_SECOND
    }
}

/// A browser with one window; dropping it ends it.
pub struct Browser {
    driver: Child,
    session: String,
    client: reqwest::Client,
    /// Where the browser keeps its profile.
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    ///
    /// # Panics
    /// If the driver or the browser does not come up.
    pub async fn start(driver: &Path) -> Self {
        let port = crate::machine::free_port();
        let mut command = Command::new(driver);
        command.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", driver.display()));
        let client = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client");
        let folder = tempfile::tempdir().expect("a folder");
        let base = format!("http://127.0.0.1:{port}");
        let mut browser = Self { driver, session: format!("{base}/session"), client, _folder: folder };
        let begun = Instant::now();
        while !browser.client.get(format!("{base}/status")).send().await.is_ok_and(|r| r.status().is_success()) {
            assert!(begun.elapsed() < PATIENCE, "the driver does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The sandbox needs rights that root's containers seldom have. The only pages are ours.
        let profile = format!("--user-data-dir={}", browser._folder.path().display());
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", profile.as_str()];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}});
        let made = browser.post("", &capabilities).await;
        browser.session = format!("{base}/session/{}", made["sessionId"].as_str().expect("a session"));
        browser
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let answer = self.client.post(&url).json(body).send().await.unwrap_or_else(|e| panic!("{url}: {e}"));
        let mut answer: Value = answer.json().await.expect("JSON of the driver");
        assert!(answer["value"].get("error").is_none(), "{path} {body:.200}: {answer:#}");
        answer["value"].take()
    }

    /// One of Chromium's own commands.
    async fn command(&self, name: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters})).await
    }

    /// Sets colours and size of the window.
    pub async fn set_look(&self, look: Look) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": look.scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await;
        let size = json!({"width": look.width, "height": look.height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Runs a script in each page that is opened from now on, before the page's own scripts.
    pub async fn run_before_pages(&self, script: &str) {
        self.command("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Processor time that each process of the browser has used so far; `None` where the machine does not say it.
    #[must_use]
    pub fn processor_times(&self) -> Option<ProcessorTimes> {
        let all = process_times()?;
        let own = below(self.driver.id(), &all);
        let living = all.iter().filter(|process| own.contains(&process.id));
        Some(ProcessorTimes(living.map(|process| (process.id, process.ticks)).collect()))
    }

    /// Goes to an address, as if it were typed.
    pub async fn open(&self, url: &str) {
        // The same page with another part behind `#` would not be loaded again.
        self.post("/url", &json!({"url": "about:blank"})).await;
        self.post("/url", &json!({"url": url})).await;
    }

    /// Runs a script in the page, and gives what it returns.
    pub async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Runs a script that hands its result to its last argument, a function.
    pub async fn script_with_callback(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({"script": script, "args": []})).await
    }

    /// Waits until an expression of the page is true.
    ///
    /// # Panics
    /// If it does not become true: then the page's text is in the message.
    pub async fn until(&self, expression: &str) {
        let begun = Instant::now();
        while self.script(&format!("return Boolean({expression})")).await != json!(true) {
            assert!(begun.elapsed() < PATIENCE, "{expression} is not so:\n{}", self.text().await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the page's text has these words.
    pub async fn shows(&self, words: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(words))).await;
    }

    /// The page's text.
    pub async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// A count as the page writes it.
    ///
    /// # Panics
    /// If it is no number.
    pub async fn grouped(&self, count: &Value) -> String {
        let text = self.script(&format!("return new Intl.NumberFormat('en').format({count})")).await;
        text.as_str().expect("text").to_owned()
    }

    /// Clicks the first link with this text, as a pointer would.
    pub async fn follow(&self, text: &str) {
        let find = json!({"using": "link text", "value": text});
        self.until(&format!("[...document.querySelectorAll('a')].some((a) => a.innerText === {})", json!(text))).await;
        let found = self.post("/element", &find).await;
        let id = found.as_object().and_then(|o| o.values().next()?.as_str()).expect("an element").to_owned();
        self.post(&format!("/element/{id}/click"), &json!({})).await;
    }

    /// Presses keys, one after another; `\u{e004}` is Tab, `\u{e007}` Enter.
    pub async fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let keyboard = json!({"type": "key", "id": "keys", "actions": actions.collect::<Vec<_>>()});
        self.post("/actions", &json!({"actions": [keyboard]})).await;
    }

    /// What axe-core finds that is serious or critical.
    pub async fn barriers(&self) -> Vec<String> {
        self.script(AXE).await;
        serde_json::from_value(self.script_with_callback(AXE_RUN).await).expect("a list of texts")
    }

    /// Errors that the browser has noted since it was asked last: of scripts, of the security policy, of requests.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"})).await;
        let is_bad = |entry: &&Value| entry["level"] == "SEVERE" || entry["level"] == "WARNING";
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.as_array().into_iter().flatten().filter(is_bad).map(text).collect()
    }

    /// A picture of the page from its top, as PNG, at most this high.
    pub async fn picture(&self, height_max: u32) -> Vec<u8> {
        let size = "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]";
        let size = self.script(size).await;
        let height = size[1].as_u64().unwrap_or_default().min(u64::from(height_max));
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": height, "scale": 1});
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.command("Page.captureScreenshot", parameters).await;
        from_base64(picture["data"].as_str().expect("a picture"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let browser = process_times().map_or_else(BTreeSet::new, |all| below(self.driver.id(), &all));
        let told = Command::new("kill").args(["-TERM", &self.driver.id().to_string()]).status();
        if told.is_ok() {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(5) && self.driver.try_wait().ok().flatten().is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ended = self.driver.kill();
        let _ended = self.driver.wait();
        // Some drivers leave the browser running.
        let left = browser.iter().map(u32::to_string);
        let _ended = Command::new("kill").arg("-TERM").args(left).stderr(Stdio::null()).status();
    }
}

/// The processes below a process: its children, theirs, and so on.
fn below(id: u32, all: &[ProcessTime]) -> BTreeSet<u32> {
    let mut own = BTreeSet::from([id]);
    // A process may have a smaller number than its parent: look until no further child is found.
    loop {
        let children = all.iter().filter(|process| own.contains(&process.parent)).map(|process| process.id);
        let found: BTreeSet<u32> = own.iter().copied().chain(children).collect();
        if found.len() == own.len() {
            break;
        }
        own = found;
    }
    own.remove(&id);
    own
}

/// A process with its processor time.
struct ProcessTime {
    id: u32,
    parent: u32,
    /// User and system time.
    ticks: u64,
}

/// All processes of this machine; `None` without `/proc`.
fn process_times() -> Option<Vec<ProcessTime>> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process may end meanwhile.
    Some(numbers.filter_map(|id| process_time(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)).collect())
}

/// The figures of a line of `/proc/PID/stat`. The name of the program is in parentheses and may have any characters.
fn process_time(id: u32, line: &str) -> Option<ProcessTime> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field here is the third of proc(5): the state. Then follow the parent, and at 14 and 15 the times.
    let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    Some(ProcessTime { id, parent: u32::try_from(number(4)?).ok()?, ticks: number(14)? + number(15)? })
}

/// The bytes of a text in base64 (RFC 4648, section 4).
fn from_base64(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(value).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().enumerate().fold(0_u32, |bits, (at, digit)| bits | u32::from(*digit) << (18 - 6 * at));
        [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8].into_iter().take(four.len() - 1)
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_past_odd_program_names() {
        let line = "12 (a ) b) S 7 12 12 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        let found = process_time(12, line).expect("a line of proc(5)");
        assert_eq!((found.id, found.parent, found.ticks), (12, 7, 300));
        assert!(process_time(12, "12 (short) S 7").is_none());
    }

    #[test]
    fn base64_is_read_with_any_padding() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba")] {
            assert_eq!(from_base64(text), bytes.as_bytes(), "{text}");
        }
    }

    #[test]
    fn processes_below_may_have_smaller_numbers() {
        let all = [(7, 1), (9, 7), (3, 9), (4, 3), (8, 1), (2, 8)].map(|(id, parent)| ProcessTime { id, parent, ticks: 0 });
        assert_eq!(below(7, &all), BTreeSet::from([3, 4, 9]));
        assert_eq!(below(4, &all), BTreeSet::new());
    }
}
