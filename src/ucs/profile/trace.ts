/** Converts recorded events to a Chrome trace: the JSON format of Perfetto and chrome://tracing. */

/** An event with a start and an end. */
export interface TraceSpan {
  /** Name of the worker or card. */
  readonly timeline: string;
  /** Whether `timeline` is a card. */
  readonly isCard: boolean;
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

export interface TraceProcess {
  readonly pid: number;
  /** Thread id of Linux: the thread that runs the workers. */
  readonly tid: number;
  /** Command line and host. */
  readonly title: string;
}

/** First thread id of cards, above all thread ids of Linux (PID_MAX_LIMIT is 2^22). */
const FIRST_CARD_TID = 2 ** 22;

/**
 * A trace with the spans in order of their start, and the sums in its `otherData`. Events overlap, so each is a begin-end pair with a unique id (phases b and
 * e). Events of workers are on the timeline of their thread. Each card has a timeline in the same process, with a thread id that Linux does not use.
 * @param lost number of recorded events that were overwritten
 */
export function chromeTrace(
  spans: readonly TraceSpan[],
  sums: readonly AccumulatedSpans[],
  lost: number,
  { pid, tid, title }: TraceProcess,
): string {
  const namesOf = (isCard: boolean): string[] => {
    const own = spans.filter((span) => span.isCard === isCard);
    return [...new Set(own.map(({ timeline }) => timeline))].sort(byNumber);
  };
  const [cards, workers] = [namesOf(true), namesOf(false)];
  const tidOf = new Map(cards.map((card, index) => [card, FIRST_CARD_TID + index]));
  const threads = [
    ...(workers.length > 0 ? [[tid, workers.join(', ')] as const] : []),
    ...cards.map((card) => [tidOf.get(card), card] as const),
  ];
  const names = threads.map(([thread, name]) => ({ ph: 'M', name: 'thread_name', pid, tid: thread, args: { name } }));
  const events = [...spans]
    .sort((left, right) => left.startNs - right.startNs)
    .flatMap(({ timeline, category, name, startNs, endNs, details }, index) => {
      const common = { cat: category, name, pid, tid: tidOf.get(timeline) ?? tid, id: index + 1 };
      return [
        { ...common, ph: 'b', ts: startNs / NS_PER_US, args: { on: timeline, ...details } },
        { ...common, ph: 'e', ts: endNs / NS_PER_US },
      ];
    });
  const accumulated = [...sums].sort((left, right) => right.totalNs - left.totalNs);
  return JSON.stringify({
    traceEvents: [{ ph: 'M', name: 'process_name', pid, tid, args: { name: title } }, ...names, ...events],
    displayTimeUnit: 'ns',
    otherData: { title, lost, accumulated },
  });
}

/** Sorts `card 2` before `card 10`. */
function byNumber(left: string, right: string): number {
  return left.localeCompare(right, 'en', { numeric: true });
}
