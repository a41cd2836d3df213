use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Mutex;

/// An HTTP server that hangs up after so many bytes of each answer but the last; what it was asked for.
fn broken_server(body: Vec<u8>, after: &'static [usize]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/files", listener.local_addr().expect("its address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { continue };
            let lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|l| !l.is_empty());
            let head: Vec<String> = lines.map(|l| l.to_lowercase()).collect();
            let from = head.iter().find_map(|l| l.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
            let (status, rest) = match from {
                Some(from) if from >= body.len() => ("416 Range Not Satisfiable", &[][..]),
                Some(from) => ("206 Partial Content", &body[from..]),
                None => ("200 OK", &body[..]),
            };
            seen.lock().expect("no panic").push(head.join("\n"));
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len());
            let cut = after.get(number).copied().unwrap_or(usize::MAX).min(rest.len());
            let _gone = stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(&rest[..cut]));
        }
    });
    (url, asked)
}

fn opened() -> (tempfile::TempDir, Files) {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::open(directory.path()).expect("opens");
    (directory, files)
}

fn source(url: &str) -> Source {
    Source { url: url.into(), token: "secret".into(), ..Source::default() }
}

#[tokio::test]
async fn a_cached_file_is_used_if_its_digest_fits() {
    let (directory, files) = opened();
    let digest = hex_digest(b"contents");
    let path = directory.path().join(format!("{digest}.onnx"));
    std::fs::write(&path, b"contents").expect("writes");
    assert_eq!(files.try_get(&digest).await.expect("cached"), path);
    assert_eq!(files.try_get(&digest).await.expect("and known to be right"), path);
    std::fs::write(&path, b"damaged").expect("writes");
    files.set_source(source("http://127.0.0.1:1"));
    let refused = |error: Result<_, Arc<FileError>>| matches!(*error.expect_err("not here"), FileError::Fetch(..));
    assert!(refused(files.try_get(&digest).await));
    assert!(refused(files.get("../etc").await));
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    let (directory, files) = opened();
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let digest = hex_digest(&body);
    let (url, asked) = broken_server(body.clone(), &[1_000_000, 0, 1_500_000]);
    files.set_source(source(&url));
    let path = files.get(&digest).await.expect("it comes");
    assert_eq!(std::fs::read(path).expect("a file"), body);
    let asked = asked.lock().expect("no panic").clone();
    assert!(asked.len() >= 3 && asked.iter().all(|head| head.contains("authorization: bearer secret")), "{asked:?}");
    assert!(!asked[0].contains("range:") && asked[1..].iter().all(|head| head.contains("range: bytes=")), "{asked:?}");
    assert!(!directory.path().join(format!("{digest}.part")).exists());
}

#[tokio::test]
async fn another_process_goes_on_with_what_the_last_one_had() {
    let (directory, files) = opened();
    let body = vec![7; 100_000];
    let digest = hex_digest(&body);
    std::fs::write(directory.path().join(format!("{digest}.part")), &body[..60_000]).expect("writes");
    let (url, asked) = broken_server(body.clone(), &[]);
    files.set_source(source(&url));
    assert_eq!(std::fs::read(files.get(&digest).await.expect("it comes")).expect("a file"), body);
    assert!(asked.lock().expect("no panic")[0].contains("range: bytes=60000-"));
    // All of it was there, but for its name.
    let digest = hex_digest(&body[..60_000]);
    std::fs::write(directory.path().join(format!("{digest}.part")), &body[..60_000]).expect("writes");
    let (url, _) = broken_server(body[..60_000].to_vec(), &[]);
    files.set_source(source(&url));
    assert_eq!(std::fs::read(files.get(&digest).await.expect("it is whole")).expect("a file").len(), 60_000);
}

#[tokio::test]
async fn a_damaged_beginning_is_fetched_again() {
    let (directory, files) = opened();
    let body = vec![7; 100_000];
    let digest = hex_digest(&body);
    std::fs::write(directory.path().join(format!("{digest}.part")), vec![8; 60_000]).expect("writes");
    let (url, asked) = broken_server(body.clone(), &[]);
    files.set_source(source(&url));
    assert_eq!(std::fs::read(files.get(&digest).await.expect("it comes")).expect("a file"), body);
    assert!(!asked.lock().expect("no panic")[1].contains("range:"));
}

