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

/** The test that shows it, by its file and the title in it, or why the engine does not keep it. */
export type EnginePromise =
  | { readonly test: string; readonly title: string; readonly reason?: never }
  | { readonly test?: never; readonly title?: never; readonly reason: string };

const BETWEEN = ' > ';

/** @param shown a file and the title of a test in it, or in the suite beside it, with its placeholders: `FILE > TITLE` */
function testOf(shown: string): { readonly test: string; readonly title: string } {
  const at = shown.indexOf(BETWEEN);
  return { test: shown.slice(0, at), title: shown.slice(at + BETWEEN.length) };
}

/** Kept by both engines, which one test shows. */
function both(guide: string, promise: string, test: string, testOverLibucp: string = test): GuidePromise {
  return { guide, promise, native: testOf(test), libucx: testOf(testOverLibucp) };
}

/** Kept by the native engine only. */
function native(guide: string, promise: string, test: string, reason: string): GuidePromise {
  return { guide, promise, native: testOf(test), libucx: { reason } };
}

/** Kept by libucx only. */
function libucx(guide: string, promise: string, test: string, reason: string): GuidePromise {
  return { guide, promise, native: { reason }, libucx: testOf(test) };
}

export const GUIDE_PROMISES: readonly GuidePromise[] = [
  both(
    'getting-started',
    'put and get move bytes between host memory and HBM of both ends',
    'test/contract/ucp/ucp-put-get.test.ts > and remote %s: every size',
  ),
  both(
    'getting-started',
    'tagged messages, active messages and streams carry memory of any kind',
    'test/contract/ucp/ucp-tag.test.ts > to %s: every size, expected and unexpected',
  ),
  both(
    'getting-started',
    'an AbortSignal ends an operation',
    'test/contract/ucp/ucp-tag.test.ts > cancels unmatched receives, and no others',
  ),
  native(
    'getting-started',
    'a cancelled long message that waits for its receiver is withdrawn',
    'test/integration/peers/withdraw.test.ts > a tagged message of %s memory that has no receive',
    'libucp cannot withdraw a message that it has announced (1.13)',
  ),
  both(
    'lists',
    'lists move blocks of any memories as one operation, and notify their end',
    'test/contract/ucp/ucp-list.test.ts > %s the blocks of all memories at once',
  ),
  native(
    'security',
    'a key of host memory that was unmapped is rejected with ERR_RKEY_STALE',
    'test/integration/peers/revoked-keys.test.ts > that was %s',
    'libucp cannot revoke keys: see [keys of unmapped memory](#differences-from-the-native-engine)',
  ),
  both(
    'security',
    'a process that unmaps memory survives later accesses of its peers to that memory',
    'test/integration/peers/revoked-keys.test.ts > that was %s',
  ),
  both(
    'security',
    'packRkey fails for memory without remote access',
    'test/contract/ucp/ucp-protection.test.ts > of %s memory: without access of peers there is no remote key',
  ),
  native(
    'security',
    'UCX_TCP_SECURITY authenticates and encrypts connections over tcp',
    'test/integration/peers/encrypted-processes.test.ts > move bytes by every operation %s, between host and device memory',
    'libucp has no encryption: the setting is rejected, and auto takes the native engine',
  ),
  both(
    'security',
    'forged messages cannot access memory',
    'test/fuzz/messages.test.ts > of the peer, for any connection and request, do not corrupt memory and leave a usable worker',
    'test/integration/libucx/libucx-gaudi-failures.test.ts > access no memory without a key, and do not affect others',
  ),
  native(
    'troubleshooting',
    'unexpected messages are kept within UCX_UNEXP_MAX_BYTES',
    'test/contract/ucp/ucp-unexpected.test.ts > of 64 MiB stays within the bound of memory, and arrives in order',
    'libucp keeps every unexpected message; the setting causes a warning, and auto takes the native engine',
  ),
  both(
    'troubleshooting',
    'errors name the card, and a node server that has ended',
    'test/integration/cards/card-causes.test.ts > the killed node server is named by put, get, message and atomic operation over %s',
  ),
  both(
    'troubleshooting',
    'a card that was reset can be used again',
    'test/integration/cards/card-reset.test.ts > fails every use of the memory, also some time later, and works again when the context was opened again',
  ),
  both(
    'across-nodes',
    'an endpoint whose peer has ended fails',
    'test/integration/peers/peer-failure.test.ts > that are killed end the operations that wait for them, and no others',
    'test/integration/libucx/libucx-departed-peers.test.ts > peers over tcp that close, or are killed (needs libucp)',
  ),
  both(
    'several-processes',
    'each thread can have its own context',
    'test/integration/peers/threads.test.ts > over %s: they exchange bytes, one is terminated during traffic, the others continue and close in any order',
    'test/integration/libucx/libucx-threads.test.ts > contexts over libucp in several threads (needs libucp)',
  ),
  both(
    'several-processes',
    'endpoints are made by socket addresses',
    'test/integration/peers/listener.test.ts > reports the client, and both addresses of an accepted connection',
  ),
  both(
    'several-processes',
    'a full or read-only /dev/shm is reported, and other transports carry everything',
    'test/integration/peers/shared-memory-places.test.ts > that is %s is reported, and the others carry everything',
    'test/integration/libucx/libucx-shared-memory.test.ts > that is %s is reported, and other transports are used',
  ),
  both(
    'several-processes',
    'closedByPeer tells a peer that has closed from one that has failed',
    'test/integration/peers/closed-by-peer.test.ts > that is killed has not (needs libucp)',
  ),
  both(
    'collectives',
    'teams of ranks, and their errors if a rank fails',
    'test/integration/coll/coll-processes.test.ts > have the data of the oracle, wait for one that is stopped, name it when it is killed, and go on without it',
  ),
  both(
    'observing',
    'inspect shows endpoints and pending requests',
    'test/integration/tools/inspect.test.ts > shows one useful line (needs libucp)',
    'test/integration/libucx/libucx-snapshot.test.ts > has pending requests with their bytes, their age and what they wait for',
  ),
  both(
    'observing',
    'metrics and events of operations',
    'test/integration/operations/instrumentation-engines.test.ts > every operation of the program has one event, and its parts have none (needs libucp)',
  ),
  both(
    'observing',
    'UCX_LOG_LEVEL=data traces messages',
    'test/integration/operations/message-trace.test.ts > traces each message at the sender and at the receiver',
    'test/integration/libucx/libucx-trace.test.ts > traces operations and messages (needs libucp)',
  ),
  native(
    'tuning',
    'explain estimates the time of every protocol',
    'test/integration/tools/explain-peer.test.ts > explains a process that serves, by place %i of those it prints',
    'libucp does not disclose its estimates: explain has the path and the reasons',
  ),
  both(
    'tuning',
    'memory of a dma-buf can be mapped',
    'test/integration/cards/dmabuf.test.ts > is accessed by puts and gets of the own card, from host memory and HBM, and sent and received',
  ),
  both(
    'event-loop',
    'an event wakes a sleeping program',
    'test/integration/operations/sleeping.test.ts > over %s',
    'test/integration/operations/event-descriptor.test.ts > is unreadable once it is armed',
  ),
  libucx(
    'libucx',
    'C programs that use UCX can be peers, also if they never create an endpoint',
    'test/integration/libucx/libucx-passive-peer.test.ts > is read and written, %o',
    'the native engine has another protocol: it rejects rawAddress',
  ),
];
