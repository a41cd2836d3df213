//! What do the commands around a service say where no service runs? Settings, contexts, completions, manual pages.

use super::program::{Folder, apportion, assert_refused, code, printed, stderr, stdout};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

#[test]
fn config_check_names_the_source_of_each_setting() {
    let folder = Folder::new();
    let file =
        folder.file("serve.yaml", "http: 127.0.0.1:7090\nprometheus: [http://a:9090, http://b:9090]\ntoken: secret\n");
    let output = apportion(&["config", "check", "--config", &file, "--grpc", "127.0.0.1:7091", "-o", "json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let settings: Vec<Value> = serde_json::from_str(stdout(&output)).expect("JSON");
    let setting = |name: &str| settings.iter().find(|s| s["setting"] == name).expect("the setting").clone();
    let expected = json!({"setting": "http", "values": ["127.0.0.1:7090"], "source": "file"});
    assert_eq!(setting("http"), expected);
    assert_eq!(setting("grpc")["source"], json!("flag"));
    assert_eq!(setting("data_dir"), json!({"setting": "data_dir", "values": [".data"], "source": "default"}));
    assert_eq!(setting("prometheus")["values"], json!(["http://a:9090", "http://b:9090"]));
    assert_eq!(setting("token")["values"], json!(["(hidden)"]), "no secret is printed");
    let table = printed(&["config", "check", "--config", &file]);
    assert!(table.starts_with("setting ") && table.contains("127.0.0.1:7090") && !table.contains("secret"), "{table}");
}

#[test]
fn a_variable_wins_over_the_file() {
    let folder = Folder::new();
    let file = folder.file("serve.yaml", "log_format: text\n");
    let check = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        command.args(["config", "check", "-o", "json"]).envs(variables.iter().copied());
        let output = command.output().expect("the program runs");
        let settings: Vec<Value> = serde_json::from_str(stdout(&output)).expect("JSON");
        settings.iter().find(|s| s["setting"] == "log_format").expect("the setting").clone()
    };
    let file = file.as_str();
    assert_eq!(check(&[("APPORTION_CONFIG", file)])["source"], json!("file"));
    let both = check(&[("APPORTION_CONFIG", file), ("APPORTION_LOG_FORMAT", "json")]);
    assert_eq!((&both["values"], &both["source"]), (&json!(["json"]), &json!("APPORTION_LOG_FORMAT")));
}

#[test]
fn wrong_settings_end_with_2() {
    let folder = Folder::new();
    let refused = |text: &str, expected: &str| {
        let file = folder.file("serve.yaml", text);
        assert_refused(&["config", "check", "--config", &file], expected);
        assert_refused(&["serve", "--config", &file], expected);
    };
    refused("htpp: x\n", "serve.yaml: /htpp: unknown key \"htpp\": expected the key \"http\"");
    refused("http: nowhere\n", "serve.yaml: /http: \"nowhere\": expected a value that --http takes");
    refused("log_format: xml\n", "[possible values: text, json]");
    refused("scalers_key: key.pem\n", "--scalers-key: a file: expected --scalers-certificate beside it");
    refused("admin_token_file: missing.token\n", "missing.token: cannot be read");
    assert_refused(&["config", "check", "--config", &folder.path("none.yaml")], "none.yaml: cannot be read");
}

/// Runs `apportion` with contexts of its own.
fn with_contexts(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
    command.args(args).env("XDG_CONFIG_HOME", folder.path("settings"));
    command.env_remove("APPORTION_SERVER").env_remove("APPORTION_CONTEXT");
    command.output().expect("the program runs")
}

#[test]
fn contexts_are_kept_in_a_file_without_tokens() {
    let folder = Folder::new();
    let token = folder.file("anna.token", "very-secret");
    let run = |args: &[&str]| {
        let output = with_contexts(&folder, args);
        (code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    assert_eq!(run(&["context", "list"]).1, "there is no context\n");
    let set = ["context", "set", "production", "--server", "http://10.0.0.4:7070", "--token-file", &token];
    assert_eq!(run(&set), (0, String::new(), "created: context production\n".to_owned()));
    let (status, _, refused) = run(&["context", "set", "other"]);
    assert!(status == 2 && refused.contains("--server: nothing: expected the URL of the service"), "{refused}");
    assert_eq!(run(&["context", "use", "production"]).0, 0);
    let (_, listed, _) = run(&["context", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let context = |server: &str, cacert: Value| {
        let mut context = json!({"name": "production", "server": server, "token_file": token, "in_use": true});
        context["cacert"] = cacert;
        json!([context])
    };
    assert_eq!(listed, context("http://10.0.0.4:7070", Value::Null));
    // The service gets a certificate, and the file with the token stays.
    let authority = folder.file("authority.pem", "");
    let set = ["context", "set", "production", "--server", "https://plans.example", "--cacert", &authority];
    assert_eq!(run(&set).2, "changed: context production\n");
    let (_, listed, _) = run(&["context", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed, context("https://plans.example", json!(authority)));
    let file = folder.path("settings/apportion/contexts.yaml");
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(!text.contains("very-secret"), "{text}");
    assert_eq!(std::fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    let (status, _, refused) = run(&["context", "use", "prod"]);
    assert!(status == 2 && refused.contains("no context \"prod\": expected one of production"), "{refused}");
    assert_eq!(run(&["context", "delete", "production"]).0, 0);
    std::fs::write(&file, "current: x\ncontexts: {x: {server: 'http://x', token: secret}}\n").expect("room");
    let (status, _, refused) = run(&["hardware", "list"]);
    assert!(status == 2 && refused.contains("unknown field `token`"), "no token belongs there: {refused}");
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["completions", shell]);
        for word in ["pipeline", "rollback", "watch", "--context"] {
            assert!(text.contains(word.trim_start_matches("--")), "{shell} lacks {word}");
        }
        assert!(!text.contains("powershell"), "{shell}");
    }
}

#[test]
fn every_command_gets_a_manual_page() {
    let folder = Folder::new();
    let output = apportion(&["man", &folder.path("man1")]);
    assert_eq!((code(&output), stdout(&output)), (0, ""), "{}", stderr(&output));
    for page in ["apportion", "apportion-plan-create", "apportion-target-rollback", "apportion-pipeline-apply"] {
        let text =
            std::fs::read_to_string(folder.path(&format!("man1/{page}.1"))).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains(".TH ") && text.replace('\\', "").contains(page), "{text}");
    }
    let names = std::fs::read_dir(folder.path("man1")).expect("the folder");
    let names: Vec<String> =
        names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert!(!names.iter().any(|name| name.contains("profile-memory")), "hidden commands have no page: {names:?}");
}
