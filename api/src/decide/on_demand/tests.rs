use super::super::placement::Spread;
use super::*;
use apportion_domain::GroupName;

fn key(variant: &str, hardware: &str, share: Share) -> GroupKey {
    let (task, variant, hardware) = ("t".into(), variant.into(), hardware.into());
    GroupKey { pipeline: "p".into(), group: GroupName { task, variant, hardware, share }, digest: String::new() }
}

fn want(variant: &str, replicas: u32) -> WantedGroup {
    WantedGroup { key: key(variant, "h", Share::WHOLE), replicas, spread: Spread::New }
}

/// Devices of one agent, all of type `h`.
fn devices(count: u32) -> Vec<Device> {
    (0..count).map(|device| Device::new(1, device, "h")).collect()
}

/// One replica of `small` on two devices; `large` and `half` are offered.
fn placed() -> Placement {
    let offers = [
        key("small", "h", Share::WHOLE),
        key("large", "h", Share::WHOLE),
        key("half", "h", Share::new(0.5).expect("a share")),
        key("large", "other", Share::WHOLE),
    ];
    place_with_offers(&Placement::default(), &[want("small", 1)], &offers, &devices(2)).placement
}

/// The number of an offered variant on `h`.
fn number(placement: &Placement, variant: &str) -> u64 {
    placement.offered.iter().find(|g| g.variant == variant && g.hardware == "h").expect("it is offered").id
}

fn loaded(placement: &Placement) -> Vec<String> {
    let of = |r: &PlacedReplica| placement.group(r.group).expect("its group").variant.clone();
    loaded_for_requests(placement, "p").map(of).collect()
}

fn settings() -> OnDemandSpec {
    OnDemandSpec { replicas_max: 2, loads_per_minute_max: 3, idle_s: 10.0 }
}

fn applied(settings: &OnDemandSpec) -> WantedPipeline<'_> {
    WantedPipeline { name: "p", settings, is_applied: true, is_held: false }
}

#[test]
fn a_groups_number_is_the_same_on_offer_and_in_a_plan() {
    let first = placed();
    assert_eq!(first.offered.iter().map(|g| g.variant.as_str()).collect::<Vec<_>>(), ["large", "half", "large"]);
    let large = number(&first, "large");
    let offers = [key("small", "h", Share::WHOLE), key("large", "h", Share::WHOLE)];
    let second = place_with_offers(&first, &[want("large", 1)], &offers, &devices(2)).placement;
    assert_eq!(second.groups[0].id, large, "the plan has the group that was offered");
    assert_eq!(second.offered[0].id, first.groups[0].id, "and the other one is offered");
    let again = place_with_offers(&second, &[want("large", 1)], &offers, &devices(2));
    assert_eq!(again, PlacementOutcome { placement: second, shortages: vec![] });
}

#[test]
fn replicas_for_requests_stay_until_a_plan_needs_their_device() {
    let (mut first, memory) = (placed(), KnownMemory::default());
    let large = number(&first, "large");
    add_replicas(&mut first, &[large], &devices(2), &memory).expect("one device is free");
    let offers: Vec<GroupKey> = first.offered.iter().filter_map(PlacedGroup::key).collect();
    let same = place_with_offers(&first, &[want("small", 1)], &offers, &devices(2)).placement;
    assert_eq!(same, first, "nothing changes");
    let grown = place_with_offers(&first, &[want("small", 2)], &offers, &devices(2));
    assert_eq!((loaded(&grown.placement), grown.shortages), (vec![], vec![]), "the plan comes first");
    let on_three = place_with_offers(&first, &[want("small", 2)], &offers, &devices(3)).placement;
    assert_eq!(loaded(&on_three), ["large"], "a free device is taken before that of requests");
    let planned = place_with_offers(&first, &[want("small", 1), want("large", 1)], &offers, &devices(2)).placement;
    assert!(loaded(&planned).is_empty() && planned.replicas == first.replicas, "the plan takes over the loaded replica");
    let withdrawn = place_with_offers(&first, &[want("small", 1)], &[], &devices(2)).placement;
    assert_eq!(withdrawn.replicas.len(), 1, "what is not offered any more goes");
}

