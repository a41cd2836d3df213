//! Graphs and their loads, by the page's own modules.

use crate::stage::browser_at;
use apportion_tests::cluster::Cluster;
use serde_json::json;

/// Lays out graphs by the page's own module. Gives what is wrong with each, and the load of the edges of `find`.
const LAYOUTS: &str = r"
    const done = arguments[arguments.length - 1];
    const at = document.querySelector('script[type=module]').src.replace('app.js', 'lib/');
    const size = {width: 10, height: 4, gapX: 5, gapY: 2};
    const faults = (layered, [names, edges, count]) => {
        const list = edges.map((edge) => ({from: edge[0], to: edge[1]}));
        const plan = layered([...names], list, size);
        const nodes = [...plan.nodes.values()];
        const isOver = (a, b) => a !== b && Math.abs(a.x - b.x) < size.width && Math.abs(a.y - b.y) < size.height;
        const isInside = (p) => p.x > 0 && p.y > 0 && p.x < plan.width && p.y < plan.height;
        const isForward = (edge) => edge.points.every((p, i) => i === 0 || p.x > edge.points[i - 1].x);
        return [
            nodes.length !== names.length && 'a node is missing',
            plan.edges.length !== count && `${plan.edges.length} edges`,
            nodes.some((a) => nodes.some((b) => isOver(a, b))) && 'nodes overlap',
            !plan.edges.every(isForward) && 'an edge goes back',
            ![...nodes, ...plan.edges.flatMap((edge) => edge.points)].every(isInside) && 'a point is outside',
        ].filter(Boolean).map((fault) => `${names}: ${fault}`);
    };
    const graphs = [
        ['a', [], 0], ['abc', ['ab', 'bc'], 2], ['abcd', ['ab', 'ac', 'bd', 'cd'], 4], ['abcd', ['ab', 'bc', 'cd', 'ad'], 4],
        ['dcba', ['ab', 'bc', 'cd'], 3], ['abcdefg', ['ab', 'ac', 'ad', 'be', 'cf', 'dg', 'ag'], 7], ['ab', ['ab', 'ax', 'aa'], 1],
        ['abc', ['ab', 'bc', 'ca'], null],
    ];
    Promise.all([import(at + 'layout.js'), import(at + 'traffic.js')]).then(([{layered}, {traffic}]) => {
        // A graph with a circle is refused by the service. The page must only end.
        const found = graphs.flatMap((graph) => {
            const [names, edges, count] = graph;
            if (count !== null) return faults(layered, graph);
            layered([...names], edges.map((edge) => ({from: edge[0], to: edge[1]})), size);
            return [];
        });
        const spec = {tasks: [{name: 'find', variants: [{name: 's', fanout: 2}, {name: 'l', fanout_to: {read: 3}}]}, {name: 'read', variants: []}],
            edges: [{from: 'find', to: 'read', ratio: 0.5}]};
        const part = {assignments: [{task: 'find', variant: 's', traffic_share: 0.5}, {task: 'find', variant: 'l', traffic_share: 0.5}]};
        done([found, traffic(spec, part, 10).edges[0].qps]);
    }, (error) => done([[String(error)], 0]));";

#[tokio::test(flavor = "multi_thread")]
async fn graphs_are_laid_out_without_overlaps() {
    let Some(driver) = apportion_needs::browser() else { return };
    let cluster = Cluster::start(0, 0).await;
    let browser = browser_at(&cluster, &driver).await;
    // Half of 10/s makes 2 * 0.5 queries each, and half makes 3.
    assert_eq!(browser.script_with_callback(LAYOUTS).await, json!([[], 20]));
}
