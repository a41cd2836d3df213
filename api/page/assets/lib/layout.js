// Where do the tasks of a graph stand? Layers from left to right, with few crossings.
//
// The method is that of Sugiyama, Tagawa and Toda (1981): each node's layer is its longest path from a root, long edges get
// bends in the layers between, and the order in each layer is the mean place of its neighbours, over some sweeps.

/** Sweeps over the layers: the order of a pipeline's graph does not change after a few. */
const SWEEPS = 8;

/**
 * @param {string[]} names
 * @param {{from: string, to: string}[]} edges edges without a known end, and those that close a circle, are left out
 * @param {{width: number, height: number, gapX: number, gapY: number}} size of nodes and gaps
 * @returns {{nodes: Map<string, {x: number, y: number}>, width: number, height: number,
 *   edges: {from: string, to: string, points: {x: number, y: number}[]}[]}} middles of the nodes, and the
 *   points through which edges go
 */
export function layered(names, edges, size) {
  const known = edges.filter((e) => names.includes(e.from) && names.includes(e.to) && e.from !== e.to);
  const layerOf = longestPaths(names, known);
  const layers = [];
  const place = (name, layer) => (layers[layer] ??= []).push(name);
  names.forEach((name) => place(name, layerOf.get(name)));
  const links = [];
  const routes = known
    .filter((e) => layerOf.get(e.from) < layerOf.get(e.to))
    .map((e, at) => {
      const path = [e.from];
      for (let layer = layerOf.get(e.from) + 1; layer < layerOf.get(e.to); layer += 1) {
        path.push(`\u0000${at}:${layer}`);
        place(path.at(-1), layer);
      }
      path.push(e.to);
      path.slice(1).forEach((to, i) => links.push([path[i], to]));
      return { from: e.from, to: e.to, path };
    });
  orderLayers(layers, links);
  const tallest = Math.max(1, ...layers.map((layer) => layer.length));
  const height = tallest * size.height + (tallest - 1) * size.gapY;
  const positions = new Map();
  layers.forEach((layer, at) => {
    const free = height - layer.length * size.height - (layer.length - 1) * size.gapY;
    layer.forEach((name, i) =>
      positions.set(name, {
        x: at * (size.width + size.gapX) + size.width / 2,
        y: free / 2 + i * (size.height + size.gapY) + size.height / 2,
      }),
    );
  });
  const width = layers.length * size.width + Math.max(0, layers.length - 1) * size.gapX;
  return {
    nodes: new Map(names.map((name) => [name, positions.get(name)])),
    edges: routes.map(({ from, to, path }) => ({ from, to, points: path.map((name) => positions.get(name)) })),
    width,
    height,
  };
}

function longestPaths(names, edges) {
  const layer = new Map(names.map((name) => [name, 0]));
  // As many rounds as names are enough without a circle; with one, the limit ends it.
  for (let round = 0; round < names.length; round += 1) {
    let isChanged = false;
    for (const { from, to } of edges) {
      const next = Math.min(names.length - 1, layer.get(from) + 1);
      if (layer.get(to) < next) {
        layer.set(to, next);
        isChanged = true;
      }
    }
    if (!isChanged) break;
  }
  const used = [...new Set(layer.values())].sort((a, b) => a - b);
  return new Map(names.map((name) => [name, used.indexOf(layer.get(name))]));
}

function orderLayers(layers, links) {
  const neighbours = new Map();
  const add = (name, other) => neighbours.set(name, [...(neighbours.get(name) ?? []), other]);
  links.forEach(([from, to]) => {
    add(from, to);
    add(to, from);
  });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const order = sweep % 2 === 0 ? layers.map((_, i) => i) : layers.map((_, i) => layers.length - 1 - i);
    for (const at of order) {
      const beside = layers[at + (sweep % 2 === 0 ? -1 : 1)];
      if (!beside) continue;
      const placeOf = new Map(beside.map((name, i) => [name, (i + 0.5) / beside.length]));
      const mean = (name, i) => {
        const places = (neighbours.get(name) ?? []).map((n) => placeOf.get(n)).filter((p) => p !== undefined);
        return places.length ? places.reduce((a, b) => a + b, 0) / places.length : (i + 0.5) / layers[at].length;
      };
      const means = new Map(layers[at].map((name, i) => [name, mean(name, i)]));
      layers[at].sort((a, b) => means.get(a) - means.get(b));
    }
  }
}
