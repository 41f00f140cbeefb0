/** Explanations over libucp report the chosen path: for host and device memory on both sides, every operation, and libraries that know gaudi memory or not. */

import { describe, expect, it } from 'vitest';
import { catches } from '../../../test/fixtures/catches.ts';
import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../../api/contract/endpoint.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { choosePath, DevicePath } from '../device/paths.ts';
import type { EngineContext, EngineEndpoint } from '../engine/engine.ts';
import { deviceAccess, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { explainOver } from './explain.ts';

const SIDES = ['host', 'gaudi'] as const;
type Side = (typeof SIDES)[number];
const HANDLE = 7;

const LIBRARIES = [
  { version: '1.13.1', memoryTypes: ['host'], usableTypes: 1n, emulated: false },
  { version: '1.21.0', memoryTypes: ['host', 'gaudi'], usableTypes: 3n, emulated: false },
  { version: '1.21.0', memoryTypes: ['host', 'gaudi'], usableTypes: 1n, emulated: false },
  { version: '1.21.0', memoryTypes: ['host', 'gaudi'], usableTypes: 3n, emulated: true },
] as const;

/** The inputs of the explanation of an operation between two memories, over one of the libraries. */
function made(
  library: (typeof LIBRARIES)[number],
  localSide: Side,
  remoteSide: Side,
  unavailable: readonly object[] = [],
) {
  const access = deviceAccess(library);
  const context = {
    access,
    engine: { name: 'libucx', version: library.version, reason: 'a test' },
    fragments: { countMax: 4, fragmentBytes: 65_536 },
    native: { query: () => ({ unavailable }) },
  } as unknown as EngineContext;
  const isDevice = remoteSide === 'gaudi';
  // The key of device memory is one for libucp only if both libraries know such memory.
  const rkey = {
    exportId: isDevice ? 1 : 0,
    handle: isDevice && !access.isDirect ? 0 : HANDLE,
    memoryType: isDevice ? MemoryType.GAUDI : MemoryType.HOST,
    native: undefined,
  } as unknown as UcpRemoteKey;
  const bytes = localSide === 'host' ? new Uint8Array(64) : undefined;
  const handle = { memoryType: MemoryType.GAUDI, address: 4096n, byteLength: 64, bytes, mapped: true, sysDevice: 0 };
  const memh = access.isDirect ? HANDLE : 0;
  const local =
    bytes ?? new UcpMemory({}, handle as never, { memh, access: MemAccess.ALL, allocation: undefined, exportId: 1 });
  const endpoint = { transports: ['tcp/eth0'], nativeEndpoint: undefined } as unknown as EngineEndpoint;
  return { context, access, rkey, local, endpoint };
}

const cases = LIBRARIES.flatMap((library) =>
  SIDES.flatMap((local) =>
    SIDES.flatMap((remote) => EXPLAINED_OPERATIONS.map((operation) => ({ library, local, remote, operation }))),
  ),
);

/** The decision, as the engine makes it. */
function decisionOf(operation: ExplainedOperation, parts: ReturnType<typeof made>, local: Side, remote: Side) {
  const { endpoint, rkey, access } = parts;
  if (operation === 'atomic') return remote === 'host' ? 'libucp' : 'owner';
  if (operation !== 'put' && operation !== 'get') return local === 'host' || access.isDirect ? 'libucp' : 'datatype';
  if (local === 'host' && remote === 'host') return 'libucp';
  const path = choosePath(endpoint, operation, parts.local, rkey);
  if (path === DevicePath.DIRECT) return 'libucp';
  return path === DevicePath.PIPELINE ? 'fragments' : 'owner';
}

describe('an explanation over libucp', () => {
  function expectDecision(explain: typeof explainOver, each: (typeof cases)[number]): void {
    const { library, local, remote, operation } = each;
    const parts = made(library, local, remote);
    const { context, endpoint, rkey, access } = parts;
    const { chosen, rejected } = explain(context, endpoint, operation, { local: parts.local, rkey });
    const { protocol, note = '' } = chosen[0]!;
    const decision = decisionOf(operation, parts, local, remote);
    expect(protocol.endsWith('/libucp')).toBe(decision === 'libucp' || decision === 'datatype');
    expect(note.includes('generic datatype')).toBe(decision === 'datatype');
    expect(note.includes('the worker that owns the card')).toBe(decision === 'owner');
    expect(note.includes('4 fragments of 64 KiB')).toBe(decision !== 'libucp' && operation !== 'atomic');
    // Addresses are given to libucp exactly where it accesses device memory itself.
    const isRma = operation === 'put' || operation === 'get';
    const givesLocal = decision === 'libucp' && local === 'gaudi' && operation !== 'atomic';
    const givesRemote = decision === 'libucp' && remote === 'gaudi' && isRma;
    expect(note.includes('device address')).toBe(givesLocal || givesRemote);
    expect(/device address of the local/.test(note)).toBe(givesLocal);
    expect(/of the remote memory/.test(note)).toBe(givesRemote);
    if (givesLocal || givesRemote) expect(access.isDirect).toBe(true);
    // libucp alone is rejected for the reason of the decision, if it is.
    const why = rejected.filter(({ transport }) => transport === 'libucp').map(({ reason }) => reason);
    if (decision === 'libucp') expect(why).toEqual([]);
    else if (operation !== 'atomic') expect(why).toEqual([access.reason]);
    const lanes = note.includes('lanes tcp/eth0');
    expect(lanes).toBe(decision === 'libucp' || decision === 'datatype');
  }

  it.each(cases)(
    '$library.version ($library.usableTypes, emulated $library.emulated): $operation from $local to $remote',
    (each) => expectDecision(explainOver, each),
  );

  it('is noticed if it is the same for every operation, or has no reasons', async () => {
    const expectAll = (explain: typeof explainOver): void => {
      for (const each of cases) expectDecision(explain, each);
    };
    const constant: typeof explainOver = (context, endpoint, _operation, memories) =>
      explainOver(context, endpoint, 'tag', memories);
    await catches(expectAll, constant, /expected (true|false) to be (true|false)/);
    const silent: typeof explainOver = (...args) => Object.assign(explainOver(...args), { rejected: [] });
    await catches(expectAll, silent, /deeply equal/);
  });

  it.each([
    [[], 'does not reach the peer'],
    [[{ name: 'gaudi_ipc', reason: 'excluded by UCX_TLS' }], 'excluded by UCX_TLS'],
    [[{ name: 'tcp', reason: 'excluded by UCX_TLS' }], 'does not reach the peer'],
  ])('says why gaudi_ipc is not used: unavailable are %j', (unavailable, reason) => {
    const { context, endpoint, local, rkey } = made(LIBRARIES[0], 'gaudi', 'gaudi', unavailable);
    const { rejected } = explainOver(context, endpoint, 'put', { local, rkey });
    expect(rejected).toContainEqual({ transport: 'gaudi_ipc', protocol: undefined, reason });
  });
});
