//! What does the fleet's target mean for an agent, and how does it differ from the loaded replicas?

mod error;
mod glue;
mod joins;
mod model;
mod read;

pub use error::{LayoutError, PipelineError};
pub use model::{
    AgentDevices, JoinWait, Layout, LayoutEdge, LayoutFanout, LayoutGroup, LayoutPipeline, LayoutPoint, LayoutReplica,
    LayoutTask, MappedInput, ProfiledTime, TableEntries, TargetDifference, VariantCombination, difference,
};
pub use read::lay_out;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use apportion_domain::Dropping;
    use apportion_protocol::v1;
    use apportion_serving::router::Within;

    /// A chain `a -> b` with one replica of each: `a` (replica 1, group 1) on agent 1 and `b` (2, 2) on agent 2.
    pub(crate) fn chain() -> v1::Target {
        let spec = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
        let task = |name: &str| v1::TaskTarget {
            name: name.into(),
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            ..Default::default()
        };
        let group = |group: u64, task: u32| v1::GroupTarget {
            group,
            task,
            variant: "v".into(),
            batch: 4,
            file_digest: "d".into(),
            service: vec![
                v1::ServicePoint { batch: 1, latency_ns: 10, p99_ns: 0 },
                v1::ServicePoint { batch: 4, latency_ns: 20, p99_ns: 50 },
            ],
            ..Default::default()
        };
        let replica = |replica: u64, agent| v1::ReplicaTarget { replica, group: replica, agent, device: 0 };
        let table =
            |from, to_task, group| v1::Table { from, to_task, entries: vec![v1::TableEntry { group, fraction: 1.0 }] };
        let pipeline = v1::PipelineTarget {
            name: "p".into(),
            slo_ns: 1_000_000_000,
            tasks: vec![task("a"), task("b")],
            edges: vec![v1::EdgeTarget {
                from: 0,
                to: 1,
                map: [("x".to_string(), "y".to_string())].into(),
                ..Default::default()
            }],
            groups: vec![group(1, 0), group(2, 1)],
            replicas: vec![replica(1, 1), replica(2, 2)],
            tables: vec![table(None, 0, 1), table(Some(1), 1, 2)],
            ..Default::default()
        };
        let peer = |agent| v1::Peer { agent, data_address: format!("127.0.0.1:{agent}"), ..Default::default() };
        let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
        v1::Target { fence, agents: vec![peer(1), peer(2)], pipelines: vec![pipeline], ..Default::default() }
    }

    #[test]
    fn a_replica_is_loaded_kept_or_retired_by_its_number() {
        let layout = lay_out(&chain()).expect("a valid target");
        let expected = TargetDifference { load: vec![1], keep: vec![], retire: vec![7] };
        assert_eq!(difference(&[7].into(), &layout, 1), expected);
        let expected = TargetDifference { load: vec![], keep: vec![2], retire: vec![] };
        assert_eq!(difference(&[2].into(), &layout, 2), expected);
    }

    #[test]
    fn the_time_of_a_share_is_a_range() {
        let mut target = chain();
        let mut times = |interference: f64| {
            target.pipelines[0].groups[0].interference = interference;
            let layout = lay_out(&target).expect("a valid target");
            let group = &layout.pipelines["p"].groups[&1];
            [1, 4].map(|batch| group.profiled(batch).alone_ns as f64 / group.profiled(batch).beside_ns as f64)
        };
        assert_eq!(times(2.0), [0.5, 0.5]);
        assert_eq!(times(1.25), [0.8, 0.8]);
        // It was not measured, or somebody sends another number.
        for none in [0.0, 1.0, 0.5, -2.0, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(times(none), [1.0, 1.0], "{none}");
        }
        let range = ProfiledTime { alone_ns: 10, beside_ns: 15 };
        assert_eq!([5, 10, 12, 15, 20].map(|took_ns| range.compared_ns(took_ns)), [10, 10, 12, 15, 15]);
    }

    #[test]
    fn what_an_agent_cannot_do_is_refused_by_name() {
        let mut target = chain();
        let asked = |dropping: &str, routing: &str| v1::Serving {
            dropping: dropping.into(),
            routing: routing.into(),
            ..Default::default()
        };
        for (queueing, is_central) in [("central", true), ("per_replica", false), ("", false)] {
            target.pipelines[0].serving = Some(v1::Serving { queueing: queueing.into(), ..Default::default() });
            assert_eq!(lay_out(&target).expect("can be done").pipelines["p"].is_central(), is_central);
        }
        target.pipelines[0].serving = Some(v1::Serving { queueing: "shared".into(), ..Default::default() });
        let refused = lay_out(&target).expect_err("no such queue").to_string();
        assert!(refused.contains("queueing shared: expected one of per_replica, central"), "{refused}");
        target.pipelines[0].serving = Some(asked("naive", "dice"));
        assert!(lay_out(&target).expect_err("no such policy").to_string().contains("stride"));
        for dropping in Dropping::NAMES {
            target.pipelines[0].serving = Some(asked(dropping, "jsq"));
            let laid = lay_out(&target).expect("can be done");
            assert_eq!(laid.pipelines["p"].serving.dropping.name(), *dropping);
            assert_eq!(laid.pipelines["p"].within, Within::LeastOutstanding);
        }
    }

    #[test]
    fn a_continuous_task_is_refused_by_name_without_slots() {
        let mut target = chain();
        lay_out(&target).expect("valid").refuse_continuous(2).expect("batches only");
        target.pipelines[0].tasks[1].continuous = true;
        let layout = lay_out(&target).expect("it can be emulated");
        let refused = layout.refuse_continuous(2).expect_err("a backend without slots").to_string();
        layout.refuse_continuous(1).expect("the task has no replica there");
        assert!(refused.contains("pipeline p: task b: kind continuous"), "{refused}");
    }

    #[test]
    fn a_flat_or_incomplete_ladder_is_refused() {
        let mut target = chain();
        let step = |rate_qps, replicas: &[u32]| v1::LadderStep { rate_qps, replicas: replicas.to_vec() };
        target.pipelines[0].ladder = vec![step(1.0, &[1, 2]), step(2.0, &[3, 4])];
        target.pipelines[0].groups.reverse();
        let laid = lay_out(&target).expect("valid");
        let counts: Vec<_> = laid.pipelines["p"].ladder.iter().map(|s| s.replicas.as_slice()).collect();
        assert_eq!(counts, [[2, 1], [4, 3]], "by the groups' numbers");
        target.pipelines[0].ladder[1].rate_qps = 1.0;
        assert!(lay_out(&target).expect_err("flat").to_string().contains("do not rise"));
        target.pipelines[0].ladder = vec![step(1.0, &[1])];
        assert!(
            lay_out(&target)
                .expect_err("a count lacks")
                .to_string()
                .contains("has 1 counts: expected one for each of 2 groups")
        );
    }

    #[test]
    fn hops_are_one_for_all_tasks_or_one_for_each() {
        let mut target = chain();
        target.pipelines[0].network_ns = 7;
        let hops = |target: &v1::Target| lay_out(target).map(|layout| layout.pipelines["p"].hops_ns.clone());
        assert_eq!(hops(&target).expect("a valid target"), [7, 7]);
        target.pipelines[0].hops_ns = vec![9, 8];
        assert_eq!(hops(&target).expect("a valid target"), [9, 8]);
        target.pipelines[0].hops_ns.push(7);
        let refused = hops(&target).expect_err("three hops").to_string();
        assert!(refused.contains("it has 3 hops: expected one for each of 2 tasks, or none"), "{refused}");
    }

    #[test]
    fn a_share_of_misses_is_between_none_and_all() {
        let promised = |share: f64| {
            let mut target = chain();
            target.pipelines[0].missed_share_max = share;
            lay_out(&target).map(|layout| layout.pipelines["p"].missed_share_max)
        };
        assert_eq!(promised(0.0).expect("an older service promises nothing"), None);
        assert_eq!(promised(0.01).expect("a share"), Some(0.01));
        for wrong in [1.0, -0.1, f64::NAN, f64::INFINITY] {
            let refused = promised(wrong).expect_err("no share").to_string();
            assert!(refused.contains(&format!("its share of misses is {wrong}: expected a number above 0")), "{refused}");
        }
    }

    #[test]
    fn two_makers_or_too_many_paths_are_refused() {
        let mut target = chain();
        let edge = target.pipelines[0].edges[0].clone();
        target.pipelines[0].edges.push(edge);
        assert!(lay_out(&target).expect_err("two makers").to_string().contains("task b: 2 of its edges make queries"));
        // A ladder: each of 12 steps doubles the paths.
        let mut target = chain();
        let pipeline = &mut target.pipelines[0];
        (pipeline.groups, pipeline.replicas, pipeline.tables) = Default::default();
        let task = pipeline.tasks[0].clone();
        pipeline.tasks = (0..36).map(|n| v1::TaskTarget { name: n.to_string(), ..task.clone() }).collect();
        let edge = |from, to, delays| v1::EdgeTarget { from, to, delays, ..Default::default() };
        let step = |n: u32| {
            let both = [edge(3 * n, 3 * n + 1, false), edge(3 * n, 3 * n + 2, false)];
            let on = [edge(3 * n + 1, 3 * n + 3, false), edge(3 * n + 2, 3 * n + 3, true)];
            both.into_iter().chain(if n < 11 { on.to_vec() } else { vec![] })
        };
        pipeline.edges = (0..12).flat_map(step).collect();
        assert!(lay_out(&target).is_ok());
        target.pipelines[0].serving = Some(v1::Serving { dropping: "pard".into(), ..Default::default() });
        assert!(lay_out(&target).expect_err("too many").to_string().contains("dropping pard: more than 1024 paths"));
    }

    #[test]
    fn latency_is_linear_between_profiled_batches() {
        let layout = lay_out(&chain()).expect("a valid target");
        let group = &layout.pipelines["p"].groups[&1];
        assert_eq!([1, 2, 3, 4, 9].map(|b| group.latency_ns(b)), [10, 13, 17, 20, 20]);
        // The first size has no percentile of its own.
        assert_eq!([1, 2, 4, 9].map(|b| group.p99_ns(b)), [10, 23, 50, 50]);
    }
}
