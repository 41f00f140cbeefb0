import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Operation } from '../../api/operation/call.ts';
import { hasMemoryType, MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import type { Distance } from '../../ucs/sys/topology.ts';
import { DeviceType, type IfaceAttributes, IfaceFlag } from '../../uct/api/iface.ts';
import { explainPlan } from './explain.ts';
import {
  type Candidate,
  candidateFor,
  costNs,
  type LaneCapabilities,
  type MemoryPlace,
  type Plan,
  Protocol,
  selectProtocols,
} from './selection.ts';

const HOST = memoryTypeBit(MemoryType.HOST);
const BOTH = HOST | memoryTypeBit(MemoryType.GAUDI);
const HOST_PLACE: MemoryPlace = { memoryType: MemoryType.HOST, sysDevice: undefined };
const CARD: MemoryPlace = { memoryType: MemoryType.GAUDI, sysDevice: 0 };
const ALL_FLAGS = IfaceFlag.PUT_SHORT | IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_SHORT | IfaceFlag.GET_ZCOPY;

/** What differs from lane to lane in these tests. */
interface LaneShape {
  readonly flags: number;
  readonly short: number;
  readonly zcopyMin: number;
  readonly zcopyMax: number;
  readonly latencyNs: number;
  readonly overheadNs: number;
  readonly bandwidth: number;
  readonly sysDevice: number | undefined;
  readonly types: number;
  readonly required: number;
  readonly key: boolean;
  readonly memory: boolean;
}

const SHAPE: LaneShape = {
  flags: ALL_FLAGS,
  short: 1024,
  zcopyMin: 1,
  zcopyMax: Number.MAX_SAFE_INTEGER,
  latencyNs: 1000,
  overheadNs: 100,
  bandwidth: 10e9,
  sysDevice: undefined,
  types: BOTH,
  required: 0,
  key: true,
  memory: true,
};

function lane(shape: Partial<LaneShape> = {}): LaneCapabilities {
  const { flags, short, zcopyMin, zcopyMax, bandwidth, types, required, ...rest } = { ...SHAPE, ...shape };
  const limits = { shortBytesMax: short, zcopyBytesMin: zcopyMin, zcopyBytesMax: zcopyMax, iovMax: 1 };
  const attributes: IfaceAttributes = {
    resource: {
      transport: 'test',
      aliases: [],
      device: `device${rest.sysDevice ?? ''}`,
      deviceType: DeviceType.ACC,
      sysDevice: rest.sysDevice,
    },
    flags,
    put: limits,
    get: limits,
    localMemoryTypes: types,
    remoteMemoryTypes: types,
    requiredMemoryTypes: required,
    performance: {
      latencyNs: rest.latencyNs,
      overheadNs: rest.overheadNs,
      zcopyOverheadNs: 40,
      hostToDevice: bandwidth,
      deviceToHost: bandwidth,
      deviceToDevice: bandwidth,
      hostToHost: bandwidth,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: 0,
    endpointAddressBytes: 0,
    errorHandling: [],
    am: { shortBytesMax: 0, bcopyBytesMax: 0 },
    reachesOtherDevices: false,
  };
  return { attributes, hasRemoteKey: rest.key, hasLocalMemory: rest.memory, registerCost: undefined };
}

const arbitraryLane: fc.Arbitrary<LaneCapabilities> = fc
  .record({
    flags: fc.nat(15),
    short: fc.integer({ min: 1, max: 10_000 }),
    zcopyMin: fc.nat(5000),
    zcopyMax: fc.oneof(fc.constant(Number.MAX_SAFE_INTEGER), fc.integer({ min: 5000, max: 2 ** 40 })),
    latencyNs: fc.nat(5000),
    overheadNs: fc.nat(500),
    bandwidth: fc.integer({ min: 1e6, max: 1e12 }),
    sysDevice: fc.constantFrom(undefined, 0, 1),
    types: fc.constantFrom(HOST, BOTH),
    required: fc.constantFrom(0, memoryTypeBit(MemoryType.GAUDI)),
    key: fc.boolean(),
    memory: fc.boolean(),
  })
  .map(lane);
const arbitraryInput = fc.record({
  operation: fc.constantFrom(Operation.PUT, Operation.GET),
  local: fc.constantFrom(HOST_PLACE, CARD),
  remote: fc.constantFrom(HOST_PLACE, CARD),
  lanes: fc.array(arbitraryLane, { maxLength: 5 }),
});

/** The sizes at which anything may change, and their neighbours. */
function interestingSizes(plan: Plan): number[] {
  const edges = [1, 2 ** 20, 2 ** 33];
  for (const { bytesMin, bytesMax } of plan.candidates) edges.push(bytesMin, bytesMax);
  for (const { bytesMax } of plan.steps) edges.push(bytesMax);
  const near = edges.flatMap((edge) => [edge - 1, edge, edge + 1]);
  return [...new Set(near)].filter((size) => size >= 1 && size <= Number.MAX_SAFE_INTEGER);
}

/** The cheapest candidates for a size, by asking all of them. */
function cheapest(plan: Plan, bytes: number): Candidate[] {
  const able = plan.candidates.filter(({ bytesMin, bytesMax }) => bytesMin <= bytes && bytes <= bytesMax);
  const best = Math.min(...able.map((candidate) => costNs(candidate, bytes)));
  return able.filter((candidate) => costNs(candidate, bytes) <= best * (1 + 1e-12));
}

describe('selection', () => {
  it('takes zero copy from the threshold on and not below, where there is a choice', async () => {
    await fc.assert(
      fc.property(arbitraryInput, fc.nat(20_000), ({ operation, local, remote, lanes }, threshold) => {
        const plan = selectProtocols({ operation, local, remote }, lanes, undefined, threshold);
        for (const bytes of [...interestingSizes(plan), threshold - 1, threshold, threshold + 1]) {
          const able = plan.candidates.filter(({ bytesMin, bytesMax }) => bytesMin <= bytes && bytes <= bytesMax);
          const chosen = candidateFor(plan, bytes);
          expect(chosen === undefined).toBe(able.length === 0 || bytes < 1);
          const wanted = able.filter(({ protocol }) => (protocol === Protocol.ZCOPY) === bytes >= threshold);
          if (chosen !== undefined && wanted.length > 0) expect(wanted).toContain(chosen);
        }
      }),
    );
  });

  it('is pure: the same input gives the same plan', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const before = structuredClone(lanes);
        const plan = selectProtocols({ operation, local, remote }, lanes);
        expect(
          selectProtocols({ operation, local: { ...local }, remote: { ...remote } }, structuredClone(lanes)),
        ).toEqual(plan);
        expect(lanes).toEqual(before);
      }),
    );
  });

  it('chooses the cheapest candidate at every size, the earlier one at equal cost', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const plan = selectProtocols({ operation, local, remote }, lanes);
        for (const bytes of interestingSizes(plan)) {
          const best = cheapest(plan, bytes);
          const chosen = candidateFor(plan, bytes);
          if (best.length === 0) expect(chosen, `${bytes} bytes`).toBeUndefined();
          else expect(best, `${bytes} bytes`).toContain(chosen);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('covers each size once, in rising order', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const { steps } = selectProtocols({ operation, local, remote }, lanes);
        for (const [index, { bytesMax, candidate }] of steps.entries()) {
          expect(bytesMax).toBeLessThanOrEqual(candidate.bytesMax);
          if (index > 0) {
            expect(bytesMax).toBeGreaterThan(steps[index - 1]!.bytesMax);
            expect(candidate).not.toBe(steps[index - 1]!.candidate);
          }
        }
      }),
    );
  });

  it('names every lane: as a candidate or with a reason', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const plan = selectProtocols({ operation, local, remote }, lanes);
        for (const index of lanes.keys()) {
          const rows = [...plan.candidates, ...plan.rejected].filter((row) => row.lane === index);
          expect(rows.length).toBeGreaterThan(0);
        }
        for (const { reason } of plan.rejected) expect(reason).not.toBe('');
      }),
    );
  });

  it('never chooses a lane that cannot', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const plan = selectProtocols({ operation, local, remote }, lanes);
        for (const { lane: index } of plan.candidates) {
          const { attributes, hasLocalMemory, hasRemoteKey } = lanes[index]!;
          expect(hasLocalMemory && hasRemoteKey).toBe(true);
          expect(hasMemoryType(attributes.localMemoryTypes, local.memoryType)).toBe(true);
          expect(hasMemoryType(attributes.remoteMemoryTypes, remote.memoryType)).toBe(true);
          for (const { sysDevice } of [local, remote]) {
            if (sysDevice !== undefined) expect(sysDevice).toBe(attributes.resource.sysDevice);
          }
        }
      }),
    );
  });

  it.each([
    ['a memory type', lane({ types: HOST }), /does not reach remote gaudi memory/],
    ['the device', lane({ sysDevice: 1 }), /only memory of device 1.*device 0/],
    ['a key', lane({ sysDevice: 0, key: false }), /no part/],
    ['a handle', lane({ sysDevice: 0, memory: false }), /not registered/],
    [
      'operations',
      lane({ sysDevice: 0, flags: 0 }),
      /does not support short operations|does not support zero-copy operations/,
    ],
  ])('says that a lane lacks %s', (_what, only, reason) => {
    const plan = selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: CARD }, [only]);
    expect(plan.steps).toEqual([]);
    expect(plan.rejected.map((row) => row.reason).join('; ')).toMatch(reason);
  });

  it('says that a card moves nothing between host and host', () => {
    const plan = selectProtocols({ operation: Operation.GET, local: HOST_PLACE, remote: HOST_PLACE }, [
      lane({ required: memoryTypeBit(MemoryType.GAUDI) }),
    ]);
    expect(plan.rejected).toEqual([
      { lane: 0, protocol: undefined, reason: 'works only if the local or the remote memory is gaudi memory' },
    ]);
  });

  it('estimates what is left of a path that is degraded, and takes another lane then', () => {
    const full = lane({ sysDevice: 0 });
    const degraded = { ...full, path: { bandwidthShare: 0.25, note: '1 of 4 links up' } };
    const only = selectProtocols({ operation: Operation.PUT, local: CARD, remote: CARD }, [degraded]);
    const same = selectProtocols({ operation: Operation.PUT, local: CARD, remote: CARD }, [full]);
    expect(only.candidates[0]!.perByteNs).toBe(4 * same.candidates[0]!.perByteNs);
    expect(only.candidates[0]!.note).toBe('1 of 4 links up');
    const slower = lane({ sysDevice: 0, bandwidth: 5e9 });
    const plan = selectProtocols({ operation: Operation.PUT, local: CARD, remote: CARD }, [degraded, slower]);
    expect(candidateFor(plan, 2 ** 30)?.lane).toBe(1);
  });

  it('says that nothing gets through a path that is dead', () => {
    const dead = { ...lane({ sysDevice: 0 }), path: { bandwidthShare: 0, note: '0 of 3 links up' } };
    const plan = selectProtocols({ operation: Operation.PUT, local: CARD, remote: CARD }, [dead]);
    expect(plan.rejected).toEqual([
      { lane: 0, protocol: undefined, reason: 'cannot reach the remote memory: 0 of 3 links up' },
    ]);
    expect(plan.steps).toEqual([]);
  });

  it('gives equal lanes to the first one', () => {
    const plan = selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: HOST_PLACE }, [
      lane(),
      lane(),
      lane(),
    ]);
    for (const { candidate } of plan.steps) expect(candidate.lane).toBe(0);
  });

  it('changes from short to zero copy where their lines cross', () => {
    const plan = selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: HOST_PLACE }, [
      lane({ short: 2 ** 20 }),
    ]);
    expect(plan.steps.map(({ candidate }) => candidate.protocol)).toEqual([0, 1]);
    const [short, zcopy] = plan.candidates;
    const edge = plan.steps[0]!.bytesMax;
    expect(costNs(short!, edge)).toBeLessThanOrEqual(costNs(zcopy!, edge));
    expect(costNs(zcopy!, edge + 1)).toBeLessThanOrEqual(costNs(short!, edge + 1));
  });
});