#[tokio::test]
async fn all_who_wait_for_a_file_share_one_download() {
    let (_directory, files) = opened();
    let body = vec![1; 2_000_000];
    let digest = hex_digest(&body);
    // Nobody is known yet: all three wait.
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn({
                let (f, d) = (files.clone(), digest.clone());
                async move { f.get(&d).await.map(drop) }
            })
        })
        .collect();
    let (url, asked) = broken_server(body, &[]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    files.set_source(source(&url));
    for one in waiting {
        one.await.expect("no panic").expect("it comes");
    }
    assert_eq!(asked.lock().expect("no panic").len(), 1);
}

/// A target that names one file.
fn target_of(digest: &str) -> v1::Target {
    let groups = vec![v1::GroupTarget { file_digest: digest.into(), ..Default::default() }];
    let pipelines = vec![v1::PipelineTarget { groups, ..Default::default() }];
    v1::Target { pipelines, ..Default::default() }
}

#[tokio::test]
async fn files_that_no_target_names_go_the_longest_unused_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::open_with(directory.path(), 250).expect("opens");
    let bodies: Vec<Vec<u8>> = (0..5).map(|n| vec![n; 100]).collect();
    let digests: Vec<String> = bodies.iter().map(|body| files.add(body).expect("written")).collect();
    let part = directory.path().join(format!("{}.part", hex_digest(b"another")));
    std::fs::write(&part, [0_u8; 100]).expect("writes");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    File::options().write(true).open(&part).and_then(|file| file.set_modified(long_ago)).expect("an old file");
    files.identity(None, "host").expect("a new one");
    // The first two are used now; the others have not been used for an hour.
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3_600);
    for digest in &digests[2..] {
        let path = directory.path().join(format!("{digest}.onnx"));
        File::options().write(true).open(path).and_then(|file| file.set_modified(hour_ago)).expect("a file");
    }
    let here = || -> Vec<usize> {
        let is_here = |n: &usize| directory.path().join(format!("{}.onnx", digests[*n])).exists();
        (0..digests.len()).filter(is_here).collect()
    };
    files.try_get(&digests[1]).await.expect("cached");
    files.try_get(&digests[0]).await.expect("cached");
    assert_eq!((here(), part.exists()), (vec![0, 1, 2, 3, 4], true), "nobody knows yet which files are needed");
    files.follow_target(&target_of(&digests[2]));
    let _after_it = files.try_get("x").await;
    // The two of the last hour have room beside the one that the target names.
    assert_eq!((here(), part.exists()), (vec![0, 1, 2], false));
    assert!(directory.path().join(IDENTITY).exists());
    let note = |n: usize| directory.path().join(format!("{}.checked", digests[n]));
    assert!(note(0).exists() && note(1).exists());
    // The file of the target before stays: its replica may drain. The second is now the longest unused one.
    File::options().write(true).open(note(1)).and_then(|note| note.set_modified(hour_ago)).expect("a note");
    files.follow_target(&target_of(&digests[0]));
    files.add(&bodies[3]).expect("written");
    files.add(&bodies[4]).expect("written");
    files.try_get(&digests[4]).await.expect("cached");
    let _after_it = files.try_get("x").await;
    assert_eq!(here(), [0, 2, 3, 4]);
    assert!(!note(1).exists(), "its note goes with it");
}

#[tokio::test]
async fn the_last_target_survives() {
    let (_directory, files) = opened();
    assert_eq!(files.last_target(), None);
    let target = v1::Target { fence: Some(v1::Fence { incarnation: 1, generation: 1 }), ..v1::Target::default() };
    files.keep_target(3, &target).expect("writes");
    assert_eq!(files.last_target(), Some((3, target.clone())));
    files.keep_target_soon(4, &target);
    // The thread does one thing after the other.
    let _not_here = files.try_get("x").await;
    assert_eq!(files.last_target(), Some((4, target)));
}

#[test]
fn an_agent_keeps_its_identity_and_runs_once() {
    let (directory, files) = opened();
    let first = files.identity(None, "host").expect("a new one");
    assert!(first.name.starts_with("host-"), "{first:?}");
    let again = Files::open(directory.path()).expect("opens");
    assert_eq!(again.identity(None, "renamed-host").expect("the same"), first);
    let named = again.identity(Some("gpu-1"), "host").expect("the same under a name");
    assert_eq!((named.name.as_str(), &named.agent_id), ("gpu-1", &first.agent_id));
    assert_eq!(files.identity(None, "host").expect("the same"), named);
    let held = files.lock().expect("nobody else runs");
    let waiting = std::thread::spawn(move || again.lock().map(drop));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished(), "it waits for the first to end");
    drop(held);
    waiting.join().expect("no panic").expect("the first has ended");
}
