//! Lists: pages, cursors, filters, and how much of a table a page reads.

use crate::support::{Service, service, spec};
use apportion_api::store::{self, pipelines::PipelineFilter};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::collections::BTreeSet;

/// A list of the service, with rows for it.
struct ListCase {
    /// Path and query of the list.
    path: &'static str,
    /// Its table.
    table: &'static str,
    /// The column by which it is sorted.
    column: &'static str,
    /// The same in its documents.
    field: &'static str,
    /// Inserts the rows number `$1` to `$2`. `ID` stands for [`ID`], and `SPEC` for a pipeline.
    insert: &'static str,
}

/// An identifier that is as large as its number `n`.
const ID: &str = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid";
/// Entries of each list.
const ENTRIES: i64 = 5;
/// Answers that are arrays and no lists: their parameters bound them, and they are whole.
const SERIES: [&str; 1] = ["/v1/pipelines/{name}/arrivals"];

static CASES: [ListCase; 21] = [
    ListCase {
        path: "/v1/agents",
        table: "agents",
        column: "number",
        field: "number",
        insert: "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state,
                 registered_at, seen_at)
                 select 'a' || n, 'demo', 1, '', '', '', gen_random_uuid(), 'left', now(), now()",
    },
    ListCase {
        path: "/v1/arrivals?seconds=3600",
        table: "arrivals",
        column: "pipeline",
        field: "pipeline",
        insert: "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed)
                 select 'p' || n, floor(extract(epoch from now()))::bigint, 1, 1, 0, 0, 0",
    },
    ListCase {
        path: "/v1/audit",
        table: "audit",
        column: "id",
        field: "id",
        insert: "insert into audit (id, made_at, who, method, path, status) select ID, now(), 'test', 'PUT', '/', 200",
    },
    ListCase {
        path: "/v1/comparisons",
        table: "analyses",
        column: "id",
        field: "id",
        insert: "insert into analyses (id, kind, state, request, problem, pipelines, created_at)
                 select ('00000000-0000-7001-8000-' || lpad(n::text, 12, '0'))::uuid, 'comparison', 'done', '{}', '{}',
                 array['p'], now()",
    },
    ListCase {
        path: "/v1/decisions",
        table: "decisions",
        column: "id",
        field: "id",
        insert: "insert into decisions (id, pipeline, decision, reason, demand_qps, made_at)
                 select ID, 'p' || n, 'kept', 'test', 1, now()",
    },
    ListCase {
        path: "/v1/events",
        table: "events",
        column: "id",
        field: "id",
        insert: "insert into events (made_at, kind, pipeline, detail) select now(), 'plan', 'p' || n, '{}'",
    },
    ListCase {
        path: "/v1/files",
        table: "model_files",
        column: "sha256",
        field: "sha256",
        insert: "insert into model_files (sha256, bytes, created_at) select lpad(to_hex(n), 64, '0'), n, now()",
    },
    ListCase {
        path: "/v1/frontiers",
        table: "analyses",
        column: "id",
        field: "id",
        insert: "insert into analyses (id, kind, state, request, problem, pipelines, created_at)
                 select ('00000000-0000-7002-8000-' || lpad(n::text, 12, '0'))::uuid, 'frontier', 'done', '{}', '{}',
                 array['p'], now()",
    },
    ListCase {
        path: "/v1/hardware",
        table: "hardware",
        column: "name",
        field: "name",
        insert: "insert into hardware (name, price_per_hour) select 'h' || n, 1",
    },
    // The first hold is that of the fleet.
    ListCase {
        path: "/v1/holds",
        table: "holds",
        column: "pipeline",
        field: "pipeline",
        insert: "insert into holds (pipeline, reason, made_by, made_at)
                 select case n when 1 then '' else 'p' || n end, 'test', 'test', now()",
    },
    ListCase {
        path: "/v1/machines",
        table: "machines",
        column: "name",
        field: "name",
        insert: "insert into machines (name, hardware, substrate, devices, stage, reason, asked_at, stage_at)
                 select 'm' || n, case n % 2 when 1 then 't4' else 'a100' end, 'slurm', 2,
                 case n when 1 then 'coming' else 'ended' end, 'test', now(), now()",
    },
    ListCase {
        path: "/v1/pipelines",
        table: "pipelines",
        column: "name",
        field: "name",
        insert: "insert into pipelines (name, spec, updated_at)
                 select 'p' || n, jsonb_set('SPEC', '{name}', to_jsonb('p' || n)), now()",
    },
    ListCase {
        path: "/v1/plans",
        table: "plans",
        column: "id",
        field: "id",
        insert: "insert into plans (id, state, problem, options, created_at, pipelines)
                 select ID, 'succeeded', '{}', '{}', now(), array['p' || n]",
    },
    ListCase {
        path: "/v1/projects",
        table: "projects",
        column: "name",
        field: "name",
        insert: "insert into projects (name, quota) select 'p' || n, '{}'",
    },
    ListCase {
        path: "/v1/profile-jobs",
        table: "profile_jobs",
        column: "id",
        field: "id",
        insert: "insert into profile_jobs (id, pipeline, state, request, reason, total, created_at)
                 select ID, (select min(name) from pipelines), 'done', '{\"pipeline\": \"p\"}', 'test', 1, now()",
    },
    ListCase {
        path: "/v1/schedules",
        table: "schedules",
        column: "name",
        field: "name",
        insert: "insert into schedules (name, spec, made_by, updated_at, next_at)
                 select 's' || n, '{\"every_s\": 3600, \"replan\": {}}', 'test', now(), now() + interval '1 hour'",
    },
    ListCase {
        path: "/v1/simulations",
        table: "analyses",
        column: "id",
        field: "id",
        insert: "insert into analyses (id, kind, state, request, problem, pipelines, created_at)
                 select ('00000000-0000-7003-8000-' || lpad(n::text, 12, '0'))::uuid, 'simulation', 'done', '{}', '{}',
                 array['p'], now()",
    },
    ListCase {
        path: "/v1/target/history",
        table: "target_history",
        column: "generation",
        field: "generation",
        insert: "insert into target_history (generation, plans, placement, reason, committed_at)
                 select n, '{}', '{}', 'test', now()",
    },
    ListCase {
        path: "/v1/tokens",
        table: "tokens",
        column: "id",
        field: "id",
        insert: "insert into tokens (id, name, scope, digest, created_by, created_at)
                 select ID, 'test', 'read', decode('00', 'hex'), 'test', now()",
    },
    ListCase {
        path: "/v1/traces",
        table: "traces",
        column: "id",
        field: "id",
        insert: "insert into traces (id, name, kind, rows, csv, created_at) select ID, 'test', 'rates', 1, '0,5', now()",
    },
    ListCase {
        path: "/v1/webhooks",
        table: "webhooks",
        column: "name",
        field: "name",
        insert: "insert into webhooks (name, url, enabled, secret, made_by, updated_at, sent_until)
                 select 'w' || n, 'http://127.0.0.1:9/', false, '\\x00', 'test', now(), 0",
    },
];

