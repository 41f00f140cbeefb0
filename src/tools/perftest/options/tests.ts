/** Tests of ucx_perftest by name: operation, pattern and titles of the table. */

/** The operation of a test. */
export type Operation = 'am' | 'put' | 'get' | 'add' | 'fadd' | 'swap' | 'cswap' | 'tag' | 'tag_sync' | 'stream';

/** One test. */
export interface TestKind {
  readonly name: string;
  /** UCT: over one interface. UCP: over an endpoint, which chooses. */
  readonly api: 'UCT' | 'UCP';
  readonly operation: Operation;
  /** Each side answers the other, or one side sends all the time. */
  readonly pattern: 'ping-pong' | 'stream';
  readonly description: string;
  /** Title of the first columns. */
  readonly column: 'latency' | 'overhead';
  /** Operations that may be outstanding by default (-O). */
  readonly window: number;
}

type Row = readonly [TestKind['name'], Operation, TestKind['pattern'], string, TestKind['column'], number];

/** Names, texts and windows are those of ucx_perftest. */
const UCT_ROWS: readonly Row[] = [
  ['am_lat', 'am', 'ping-pong', 'active message latency', 'latency', 1],
  ['put_lat', 'put', 'ping-pong', 'put latency', 'latency', 1],
  ['add_lat', 'add', 'ping-pong', 'atomic add latency', 'latency', 1],
  ['get', 'get', 'stream', 'get latency / bandwidth / message rate', 'latency', 1],
  ['fadd', 'fadd', 'stream', 'atomic fetch-and-add latency / rate', 'latency', 1],
  ['swap', 'swap', 'stream', 'atomic swap latency / rate', 'latency', 1],
  ['cswap', 'cswap', 'stream', 'atomic compare-and-swap latency / rate', 'latency', 1],
  ['am_bw', 'am', 'stream', 'active message bandwidth / message rate', 'overhead', 1],
  ['put_bw', 'put', 'stream', 'put bandwidth / message rate', 'overhead', 1],
  ['add_mr', 'add', 'stream', 'atomic add message rate', 'overhead', 1],
];

const UCP_ROWS: readonly Row[] = [
  ['tag_lat', 'tag', 'ping-pong', 'tag match latency', 'latency', 1],
  ['tag_bw', 'tag', 'stream', 'tag match bandwidth', 'overhead', 32],
  ['tag_sync_lat', 'tag_sync', 'ping-pong', 'tag sync match latency', 'latency', 1],
  ['tag_sync_bw', 'tag_sync', 'stream', 'tag sync match bandwidth', 'overhead', 32],
  ['ucp_put_lat', 'put', 'ping-pong', 'put latency', 'latency', 1],
  ['ucp_put_bw', 'put', 'stream', 'put bandwidth', 'overhead', 32],
  ['ucp_get', 'get', 'stream', 'get latency / bandwidth / message rate', 'latency', 1],
  ['ucp_add', 'add', 'stream', 'atomic add bandwidth / message rate', 'overhead', 1],
  ['ucp_fadd', 'fadd', 'stream', 'atomic fetch-and-add latency / bandwidth / rate', 'latency', 1],
  ['ucp_swap', 'swap', 'stream', 'atomic swap latency / bandwidth / rate', 'latency', 1],
  ['ucp_cswap', 'cswap', 'stream', 'atomic compare-and-swap latency / bandwidth / rate', 'latency', 1],
  ['stream_bw', 'stream', 'stream', 'stream bandwidth', 'overhead', 1],
  ['stream_lat', 'stream', 'ping-pong', 'stream latency', 'latency', 1],
  ['ucp_am_lat', 'am', 'ping-pong', 'am latency', 'latency', 1],
  ['ucp_am_bw', 'am', 'stream', 'am bandwidth / message rate', 'overhead', 32],
];

function kindsOf(api: TestKind['api'], rows: readonly Row[]): TestKind[] {
  return rows.map(([name, operation, pattern, description, column, window]) => {
    return { name, api, operation, pattern, description, column, window };
  });
}

/** All tests, in the order in which the help lists them. */
export const TESTS: readonly TestKind[] = [...kindsOf('UCT', UCT_ROWS), ...kindsOf('UCP', UCP_ROWS)];

/** The test with a name; undefined for none. */
export function testNamed(name: string): TestKind | undefined {
  return TESTS.find((test) => test.name === name);
}

/** An operation on one word of remote memory. */
export type WordOperation = 'add' | 'fadd' | 'swap' | 'cswap';

/** True for operations on one word of remote memory. */
export function isAtomic(operation: Operation): operation is WordOperation {
  return operation === 'add' || operation === 'fadd' || operation === 'swap' || operation === 'cswap';
}

/** Whether the remote side only makes progress. */
export function isOneSided(operation: Operation): boolean {
  return operation === 'put' || operation === 'get' || isAtomic(operation);
}
