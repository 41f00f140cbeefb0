/** Hellos: the fields that are accepted, and the decisions of an interface on the hellos of peers. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createTestLog, type TestLog } from '../../../../test/fixtures/test-log.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { sendBytesMax, TCP_CONFIG_TABLE } from '../config.ts';
import { Answer, type Hello, HelloPolicy, Identity, PEER_HELLO_BYTES, packHello, unpackHello } from './hello.ts';

const CONFIG = loadConfig([TCP_CONFIG_TABLE], {}).get(TCP_CONFIG_TABLE);
const SEND_BYTES_MAX = sendBytesMax(CONFIG);
const PEER = new Identity();

let log: TestLog;
let policy: HelloPolicy;
beforeEach(() => {
  log = createTestLog();
  policy = new HelloPolicy(CONFIG, new LimitedLog(log.log, new ManualClock()));
});
afterEach(() => log.expectQuiet());

/** The hello of a peer. */
function hello(receiver: Uint8Array, messageBytesMax: number, changes: Partial<Hello> = {}): Hello {
  const { id: sender, publicKey } = PEER;
  return {
    sender,
    receiver,
    status: Answer.WELCOME,
    messageBytesMax,
    publicKey,
    proof: PEER.prove(receiver),
    ...changes,
  };
}

describe('the bytes of a hello', () => {
  it('have a longest message from 1 KiB to 1 MiB', () => {
    const unpacked = (messageBytesMax: number): unknown => {
      const bytes = new Uint8Array(PEER_HELLO_BYTES);
      packHello(hello(new Uint8Array(16), messageBytesMax), bytes);
      return unpackHello(bytes);
    };
    for (const good of [1024, 2 ** 20]) expect(unpacked(good)).toMatchObject({ messageBytesMax: good });
    for (const bad of [0, 1023, 2 ** 20 + 1]) expect(unpacked(bad)).toMatch(`the maximum message size ${bad}, which`);
  });
});

describe('a peer that connects', () => {
  it('is welcome if it receives the longest message of this end', () => {
    expect(policy.acceptDecisionOn(hello(policy.id, SEND_BYTES_MAX))).toBe(Answer.WELCOME);
    expect(policy.acceptDecisionOn(hello(policy.id, SEND_BYTES_MAX - 1))).toBe(Status.UNSUPPORTED);
  });

  it('to another interface is rejected', () => {
    const other = new Identity().id;
    expect(policy.acceptDecisionOn(hello(other, SEND_BYTES_MAX))).toBe(Status.UNREACHABLE);
  });

  it('without a proof of its identity is rejected', () => {
    log.allow(/proof of identity is invalid/);
    const unproven = hello(policy.id, SEND_BYTES_MAX, { proof: PEER.prove(PEER.id) });
    expect(policy.acceptDecisionOn(unproven)).toBe(Status.REJECTED);
  });

  it('gets the proof of the identity of this end only if it was not rejected', () => {
    for (const status of [Answer.WELCOME, Answer.DUPLICATE]) {
      expect(policy.hello(PEER.id, status)).toMatchObject({ sender: policy.id, receiver: PEER.id, status });
      expect(policy.hello(PEER.id, status).proof).toHaveLength(64);
    }
    expect(policy.hello(PEER.id, Status.REJECTED).proof).toHaveLength(0);
  });
});

describe('the reply of a peer', () => {
  it('is accepted from the wanted interface, with its proof and the longest message of this end', () => {
    const objection = (changes: Partial<Hello>): Status | undefined =>
      policy.objectionTo(hello(policy.id, SEND_BYTES_MAX, changes), PEER.id)?.status;
    expect(objection({})).toBeUndefined();
    expect(objection({ proof: new Uint8Array(64) })).toBe(Status.UNREACHABLE);
    expect(objection({ messageBytesMax: SEND_BYTES_MAX - 1 })).toBe(Status.UNSUPPORTED);
    const other = new Identity();
    expect(objection({ sender: other.id, publicKey: other.publicKey, proof: other.prove(policy.id) })).toBe(
      Status.UNREACHABLE,
    );
  });
});
