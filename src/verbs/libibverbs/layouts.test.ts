/** The structs of libibverbs, compared with the installed header, if the header and a compiler are installed. */

import { existsSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { CompilerFolder, compilerSkipReason } from '../../../test/fixtures/libucp/c-library.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { RecvWr, SendWr, Sge, Wc } from '../abi.ts';
import * as layouts from './layouts.ts';
import { Libibverbs } from './libibverbs.ts';
import { type LibibverbsFunctions, loadLibibverbs } from './library.ts';

const HEADER = '/usr/include/infiniband/verbs.h';
const reason = compilerSkipReason() ?? (existsSync(HEADER) ? undefined : `${HEADER} is not installed`);

/** Struct, its offsets in bytes, and the C name of each. */
const STRUCTS: readonly (readonly [string, Readonly<Record<string, number>>, Readonly<Record<string, string>>])[] = [
  [
    'ibv_context',
    layouts.ContextLayout,
    {
      POLL_CQ: 'ops.poll_cq',
      REQ_NOTIFY_CQ: 'ops.req_notify_cq',
      POST_SRQ_RECV: 'ops.post_srq_recv',
      POST_SEND: 'ops.post_send',
      POST_RECV: 'ops.post_recv',
    },
  ],
  ['ibv_comp_channel', layouts.ChannelLayout, {}],
  ['ibv_qp', layouts.QpLayout, {}],
  ['ibv_mr', layouts.MrLayout, {}],
  ['ibv_device_attr', layouts.DeviceAttrLayout, {}],
  ['ibv_port_attr', layouts.PortAttrLayout, {}],
  [
    'ibv_qp_init_attr',
    layouts.QpInitLayout,
    {
      MAX_SEND_WR: 'cap.max_send_wr',
      MAX_RECV_WR: 'cap.max_recv_wr',
      MAX_SEND_SGE: 'cap.max_send_sge',
      MAX_RECV_SGE: 'cap.max_recv_sge',
      MAX_INLINE_DATA: 'cap.max_inline_data',
    },
  ],
  ['ibv_qp_attr', layouts.QpAttrLayout, {}],
  [
    'ibv_ah_attr',
    layouts.AhAttrLayout,
    {
      DGID: 'grh.dgid',
      SGID_INDEX: 'grh.sgid_index',
      HOP_LIMIT: 'grh.hop_limit',
      TRAFFIC_CLASS: 'grh.traffic_class',
    },
  ],
  ['ibv_srq_init_attr', layouts.SrqInitLayout, { MAX_WR: 'attr.max_wr', MAX_SGE: 'attr.max_sge' }],
  ['ibv_async_event', layouts.AsyncEventLayout, {}],
  ['ibv_gid_entry', layouts.GidEntryLayout, {}],
  [
    'ibv_send_wr',
    inBytes(SendWr),
    {
      RDMA_REMOTE_ADDR: 'wr.rdma.remote_addr',
      RDMA_RKEY: 'wr.rdma.rkey',
      ATOMIC_REMOTE_ADDR: 'wr.atomic.remote_addr',
      ATOMIC_COMPARE_ADD: 'wr.atomic.compare_add',
      ATOMIC_SWAP: 'wr.atomic.swap',
      ATOMIC_RKEY: 'wr.atomic.rkey',
      UD_AH: 'wr.ud.ah',
      UD_REMOTE_QPN: 'wr.ud.remote_qpn',
      UD_REMOTE_QKEY: 'wr.ud.remote_qkey',
    },
  ],
  ['ibv_recv_wr', inBytes(RecvWr), {}],
  ['ibv_sge', inBytes(Sge), {}],
  ['ibv_wc', inBytes(Wc), {}],
];

function inBytes({ WORDS, ...words }: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const offsets = Object.entries(words).map(([name, word]) => [name, word * 4] as const);
  return { ...Object.fromEntries(offsets), BYTES: WORDS! * 4 };
}

describe('the layouts of libibverbs', () => {
  const folder = new CompilerFolder();
  afterAll(() => folder[Symbol.dispose]());

  it.skipIf(reason !== undefined)('are those of the installed header (needs cc and libibverbs-dev)', () => {
    const prints = STRUCTS.flatMap(([struct, offsets, names]) =>
      Object.keys(offsets).map((key) => {
        const field = names[key] ?? key.toLowerCase();
        const value = key === 'BYTES' ? `sizeof(struct ${struct})` : `offsetof(struct ${struct}, ${field})`;
        return `printf("${struct} ${key} %zu\\n", ${value});`;
      }),
    );
    const source = `#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\nint main(void) { ${prints.join('\n')} return 0; }`;
    const expected = STRUCTS.flatMap(([struct, offsets]) =>
      Object.entries(offsets).map(([key, value]) => `${struct} ${key} ${value}`),
    );
    expect(folder.output(source).trim().split('\n')).toEqual(expected);
  });

  it.skipIf(reason !== undefined)('has the masks of the installed header (needs cc and libibverbs-dev)', () => {
    const names: Readonly<Record<string, string>> = { STATE: 'STATE', MAX_QP_RD_ATOMIC: 'MAX_QP_RD_ATOMIC' };
    const prints = Object.keys(layouts.QpAttrMask).map((key) => `printf("%d\\n", IBV_QP_${names[key] ?? key});`);
    const source = `#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) { ${prints.join('\n')} return 0; }`;
    expect(folder.output(source).trim().split('\n').map(Number)).toEqual(Object.values(layouts.QpAttrMask));
  });
});

describe('libibverbs', () => {
  it('that is not installed is an error with its names', () => {
    expect(() => loadLibibverbs(['libibverbs.so.99'])).toThrow(
      expect.objectContaining({ code: 'ERR_LIBRARY_NOT_FOUND' }),
    );
  });

  const library = loaded();
  const missing = typeof library === 'string' ? library : undefined;

  it.skipIf(missing !== undefined)(
    'lists the devices of this machine, or says why there are none (needs libibverbs)',
    () => {
      const verbs = new Libibverbs(library as LibibverbsFunctions);
      const devices = verbs.devices();
      if (devices.length === 0) expect(verbs.whyNoDevices()).toMatch(/^libibverbs (finds no|cannot list) RDMA device/);
      expect(devices.every(({ name }) => name.length > 0)).toBe(true);
      expect(() => verbs.open('no_such_device')).toThrow(expect.objectContaining({ code: 'ERR_SYSCALL_ENODEV' }));
    },
  );
});

/** The library of this machine, or why it cannot be used. */
function loaded(): LibibverbsFunctions | string {
  try {
    return loadLibibverbs();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return `: ${error.message}`;
  }
}
