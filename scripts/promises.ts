/**
 * Promises of the guides, and the engines that keep them, as data: a section of docs/guide/libucx.md comes from it, and a test checks that the named tests
 * exist. A promise that needs no engine (the node, hl-thunk, device nodes, the page) is not listed.
 */

/** A promise of a guide. */
export interface GuidePromise {
  /** The page, without `.md`. */
  readonly guide: string;
  readonly promise: string;
  readonly native: EnginePromise;
  readonly libucx: EnginePromise;
}

/** The test file that shows it, or why the engine does not keep it. */
export type EnginePromise =
  | { readonly test: string; readonly reason?: never }
  | { readonly test?: never; readonly reason: string };

/** Kept by both engines, which one test shows. */
function both(guide: string, promise: string, test: string, testOverLibucp: string = test): GuidePromise {
  return { guide, promise, native: { test }, libucx: { test: testOverLibucp } };
}

/** Kept by the native engine only. */
function native(guide: string, promise: string, test: string, reason: string): GuidePromise {
  return { guide, promise, native: { test }, libucx: { reason } };
}

/** Kept by libucx only. */
function libucx(guide: string, promise: string, test: string, reason: string): GuidePromise {
  return { guide, promise, native: { reason }, libucx: { test } };
}

export const GUIDE_PROMISES: readonly GuidePromise[] = [
  both(
    'getting-started',
    'put and get move bytes between host memory and HBM of both ends',
    'test/contract/ucp-put-get.test.ts',
  ),
  both(
    'getting-started',
    'tagged messages, active messages and streams carry memory of any kind',
    'test/contract/ucp-tag.test.ts',
  ),
  both('getting-started', 'an AbortSignal ends an operation', 'test/contract/ucp-tag.test.ts'),
  native(
    'getting-started',
    'a cancelled long message that waits for its receiver is withdrawn',
    'test/integration/withdraw.test.ts',
    'libucp cannot withdraw a message that it has announced (1.13)',
  ),
  both(
    'lists',
    'lists move blocks of any memories as one operation, and notify their end',
    'test/contract/ucp-list.test.ts',
  ),
  native(
    'security',
    'a key of host memory that was unmapped is refused with ERR_RKEY_STALE',
    'test/integration/revoked-keys.test.ts',
    'libucp has no revocable keys: the operation ends with OK, in memory that the owner keeps until its context closes',
  ),
  both('security', 'the owner of unmapped memory lives', 'test/integration/revoked-keys.test.ts'),
  both('security', 'memory without remote access has no key', 'test/contract/ucp-protection.test.ts'),
  native(
    'security',
    'UCX_TCP_SECURITY authenticates and encrypts connections over tcp',
    'test/integration/encrypted-processes.test.ts',
    'libucp has no encryption: the setting is refused, and auto takes the native engine',
  ),
  both(
    'security',
    'false messages access no memory',
    'test/integration/garbage.test.ts',
    'test/integration/libucx-gaudi-failures.test.ts',
  ),
  native(
    'troubleshooting',
    'unexpected messages are kept within UCX_UNEXP_MAX_BYTES',
    'test/contract/ucp-unexpected.test.ts',
    'libucp keeps every unexpected message; the setting causes a warning, and auto takes the native engine',
  ),
  both(
    'troubleshooting',
    'errors name the card, and a node server that has ended',
    'test/integration/card-causes.test.ts',
  ),
  both('troubleshooting', 'a card that was reset can be used again', 'test/integration/card-reset.test.ts'),
  both(
    'across-nodes',
    'an endpoint whose peer has ended fails',
    'test/integration/peer-failure.test.ts',
    'test/integration/libucx-departed-peers.test.ts',
  ),
  both(
    'several-processes',
    'each thread can have a context of its own',
    'test/integration/threads.test.ts',
    'test/integration/libucx-threads.test.ts',
  ),
  both('several-processes', 'endpoints are made by socket addresses', 'test/integration/listener.test.ts'),
  both(
    'several-processes',
    'a full or read-only /dev/shm is told, and other transports carry everything',
    'test/integration/shared-memory-places.test.ts',
    'test/integration/libucx-shared-memory.test.ts',
  ),
  both(
    'several-processes',
    'closedByPeer tells a peer that has closed from one that has failed',
    'test/integration/closed-by-peer.test.ts',
  ),
  both('collectives', 'teams of ranks, and their errors if a rank fails', 'test/integration/coll-processes.test.ts'),
  both(
    'observing',
    'inspect shows endpoints and pending requests',
    'test/integration/inspect.test.ts',
    'test/integration/libucx-snapshot.test.ts',
  ),
  both('observing', 'metrics and events of operations', 'test/integration/instrumentation-engines.test.ts'),
  both(
    'observing',
    'UCX_LOG_LEVEL=data traces messages',
    'test/integration/message-trace.test.ts',
    'test/integration/libucx-trace.test.ts',
  ),
  native(
    'tuning',
    'explain estimates the time of every protocol',
    'test/integration/explain-peer.test.ts',
    'libucp does not disclose its estimates: explain has the path and the reasons',
  ),
  both('tuning', 'memory of a dma-buf can be mapped', 'test/integration/dmabuf.test.ts'),
  both(
    'tuning',
    'a program that sleeps is woken',
    'test/integration/sleeping.test.ts',
    'test/integration/event-descriptor.test.ts',
  ),
  libucx(
    'libucx',
    'plain UCX programs are peers, also those that never connect',
    'test/integration/libucx-passive-peer.test.ts',
    'the native engine has another protocol: it refuses rawAddress',
  ),
];
