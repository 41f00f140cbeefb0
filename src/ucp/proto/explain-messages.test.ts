/** How messages and atomic operations are explained: against the rules of am/, tag/, stream/ and amo/. */

import { describe, expect, it } from 'vitest';
import { catches } from '../../../test/fixtures/catches.ts';
import { DeviceType, type IfaceAttributes, IfaceFlag } from '../../uct/api/iface.ts';
import { type ExplainedLane, explainAtomics, explainMessages, type MessageChoice } from './explain.ts';

const MESSAGES = IfaceFlag.AM_SHORT | IfaceFlag.AM_BCOPY;

function lane(transport: string, flags: number, latencyNs: number, hasRemoteKey = true): ExplainedLane {
  const limits = { shortBytesMax: 0, zcopyBytesMin: 0, zcopyBytesMax: 0, iovMax: 0 };
  const attributes: IfaceAttributes = {
    resource: { transport, aliases: [], device: 'memory', deviceType: DeviceType.SHM, sysDevice: undefined },
    flags,
    put: limits,
    get: limits,
    am: (flags & MESSAGES) === 0 ? { shortBytesMax: 0, bcopyBytesMax: 0 } : { shortBytesMax: 116, bcopyBytesMax: 8208 },
    localMemoryTypes: 1,
    remoteMemoryTypes: 1,
    requiredMemoryTypes: 0,
    reachesOtherDevices: false,
    performance: {
      latencyNs,
      overheadNs: 10,
      zcopyOverheadNs: 40,
      hostToDevice: 0,
      deviceToHost: 0,
      deviceToDevice: 0,
      hostToHost: 10e9,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: 0,
    endpointAddressBytes: 0,
    errorHandling: [],
  };
  return { attributes, hasRemoteKey };
}

const CHOICE: MessageChoice = {
  title: { operation: 'tag', local: 'host', remote: 'host' },
  lanes: [lane('cma', 0, 50), lane('posix', MESSAGES, 80), lane('tcp', MESSAGES, 9000)],
  messageLane: 1,
  rendezvousThreshold: Number.POSITIVE_INFINITY,
  bcopyThreshold: Number.POSITIVE_INFINITY,
  isHost: true,
  data: undefined,
  unavailable: [{ transport: 'ib', protocol: undefined, reason: 'excluded by UCX_TLS' }],
};
const REASONS = {
  'cma/memory': 'does not support messages',
  'tcp/memory': 'latency 9000 ns, compared to 80 ns of the chosen lane',
  ib: 'excluded by UCX_TLS',
};
const rowsOf = ({ chosen }: { chosen: readonly { bytesMin: number; bytesMax: number; protocol: string }[] }) =>
  chosen.map(({ bytesMin, bytesMax, protocol }) => [bytesMin, bytesMax, protocol]);

describe('messages', () => {
  function expectFrames(explain: typeof explainMessages): void {
    const told = explain('tag', CHOICE);
    expect(rowsOf(told)).toEqual([
      [1, 100, 'tag/eager/short'],
      [101, 8192, 'tag/eager/bcopy'],
      [8193, Number.POSITIVE_INFINITY, 'tag/rndv/am'],
    ]);
    expect(Object.fromEntries(told.rejected.map(({ transport, reason }) => [transport, reason]))).toEqual(REASONS);
    expect(told.at(50).winner).toMatchObject({ transport: 'posix/memory', protocol: 'tag/eager/short' });
    expect(told.at(8193).winner?.note).toBe('data in messages');
  }

  it('go eager as long as they fit a frame, with their header', () => {
    expectFrames(explainMessages);
  });

  it('are noticed if they forget the header, or why a lane is not chosen', async () => {
    const withoutHeader: typeof explainMessages = (operation, choice) => {
      const lanes = choice.lanes.map(({ attributes, hasRemoteKey }) => {
        const am = { ...attributes.am, shortBytesMax: attributes.am.shortBytesMax + 16 };
        return { attributes: { ...attributes, am }, hasRemoteKey };
      });
      return explainMessages(operation, { ...choice, lanes });
    };
    await catches(expectFrames, withoutHeader, /deeply equal/);
    const silent: typeof explainMessages = (operation, choice) => {
      return explainMessages(operation, { ...choice, unavailable: [] });
    };
    await catches(expectFrames, silent, /deeply equal/);
  });

  it('are copied from UCX_BCOPY_THRESH on', () => {
    expect(rowsOf(explainMessages('am', { ...CHOICE, bcopyThreshold: 51 })).slice(0, 2)).toEqual([
      [1, 50, 'am/eager/short'],
      [51, 8192, 'am/eager/bcopy'],
    ]);
  });

  it('go by rendezvous from UCX_RNDV_THRESH on, and from device memory always', () => {
    expect(rowsOf(explainMessages('am', { ...CHOICE, rendezvousThreshold: 1024 }))).toEqual([
      [1, 100, 'am/eager/short'],
      [101, 1023, 'am/eager/bcopy'],
      [1024, Number.POSITIVE_INFINITY, 'am/rndv/am'],
    ]);
    expect(rowsOf(explainMessages('am', { ...CHOICE, rendezvousThreshold: 0 }))).toEqual([
      [1, Number.POSITIVE_INFINITY, 'am/rndv/am'],
    ]);
    expect(rowsOf(explainMessages('tag', { ...CHOICE, isHost: false }))).toEqual([
      [1, Number.POSITIVE_INFINITY, 'tag/rndv/am'],
    ]);
  });

  it('name what moves the bytes of a rendezvous', () => {
    const data = {
      transport: 'gaudi_ipc/gaudi0',
      protocol: 'get',
      bytesMin: 1,
      bytesMax: Number.POSITIVE_INFINITY,
      fixedNs: 100,
      perByteNs: 1,
      note: '2 of 3 links up',
    };
    const { winner } = explainMessages('tag', { ...CHOICE, isHost: false, data }).at(1e6);
    expect(winner).toMatchObject({
      transport: 'gaudi_ipc/gaudi0',
      protocol: 'tag/rndv/get',
      note: 'offer over posix/memory, 2 of 3 links up',
    });
    expect(winner!.estimatedNs).toBeGreaterThan(1e6);
  });

  it('of streams have no rendezvous', () => {
    expect(rowsOf(explainMessages('stream', CHOICE))).toEqual([
      [1, 108, 'stream/eager/short'],
      [109, Number.POSITIVE_INFINITY, 'stream/eager/bcopy'],
    ]);
  });

  it('without a lane that carries them are explained as impossible', () => {
    const told = explainMessages('tag', { ...CHOICE, lanes: [lane('cma', 0, 50)], messageLane: undefined });
    expect(told.chosen).toEqual([]);
    expect(told.at(8)).toMatchObject({ winner: undefined, losers: [{ reason: 'does not support messages' }, {}] });
    expect(String(told)).toMatch(/no transport supports it/);
  });
});

describe('atomic operations', () => {
  const words = IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64;

  function expectNearest(explain: typeof explainAtomics): void {
    const lanes = [
      lane('far', words, 100),
      lane('near', words, 10),
      lane('keyless', words, 1, false),
      lane('cma', 0, 1),
    ];
    const told = explain({ ...CHOICE, lanes });
    expect(rowsOf(told)).toEqual([
      [4, 4, 'amo/offload'],
      [8, 8, 'amo/offload'],
    ]);
    expect(told.chosen.map(({ transport }) => transport)).toEqual(['near/memory', 'near/memory']);
    expect(told.rejected.slice(0, 3)).toMatchObject([
      { transport: 'far/memory', reason: 'has a higher latency' },
      { transport: 'keyless/memory', reason: 'the remote key has no part for its memory domain' },
      { transport: 'cma/memory', reason: 'does not support atomic operations' },
    ]);
  }

  it('go by the transport with the lowest latency that has them', () => {
    expectNearest(explainAtomics);
  });

  it('are noticed if they take any lane', async () => {
    const keyless: typeof explainAtomics = (choice) => {
      return explainAtomics({ ...choice, lanes: choice.lanes.map((each) => ({ ...each, hasRemoteKey: true })) });
    };
    await catches(expectNearest, keyless, /deeply equal/);
  });

  it('go by messages where no transport has them, word by word', () => {
    const lanes = [lane('half', IfaceFlag.ATOMIC32, 10), lane('posix', MESSAGES, 80)];
    const told = explainAtomics({ ...CHOICE, lanes, messageLane: 1 });
    expect(told.chosen.map(({ transport, protocol }) => `${protocol} ${transport}`)).toEqual([
      'amo/offload half/memory',
      'amo/am posix/memory',
    ]);
    expect(
      explainAtomics({ ...CHOICE, lanes: [lane('cma', 0, 1)], messageLane: undefined }).at(8).winner,
    ).toBeUndefined();
  });
});
