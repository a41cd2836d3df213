//! Schedules at the edges of days, years and summer time.

use super::*;

fn time(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).expect("a time").with_timezone(&Utc)
}

fn cron(text: &str, zone: &str) -> ScheduleSpec {
    ScheduleSpec {
        cron: Some(text.into()),
        time_zone: Some(zone.into()),
        replan: Some(ScheduledReplan::default()),
        ..ScheduleSpec::default()
    }
}

fn every(every_s: u32) -> ScheduleSpec {
    ScheduleSpec { every_s: Some(every_s), replan: Some(ScheduledReplan::default()), ..ScheduleSpec::default() }
}

/// Cron, zone, from, and the next due times by the zone's clocks.
type CronCase = (&'static str, &'static str, &'static str, &'static [&'static str]);

const CRON_CASES: [CronCase; 15] = [
    // Berlin: 02:00 becomes 03:00 on 2026-03-29, and 03:00 becomes 02:00 on 2026-10-25
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-27T12:00:00.7Z",
        &["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
    ),
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:15:00Z",
        &["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"],
    ),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:45:00Z",
        &[
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:00:00+01:00",
        ],
    ),
    // from inside the repeated hour, after its first half past two
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", &["2026-10-26T02:30:00+01:00"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15:00Z", &["2026-10-26T02:30:00+01:00"]),
    // wildcards go on from inside the repeated hour
    (
        "*/30 2 * * *",
        "Europe/Berlin",
        "2026-10-25T00:45:00Z",
        &["2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:00:00+01:00"],
    ),
    ("*/30 2 25 10 *", "Europe/Berlin", "2026-02-01T00:00:00Z", &["2026-10-25T02:00:00+02:00"]),
    ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-30T02:00:00+02:00"]),
    ("50 8 * * 1-5", "Europe/Berlin", "2026-03-27T12:00:00Z", &["2026-03-30T08:50:00+02:00"]),
    // Lord Howe: 02:00 becomes 02:30 on 2026-10-04
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", &["2026-10-04T02:30:00+11:00"]),
    // Santiago: midnight becomes 01:00 on 2026-09-06
    ("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", &["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"]),
    ("0 12 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T12:00:00+00:00", "2032-02-29T12:00:00+00:00"]),
    ("0 0 31 * *", "Asia/Kolkata", "2026-04-01T00:00:00Z", &["2026-05-31T00:00:00+05:30", "2026-07-31T00:00:00+05:30"]),
    ("0 9 * * 7", "UTC", "2026-11-23T00:00:00Z", &["2026-11-29T09:00:00+00:00"]),
];

#[test]
fn cron_follows_the_clocks_of_its_zone() {
    for (text, zone, from, expected) in CRON_CASES {
        let timing = cron(text, zone).timing(time(from)).expect("a schedule");
        let dues = timing.upcoming(time(from), expected.len());
        let dues: Vec<String> = dues.iter().map(DateTime::to_rfc3339).collect();
        assert_eq!(dues, expected, "{text} in {zone} from {from}");
    }
}

#[test]
fn intervals_count_from_their_writing() {
    let timing = every(90).timing(time("2026-01-01T00:00:30.7Z")).expect("a schedule");
    let dues = timing.upcoming(time("2026-01-01T00:03:30Z"), 2);
    assert_eq!(dues, [time("2026-01-01T00:05:00Z"), time("2026-01-01T00:06:30Z")]);
    assert_eq!(timing.next_after(time("2025-12-31T00:00:00Z")), Some(time("2026-01-01T00:02:00Z")));
}

#[test]
fn an_outage_leaves_one_catch_up() {
    let timing = cron("0 * * * *", "UTC").timing(time("2026-01-01T00:00:00Z")).expect("a schedule");
    let first = time("2026-01-01T01:00:00Z");
    // (until, the latest due time, skipped)
    let cases = [
        ("2026-01-01T01:00:00Z", "2026-01-01T01:00:00Z", 0),
        ("2026-01-01T01:59:59Z", "2026-01-01T01:00:00Z", 0),
        ("2026-01-01T02:00:00Z", "2026-01-01T02:00:00Z", 1),
        ("2026-01-03T00:30:00Z", "2026-01-03T00:00:00Z", 47),
    ];
    for (until, latest, skipped) in cases {
        let passed = timing.passed(first, time(until));
        assert_eq!((passed.latest, passed.skipped), (time(latest), skipped), "{until}");
        assert!(passed.next.is_some_and(|next| next > time(until) && next > passed.latest), "{until}");
    }
    let minutes = cron("* * * * *", "UTC").timing(first).expect("a schedule");
    let passed = minutes.passed(first, time("2026-02-01T00:00:30Z"));
    assert_eq!(passed.skipped, DUES_MAX, "the count has a limit");
    assert_eq!(passed.next, Some(time("2026-02-01T00:01:00Z")), "nothing more is caught up");
}

