/** The life of a command buffer, with a driver that a test answers for. */

import { expect, it } from 'vitest';
import { scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { Errno } from '../../sys/index.ts';
import { HL_CB_ARGS, HL_CB_OP, HL_MAX_CB_SIZE } from '../../uapi/index.ts';
import { requestCommandBuffer } from './command-buffer.ts';

expectNoLeaks();

/** A card that makes buffers with the handle 7, and the ops that it executed. */
function bufferCard() {
  const ops: { op: number; handle: bigint; size: number }[] = [];
  const answer = (args: DataView): number => {
    const { op, cb_handle, cb_size } = HL_CB_ARGS.in.decode(args);
    ops.push({ op, handle: cb_handle, size: cb_size });
    HL_CB_ARGS.out.encode({ cb_handle: 7n }, args);
    return 0;
  };
  return { ...scriptedFileCard({ CB: answer }), ops };
}

it('a buffer that cannot be mapped is destroyed', () => {
  const { card, file, ops } = bufferCard();
  file.mmapErrno = Errno.ENOMEM;
  expect(() => requestCommandBuffer({ card }, 100)).toThrow(
    expect.objectContaining({ code: 'ERR_GAUDI_OUT_OF_MEMORY' }),
  );
  expect(ops).toEqual([
    { op: HL_CB_OP.CREATE, handle: 0n, size: 100 },
    { op: HL_CB_OP.DESTROY, handle: 7n, size: 0 },
  ]);
  card.close();
});

it('a destroyed buffer is unmapped before the driver destroys it', () => {
  const { card, file, ops } = bufferCard();
  const buffer = requestCommandBuffer({ card }, 5000);
  expect(file.mappings).toMatchObject([{ byteLength: 8192, offset: 7n, closes: 0 }]);
  buffer.destroy();
  buffer.destroy();
  expect(file.mappings[0]!.closes).toBe(1);
  expect(ops.map(({ op }) => op)).toEqual([HL_CB_OP.CREATE, HL_CB_OP.DESTROY]);
  card.close();
});

it('a buffer may be as large as the driver permits, and not larger', () => {
  const { card, ops } = bufferCard();
  expect(requestCommandBuffer({ card }, HL_MAX_CB_SIZE).byteLength).toBe(HL_MAX_CB_SIZE);
  expect(() => requestCommandBuffer({ card }, HL_MAX_CB_SIZE + 1)).toThrow(
    expect.objectContaining({ code: 'ERR_GAUDI_INVALID_PARAMS' }),
  );
  expect(ops).toEqual([{ op: HL_CB_OP.CREATE, handle: 0n, size: HL_MAX_CB_SIZE }]);
  card.close();
});