describe('explaining', () => {
  it('shows each step and each rejection of the plan', async () => {
    await fc.assert(
      fc.property(arbitraryInput, ({ operation, local, remote, lanes }) => {
        const plan = selectProtocols({ operation, local, remote }, lanes);
        const resources = lanes.map(({ attributes }) => attributes.resource);
        const unavailable = [{ name: 'gone', reason: 'is not there' }];
        const { memoryType: localType } = local;
        const { memoryType: remoteType } = remote;
        const told = explainPlan({ operation, localType, remoteType, plan, resources, unavailable });
        expect(told.chosen.length).toBe(plan.steps.length);
        for (const { bytesMin, bytesMax, protocol } of told.chosen) {
          expect(bytesMin).toBeLessThanOrEqual(bytesMax);
          expect(protocol).toMatch(operation === Operation.PUT ? /^put\/(short|zcopy)$/ : /^get\/(short|zcopy)$/);
          // The row is what selection answers for both of its ends.
          for (const bytes of [bytesMin, Math.min(bytesMax, Number.MAX_SAFE_INTEGER)]) {
            const index = candidateFor(plan, bytes)?.protocol;
            expect(`${told.operation}/${['short', 'zcopy'][index ?? 9]}`).toBe(protocol);
          }
        }
        const text = told.toString();
        expect(text).toContain('not used: gone: is not there');
        expect(told.rejected.length).toBeGreaterThanOrEqual(plan.rejected.length + 1);
        for (const { reason } of told.rejected) expect(text).toContain(reason);
      }),
    );
  });
});

