/** Converts recorded events to a Chrome trace: the JSON that Perfetto and chrome://tracing read. Pure. */

/** An event with a start and an end. */
export interface TraceSpan {
  /** The owner of a timeline: a worker, a card. */
  readonly timeline: string;
  /** Kind of event, such as `request`. */
  readonly category: string;
  readonly name: string;
  readonly startNs: number;
  readonly endNs: number;
  /** Further properties. */
  readonly details: Readonly<Record<string, string | number | undefined>>;
}

/** Count, time and bytes of the events of one name. */
export interface AccumulatedSpans {
  readonly timeline: string;
  readonly name: string;
  count: number;
  totalNs: number;
  minNs: number;
  maxNs: number;
  bytes: number;
}

const NS_PER_US = 1000;

/**
 * A trace with the spans in order of their start, and the sums in its `otherData`. Events overlap, so each is a pair of begin and end with a
 * unique id (phases b and e); timelines are processes of the format.
 * @param lost number of recorded events that were overwritten
 */
export function chromeTrace(
  spans: readonly TraceSpan[],
  sums: readonly AccumulatedSpans[],
  lost: number,
  title: string,
): string {
  const timelines = [...new Set(spans.map(({ timeline }) => timeline))].sort(byNumber);
  const idOf = new Map(timelines.map((timeline, index) => [timeline, index + 1]));
  const names = timelines.flatMap((name, index) => [
    { ph: 'M', name: 'process_name', pid: index + 1, tid: 0, args: { name } },
    { ph: 'M', name: 'process_sort_index', pid: index + 1, tid: 0, args: { sort_index: index } },
  ]);
  const events = [...spans]
    .sort((left, right) => left.startNs - right.startNs)
    .flatMap(({ timeline, category, name, startNs, endNs, details }, index) => {
      const common = { cat: category, name, pid: idOf.get(timeline), tid: 0, id: index + 1 };
      return [
        { ...common, ph: 'b', ts: startNs / NS_PER_US, args: details },
        { ...common, ph: 'e', ts: endNs / NS_PER_US },
      ];
    });
  const accumulated = [...sums].sort((left, right) => right.totalNs - left.totalNs);
  return JSON.stringify({
    traceEvents: [...names, ...events],
    displayTimeUnit: 'ns',
    otherData: { title, lost, accumulated },
  });
}

/** Sorts `card 2` before `card 10`. */
function byNumber(left: string, right: string): number {
  return left.localeCompare(right, 'en', { numeric: true });
}
