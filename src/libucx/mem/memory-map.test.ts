/** Parameters of libucp for memory that is mapped for some accesses only: the rest is tested over libucp itself. */

import { describe, expect, it, vi } from 'vitest';
import type { Context } from '../../api/contract/context.ts';
import { accessOf } from '../../api/contract/memory.ts';
import { viewAt } from '../../sys/index.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_MEM_MAP_PARAM_FIELD, UCP_MEM_MAP_PARAMS } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { type MapOwner, MemoryMap, mapByUcp, type UcpMapping } from './memory-map.ts';

/** The field mask and the protection of a call of ucp_mem_map. */
function told(mapping: Partial<UcpMapping>): { readonly mask: number; readonly prot: number } {
  let seen = { mask: 0, prot: 0 };
  const ucp_mem_map = (_context: number, params: number): number => {
    const view = new DataView(viewAt(params, UCP_MEM_MAP_PARAMS.size));
    const { field_mask, prot } = UCP_MEM_MAP_PARAMS.at;
    seen = { mask: Number(view.getBigUint64(field_mask, true)), prot: view.getUint32(prot, true) };
    return 0;
  };
  mapByUcp({ ucp_mem_map } as never as LibucpFunctions, 0, { address: 4096, byteLength: 4096, ...mapping });
  return seen;
}

describe('mapping by libucp', () => {
  it('passes the protection of memory that is not for everything', () => {
    for (const [names, prot] of [
      [['local-read'], 0x1],
      [['local-write'], 0x2],
      [['local-read', 'remote-read'], 0x101],
      [['remote-read', 'remote-write'], 0x300],
      [['local-read', 'local-write', 'remote-write'], 0x203],
    ] as const) {
      const seen = told({ access: accessOf(names) });
      expect(seen.prot).toBe(prot);
      expect(seen.mask & UCP_MEM_MAP_PARAM_FIELD.PROT).toBe(UCP_MEM_MAP_PARAM_FIELD.PROT);
    }
  });

  it('leaves it out otherwise: a protection of libucp has no atomic operations', () => {
    for (const mapping of [{}, { access: MemAccess.ALL }]) {
      expect(told(mapping).mask & UCP_MEM_MAP_PARAM_FIELD.PROT).toBe(0);
    }
  });
});

describe('a dma-buf of host memory', () => {
  it('whose pages cannot be pinned is refused with the reason, and unmapped', () => {
    const ucp_mem_map = vi.fn();
    const owner = { libucp: { functions: { ucp_mem_map } }, handle: 1 } as never as MapOwner;
    // Nothing can be mapped at the first pages: the kernel pins nothing there.
    const handle = { address: 4096n, byteLength: 64, bytes: new Uint8Array(64) };
    const node = { memMap: vi.fn(() => handle), memUnmap: vi.fn() };
    const memory = new MemoryMap(owner, node as never as Context);
    expect(() => memory.map({ dmabuf: { fd: 3, byteLength: 64 } })).toThrow(
      expect.objectContaining({
        code: 'ERR_UNSUPPORTED',
        message: expect.stringMatching(/no pages that the kernel can pin.*engine native/),
      }),
    );
    expect(node.memUnmap).toHaveBeenCalledWith(handle);
    expect(ucp_mem_map).not.toHaveBeenCalled();
  });
});