describe('distance', () => {
  const at = (distance: Distance): LaneCapabilities => ({ ...lane(), distance: { ...distance, to: 3 } });
  const FAR: Distance = { kind: 'PCI root', latencyNs: 300, bandwidth: 3.5e9 };
  const NEAR: Distance = { kind: 'PCI switch', latencyNs: 0, bandwidth: Number.POSITIVE_INFINITY };

  it('has the nearer of equal lanes chosen, wherever it is in the list', () => {
    for (const lanes of [
      [at(FAR), at(NEAR)],
      [at(NEAR), at(FAR)],
    ]) {
      const near = lanes.findIndex(({ distance }) => distance?.kind === 'PCI switch');
      const { steps } = selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: HOST_PLACE }, lanes);
      expect(steps.every(({ candidate }) => candidate.lane === near)).toBe(true);
    }
  });

  it('adds its latency, bounds the bandwidth, and is in the note', () => {
    const zcopyOf = (each: LaneCapabilities): Candidate => {
      const { candidates } = selectProtocols({ operation: Operation.PUT, local: HOST_PLACE, remote: HOST_PLACE }, [
        each,
      ]);
      return candidates.find(({ protocol }) => protocol === Protocol.ZCOPY)!;
    };
    const [none, near, far] = [zcopyOf(lane()), zcopyOf(at(NEAR)), zcopyOf(at(FAR))];
    expect(near).toEqual({ ...none, note: 'PCI switch in common with device 3' });
    expect(far.fixedNs).toBe(none.fixedNs + 300);
    expect(far.perByteNs).toBe(1 / 3.5);
    expect(far.note).toBe('PCI root in common with device 3: 300 ns more, at most 3.50 GB/s');
    const slower = zcopyOf({ ...lane({ bandwidth: 1e9 }), distance: { ...FAR, to: 3 } });
    expect(slower.perByteNs).toBe(1);
  });
});