impl ListCase {
    /// The path without the query.
    fn list(&self) -> &'static str {
        self.path.split('?').next().unwrap_or(self.path)
    }

    /// The path with one more parameter.
    fn with(&self, parameter: &str) -> String {
        let and = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{and}{parameter}", self.path)
    }

    /// Inserts rows of these numbers.
    async fn insert(&self, db: &mut PgConnection, first: i64, last: i64) {
        let rows = self.insert.replace("ID", ID).replace("SPEC", &spec().to_string());
        let text = format!("{rows} from generate_series($1::bigint, $2::bigint) n");
        let insert = sqlx::query(sqlx::AssertSqlSafe(text)).bind(first).bind(last);
        insert.execute(db).await.unwrap_or_else(|error| panic!("{}: {error}", self.table));
    }

    /// Deletes the row of a document.
    async fn delete(&self, db: &mut PgConnection, key: &str) {
        let text = format!("delete from {} where {}::text = $1", self.table, self.column);
        let done = sqlx::query(sqlx::AssertSqlSafe(text)).bind(key).execute(db).await.expect("a deletion");
        assert_eq!(done.rows_affected(), 1, "{}: {key}", self.table);
    }

    /// The keys of the documents of an answer. The hold of the fleet has an empty one.
    fn keys(&self, documents: &Value) -> Vec<String> {
        let key = |document: &Value| match &document[self.field] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        documents.as_array().unwrap_or_else(|| panic!("{}: {documents:#}", self.path)).iter().map(key).collect()
    }

    /// The keys from this page to the last one. No page has more than two.
    async fn walk(&self, s: &Service, first: String) -> Vec<String> {
        let (mut keys, mut next) = (Vec::new(), Some(first));
        while let Some(path) = next {
            let page = page(s, &path).await;
            assert_eq!(page.status, 200, "{path}: {:#}", page.body);
            let found = self.keys(&page.body);
            assert!((1..=2).contains(&found.len()), "{path}: {found:?}");
            keys.extend(found);
            next = page.next;
        }
        keys
    }
}

