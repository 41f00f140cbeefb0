/** Statistics as data: a tree of named counters. */

/** Counters by name. Totals since the start, unless documented as levels. */
export type Counters = Readonly<Record<string, number>>;

/** An object with counters, and the objects that it contains (ucs_stats_node_t). */
export interface StatsNode {
  /** Kind of the object, such as `uct_iface`: nodes of one class have the same counters. */
  readonly className: string;
  /** Name of the object, such as `posix/memory`; empty if there is only one. */
  readonly name: string;
  /** Counters of the object, by name. */
  readonly counters: Counters;
  /** The objects that it contains. */
  readonly children: readonly StatsNode[];
}

/** Makes a node of the tree, without children by default. */
export function statsNode(
  className: string,
  name: string,
  counters: Counters,
  children: readonly StatsNode[] = [],
): StatsNode {
  return { className, name, counters, children };
}

/** Reads an array of counters whose names are given by index. */
export function namedCounters(names: readonly string[], values: ArrayLike<number>): Counters {
  return Object.fromEntries(names.map((name, index) => [name, values[index]!]));
}

/** The counters for which `isWanted` is true, without nodes that have neither counters nor children. */
export function filterStats(node: StatsNode, isWanted: (counter: string) => boolean): StatsNode {
  const counters = Object.fromEntries(Object.entries(node.counters).filter(([name]) => isWanted(name)));
  const children = node.children
    .map((child) => filterStats(child, isWanted))
    .filter((child) => child.children.length > 0 || Object.keys(child.counters).length > 0);
  return { ...node, counters, children };
}

/** The sums over all nodes of each class, in the order in which the classes first occur. */
export function sumByClass(root: StatsNode): StatsNode[] {
  const sums = new Map<string, Record<string, number>>();
  const visit = (node: StatsNode): void => {
    const sum = sums.get(node.className) ?? {};
    sums.set(node.className, sum);
    addCounters(sum, node.counters);
    for (const child of node.children) visit(child);
  };
  visit(root);
  return [...sums]
    .filter(([, counters]) => Object.keys(counters).length > 0)
    .map(([className, counters]) => statsNode(className, '', counters));
}

/** Merges two trees: the sums of nodes at the same position, by class and name. Used for the counters of closed objects. */
export function mergeStats(first: StatsNode, second: StatsNode): StatsNode {
  const counters = { ...first.counters };
  addCounters(counters, second.counters);
  const children = [...first.children];
  for (const child of second.children) {
    const at = children.findIndex(({ className, name }) => className === child.className && name === child.name);
    if (at < 0) children.push(child);
    else children[at] = mergeStats(children[at]!, child);
  }
  return { ...first, counters, children };
}

function addCounters(sum: Record<string, number>, counters: Counters): void {
  for (const [name, value] of Object.entries(counters)) sum[name] = (sum[name] ?? 0) + value;
}
