//! How are the commands of a document run?

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The text of a page.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn text(page: &str) -> String {
    std::fs::read_to_string(crate::root().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// The blocks of a page in this language, in order.
#[must_use]
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    blocks_of(&text(page), language)
}

/// The blocks of a text in this language, in order.
#[must_use]
pub fn blocks_of(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.by_ref().find(|line| line.starts_with("```")) {
        let block = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        if line.strip_prefix("```") == Some(language) {
            blocks.push(block);
        }
    }
    blocks
}

/// A shell in a folder with the repository's examples, with the programs on its PATH.
pub struct DocumentShell {
    folder: tempfile::TempDir,
    replacements: Vec<(String, String)>,
    /// Programs of these folders are found first.
    paths: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Default for DocumentShell {
    fn default() -> Self {
        Self::new()
    }
}

impl DocumentShell {
    /// A new folder.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("examples");
        std::os::unix::fs::symlink(crate::root().join("examples"), link).expect("a link to the examples");
        let paths = vec![crate::programs().display().to_string()];
        Self { folder, replacements: Vec::new(), paths, variables: Vec::new() }
    }

    /// Has programs of this folder found first.
    pub fn prefer(&mut self, programs: &Path) {
        self.paths.insert(0, programs.display().to_string());
    }

    /// Sets a variable of all commands.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    fn command(&self, script: &str) -> Command {
        let mut script = script.to_owned();
        for (from, to) in &self.replacements {
            script = script.replace(from, to);
        }
        let path = format!("{}:{}", self.paths.join(":"), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", path)
            // The contexts of whoever runs the tests do not count.
            .env("XDG_CONFIG_HOME", self.folder.path().join("settings"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs a script that must succeed.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("bash");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}\nstdout: {out}\nstderr: {err}", output.status);
        output
    }

    /// The text of a file in the folder.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// Writes a file in the folder.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, file: &str, content: &str) {
        std::fs::write(self.folder.path().join(file), content).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// The service of the documents' own command, on free ports and in the shell's folder.
pub struct DocumentFleet {
    shell: DocumentShell,
    http: String,
    grpc: String,
    ingress: String,
    running: Vec<Running>,
}

impl Default for DocumentFleet {
    fn default() -> Self {
        Self::new()
    }
}

impl DocumentFleet {
    /// A shell with free ports. Nothing runs yet.
    ///
    /// # Panics
    /// If no port is free, or the folder cannot be made.
    #[must_use]
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let mut shell = DocumentShell::new();
        // Where the tests run as root the database runs as another user, which must get there.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shell.folder.path(), open).expect("a folder of ours");
        let data = shell.folder.path().join("data").display().to_string();
        // One replacement must not change the result of another.
        let port = || {
            let named = |port: &String| ["7070", "7071", "8000"].iter().any(|name| port.contains(name));
            std::iter::repeat_with(|| crate::free_port().to_string()).find(|port| !named(port)).expect("a port")
        };
        let [http, grpc, ingress] = [port(), port(), port()];
        let pairs = [("/tmp/apportion", &data), ("7070", &http), ("7071", &grpc), ("8000", &ingress)];
        shell.replacements = pairs.map(|(from, to)| (from.to_owned(), to.clone())).into();
        Self { shell, http, grpc, ingress, running: Vec::new() }
    }

    /// Its shell.
    #[must_use]
    pub fn shell(&self) -> &DocumentShell {
        &self.shell
    }

    /// Its shell, to be changed.
    pub fn shell_mut(&mut self) -> &mut DocumentShell {
        &mut self.shell
    }

    /// The service's port.
    #[must_use]
    pub fn http(&self) -> &str {
        &self.http
    }

    /// The agent's port.
    #[must_use]
    pub fn ingress(&self) -> &str {
        &self.ingress
    }

    /// Runs a block. A block that starts the service or an agent goes on running, and the next block finds it ready.
    ///
    /// # Panics
    /// If it fails, or if the program does not become ready.
    pub fn run(&mut self, block: &str) -> Option<Output> {
        if block.starts_with("apportion serve") {
            self.start(&format!("exec {block} --grpc 127.0.0.1:{}", self.grpc), "service.log");
            self.wait(&format!("curl -sf localhost:{}/readyz", self.http), "service.log");
        } else if block.starts_with("apportion agent") {
            self.start(&format!("exec {block}"), "agent.log");
            self.wait(&format!("curl -sf localhost:{}/v1/agents | grep '\"state\":\"live\"'", self.http), "agent.log");
        } else {
            return Some(self.shell.run(block));
        }
        None
    }

    fn start(&mut self, script: &str, log: &str) {
        let log = std::fs::File::create(self.shell.folder.path().join(log)).expect("a log");
        let child = self.shell.command(script).stdout(Stdio::null()).stderr(log).spawn();
        self.running.push(Running(child.expect("it starts")));
    }

    fn wait(&self, condition: &str, log: &str) {
        let tries =
            format!("for i in $(seq 900); do {condition} >/dev/null && exit 0; sleep 0.1; done; cat {log} >&2; exit 1");
        self.shell.run(&tries);
    }

    /// Stops the program that was started last.
    pub fn stop(&mut self) {
        drop(self.running.pop());
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for DocumentFleet {
    fn drop(&mut self) {
        while let Some(running) = self.running.pop() {
            drop(running);
        }
    }
}
