/**
 * Tests of the contract of the API that do not hold over libucp, and why: because of libucp, not of the engine over it. Suites that run over
 * both engines skip these (messages/exclusions.ts), and fail if an entry names a test that does not exist.
 */

/** A skipped test. */
export interface Exclusion {
  /** The file of the test, relative to the repository. */
  readonly file: string;
  /** Matches the names of the suites and of the test, joined by ` > `. */
  readonly test: RegExp;
  /** The behaviour of libucp, and its versions if necessary. */
  readonly reason: string;
}

/** All of them. */
export const LIBUCX_EXCLUSIONS: readonly Exclusion[] = [
  {
    file: 'test/contract/ucp/ucp-put-get.test.ts',
    test: /over 'libucx.* > by keys of memory that was unmapped fails and moves nothing$/,
    reason:
      'libucp revokes no remote keys: what they reach after ucp_mem_unmap is not defined (over tcp and shared memory: whatever lies at the address then)',
  },
  {
    file: 'test/contract/ucp/ucp-active-message.test.ts',
    test: /over 'libucx.* > cannot be sent at once where they fit into no message/,
    reason: 'libucp sends eager active messages of any length, in fragments',
  },
  {
    file: 'test/integration/operations/bad-input.test.ts',
    test: /over libucx > remote keys > of unmapped host memory reach nothing/,
    reason: 'libucp revokes no remote keys: what they reach after ucp_mem_unmap is not defined',
  },
  {
    file: 'test/integration/operations/bad-input.test.ts',
    test: /over libucx > remote keys > of host memory of another context are refused$/,
    reason:
      'libucp keys do not tell which context they are of: they reach what lies at their address in the process at the other end',
  },
  {
    file: 'test/integration/peers/listener.test.ts',
    test: /over libucx > endpoints that were accepted > over posix,self belong/,
    reason: 'libucp connects by socket addresses over transports of a network, and is unreachable without one',
  },
  {
    file: 'test/integration/peers/listener.test.ts',
    test: /over libucx > a client > that is rejected receives the status and the reason$/,
    reason: 'libucp tells a client that it was rejected, and neither a status nor a reason',
  },
];