/// An answer of a list.
struct PageAnswer {
    status: u16,
    body: Value,
    /// The path of the next page.
    next: Option<String>,
}

async fn page(s: &Service, path: &str) -> PageAnswer {
    let response = s.client.get(format!("{}{path}", s.base)).send().await.expect("an answer");
    let status = response.status().as_u16();
    let next = response.headers().get("link").map(|link| {
        let link = link.to_str().expect("ASCII");
        let query = link.strip_prefix("<?").and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).expect("the next page");
        format!("{}?{query}", path.split('?').next().expect("a path"))
    });
    PageAnswer { status, body: response.json().await.expect("JSON"), next }
}

/// The text of the parameter `cursor`.
fn cursor_of(next: &str) -> &str {
    next.split(['?', '&']).find_map(|part| part.strip_prefix("cursor=")).expect("a cursor")
}

/// A service whose lists have five entries each. That of events has more: the other rows are events too.
async fn with_entries() -> (Service, PgConnection) {
    let s = service().await;
    let mut db = PgConnection::connect(&s.url).await.expect("our own database");
    for case in &CASES {
        case.insert(&mut db, 1, ENTRIES).await;
    }
    (s, db)
}

#[test]
fn every_list_of_the_description_has_pages() {
    let description: Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let mut lists = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        let operation = &item["get"];
        let answer = &operation["responses"]["200"];
        if answer["content"]["application/json"]["schema"]["type"] != "array" || SERIES.contains(&path.as_str()) {
            continue;
        }
        lists.insert(path.as_str());
        let parameters = operation["parameters"].as_array().unwrap_or_else(|| panic!("{path} has no parameters"));
        for name in ["limit", "cursor"] {
            let is_there = parameters.iter().any(|one| one["name"] == name && one["in"] == "query");
            assert!(is_there, "{path}: expected the parameter {name}, as in `api/src/http/paging.rs`");
        }
        assert!(answer["headers"]["Link"].is_object(), "{path}: expected the header Link");
    }
    let tested: BTreeSet<&str> = CASES.iter().map(ListCase::list).collect();
    assert_eq!(lists, tested, "each list has a row in `CASES`");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_add_up_to_the_whole_list() {
    let (s, _db) = with_entries().await;
    for case in &CASES {
        let whole = page(&s, &case.with("limit=1000")).await;
        let keys = case.keys(&whole.body);
        assert_eq!((whole.status, &whole.next), (200, &None), "{}", case.path);
        assert!(keys.len() as i64 == ENTRIES || case.table == "events", "{}: {keys:?}", case.path);
        assert_eq!(case.keys(&page(&s, case.path).await.body), keys, "{}: 1000 is the default", case.path);
        assert_eq!(case.walk(&s, case.with("limit=2")).await, keys, "{}", case.path);
        let exact = page(&s, &case.with(&format!("limit={}", keys.len()))).await;
        assert_eq!((case.keys(&exact.body), &exact.next), (keys, &None), "{}: nothing follows", case.path);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_walking_neither_repeat_nor_hide_entries() {
    let (s, mut db) = with_entries().await;
    for case in &CASES {
        let keys = case.keys(&page(&s, case.path).await.body);
        let first = page(&s, &case.with("limit=2")).await;
        let next = first.next.unwrap_or_else(|| panic!("{} has one page", case.path));
        // The entry of the cursor, the one after it, and a new one.
        case.delete(&mut db, &keys[1]).await;
        case.delete(&mut db, &keys[2]).await;
        case.insert(&mut db, ENTRIES + 1, ENTRIES + 1).await;
        let rest = case.walk(&s, next).await;
        let (known, new): (Vec<String>, Vec<String>) = rest.into_iter().partition(|key| keys.contains(key));
        assert_eq!(known.as_slice(), &keys[3..], "{}", case.path);
        assert!(new.len() <= 1, "{}: {new:?}", case.path);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_limits_and_cursors_are_refused_with_their_place() {
    let (s, _db) = with_entries().await;
    let mut cursors = Vec::new();
    for case in &CASES {
        let next = page(&s, &case.with("limit=2")).await.next.unwrap_or_else(|| panic!("{} has one page", case.path));
        cursors.push(cursor_of(&next).to_owned());
    }
    for (at, case) in CASES.iter().enumerate() {
        let (own, other) = (&cursors[at], &cursors[(at + 1) % cursors.len()]);
        let cut = &own[..own.len() - 1];
        let wrong = [
            ("limit", ["0", "1001", "-1", "x"].map(str::to_owned).to_vec()),
            ("cursor", vec![other.clone(), cut.to_owned(), "!random text".replace(' ', "%20"), String::new()]),
        ];
        for (name, value) in wrong.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value))) {
            let refused = page(&s, &case.with(&format!("{name}={value}"))).await;
            assert_eq!(refused.status, 422, "{} {name}={value}: {:#}", case.path, refused.body);
            assert_eq!(refused.body["errors"][0]["pointer"], *name, "{:#}", refused.body);
            assert!(refused.body["detail"].as_str().is_some_and(|d| d.contains("expected")), "{:#}", refused.body);
        }
        assert_eq!(page(&s, &case.with(&format!("cursor={own}"))).await.status, 200, "{}", case.path);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_select_entries_and_stay_in_the_links() {
    let (s, mut db) = with_entries().await;
    let update =
        "update target_history set plans = array['00000000-0000-0000-0000-000000000001'::uuid] where generation = 3";
    sqlx::query(update).execute(&mut db).await.expect("it runs");
    let cases = [
        ("/v1/plans?pipeline=p3", 1),
        ("/v1/plans?state=succeeded", 5),
        ("/v1/plans?state=failed", 0),
        ("/v1/plans?pipeline=p3&state=failed", 0),
        ("/v1/decisions?pipeline=p2", 1),
        ("/v1/decisions?decision=kept", 5),
        ("/v1/decisions?decision=applied", 0),
        ("/v1/agents?state=left", 5),
        ("/v1/agents?state=live", 0),
        ("/v1/pipelines?prefix=p", 5),
        ("/v1/pipelines?prefix=p3", 1),
        // A prefix is no pattern.
        ("/v1/pipelines?prefix=%25", 0),
        ("/v1/events?pipeline=p4&kind=plan", 1),
        ("/v1/machines?hardware=t4", 3),
        ("/v1/machines?state=ended", 4),
        ("/v1/machines?hardware=t4&state=ended", 2),
        ("/v1/machines?hardware=cpu", 0),
        ("/v1/audit?who=test", 5),
        ("/v1/audit?who=anna", 0),
        ("/v1/traces?name=test", 5),
        ("/v1/traces?name=peak", 0),
        ("/v1/hardware?prefix=h3", 1),
        ("/v1/holds?pipeline=p3", 2),
        ("/v1/holds?who=anna", 0),
        ("/v1/pipelines?project=default", 5),
        ("/v1/pipelines?project=team", 0),
        ("/v1/projects?prefix=p3", 1),
        ("/v1/schedules?prefix=s2", 1),
        ("/v1/schedules?pipeline=p1", 0),
        ("/v1/target/history?plan=00000000-0000-0000-0000-000000000001", 1),
        ("/v1/target/history?plan=00000000-0000-0000-0000-000000000002", 0),
        ("/v1/tokens?name=test", 5),
        ("/v1/tokens?name=anna", 0),
        ("/v1/webhooks?prefix=w5", 1),
    ];
    for (path, count) in cases {
        let (status, list) = s.get(path).await;
        assert_eq!((status, list.as_array().map(Vec::len)), (200, Some(count)), "{path}: {list:#}");
    }
    for path in ["/v1/hardware?colour=red", "/v1/plans?state=party", "/v1/agents?state=", "/v1/machines?state=lost"] {
        assert_eq!(s.get(path).await.0, 400, "{path}");
    }
    assert_eq!(s.get("/v1/events?pipeline=%00").await.0, 422);
    let (_, audit) = s.get("/v1/audit").await;
    let third = audit[2]["id"].as_str().expect("an identifier");
    let first = page(&s, &format!("/v1/audit?before={third}&limit=1")).await;
    assert_eq!(first.body, json!([audit[3]]));
    let next = first.next.expect("another page");
    assert!(next.contains(&format!("before={third}")), "{next}");
    let last = page(&s, &next).await;
    assert_eq!((last.body, last.next), (json!([audit[4]]), None));
    s.running.stop().await;
}

/// The rows of a table that this connection has read lately.
async fn rows_read(db: &mut PgConnection, table: &str) -> i64 {
    let count = "select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
                 from pg_stat_xact_user_tables where relname = $1";
    sqlx::query_scalar(count).bind(table).fetch_one(db).await.expect("statistics")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_many_entries_reads_few_rows() {
    const MANY: i64 = 20_000;
    const LIMIT: i64 = 10;
    const ROWS_MAX: i64 = 200;
    let s = service().await;
    let mut db = PgConnection::connect(&s.url).await.expect("our own database");
    let many = [
        "insert into pipelines (name, spec, updated_at)
         select 'p' || lpad(n::text, 5, '0'), '{}', now() from generate_series(1, MANY) n",
        "insert into profiles (pipeline, profile, updated_at) select name, '{}', now() from pipelines",
        "insert into plans (id, state, problem, options, created_at, pipelines)
         select ID, case when n % 1000 = 0 then 'failed' else 'succeeded' end, '{}', '{}', now(), array['p' || n % 1000]
         from generate_series(1, MANY) n",
        // An event for each would take longer than the test.
        "alter table decisions disable trigger user",
        "insert into decisions (id, pipeline, decision, reason, demand_qps, made_at)
         select ID, 'p' || n % 1000, 'kept', '', 1, now() from generate_series(1, MANY) n",
        "analyze pipelines, profiles, plans, decisions",
    ];
    s.running.stop().await;
    for text in many {
        let text = text.replace("MANY", &MANY.to_string()).replace("ID", ID);
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut db).await.expect("it runs");
    }
    // Statistics of a transaction are not given away before its end.
    let mut tx = db.begin().await.expect("a transaction");
    let tables = ["pipelines", "profiles", "plans", "decisions"];
    let mut before = Vec::new();
    for table in tables {
        before.push(rows_read(&mut tx, table).await);
    }
    let pipelines =
        store::pipelines::summaries(&mut tx, PipelineFilter::default(), Some("p15000"), LIMIT).await.expect("a page");
    let names: Vec<&str> = pipelines.iter().map(|row| row.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[9]), (10, "p15001", "p15010"));
    assert!(pipelines.iter().all(|row| row.profiled));
    let plan = |n: i64| uuid::Uuid::parse_str(&format!("00000000-0000-7000-8000-{n:012}")).expect("an identifier");
    let filter = |pipeline: Option<&str>, state| {
        let pipeline = pipeline.map(str::to_owned);
        store::plans::PlanFilter { pipeline, state, project: None }
    };
    let failed = Some(apportion_wire::PlanState::Failed);
    for (filter, newest) in [
        (filter(None, None), 11_999),
        (filter(None, failed), 11_000),
        (filter(Some("p7"), None), 11_007),
        (filter(Some("p0"), failed), 11_000),
    ] {
        let plans = store::plans::list(&mut tx, &filter, Some(plan(12_000)), LIMIT).await.expect("a page");
        assert_eq!((plans.len(), plans[0].id), (10, plan(newest)), "{filter:?}");
    }
    let filter = store::decisions::DecisionFilter { pipeline: Some("p7".into()), decision: None };
    let decisions = store::decisions::list(&mut tx, &filter, Some(plan(12_000)), LIMIT).await.expect("a page");
    assert_eq!((decisions.len(), decisions[0].id), (10, plan(11_007)));
    for (table, before) in tables.into_iter().zip(before) {
        let read = rows_read(&mut tx, table).await - before;
        // The page itself is read at least, so the statistics count.
        assert!((LIMIT..=ROWS_MAX).contains(&read), "{table}: {read} of {MANY} rows");
    }
}
