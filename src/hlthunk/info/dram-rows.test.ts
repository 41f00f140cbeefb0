import { expect, it } from 'vitest';
import { CPUCP_REPLACED_ROWS_BYTES } from '../../uapi/index.ts';
import { DramRowCause, decodeReplacedRows } from './dram-rows.ts';

it('replaced rows are those that the record counts', () => {
  const record = new Uint8Array(CPUCP_REPLACED_ROWS_BYTES);
  expect(decodeReplacedRows(record)).toEqual([]);
  record.set([2, 0, 0, 0, 0, 0, 0, 0, 5, 1, 3, 15, 0x34, 0x12, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 9]);
  expect(decodeReplacedRows(record)).toEqual([
    { hbmIdx: 5, pc: 1, sid: 3, bankIdx: 15, rowAddr: 0x1234, replacedRowCause: DramRowCause.MULTI_SINGLE_ECC_ERR },
    { hbmIdx: 0, pc: 0, sid: 0, bankIdx: 0, rowAddr: 0xffff, replacedRowCause: DramRowCause.DOUBLE_ECC_ERR },
  ]);
});

it('a count beyond the record does not read behind it', () => {
  const record = new Uint8Array(CPUCP_REPLACED_ROWS_BYTES).fill(0xff);
  expect(decodeReplacedRows(record)).toHaveLength(32);
});