#[test]
fn replicas_are_added_where_share_memory_and_past_failures_allow() {
    let (first, memory) = (placed(), KnownMemory::default());
    let [large, half] = ["large", "half"].map(|variant| number(&first, variant));
    let mut both = first.clone();
    let no_room = add_replicas(&mut both, &[large, half], &devices(2), &memory).expect_err("they do not fit together");
    assert_eq!((described(&no_room.0), &both), ("t:half on h".to_owned(), &first), "nothing is added");
    let mut one = first.clone();
    add_replicas(&mut one, &[half], &devices(2), &memory).expect("it fits");
    assert_eq!(add_replicas(&mut one, &[half], &devices(2), &memory), Ok(()), "it is there");
    assert_eq!(loaded(&one), ["half"]);
    let mib = |variant: &str, mib: f64| (("p".to_owned(), "t".to_owned(), variant.to_owned()), mib);
    let memory = KnownMemory { devices: [("h".to_owned(), 100.0)].into(), variants: [mib("large", 101.0)].into() };
    assert!(add_replicas(&mut first.clone(), &[large], &devices(2), &memory).is_err(), "too large for a device");
    let device = one.replicas.iter().find(|r| r.group == half).expect("it was added").device;
    let refused = Refused { group: large, agent: 1, device };
    let mut failed = Placement { refused: vec![refused], ..first.clone() };
    assert!(add_replicas(&mut failed, &[large], &devices(2), &KnownMemory::default()).is_err(), "it failed there");
    let other = first.offered.iter().find(|g| g.hardware == "other").expect("offered").id;
    assert!(add_replicas(&mut first.clone(), &[other], &devices(2), &KnownMemory::default()).is_err());
}

#[test]
fn wants_are_judged_by_mode_holds_quota_budget_and_room() {
    let (first, memory, settings) = (placed(), KnownMemory::default(), settings());
    let (at, two) = (Instant::now(), devices(2));
    let room = FreeRoom { devices: &two, memory: &memory };
    let large = number(&first, "large");
    let mut watch = OnDemandWatch::default();
    let of = applied(&settings);
    assert_eq!(watch.judge(at, &of, &[large, large], &first, &room), WantVerdict::Load(vec![large]));
    let small = first.groups[0].id;
    for known in [&[small][..], &[9_999], &[]] {
        assert_eq!(watch.judge(at, &of, known, &first, &room), WantVerdict::Present, "{known:?}");
    }
    let refused = |verdict: WantVerdict| match verdict {
        WantVerdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let advisory = WantedPipeline { is_applied: false, ..of };
    assert_eq!(refused(watch.judge(at, &advisory, &[large], &first, &room)), WantRefusal::Advisory);
    let held = WantedPipeline { is_held: true, ..of };
    assert_eq!(refused(watch.judge(at, &held, &[large], &first, &room)), WantRefusal::Held);
    let none = FreeRoom { devices: &two[..1], memory: &memory };
    assert!(matches!(refused(watch.judge(at, &of, &[large], &first, &none)), WantRefusal::Room(_)));
    let few = OnDemandSpec { replicas_max: 1, ..settings.clone() };
    let mut second = first.clone();
    add_replicas(&mut second, &[number(&first, "half")], &two, &memory).expect("it fits");
    assert_eq!(refused(watch.judge(at, &applied(&few), &[large], &second, &room)), WantRefusal::Replicas(1, 1));
    assert_eq!(watch.judge(at, &of, &[number(&first, "half")], &second, &room), WantVerdict::Present);
    watch.loaded(at, "p", 3);
    assert_eq!(refused(watch.judge(at, &of, &[large], &first, &room)), WantRefusal::Budget(3, 3));
    let later = at + BUDGET_TIME;
    assert_eq!(watch.judge(later, &of, &[large], &first, &room), WantVerdict::Load(vec![large]), "the minute is over");
    assert!(watch.loads.is_empty(), "a pipeline without loads takes no memory");
}

#[test]
fn a_refusal_is_news_once_in_a_while() {
    let (at, mut watch) = (Instant::now(), OnDemandWatch::default());
    assert!(watch.is_news(at, "p", &[1], &WantRefusal::Held));
    assert!(!watch.is_news(at, "p", &[1], &WantRefusal::Held));
    assert!(watch.is_news(at, "p", &[1], &WantRefusal::Advisory) && watch.is_news(at, "p", &[2], &WantRefusal::Held));
    assert!(watch.is_news(at + NOTE_AGAIN_AFTER, "p", &[2], &WantRefusal::Held));
}

#[test]
fn a_replica_is_idle_when_no_query_has_used_it_for_long_enough() {
    let (mut placement, settings) = (placed(), settings());
    let large = number(&placement, "large");
    add_replicas(&mut placement, &[large], &devices(2), &KnownMemory::default()).expect("one device is free");
    let (begin, mut watch) = (Instant::now(), OnDemandWatch::default());
    let mut idle = |s: u64, used: &[u64]| {
        let used = used.iter().copied().collect();
        watch.idle(begin + Duration::from_secs(s), "p", &settings, &placement, &used).len()
    };
    assert_eq!([idle(0, &[]), idle(9, &[large]), idle(18, &[])], [0, 0, 0], "the use counts");
    assert_eq!([idle(19, &[]), idle(20, &[large])], [1, 0]);
    assert_eq!(watch.idle(begin + Duration::from_secs(99), "q", &settings, &placement, &BTreeSet::new()), []);
}
