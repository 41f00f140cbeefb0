/**
 * Every test of behaviour runs over both engines, or says here why not: another test that shows the same over libucx, or the reason. A test that opens
 * contexts and has neither fails this one.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const FOLDERS = ['contract', 'integration', 'fuzz', 'property'] as const;
const OPENS_CONTEXTS = /\bContext\.create\(|\buseContexts\(|\busePairs\(/;
/** What a test has that runs over libucx: the name of the engine, or the lists of connections and engines of test/fixtures/pair.ts. */
const NAMES_LIBUCX = /libucx|\bENGINES\b|CONNECTION_KINDS|PAIR_KINDS/;

/** Reasons that several tests have. */
const TRANSPORT = 'transports of the native engine: libucp has its own in their place';
const MESSAGES =
  'messages, protocols and wire-up of the native engine: libucp has its own, which are not ours to check';
const CARDS = 'cards: over libucx they are those of the native context beside it';
const TOOL = 'a tool that opens no endpoints to peers, or has the engine as a value that it prints';
const TEAM =
  'teams stand on operations of ucp, whose contracts run over both engines; their members agree on one engine';
const THREADS = 'libucp keeps what a thread that ends without closing has open (docs/guide/libucx.md)';

/** The tests of one engine: a reason, or the file beside them, in `integration` or `contract`, that shows the same over libucx. */
const NATIVE_ONLY: Readonly<Record<string, string>> = {
  'contract/ucp/ucp-many-operations.test.ts': 'the bounds of requests and of rings are those of the native worker',
  'contract/ucp/ucp-pipeline.test.ts': MESSAGES,
  'contract/ucp/ucp-unexpected.test.ts': 'UCX_UNEXP_MAX_BYTES: libucp has no such limit (docs/guide/libucx.md)',
  'fuzz/connect.test.ts': MESSAGES,
  'fuzz/hostile-frames.test.ts': MESSAGES,
  'fuzz/messages.test.ts': MESSAGES,
  'fuzz/wire.test.ts': MESSAGES,
  'integration/peers/chaos.test.ts':
    'failures inside libucp have no rule that could excuse or accuse them; see libucx-departed-peers.test.ts',
  'integration/coll/coll-connections.test.ts': TEAM,
  'integration/coll/coll-failures.test.ts': TEAM,
  'integration/coll/coll.test.ts': TEAM,
  'integration/peers/descriptors.test.ts': 'see libucx-descriptors.test.ts',
  'integration/peers/ended-threads-memory.test.ts': THREADS,
  'integration/peers/ended-threads.test.ts': THREADS,
  'integration/cards/faults.test.ts': 'see libucx-gaudi-failures.test.ts',
  'integration/peers/first-listener.test.ts': 'how a worker of the native engine sleeps: libucp has its own descriptor',
  'integration/operations/eager-only.test.ts': MESSAGES,
  'integration/operations/halves.test.ts': MESSAGES,
  'integration/tools/hardware-tools.test.ts': TOOL,
  'integration/operations/instrumentation.test.ts': 'see instrumentation-engines.test.ts',
  'integration/peers/late-puts.test.ts': TRANSPORT,
  'integration/operations/lifecycle.test.ts': 'see libucx-lifecycle.test.ts',
  'integration/cards/links.test.ts': CARDS,
  'integration/operations/list-rendezvous.test.ts': MESSAGES,
  'integration/peers/listener-native.test.ts': 'see listener.test.ts',
  'integration/peers/listener-processes.test.ts': TRANSPORT,
  'integration/operations/lists.test.ts': 'see ucp-list.test.ts',
  'integration/peers/many-connections.test.ts': TRANSPORT,
  'integration/peers/many-endpoints.test.ts': TRANSPORT,
  'integration/operations/message-trace.test.ts': 'see libucx-trace.test.ts',
  'integration/package/misuse-coll.test.ts': TEAM,
  'integration/peers/namespaces.test.ts': TRANSPORT,
  'integration/tools/named-causes.test.ts': TOOL,
  'integration/tools/node-command.test.ts': TOOL,
  'integration/cards/node-server.test.ts': CARDS,
  'integration/cards/own-device-memory.test.ts': CARDS,
  'integration/package/package.test.ts': TOOL,
  'integration/peers/peer-failure.test.ts': 'see libucx-departed-peers.test.ts',
  'integration/package/other-node.test.ts':
    'a sample of the package; the engine libucx waits for descriptors by the same callbacks',
  'integration/package/pnpm.test.ts': TOOL,
  'integration/tools/pcie-throughput.test.ts': CARDS,
  'integration/operations/protocol-names.test.ts': MESSAGES,
  'integration/operations/protocol-settings.test.ts': MESSAGES,
  'integration/operations/put-get.test.ts': 'see ucp-put-get.test.ts',
  'integration/cards/rdma-node-servers.test.ts': TRANSPORT,
  'integration/cards/rdma-processes.test.ts': TRANSPORT,
  'integration/cards/rdma.test.ts': TRANSPORT,
  'integration/peers/rejected-peers.test.ts': 'UCX_TCP_SECURITY, which libucx refuses (libucx-settings.test.ts)',
  'integration/operations/resource-choice.test.ts': 'see libucx-exclusions.test.ts',
  'integration/tools/smi-command.test.ts': TOOL,
  'integration/tools/stopped-node-tools.test.ts': TOOL,
  'integration/peers/stopped-peers.test.ts': 'libucp 1.13 cannot withdraw a message (docs/guide/libucx.md)',
  'integration/peers/tcp-failures.test.ts': TRANSPORT,
  'integration/peers/threads.test.ts': 'see libucx-threads.test.ts',
  'integration/peers/two-nodes.test.ts': TRANSPORT,
  'integration/package/vm-context.test.ts': TOOL,
  'integration/peers/wireup.test.ts': MESSAGES,
  'integration/peers/withdraw.test.ts': 'libucp 1.13 cannot withdraw a message (docs/guide/libucx.md)',
  'property/model.test.ts': CARDS,
  'property/tag-matching.test.ts': MESSAGES,
};

const TESTS = FOLDERS.flatMap((folder) =>
  readdirSync(join(import.meta.dirname, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => `${folder}/${name}`),
);
const textOf = (file: string): string => readFileSync(join(import.meta.dirname, file), 'utf8');
/** A test of a contract declares it in the file beside it. */
const isNative = (text: string): boolean => OPENS_CONTEXTS.test(text) && !NAMES_LIBUCX.test(text);

describe('a test that opens contexts', () => {
  it('runs over both engines, or has a reason', () => {
    const unexplained = TESTS.filter((file) => isNative(textOf(file)) && NATIVE_ONLY[file] === undefined);
    expect(unexplained).toEqual([]);
    expect(isNative('const context = await Context.create({});')).toBe(true);
    expect(isNative("const context = await Context.create({ engine: 'libucx' });")).toBe(false);
  });

  it('has no reason that it does not need', () => {
    expect(Object.keys(NATIVE_ONLY).filter((file) => !TESTS.includes(file) || !isNative(textOf(file)))).toEqual([]);
  });

  it('names tests that run over libucx', () => {
    const named = Object.values(NATIVE_ONLY).flatMap((reason) => /[\w-]+\.test\.ts/.exec(reason) ?? []);
    expect(named.length).toBeGreaterThan(0);
    const others = named.map((name) => TESTS.find((file) => file.endsWith(`/${name}`)) ?? `no ${name}`);
    expect(others.filter((file) => file.startsWith('no ') || !NAMES_LIBUCX.test(textOf(file)))).toEqual([]);
  });
});
