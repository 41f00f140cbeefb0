/** The probe of libucp on memory of a card, with functions that replace libucp: one that reaches the memory, and deviations from it. */

import { describe, expect, it } from 'vitest';
import { useContexts } from '../../../test/fixtures/contexts.ts';
import { addressOf, memcpy } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_MEM_MAP_PARAMS } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { accessAfterProbe } from '../mem/memory-handle.ts';
import { PROBE_BYTES, type ProbingContext, probeDevice, probeOn } from './device-probe.ts';

const MEMORY_TYPE = 9;
const KEY = Uint8Array.of(1, 2, 3, 4);
const REQUEST = 77;

/** Deviations from a libucp that reaches the memory. */
interface Deviation {
  /** Failing functions with their status. */
  readonly failing?: Readonly<Record<string, Status>>;
  /** Puts, or gets, end with OK and move nothing. */
  readonly moves?: { readonly put: boolean; readonly get: boolean };
  /** Number of progress calls that an operation takes. */
  readonly turns?: number;
  /** No transport has peer error handling. */
  readonly hasNoErrorHandling?: boolean;
}

/** The memory of a card, and a libucp that receives its address. */
class FakeLibucp {
  readonly hbm: Uint8Array = new Uint8Array(PROBE_BYTES);
  readonly clock: ManualClock = new ManualClock();
  /** Objects that libucp has created and not destroyed. */
  readonly live: Set<string> = new Set();
  mapped: unknown = undefined;
  isForced = false;
  readonly #deviation: Deviation;
  readonly #address: Uint8Array = new Uint8Array(16);
  #left = 0;
  #ends: Status = Status.OK;

  constructor(deviation: Deviation) {
    this.#deviation = deviation;
  }

  probe(): Promise<string | undefined> {
    const context: ProbingContext = {
      handle: 5,
      clock: this.clock,
      libucp: { functions: this.#functions() } as unknown as ProbingContext['libucp'],
      configuration: { run: <T>(read: () => T) => read() } as unknown as ProbingContext['configuration'],
    };
    return probeDevice(context, MEMORY_TYPE, {
      address: addressOf(this.hbm),
      write: async (bytes) => this.hbm.set(bytes),
      read: async () => this.hbm.slice(),
    });
  }

  #statusOf(name: string): Status {
    return this.#deviation.failing?.[name] ?? Status.OK;
  }

