/** The open file of a card: mappings, arguments and errors, with a driver that a test answers for. */

import { describe, expect, it } from 'vitest';
import { infoResult, ScriptedFile, scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { Errno, scratchStatistics } from '../../sys/index.ts';
import { HL_DEVICE_STATUS, HL_INFO_DEVICE_STATUS } from '../../uapi/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { CardFile, highAt, lowAt } from './card-file.ts';
import { MALFUNCTION_TEXT } from './gaudi-error.ts';

/** Answers the query of the status. */
const statusAnswer =
  (status: number) =>
  (args: DataView): number => {
    HL_INFO_DEVICE_STATUS.encode({ status }, infoResult(args));
    return 0;
  };

describe('the file of a card', () => {
  expectNoLeaks();

  it('closes a mapping that is removed, once', () => {
    const { card, file } = scriptedFileCard({});
    const mapping = card.mmap(5000, 77n, 'test');
    expect(file.mappings).toMatchObject([{ byteLength: 8192, offset: 77n, closes: 0 }]);
    card.unmap(mapping);
    expect(file.mappings[0]!.closes).toBe(1);
    card.close();
    expect(file.mappings[0]!.closes).toBe(1);
  });

  it('closes the remaining mappings before the file', () => {
    const closed: string[] = [];
    const file = new ScriptedFile({});
    const card = new CardFile(file, { index: 0, minor: 0, busId: '0000:00:00.0' });
    for (const name of ['first', 'second']) {
      const mapping = card.mmap(4096, 1n, name);
      mapping.close = () => closed.push(name);
    }
    file.close = () => closed.push('file');
    card.close();
    card.close();
    expect(closed).toEqual(['first', 'second', 'file']);
  });

  it('frees the memory of its arguments when it is closed', () => {
    const before = scratchStatistics().liveBlocks;
    const { card } = scriptedFileCard({});
    expect(scratchStatistics().liveBlocks).toBe(before + 1);
    card.close();
    expect(scratchStatistics().liveBlocks).toBe(before);
  });

  it('says after EBUSY that the card has failed, if it has', () => {
    const failed = scriptedFileCard({ INFO: statusAnswer(HL_DEVICE_STATUS.MALFUNCTION) }).card;
    expect(failed.error(-Errno.EBUSY, 'map')).toMatchObject({
      code: 'ERR_GAUDI_DMA_FAILED',
      status: Status.IO_ERROR,
      message: expect.stringContaining(MALFUNCTION_TEXT),
    });
    const inReset = scriptedFileCard({ INFO: statusAnswer(HL_DEVICE_STATUS.IN_RESET) }).card;
    expect(inReset.error(-Errno.EBUSY, 'map')).toMatchObject({ code: 'ERR_GAUDI_DEVICE_BUSY', status: Status.BUSY });
    for (const card of [failed, inReset]) card.close();
  });

  it.each([
    ['that was removed is not usable', -Errno.ENODEV, 'the card was removed, or its driver was unloaded'],
    ['that is in reset is usable', -Errno.EBUSY, undefined],
  ])('of a card %s', (_title, result, reason) => {
    const { card } = scriptedFileCard({ INFO: () => result });
    expect(card.unusableReason()).toBe(reason);
    card.close();
  });
});

describe('an address in two words', () => {
  it.each([
    [0xfff0_0001_ffff_fff0n, 16],
    [0xfff0_0001_8000_0000n, 5],
    [0x0000_0001_7fff_ffffn, 1],
    [0xfff0_0001_8000_0000n, 2 ** 32 + 7],
  ])('%s plus %s carries as 64 bits do', (address, offset) => {
    const words = (value: bigint): [number, number] => [
      Number(BigInt.asIntN(32, value)),
      Number(BigInt.asIntN(32, value >> 32n)),
    ];
    const [low, high] = words(address);
    expect([lowAt(low, offset), highAt(low, high, offset)]).toEqual(words(address + BigInt(offset)));
  });
});