#[test]
fn refused_schedules_name_place_and_right_form() {
    let at = time("2026-01-01T00:00:00Z");
    let hold = |for_s| ScheduledHold { for_s, reason: "a launch".into() };
    let with = |replan| ScheduleSpec { replan: Some(replan), ..every(60) };
    let demand = |demand_qps| ScheduledReplan { demand_qps: Some(demand_qps), ..ScheduledReplan::default() };
    let headroom = |headroom| ScheduledReplan { headroom: Some(headroom), ..ScheduledReplan::default() };
    let cases = [
        (ScheduleSpec { every_s: None, ..every(60) }, "", "either cron or every_s"),
        (ScheduleSpec { every_s: Some(60), ..cron("* * * * *", "UTC") }, "", "either cron or every_s"),
        (ScheduleSpec { replan: None, ..every(60) }, "", "either replan or hold"),
        (ScheduleSpec { hold: Some(hold(1)), ..every(60) }, "", "either replan or hold"),
        (ScheduleSpec { hold: Some(hold(0)), replan: None, ..every(60) }, "/hold/for_s", "1 to 31536000"),
        (ScheduleSpec { time_zone: Some("UTC".into()), ..every(60) }, "/time_zone", "beside cron only"),
        (every(EVERY_S_MIN - 1), "/every_s", "60 to 31536000"),
        (every(EVERY_S_MAX + 1), "/every_s", "60 to 31536000"),
        (cron("50 8 * * 1-5", "Europe/Bonn"), "/time_zone", "such as \"Europe/Berlin\""),
        (cron("50 25 * * *", "UTC"), "/cron", "five fields"),
        (cron("0 50 8 * * 1-5", "UTC"), "/cron", "five fields"),
        (cron("", "UTC"), "/cron", "five fields"),
        (cron("0 0 30 2 *", "UTC"), "/cron", "a date that comes"),
        (cron(&"1,".repeat(CRON_CHARS_MAX), "UTC"), "/cron", "at most 200"),
        (with(demand(60.0)), "/replan/demand_qps", "expected pipeline too"),
        (with(demand(0.0)), "/replan/demand_qps", "above 0"),
        (with(headroom(0.0)), "/replan/headroom", "0.1 to 100"),
        (with(ScheduledReplan { headroom: Some(1.0), ..demand(1.0) }), "/replan/headroom", "either demand_qps or headroom"),
        (with(ScheduledReplan { hold_s: WINDOW_S_MAX + 1, ..headroom(1.0) }), "/replan/hold_s", "0 to 31536000"),
    ];
    for (spec, pointer, part) in cases {
        let error = spec.timing(at).expect_err(part);
        assert_eq!(error.pointer(), pointer, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn the_mean_load_begins_with_the_first_report() {
    assert_eq!(mean_qps(&[], 60), None, "no report means no load of zero");
    assert_eq!(mean_qps(&[(0, 60), (30, 60)], 60), Some(2.0));
    assert_eq!(mean_qps(&[(50, 40)], 60), Some(4.0));
}

#[test]
fn due_times_only_go_forward_across_changes_of_clocks() {
    let (begin, end) = (time("2026-10-24T20:00:00Z"), time("2026-10-25T06:00:00Z"));
    for text in ["* * * * *", "*/7 * * * *", "17 * * * *", "15,45 2 * * *", "0 1-4 * * *", "*/30 2 * * *"] {
        for zone in ["Europe/Berlin", "UTC"] {
            let timing = cron(text, zone).timing(begin).expect("a schedule");
            let mut at = begin;
            while at < end {
                let next = timing.next_after(at).expect("another due time");
                assert!(next > at, "{text} in {zone}: {next} after {at}");
                at = next;
            }
        }
    }
}