  #make(name: string, what: string, out: number, handle: number): Status {
    const status = this.#statusOf(name);
    if (status !== Status.OK) return status;
    this.live.add(what);
    store(out, handle);
    return Status.OK;
  }

  #operation(name: string, move: () => void): number {
    const status = this.#statusOf(name);
    if (status === Status.OK) move();
    const { turns = 0 } = this.#deviation;
    if (turns === 0) return status;
    [this.#left, this.#ends] = [turns, status];
    this.live.add('request');
    return REQUEST;
  }

  #functions(): LibucpFunctions {
    const { moves = { put: true, get: true } } = this.#deviation;
    const functions: Partial<LibucpFunctions> = {
      ucp_mem_map: (_context, params, memh) => {
        const { address, length, memory_type } = UCP_MEM_MAP_PARAMS.at;
        this.mapped = [load(params + address), load(params + length), load(params + memory_type) & 0xffff];
        return this.#make('ucp_mem_map', 'memory', memh, 11);
      },
      ucp_mem_unmap: () => this.#destroy('memory'),
      ucp_worker_create: (_context, _params, worker) => this.#make('ucp_worker_create', 'worker', worker, 12),
      ucp_worker_destroy: () => void this.#destroy('worker'),
      ucp_worker_query: (_worker, attributes) => {
        store(attributes + 16, addressOf(this.#address));
        store(attributes + 24, this.#address.byteLength);
        return Status.OK;
      },
      ucp_worker_release_address: () => undefined,
      ucp_worker_progress: () => {
        this.clock.advance(1e8);
        this.#left -= 1;
        return 1;
      },
      ucp_ep_create: (_worker, params, ep) => {
        const isWatched = params > 0 && this.#deviation.hasNoErrorHandling === true && !this.live.has('tried');
        if (isWatched) this.live.add('tried');
        return isWatched ? Status.UNREACHABLE : this.#make('ucp_ep_create', 'endpoint', ep, 13);
      },
      ucp_ep_close_nbx: (_ep, param) => {
        this.isForced = load(param) !== 0;
        this.live.delete('endpoint');
        return 0;
      },
      ucp_rkey_pack: (_context, _memh, buffer, size) => {
        const status = this.#make('ucp_rkey_pack', 'packed', buffer, addressOf(KEY));
        if (status === Status.OK) store(size, KEY.byteLength);
        return status;
      },
      ucp_rkey_buffer_release: () => void this.#destroy('packed'),
      ucp_ep_rkey_unpack: (_ep, _buffer, rkey) => this.#make('ucp_ep_rkey_unpack', 'key', rkey, 14),
      ucp_rkey_destroy: () => void this.#destroy('key'),
      ucp_get_nbx: (_ep, buffer, count, remote) =>
        this.#operation('ucp_get_nbx', () => moves.get && memcpy(buffer, Number(remote), count)),
      ucp_put_nbx: (_ep, buffer, count, remote) =>
        this.#operation('ucp_put_nbx', () => moves.put && memcpy(Number(remote), buffer, count)),
      ucp_ep_flush_nbx: () => this.#operation('ucp_ep_flush_nbx', () => undefined),
      ucp_request_check_status: () => (this.#left > 0 ? Status.INPROGRESS : this.#ends),
      ucp_request_free: () => void this.#destroy('request'),
    };
    return functions as LibucpFunctions;
  }

  #destroy(what: string): Status {
    expect(this.live.delete(what), `${what} is there`).toBe(true);
    return Status.OK;
  }
}

/** Eight bytes at an address. */
function store(address: number, value: number): void {
  memcpy(address, addressOf(new BigUint64Array([BigInt(value)])), 8);
}

function load(address: number): number {
  const value = new BigUint64Array(1);
  memcpy(addressOf(value), address, 8);
  return Number(value[0]);
}

describe('the probe of libucp on memory of a card', () => {
  it.each([0, 3])(
    'succeeds where the bytes are the same from both sides, after %i turns of progress',
    async (turns) => {
      const libucp = new FakeLibucp({ turns });
      expect(await libucp.probe()).toBeUndefined();
      expect(libucp.mapped).toEqual([addressOf(libucp.hbm), PROBE_BYTES, MEMORY_TYPE]);
      expect([...libucp.live]).toEqual([]);
      expect(libucp.isForced).toBe(false);
    },
  );

  it('works without error handling if no transport has it', async () => {
    const libucp = new FakeLibucp({ hasNoErrorHandling: true });
    expect(await libucp.probe()).toBeUndefined();
    expect([...libucp.live]).toEqual(['tried']);
  });

  it.each([
    'ucp_mem_map',
    'ucp_worker_create',
    'ucp_ep_create',
    'ucp_rkey_pack',
    'ucp_ep_rkey_unpack',
    'ucp_get_nbx',
    'ucp_put_nbx',
    'ucp_ep_flush_nbx',
  ])('fails where %s does, at once or later, and gives everything back', async (name) => {
    for (const turns of [0, 2]) {
      const libucp = new FakeLibucp({ failing: { [name]: Status.IO_ERROR }, turns });
      expect(await libucp.probe()).toMatch(new RegExp(`^${name}.*input/output error`, 'i'));
      expect([...libucp.live]).toEqual([]);
    }
  });

  it.each([
    [{ put: true, get: false }, 'ucp_get_nbx returns wrong bytes'],
    [{ put: false, get: true }, 'ucp_put_nbx succeeds, but the memory does not have the written bytes'],
  ])('fails by wrong bytes with %o', async (moves, reason) => {
    const libucp = new FakeLibucp({ moves });
    expect(await libucp.probe()).toBe(reason);
    expect([...libucp.live]).toEqual([]);
  });

  it('fails if an operation does not end, and releases everything except memory that libucp may still write to', async () => {
    const libucp = new FakeLibucp({ turns: 1e6 });
    expect(await libucp.probe()).toMatch(/ucp_get_nbx/);
    expect(libucp.clock.nowNs()).toBeLessThanOrEqual(3e9);
    expect(libucp.isForced).toBe(true);
    expect([...libucp.live]).toEqual([]);
  });
});

describe('the memory that is tried', () => {
  const fixture = useContexts();

  it('is of a card, moved by the native transports, and is freed', async () => {
    const { context } = await fixture.open();
    // The first free block, which the probe allocates and frees.
    const place = (): bigint => {
      const memory = context.memMap({ allocate: PROBE_BYTES, memoryType: MemoryType.GAUDI });
      context.memUnmap(memory);
      return memory.address;
    };
    const before = place();
    const bytes = Uint8Array.from({ length: PROBE_BYTES }, (_, i) => i * 7);
    const reason = await probeOn(context, async (memory) => {
      expect(memory.address).toBe(Number(before));
      await memory.write(bytes);
      expect(Buffer.compare(await memory.read(), bytes)).toBe(0);
      return 'the reason';
    });
    expect(reason).toBe('the reason');
    expect(place()).toBe(before);
  });

  it('is missing if the driver supports no transfers: that is the reason', async () => {
    const node = fixture.node({ asic: 'gaudi3', channelMask: 0 });
    const { context } = await fixture.openOn(node);
    const reason = await probeOn(context, async (memory) => {
      await memory.write(new Uint8Array(PROBE_BYTES));
      return undefined;
    });
    expect(reason).toContain('the driver of gaudi3 reports no DMA channel for users');
  });
});

describe('the result after the probe', () => {
  const direct = { isDirect: true, memoryType: 9, reason: 'UCX 1.21.0 knows memory type gaudi' };

  it('is direct only if the probe has succeeded', () => {
    expect(accessAfterProbe(direct, undefined)).toEqual({
      ...direct,
      reason: 'UCX 1.21.0 knows memory type gaudi, and reaches a card of this program',
    });
    expect(accessAfterProbe(direct, 'why')).toEqual({
      isDirect: false,
      memoryType: 0,
      reason: 'UCX 1.21.0 knows memory type gaudi, but does not reach a card of this program: why',
    });
  });
});
